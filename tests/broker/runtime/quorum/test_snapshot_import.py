"""The snapshot importer: search, refusals, log messages and temporary files."""

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from broker.metadata.snapshot.check import SnapshotCheck
from broker.metadata.snapshot.codec import image_batches
from broker.metadata.snapshot.manifest import SnapshotManifest
from broker.quorum.identity import SnapshotId
from broker.quorum.snapshots import imports
from broker.quorum.snapshots.imports import (
    EndImport,
    FindImport,
    ImportFailed,
    ImportFound,
    ImportLoaded,
    ImportOutcome,
    LoadImport,
    RefuseImport,
)
from broker.runtime.quorum.snapshot_import import SnapshotImporter
from broker.runtime.quorum.snapshot_store import MAX_CANDIDATES, SnapshotObjectStore
from protocol.messages.common_records import VotersRecord, VotersRecordVoter
from protocol.records.quorum_control import ControlState
from storage.log_snapshots import CheckpointId, SnapshotFiles
from storage.tiered.errors import ObjectStoreError, StoreUnavailable
from storage.tiered.loading.store_uri import StoreAt
from tests.broker.metadata.histories import History, folded
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.inline_io import InlineIo
from tests.support.fakes.manual_loop import ManualLoop
from tests.support.fakes.memory_files import MemoryFileSystem, checked
from tests.support.fakes.memory_object_store import MemoryObjectStore
from tests.support.quorum_values import make_snapshot_id

CLUSTER_ID = "test-cluster"
IMAGE = folded(History(3).batches)
CONTENT = b"".join(image_batches(IMAGE, None))
EPOCH = IMAGE.epoch
DIRECTORY = "data/__cluster_metadata-0"
PREFIX = "some/where/"


def manifest(end_offset: int, content: bytes = CONTENT, cluster_id: str = CLUSTER_ID) -> SnapshotManifest:
    return SnapshotManifest(
        cluster_id=cluster_id,
        end_offset=end_offset,
        epoch=EPOCH,
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        records=1,
        last_contained_log_timestamp=5,
    )


class SnapshotImportHarness:
    """An importer on fakes; `outcomes` holds the reports to the quorum."""

    def __init__(self, max_bytes: int = 10_000_000) -> None:
        self.objects = MemoryObjectStore(piece_bytes=1_000)
        self.fs = MemoryFileSystem()
        checked(self.fs).make_directory("data")
        checked(self.fs).make_directory(DIRECTORY)
        self.files = SnapshotFiles(checked(self.fs), DIRECTORY)
        self.loop = ManualLoop()
        self.io = InlineIo(self.loop)
        self.error: ObjectStoreError | None = None
        self.outcomes: list[ImportOutcome] = []
        store = SnapshotObjectStore(self.open, CLUSTER_ID, max_bytes, SnapshotCheck)
        self.clock = ManualClock()
        self.importer = SnapshotImporter(
            store, self.files, uri="s3://b/some/where", timeout_ms=1_000, pool=self.io, clock=self.clock
        )

    def open(self) -> StoreAt:
        if self.error is not None:
            raise self.error
        return StoreAt(self.objects, PREFIX)

    def offer(self, made: SnapshotManifest, content: bytes = CONTENT) -> None:
        self.objects.put(PREFIX + made.file, [content])
        self.objects.put(PREFIX + made.name, [made.to_json()])
        self.objects.put(PREFIX + "latest.json", [made.to_json()])

    def find(self, serial: int = 1, least: int = 1, most: int = 1_000) -> SnapshotId | None:
        self.importer.perform(FindImport(serial, least, most, EPOCH), self.outcomes.append)
        self.loop.run_soon()
        outcome = self.outcomes.pop()
        assert isinstance(outcome, ImportFound)
        assert outcome.serial == serial
        return outcome.snapshot_id

    def load(self, snapshot_id: SnapshotId, serial: int = 2) -> ImportOutcome:
        self.importer.perform(LoadImport(serial, snapshot_id), self.outcomes.append)
        self.loop.run_soon()
        assert not self.loop.failures
        return self.outcomes.pop()

    @property
    def on_disk(self) -> list[str]:
        return sorted(checked(self.fs).list(DIRECTORY))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        f"{record.message}: {getattr(record, 'fields', {}).get('file')}: {getattr(record, 'fields', {}).get('reason')}"
        for record in caplog.records
        if record.levelno >= logging.WARNING
    ]


