"""The files of the state and of snapshots, folded and encoded section by section like in executors, without Spark."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from broker.metadata.image.metadata_version import MetadataVersion
from broker.metadata.snapshot.codec import InvalidSnapshot, image_batches
from broker.metadata.snapshot.manifest import SnapshotManifest
from protocol.ids import LeaderEpoch
from spark_jobs.metadata.fold_context import context_of
from spark_jobs.metadata.log_rows import ALL_SECTIONS, LOG_ROWS, REGISTRY, rows_of
from spark_jobs.metadata.registry import RegistryChange
from spark_jobs.metadata.snapshot_file import EncodeContext
from spark_jobs.metadata.summary import control_after, control_to_bytes, summarize
from spark_jobs.metadata_snapshots.changes import FoldedRange
from spark_jobs.metadata_snapshots.commits import Commit, InvalidCommit, Since, commit_end, empty
from spark_jobs.metadata_snapshots.encoding import ENCODED, Encoding
from spark_jobs.metadata_snapshots.folding import FOLDED, Fold, Folded
from spark_jobs.metadata_snapshots.snapshot_store import ASIDE, ObjectSnapshotStore, WrongSnapshot
from spark_jobs.metadata_snapshots.state_store import LEFT_MS, StateStore
from spark_jobs.metadata_source.packed import packs
from spark_jobs.metadata_source.position import NO_EPOCH, MetadataPosition
from storage.tiered.errors import ObjectNotFound
from storage.tiered.loading.store_uri import StoreUri
from tests.spark_jobs.metadata.logs import EveryHistory, Log
from tests.spark_jobs.metadata_source.batches import batches

SEED = 7


@pytest.fixture(scope="module")
def log() -> Log:
    return Log.of(EveryHistory(SEED, 60).batches, SEED)


@pytest.fixture
def uri(tmp_path: Path) -> StoreUri:
    return StoreUri(directory=str(tmp_path))


@pytest.fixture
def store(uri: StoreUri) -> StateStore:
    return StateStore(uri)


class RecordingSink:
    """A sink that records the number of changes by range and section."""

    def __init__(self) -> None:
        self.calls: list[tuple[FoldedRange, int, int]] = []

    def begin(self, end: int, cluster_id: str) -> None: ...

    def section(self, span: FoldedRange, section: int, changes: pa.Table) -> None:
        self.calls.append((span, section, len(changes)))

    def registry(self, span: FoldedRange, changes: Sequence[RegistryChange]) -> None:
        self.calls.append((span, REGISTRY, len(changes)))

    def finish(self, span: FoldedRange) -> None: ...


def fold(store: StateStore, rows: pa.Table, sink: RecordingSink | None = None) -> tuple[Encoding, list[Folded]]:
    """Fold all rows; return the encoding of the result and the reports."""
    summary = summarize(rows)
    context, plan = context_of(summary, start=0, with_changes=sink is not None)
    assert not plan.is_open
    step = Fold(store, {}, context, FoldedRange(0, context.end, summary.epoch), sink)
    folded = [step.one(section, rows) for section in ALL_SECTIONS]
    files = {each.section: each.file for each in folded if each.file is not None}
    version = next(each.metadata_version for each in folded if each.metadata_version is not None)
    encode = EncodeContext(MetadataVersion(version), LeaderEpoch(summary.epoch), summary.timestamp_ms)
    control = control_to_bytes(control_after(None, summary.control))
    return Encoding(store, files, context.end, encode, control), folded


def node_snapshot(log: Log) -> bytes:
    image = log.images[-1]
    assert image is not None
    return b"".join(image_batches(image, log.controls[-1]))


def test_sections_written_to_files_form_the_nodes_snapshot(log: Log, store: StateStore) -> None:
    encoding, folded = fold(store, log.rows(0, len(log.data)))
    assert [encoding.encode(section) for section in encoding.sections] == encoding.sections
    assert b"".join(encoding.pieces()) == node_snapshot(log)
    assert set(encoding.files) < set(ALL_SECTIONS), "a section without topics has no file"
    assert sum(each.records for each in folded) > len(log.batches)
    encoding.remove()
    assert not list(store.listed(ENCODED))


def test_grouped_fold_and_small_step_report_the_same(log: Log, store: StateStore) -> None:
    rows = log.rows(0, len(log.data))
    context, _ = context_of(summarize(rows), start=0, with_changes=False)
    step = Fold(store, {}, context, FoldedRange(0, context.end, 1))
    mine = [batch.filter(pc.field("section") == REGISTRY) for batch in packs(rows.to_batches())]
    grouped = step.group(pa.Table.from_batches(mine))
    (at_once,) = step.several(iter(mine))
    assert grouped.to_pylist() == at_once.to_pylist()
    assert grouped.schema == FOLDED
    assert grouped.to_pylist()[0]["metadata_version"] > 0


def test_idle_cluster_rewrites_no_section() -> None:
    (batch,) = batches(3)
    assert summarize(rows_of(batch, start=0, end=3)).sections == ()


def test_sink_receives_every_section(log: Log, store: StateStore) -> None:
    sink = RecordingSink()
    encoding, _ = fold(store, log.rows(0, len(log.data)), sink)
    assert [section for _, section, _ in sink.calls] == list(ALL_SECTIONS)
    assert {span for span, _, _ in sink.calls} == {FoldedRange(0, encoding.end, encoding.context.epoch)}
    assert sum(count for _, _, count in sink.calls) > 0


def commit(end: int, **fields: object) -> Commit:
    given: dict[str, object] = {"cluster_id": "x", "end": end, "epoch": 2, "timestamp_ms": 5, **fields}
    return Commit(**given)  # type: ignore[arg-type]  # of many types, by name


def test_commit_round_trips_through_json() -> None:
    whole = commit(
        9,
        open_since=9,
        control=b"\0c",
        files={3: "a", 32: "b"},
        snapshot_records=4,
        since=Since(10, 2),
        metadata_version=20,
    )
    assert Commit.from_json(whole.to_json()) == whole
    assert whole.name == "commits/00000000000000000009-0000000002.json"
    assert commit_end(whole.name.removeprefix("commits/")) == 9
    assert commit_end("latest.json") is None


def test_position_has_an_epoch_only_if_it_is_certain() -> None:
    assert commit(9).position == MetadataPosition(9, LeaderEpoch(2), "x")
    assert commit(9, open_since=9).position == MetadataPosition(9, NO_EPOCH, "x")
    assert empty("x").position == MetadataPosition(0, NO_EPOCH, "x")


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b'{"version": 2}', b'{"version": 1}'])
def test_invalid_commit_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidCommit):
        Commit.from_json(content)


def test_newest_commit_is_used(store: StateStore) -> None:
    assert store.newest_commit() is None
    for end in (5, 100, 20):
        store.write_commit(commit(end))
    found = [store.newest_commit(), store.newest_commit(99), store.newest_commit(20), store.newest_commit(4)]
    assert [each and each.end for each in found] == [100, 20, 20, None]
    assert [each.end for each in store.commits()] == [5, 20, 100]


def test_files_of_removed_commits_are_removed(store: StateStore) -> None:
    files = [store.write_section(1, end, LOG_ROWS.empty_table()) for end in (5, 20, 30)]
    old, kept = commit(5, files={1: files[0]}), commit(20, files={1: files[1], 2: files[1]})
    for each in (old, kept):
        store.write_commit(each)
    store.remove_commits([old], [kept])
    assert [found.key for found in store.listed()] == [kept.name, files[1], files[2]]
    assert store.settle() == kept
    assert [found.key for found in store.listed()] == [kept.name, files[1]]


def test_commit_with_missing_files_is_skipped(store: StateStore) -> None:
    """A job that another job has replaced writes the second commit."""
    whole = commit(20, files={1: store.write_section(1, 20, LOG_ROWS.empty_table())})
    later = store.write_section(2, 30, LOG_ROWS.empty_table())
    for each in (whole, commit(30, files={**whole.files, 2: later, 3: "sections/03/missing.arrow"})):
        store.write_commit(each)
    assert store.settle() == whole
    assert [found.key for found in store.listed()] == [whole.name, whole.files[1]]
    assert store.newest_commit() == whole


def test_branch_reads_the_trunk_and_does_not_change_it(store: StateStore) -> None:
    trunk = store.write_section(1, 5, LOG_ROWS.empty_table())
    branch = replace(store, branch="at/7/")
    old = commit(6, files={1: trunk, 2: branch.write_section(2, 6, LOG_ROWS.empty_table())})
    branch.write_commit(old)
    assert branch.read_section(trunk).schema == LOG_ROWS
    assert (branch.newest_commit(), store.newest_commit()) == (old, None)
    branch.remove_commits([old], [])
    assert [found.key for found in store.listed()] == [trunk]
    branch.write_registry(6, b"x")
    branch.remove_branch()
    assert [found.key for found in store.listed()] == [trunk]


def test_branches_of_dead_jobs_are_removed_after_a_day(store: StateStore) -> None:
    name = replace(store, branch="at/7/").write_registry(6, b"x")
    (written,) = store.listed("at/")
    store.remove_left_branches(written.modified_ms + LEFT_MS)
    assert store.read(name) == b"x"
    store.remove_left_branches(written.modified_ms + LEFT_MS + 1)
    with pytest.raises(ObjectNotFound):
        store.read(name)


def written(uri: StoreUri, log: Log, end: int | None = None) -> SnapshotManifest:
    image = log.images[-1]
    assert image is not None
    return ObjectSnapshotStore(uri).write(
        "x", image.offset + 1 if end is None else end, image.epoch, [node_snapshot(log)]
    )


def test_written_snapshot_has_a_manifest_and_becomes_the_latest(uri: StoreUri, log: Log, tmp_path: Path) -> None:
    manifest, snapshots = written(uri, log), ObjectSnapshotStore(uri)
    content = (tmp_path / manifest.file).read_bytes()
    assert content == node_snapshot(log)
    assert (manifest.sha256, manifest.size) == (hashlib.sha256(content).hexdigest(), len(content))
    assert snapshots.latest() == snapshots.manifest(manifest.end_offset, manifest.epoch) == manifest
    assert snapshots.manifest_at(manifest.end_offset) == manifest
    assert snapshots.manifest_at(manifest.end_offset + 1) is None
    assert snapshots.latest_ms() is not None
    assert b"".join(snapshots.pieces(manifest)) == content
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == sorted(
        [manifest.file, manifest.name, "latest.json"]
    )


def test_older_snapshot_does_not_become_the_latest(uri: StoreUri, log: Log) -> None:
    newest, older = written(uri, log), written(uri, log, 3)
    snapshots = ObjectSnapshotStore(uri)
    assert snapshots.latest() == newest
    assert [snapshots.newest_at_most(end) for end in (2, 3, newest.end_offset)] == [None, older, newest]
    snapshots.remove_old(1)
    assert snapshots.manifest_at(3) is None


def test_files_without_manifest_are_removed_with_old_snapshots(uri: StoreUri, log: Log, tmp_path: Path) -> None:
    """A crash leaves files without manifest. A newer file may get its manifest later."""
    older, newest = written(uri, log, 3), written(uri, log)
    ahead = older.file.replace("3-", "9" * 9 + "-")
    for file in (older.file.replace("3-", "2-"), ahead, "0-notes.checkpoint"):
        (tmp_path / file).write_bytes(b"x")
    ObjectSnapshotStore(uri).remove_old(1)
    left = {newest.file, newest.name, ahead, "0-notes.checkpoint", "latest.json"}
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == left


def test_files_of_dead_writers_are_removed_after_a_day(uri: StoreUri, log: Log, tmp_path: Path) -> None:
    manifest, snapshots, files = written(uri, log), ObjectSnapshotStore(uri), StateStore(uri, "")
    unfinished = manifest.file.replace(manifest.file[:20], f"{3:020d}")
    for name in (unfinished, ASIDE + unfinished, ASIDE + manifest.file):
        files.put(name, [b"x"])
    before = {path.name for path in tmp_path.iterdir()}
    (first, _) = files.listed(ASIDE)
    snapshots.remove_left(first.modified_ms + LEFT_MS - 1000)
    assert {path.name for path in tmp_path.iterdir()} == before
    snapshots.remove_left(first.modified_ms + LEFT_MS + 1000)
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == before - {unfinished, "_state"}
    assert not list(files.listed(ASIDE))


def test_invalid_snapshot_is_never_put_in_place(uri: StoreUri, log: Log, tmp_path: Path) -> None:
    with pytest.raises(InvalidSnapshot):
        ObjectSnapshotStore(uri).write("x", 5, LeaderEpoch(1), [node_snapshot(log)[:-1]])
    with pytest.raises(WrongSnapshot):
        ObjectSnapshotStore(uri).write("x", 5, LeaderEpoch(99), [node_snapshot(log)])
    assert not list(tmp_path.glob("*.checkpoint"))
    assert not list(tmp_path.glob("*.json"))


def test_altered_snapshot_raises_wrong_snapshot(uri: StoreUri, log: Log, tmp_path: Path) -> None:
    manifest = written(uri, log)
    (tmp_path / manifest.file).write_bytes(node_snapshot(log)[:-1])
    with pytest.raises(WrongSnapshot):
        list(ObjectSnapshotStore(uri).pieces(manifest))
