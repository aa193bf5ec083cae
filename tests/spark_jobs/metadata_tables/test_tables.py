"""The tables against the node's replay: written in any steps, they give the state at any offset."""

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from broker.metadata.image.metadata_image import MetadataImage
from protocol.ids import LeaderEpoch
from protocol.primitives import uuid_to_text
from spark_jobs.metadata.log_rows import TOPIC_SECTIONS
from spark_jobs.metadata.registry import Entity, RegistryChange
from spark_jobs.metadata_snapshots.changes import FoldedRange as Step
from spark_jobs.metadata_tables import sink as sink_module
from spark_jobs.metadata_tables.enum_names import ACL_RESOURCES, CONFIG_RESOURCES, OPERATIONS, name_of
from spark_jobs.metadata_tables.reading import live_files, load_table, read_share, shares
from spark_jobs.metadata_tables.registry_tables import HIDDEN, tables_of_registry
from spark_jobs.metadata_tables.schemas import KEYS, TABLES
from spark_jobs.metadata_tables.sink import SMALL_BYTES, TablesRefused, TablesSink
from spark_jobs.metadata_tables.spans import FileSpan, TableFile, covered, file_name, parse_file, to_be_merged
from spark_jobs.metadata_tables.table_store import TableStore
from storage.tiered.loading.store_uri import StoreUri, parse_store_uri
from tests.spark_jobs.metadata.logs import EveryHistory, Log
from tests.support.harnesses.single_process import SingleProcess

Row = dict[str, Any]

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
OUT = StoreUri(directory="/snapshots")
MERGE_SPANS = 4
"""Replaces the sink's value, so that few steps suffice: a step is a few synced files."""


@lru_cache
def log_of(seed: int) -> Log:
    return Log.of(EveryHistory(seed, steps=80).batches, seed)


@pytest.fixture(autouse=True)
def merges_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_module, "MERGE_SPANS", MERGE_SPANS)


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    return TableStore(parse_store_uri(str(tmp_path / "tables")))


class Writer:
    """The job in one process, with the tables as its sink."""

    def __init__(self, store: TableStore) -> None:
        self.sink = TablesSink(store, OUT)
        self.job = SingleProcess(with_changes=True)
        self.sink.begin(0, CLUSTER)

    def take(self, rows: pa.Table, *, is_finished: bool = True) -> None:
        start = max(self.job.end, 0)
        self.job.take(rows)
        step = Step(start, self.job.end, self.job.epoch)
        if step.end > step.start:
            for section, changes in enumerate(_by_section(self.job.changes)):
                self.sink.section(step, section, changes)
            self.sink.registry(step, self.job.registry_changes)
            if is_finished:
                self.sink.finish(step)


def _by_section(changes: pa.Table) -> Iterable[pa.Table]:
    sections = [id.as_py()[0] >> 3 for id in changes.column("topic_id")]
    for section in range(TOPIC_SECTIONS):
        yield changes.filter(pa.array([each == section for each in sections], pa.bool_()))


def rows_of(store: TableStore, table: str) -> list[Row]:
    rows: list[Row] = load_table(str(store.uri), table).to_pylist()
    return rows


def existing(store: TableStore, table: str, before: int) -> dict[tuple[Any, ...], Row]:
    """Return the existing rows below an offset, by key."""
    latest: dict[tuple[Any, ...], Row] = {}
    for row in rows_of(store, table):
        if row["from_offset"] < before:
            latest[tuple(row[key] for key in KEYS[table])] = row
    return {key: row for key, row in latest.items() if not row["removed"]}


def check(store: TableStore, image: MetadataImage) -> None:
    """Check all histories at an image's offset."""
    found = {table: existing(store, table, image.offset + 1) for table in KEYS}
    topics = {uuid_to_text(id): image.topics.by_id(id) for id in image.topics.ids()}
    assert {key[0]: row["topic"] for key, row in found["topics"].items()} == {
        id: topic.name for id, topic in topics.items() if topic is not None
    }
    expected = {
        (id, index): registration
        for id, topic in topics.items()
        if topic is not None
        for index, registration in topic.in_order()
    }
    assert found["partitions"].keys() == expected.keys()
    for key, row in found["partitions"].items():
        partition = expected[key]
        assert [tuple(row[name]) for name in ("replicas", "isr", "elr")] == [
            partition.replicas,
            partition.isr,
            partition.elr,
        ]
        assert (row["leader"], row["leader_epoch"]) == (partition.leader, partition.leader_epoch)
        assert row["partition_epoch"] == partition.partition_epoch
        assert row["directories"] == [uuid_to_text(each) for each in partition.directories]
    _check_registry(found, image)