@pytest.fixture
def harness() -> SnapshotImportHarness:
    return SnapshotImportHarness()


def test_newest_snapshot_within_the_bounds_is_loaded(harness: SnapshotImportHarness) -> None:
    for end in (10, 20, 30):
        harness.offer(manifest(end))
    assert harness.find(most=25) == make_snapshot_id(20, EPOCH)
    assert harness.find(least=26, most=29) is None
    assert harness.find() == make_snapshot_id(30, EPOCH)
    assert harness.load(make_snapshot_id(30, EPOCH)) == ImportLoaded(2, len(CONTENT))
    assert harness.on_disk == [f"{30:020d}-{EPOCH:010d}-import.checkpoint.part"]
    harness.files.finish_part(CheckpointId(30, EPOCH), len(CONTENT), lambda _batch: None, is_imported=True)
    assert harness.on_disk == [f"{30:020d}-{EPOCH:010d}.checkpoint"]


def test_other_objects_are_not_read(harness: SnapshotImportHarness) -> None:
    harness.offer(manifest(10))
    for key in ("00000000000000000020-0000000001.json/x", "0", "_state/sections/00", "topics/x.parquet"):
        harness.objects.put(PREFIX + key, [b"?"])
    assert harness.find() == make_snapshot_id(10, EPOCH)
    assert [call.key for call in harness.objects.calls if call.operation == "get"] == [PREFIX + manifest(10).name]
    assert {call.key for call in harness.objects.calls if call.operation == "list"} == {PREFIX + "0"}


@pytest.mark.parametrize(
    ("made", "content", "reason"),
    [
        (manifest(10, cluster_id="another"), CONTENT, "its cluster id is another, this cluster is test-cluster"),
        (replace(manifest(10), size=10_000_001), CONTENT, "10000001 bytes, the limit is 10000000"),
        (manifest(10), CONTENT[:-1], "bytes instead of the"),
        (manifest(10), CONTENT + b"x", "more than the"),
        (manifest(10), CONTENT[:-1] + b"x", "is damaged or out of place"),
        (manifest(10, b"no snapshot, but as promised" * 9), b"no snapshot, but as promised" * 9, "at byte 0"),
        (replace(manifest(10), sha256="0" * 64), CONTENT, "SHA-256"),
    ],
)
def test_invalid_snapshot_is_refused_once_and_the_next_one_found(
    harness: SnapshotImportHarness,
    caplog: pytest.LogCaptureFixture,
    made: SnapshotManifest,
    content: bytes,
    reason: str,
) -> None:
    harness.offer(manifest(5))
    harness.offer(made, content)
    found = harness.find()
    if found == make_snapshot_id(10, EPOCH):
        assert harness.load(found) == ImportFailed(2, is_refused=True)
        found = harness.find(3)
    assert found == make_snapshot_id(5, EPOCH)
    assert harness.on_disk == []
    (warning,) = warnings(caplog)
    assert warning.startswith(f"A metadata snapshot is refused: {made.file}: ")
    assert reason in warning
    request_count = len([call for call in harness.objects.calls if call.key.endswith(made.file)])
    assert harness.find(4) == make_snapshot_id(5, EPOCH)
    assert len(warnings(caplog)) == 1
    assert len([call for call in harness.objects.calls if call.key.endswith(made.file)]) == request_count