def _check_registry(found: Mapping[str, Mapping[tuple[Any, ...], Row]], image: MetadataImage) -> None:
    assert {key: row["value"] for key, row in found["configs"].items()} == {
        (name_of(CONFIG_RESOURCES, resource.type), resource.name, key): value
        for resource, values in image.configs.resources.items()
        for key, value in values.items()
    }
    assert {key[0]: row["level"] for key, row in found["features"].items()} == dict(image.features.finalized())
    brokers = {(broker.id,): broker for broker in image.brokers.all()}
    assert {key: (row["fenced"], row["rack"]) for key, row in found["brokers"].items()} == {
        key: (broker.fenced, broker.rack) for key, broker in brokers.items()
    }
    assert {key[0]: row["operation"] for key, row in found["acls"].items()} == {
        uuid_to_text(id): name_of(OPERATIONS, entry.operation) for id, entry in image.acls.entries.items()
    }
    assert len(found["quotas"]) == sum(len(values) for values in image.client_quotas.entities.values())


@pytest.mark.parametrize("seed", range(3))
def test_tables_give_the_state_at_any_offset(seed: int, store: TableStore) -> None:
    log, writer, draw = log_of(seed), Writer(store), random.Random(seed)
    number = 0
    while number < len(log.images):
        following = min(len(log.images), number + draw.choice((5, 20, 40)))
        writer.take(log.rows(number, following))
        number = following
    images = [image for image in log.images if image is not None]
    for image in draw.sample(images, 6) + images[-1:]:
        check(store, image)


def test_tables_are_independent_of_the_steps(tmp_path: Path) -> None:
    log = log_of(1)
    one, many = (TableStore(parse_store_uri(str(tmp_path / name))) for name in ("one", "many"))
    Writer(one).take(log.rows(0, len(log.images)))
    writer = Writer(many)
    for number in range(len(log.images)):
        writer.take(log.rows(number, number + 1))
    for table in TABLES:
        assert _sorted(rows_of(one, table)) == _sorted(rows_of(many, table))
        assert len(live_files(many, table)) < 2 * MERGE_SPANS
    assert list(one.staged("")) == list(many.staged("")) == []


def _sorted(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: json.dumps(row, default=str, sort_keys=True))


def test_repeated_step_leaves_the_same_tables(store: TableStore) -> None:
    log = log_of(2)
    half = len(log.images) // 2
    writer = Writer(store)
    writer.take(log.rows(0, half))
    end = writer.job.end
    before = {table: rows_of(store, table) for table in TABLES}
    writer.take(log.rows(half, len(log.images)), is_finished=False)
    again = Writer.__new__(Writer)
    again.sink, again.job = TablesSink(store, OUT), SingleProcess(with_changes=True)
    again.sink.begin(end, CLUSTER)
    assert {table: rows_of(store, table) for table in TABLES} == before
    again.job.take(log.rows(0, half))
    for number in range(half, len(log.images), 8):
        again.take(log.rows(number, min(number + 8, len(log.images))))
    images = [image for image in log.images if image is not None]
    check(store, images[-1])


def take_steps(sink: TablesSink, ends: Iterable[int], start: int = 0) -> None:
    """Take steps up to each of the ends; each record changed a config."""
    for end in ends:
        step = Step(start, end, 0)
        sink.registry(step, [_config_change(offset, "a", str(offset)) for offset in range(start, end)])
        sink.finish(step)
        start = end


def offsets_of(store: TableStore) -> list[int]:
    return [row["from_offset"] for row in rows_of(store, "configs")]


def test_attempt_of_another_length_is_replaced(store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large files of the attempt are already in place."""
    monkeypatch.setattr(sink_module, "STAGED_ROWS", 0)
    sink = TablesSink(store, OUT)
    sink.begin(0, CLUSTER)
    for end in (9, 5):
        sink.registry(Step(0, end, 0), [_config_change(offset, "a", str(offset)) for offset in range(end)])
    sink.finish(Step(0, 5, 0))
    assert offsets_of(store) == [0, 1, 2, 3, 4]
    assert (store.end(), [file.span.end for file in store.files("configs")]) == (5, [5])


def test_step_with_a_failed_commit_is_recorded_once(store: TableStore) -> None:
    """The step is repeated in any form, also with merged spans."""
    sink = TablesSink(store, OUT)
    sink.begin(0, CLUSTER)
    for end in range(2, 6 * MERGE_SPANS, 2):
        take_steps(sink, [end], start=end - 2)
        if end % 3:
            sink = TablesSink(store, OUT)  # after a crash
            sink.begin(end - 2, CLUSTER)
        take_steps(sink, [end - 1], start=end - 2)
        assert offsets_of(store) == list(range(end))
        take_steps(sink, [end + 1], start=end - 1)
        assert offsets_of(store) == list(range(end + 1))
        take_steps(sink, [end + 2], start=end + 1)
    assert store.end() == 6 * MERGE_SPANS


def test_tables_survive_the_loss_of_the_state(store: TableStore) -> None:
    log = log_of(1)
    Writer(store).take(log.rows(0, len(log.images) * 2 // 3))
    before = {table: rows_of(store, table) for table in TABLES}
    end = store.end()
    again = Writer(store)
    for number in range(0, len(log.images), 10):
        again.take(log.rows(number, min(number + 10, len(log.images))))
        if end == store.end():
            assert {table: rows_of(store, table) for table in TABLES} == before
    images = [image for image in log.images if image is not None]
    for image in [*images[::20], images[-1]]:
        check(store, image)


def test_unfinished_step_is_invisible(store: TableStore) -> None:
    sink = TablesSink(store, OUT)
    sink.begin(0, CLUSTER)
    take_steps(sink, [3])
    store.write(file_name("configs", (3, 9), "registry"), store.read(live_files(store, "configs")[0].name))
    assert offsets_of(store) == [0, 1, 2]


def test_tables_that_contradict_the_state_are_refused(store: TableStore) -> None:
    """Writing would lose changes."""
    sink = TablesSink(store, OUT)
    with pytest.raises(TablesRefused, match="end at offset 0, but the state ends at 7"):
        sink.begin(7, CLUSTER)
    take_steps(sink, [9])
    with pytest.raises(TablesRefused, match="to cluster 4L6g3nShT-eMCtK--X86sw, but the brokers belong to another"):
        sink.begin(9, "another")
    sink.begin(3, CLUSTER)
    summarized = [_config_change(offset, "a", "b")._replace(is_summarized=True) for offset in (8, 14)]
    sink.registry(Step(3, 9, 0), summarized[:1])
    with pytest.raises(TablesRefused, match="end at offset 9, the state at 3, and the log in between was deleted"):
        sink.registry(Step(3, 15, 0), summarized)
    sink.registry(Step(9, 15, 0), summarized[1:])


def test_tables_of_another_output_are_refused(store: TableStore) -> None:
    """The steps of another output have other ends, and each job would remove the files of the other."""
    TablesSink(store, OUT).begin(0, CLUSTER)
    other = TablesSink(store, StoreUri(bucket="b", prefix="other/"))
    with pytest.raises(TablesRefused, match=r"belong to the job that writes to /snapshots, not to s3://b/other/: use"):
        other.begin(0, CLUSTER)
    TablesSink(store, StoreUri(directory="/elsewhere/../snapshots")).begin(0, CLUSTER)


def test_store_decides_between_outputs_that_begin_at_once(store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both find no owner; the second claim changes nothing."""
    claim = TableStore.claim

    def claim_after_another(own: TableStore, out: str) -> None:
        claim(own, "/another")
        claim(own, out)

    monkeypatch.setattr(TableStore, "claim", claim_after_another)
    with pytest.raises(TablesRefused, match="belong to the job that writes to /another, not to /snapshots"):
        TablesSink(store, OUT).begin(0, CLUSTER)


def test_small_spans_are_merged_and_covered_ones_ignored(store: TableStore) -> None:
    sink = TablesSink(store, OUT)
    sink.begin(0, CLUSTER)
    take_steps(sink, range(1, 3 * MERGE_SPANS + 2))
    assert offsets_of(store) == list(range(3 * MERGE_SPANS + 1))
    assert len(live_files(store, "configs")) <= MERGE_SPANS + 1
    left_over = store.read(live_files(store, "configs")[0].name)
    store.write(file_name("configs", (0, 1), "small"), left_over.slice(0, 1))
    assert offsets_of(store) == list(range(3 * MERGE_SPANS + 1))
    sink.begin(3 * MERGE_SPANS + 1, CLUSTER)
    assert [file for file in store.files("configs") if file.span == FileSpan(0, 1)] == []


def test_rows_merged_after_the_listing_are_read_from_the_merged_file(store: TableStore) -> None:
    sink = TablesSink(store, OUT)
    sink.begin(0, CLUSTER)
    take_steps(sink, range(1, MERGE_SPANS // 2))
    listed = shares(store, "configs")
    take_steps(sink, range(MERGE_SPANS // 2, 3 * MERGE_SPANS), start=MERGE_SPANS // 2 - 1)
    assert not {name for share in listed for name in share.names} & {file.name for file in live_files(store, "configs")}
    batches = [batch for share in listed for batch in read_share(store, "configs", share)]
    found = [row["from_offset"] for batch in batches for row in batch.to_pylist()]
    assert found == list(range(MERGE_SPANS // 2 - 1))


class Disturbed(TableStore):
    """A store in which a step merges already listed files in the middle of the first listing."""

    first: ClassVar[list[int]] = []

    def files(self, table: str, start: int = 0) -> Iterator[TableFile]:
        found = list(TableStore.files(self, table, start))
        while self.first:
            take_steps(
                TablesSink(TableStore(self.uri), OUT), range(self.first.pop(), 2 * MERGE_SPANS), start=MERGE_SPANS
            )
            left = set(TableStore.files(self, table, start))
            found = [file for file in found if file in left]
        yield from found


def test_inconsistent_listing_is_repeated(store: TableStore) -> None:
    sink = TablesSink(store, OUT)
    sink.begin(0, CLUSTER)
    take_steps(sink, range(1, MERGE_SPANS + 1))
    Disturbed.first.append(MERGE_SPANS + 1)
    listed = live_files(Disturbed(store.uri), "configs")
    assert listed == live_files(store, "configs")
    assert not Disturbed.first


def test_change_lists_the_fields_that_differ(store: TableStore) -> None:
    log = log_of(0)
    Writer(store).take(log.rows(0, len(log.images)))
    changed = [row for row in rows_of(store, "changes") if row["operation"] == "changed"]
    assert {row["entity_type"] for row in changed} >= {"partition", "broker"}
    for row in changed:
        before, after = json.loads(row["before"]), json.loads(row["after"])
        assert before.keys() == after.keys()
        assert all(before[key] != after[key] for key in after)
    partition = next(row for row in rows_of(store, "changes") if row["entity_type"] == "partition")
    assert partition["entity"] == f"{partition['topic']}-{partition['partition']}"
    assert partition["before"] is None
    assert {"leader", "isr", "replicas"} <= json.loads(partition["after"]).keys()


def _config_change(offset: int, key: str, value: str | None, before: str | None = None) -> RegistryChange:
    from broker.metadata.image.config_image import ConfigResource, config_record
    from broker.metadata.image.records import encode_record

    def frame(text: str | None) -> bytes | None:
        return None if text is None else encode_record(*config_record(ConfigResource(4, "1"), key, text))

    operation = "removed" if value is None else "created" if before is None else "changed"
    return RegistryChange(
        offset, LeaderEpoch(3), 1000, Entity("config", (4, "1", key)), operation, frame(before), frame(value)
    )


def test_passwords_are_left_out() -> None:
    secret = "ssl.keystore.password"
    tables = tables_of_registry([_config_change(5, secret, "open", "sesame"), _config_change(6, secret, None, "open")])
    assert tables["configs"].column("value").to_pylist() == [HIDDEN, None]
    assert "sesame" not in str(tables["changes"].to_pylist())
    assert "open" not in str(tables["changes"].to_pylist())


def test_endpoints_are_readable() -> None:
    from broker.metadata.image.records import encode_record
    from protocol.messages.metadata_records import BrokerEndpoint, RegisterBrokerRecord

    endpoint = BrokerEndpoint(name="OUT", host="h", port=9092, security_protocol=3)
    frame = encode_record(RegisterBrokerRecord(broker_id=1, end_points=[endpoint]), 3)
    change = RegistryChange(5, LeaderEpoch(3), 1000, Entity("broker", (1,)), "created", None, frame)
    (row,) = tables_of_registry([change])["brokers"].to_pylist()
    assert row["endpoints"] == [{"name": "OUT", "host": "h", "port": 9092, "security_protocol": "SASL_SSL"}]
    assert row["time"].isoformat() == "1970-01-01T00:00:01+00:00"


def test_file_names_are_parsed() -> None:
    assert parse_file(file_name("changes", (3, 9), "small"), 7) == TableFile(
        "changes/00000000000000000003-00000000000000000009/part-small.parquet", "changes", FileSpan(3, 9), 7
    )
    assert parse_file("changes/3-9/part-small.parquet") is None


def test_spans_within_others_are_covered() -> None:
    spans = [(0, 5), (0, 2), (2, 5), (5, 6), (6, 8), (6, 7)]
    files = [TableFile(str(span), "t", FileSpan(*span)) for span in spans]
    assert {file.name for file in covered(files)} == {"(0, 2)", "(2, 5)", "(6, 7)"}


@pytest.mark.parametrize(
    ("spans", "runs"),
    [
        ("1 1", []),
        ("1 1 1", ["012"]),
        ("1 1 9", ["01"]),
        ("1 9 1 1", []),
        ("1 9 1 1 1", ["234"]),
        ("1/1 1/1 1 1", []),
        ("1/1 1/1 1 1 1", ["234"]),
        ("1/2 1/1 1/1 1/1 1", ["123"]),
        ("2/1 1 1 9 1", ["012"]),
        ("6 6", ["01"]),
        ("6/1 6 6", ["12"]),
        ("6 1 6 6 6 1", ["012", "34"]),
    ],
)
def test_small_spans_are_merged_like_digits_of_a_counter(spans: str, runs: list[str]) -> None:
    """Spans are given as bytes/level; sizes below 8 are small, and three spans are merged."""
    files = []
    for at, (size, _, level) in enumerate(each.partition("/") for each in spans.split()):
        part = f"merged{level}" if level else "small"
        files.append(TableFile(file_name("t", (at, at + 1), part), "t", FileSpan(at, at + 1), int(size)))
    found = to_be_merged(files, 8, 3)
    assert ["".join(str(file.span.start) for file in run) for run in found] == runs


@pytest.mark.parametrize(("small", "content"), [(6_000, 700), (40_000, 20_000), (300_000, 300_000)])
def test_rows_are_rewritten_once_per_level(small: int, content: int) -> None:
    """Steps of a quarter of an hour, one per second and file: few files are left, each byte was written a few times,
    and the driver never held much.
    """
    files: list[TableFile] = []
    written = 0
    for step in range(900):
        files.append(TableFile("", "t", FileSpan(step, step + 1), small))
        for run in to_be_merged(files, SMALL_BYTES, 16):
            assert sum(file.size for file in run) < 2 * SMALL_BYTES
            size = sum(file.size if file.level else content for file in run)
            written += size
            whole = FileSpan(run[0].span.start, run[-1].span.end)
            files = [file for file in files if not whole.start <= file.span.start < whole.end]
            files.append(TableFile(file_name("t", whole, f"merged{run[0].level + 1}"), "t", whole, size))
    kept = 900 * content
    assert len(files) < 3 * 16 + kept / SMALL_BYTES
    assert written < 4 * kept


def test_enum_numbers_have_names() -> None:
    assert name_of(ACL_RESOURCES, 2) == "topic"
    assert name_of(ACL_RESOURCES, 99) == "99"