@pytest.mark.parametrize("content", [b"", b"{}", b"[" * 9_000, b"\xff" * 100, b" " * 1_000_000, manifest(11).to_json()])
def test_hostile_manifests_are_refused(
    harness: SnapshotImportHarness, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    harness.offer(manifest(5))
    harness.objects.put(PREFIX + manifest(10).name, [content])
    assert harness.find() == make_snapshot_id(5, EPOCH)
    assert "its manifest" in "".join(warnings(caplog))
    assert not any("\n" in warning for warning in warnings(caplog))


def test_manifest_without_a_snapshot_is_refused(
    harness: SnapshotImportHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.offer(manifest(10))
    harness.objects.lose(PREFIX + manifest(10).file)
    assert harness.find() == make_snapshot_id(10, EPOCH)
    assert harness.load(make_snapshot_id(10, EPOCH)) == ImportFailed(2, is_refused=True)
    assert "but the snapshot does not" in warnings(caplog)[0]


def test_rewritten_manifest_is_read_again(harness: SnapshotImportHarness) -> None:
    harness.offer(manifest(10), CONTENT[:-1])
    assert harness.load(harness.find() or make_snapshot_id(0, 0)) == ImportFailed(2, is_refused=True)
    assert harness.find(3) is None
    harness.objects.now_ms += 1
    harness.offer(manifest(10))
    assert harness.load(harness.find(4) or make_snapshot_id(0, 0), 5) == ImportLoaded(5, len(CONTENT))


def test_snapshot_ahead_of_the_high_watermark_is_logged_once_and_found_later(
    harness: SnapshotImportHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.offer(manifest(10))
    assert harness.find(most=9) is None
    assert harness.find(most=9) is None
    (warning,) = warnings(caplog)
    assert "ahead of the committed log" in warning
    assert harness.find(most=10) == make_snapshot_id(10, EPOCH)


def test_snapshot_refused_by_the_core_is_not_found_again(
    harness: SnapshotImportHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.offer(manifest(5))
    harness.offer(manifest(10))
    found = harness.find()
    assert found == make_snapshot_id(10, EPOCH)
    harness.importer.perform(RefuseImport(found, "it belongs to another log"), harness.outcomes.append)
    assert harness.find(3) == make_snapshot_id(5, EPOCH)
    assert "it belongs to another log" in warnings(caplog)[0]


def test_unavailable_store_is_logged_without_a_refusal(
    harness: SnapshotImportHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.offer(manifest(10))
    harness.error = StoreUnavailable("no route to host")
    assert harness.find() is None
    (warning,) = warnings(caplog)
    assert warning.startswith("The store of metadata snapshots cannot be used; fetching from the leader instead")
    assert "no route to host" in warning
    harness.error = None
    assert harness.find(2) == make_snapshot_id(10, EPOCH)


def test_full_disk_leaves_no_file_and_refuses_nothing(
    harness: SnapshotImportHarness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.offer(manifest(10))
    found = harness.find() or make_snapshot_id(0, 0)

    def full(_id: CheckpointId) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(harness.files, "begin_import", full)
    assert harness.load(found) == ImportFailed(2, is_refused=False)
    assert harness.on_disk == []
    assert "No space left" in warnings(caplog)[0]


def test_snapshot_larger_than_the_free_space_is_not_loaded(
    harness: SnapshotImportHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.offer(manifest(10))
    harness.fs.capacity_bytes = len(CONTENT) * 3 // 2
    assert harness.load(harness.find() or make_snapshot_id(0, 0)) == ImportFailed(2, is_refused=False)
    assert harness.on_disk == []
    assert "does not fit" in warnings(caplog)[0]


def test_snapshot_with_invalid_voters_is_refused(
    harness: SnapshotImportHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """An installed snapshot would determine every later start."""
    twice = VotersRecord(voters=[VotersRecordVoter(voter_id=1), VotersRecordVoter(voter_id=1)])
    content = b"".join(image_batches(IMAGE, ControlState(1, twice)))
    harness.offer(manifest(10, content), content)
    assert harness.load(harness.find() or make_snapshot_id(0, 0)) == ImportFailed(2, is_refused=True)
    assert harness.on_disk == []
    assert warnings(caplog)


def test_ended_step_has_no_outcome_and_leaves_no_file(
    harness: SnapshotImportHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.offer(manifest(10))
    found = harness.find() or make_snapshot_id(0, 0)
    harness.io.is_held = True
    harness.importer.perform(LoadImport(2, found), harness.outcomes.append)
    harness.importer.perform(EndImport(2, is_late=True), harness.outcomes.append)
    harness.io.release()
    harness.loop.run_soon()
    assert harness.outcomes == []
    assert harness.on_disk == []
    assert warnings(caplog) == [
        "The store of metadata snapshots is too slow; fetching from the leader instead: None: None"
    ]
    assert harness.load(harness.find(3) or found, 4) == ImportLoaded(4, len(CONTENT))


@pytest.mark.parametrize(("piece_ms", "is_left"), [(400, False), (1_500, True)])
def test_slow_load_is_aborted_at_its_time_limit(
    harness: SnapshotImportHarness,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    piece_ms: int,
    is_left: bool,
) -> None:
    """The time limit of 1 s applies per 2,000 bytes in this test."""
    monkeypatch.setattr(imports, "TIMED_BYTES", 2_000)
    harness.offer(manifest(10))
    found = harness.find() or make_snapshot_id(0, 0)
    get = harness.objects.get

    def slowly(key: str, first: int = 0, last: int | None = None) -> Iterator[bytes]:
        for piece in get(key, first, last):
            harness.clock.advance_ms(piece_ms)
            yield piece

    monkeypatch.setattr(harness.objects, "get", slowly)
    outcome = harness.load(found)
    assert harness.clock.monotonic_ms() > 1_000
    if is_left:
        assert outcome == ImportFailed(2, is_refused=False)
        (warning,) = warnings(caplog)
        assert warning.endswith("it returned 0 bytes in 1500 ms")
        assert harness.on_disk == []
    else:
        assert outcome == ImportLoaded(2, len(CONTENT))


def test_unused_import_file_is_deleted(harness: SnapshotImportHarness) -> None:
    harness.offer(manifest(10))
    found = harness.find() or make_snapshot_id(0, 0)
    assert harness.load(found) == ImportLoaded(2, len(CONTENT))
    assert harness.on_disk
    harness.importer.perform(EndImport(2, is_late=False), harness.outcomes.append)
    harness.loop.run_soon()
    assert harness.on_disk == []


def test_closed_importer_calls_no_callback(harness: SnapshotImportHarness) -> None:
    harness.offer(manifest(10))
    harness.find()
    harness.io.is_held = True
    harness.importer.perform(FindImport(2, 1, 100, EPOCH), harness.outcomes.append)
    harness.importer.close()
    harness.loop.run_soon()
    assert harness.objects.is_closed
    harness.importer.perform(FindImport(3, 1, 100, EPOCH), harness.outcomes.append)
    assert harness.io.waiting == 1
    assert harness.outcomes == []


def test_next_start_deletes_the_import_file_after_a_crash(harness: SnapshotImportHarness) -> None:
    harness.offer(manifest(10))
    harness.load(harness.find() or make_snapshot_id(0, 0))
    assert harness.on_disk
    harness.files.remove_leftovers()
    assert harness.on_disk == []
    assert harness.files.ids() == []


def test_search_reads_a_limited_number_of_manifests(harness: SnapshotImportHarness) -> None:
    for end in range(1, 500):
        harness.offer(manifest(end, cluster_id="another"))
    assert harness.find() is None
    assert len([call for call in harness.objects.calls if call.operation == "get"]) == MAX_CANDIDATES
