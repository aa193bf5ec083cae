"""A section's fold with contradicting records and repeated steps."""

import pyarrow as pa
import pytest

from broker.metadata.image.records import InvalidMetadata, MetadataRecord, encode_record
from protocol.ids import LeaderEpoch
from protocol.messages.metadata_records import (
    ClearElrRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from protocol.primitives import Uuid
from protocol.records.builder import build_value_batch
from spark_jobs.metadata.fold_context import FoldContext
from spark_jobs.metadata.frame_heads import MalformedLog, UnknownRecord
from spark_jobs.metadata.log_rows import FROM_SNAPSHOT, rows_of
from spark_jobs.metadata.section_changes import SECTION_CHANGES
from spark_jobs.metadata.section_state import SECTION_STATE
from spark_jobs.metadata.sections import SectionResult, fold_registry, fold_section

ID = Uuid(bytes([1]) * 16)
NEW = Uuid(bytes([2]) * 16)
TOPIC = TopicRecord("t", ID)
PARTITION = PartitionRecord(0, ID, [1, 2], [1, 2], leader=1, leader_epoch=0, partition_epoch=0)
ALL = FoldContext(0, 1_000, with_changes=True)


def rows_with(*records: MetadataRecord, base: int = 0, origin: int = 0, end: int = 1_000) -> pa.Table:
    return rows_of_frames(*(encode_record(each, 0) for each in records), base=base, origin=origin, end=end)


def rows_of_frames(*frames: bytes, base: int = 0, origin: int = 0, end: int = 1_000) -> pa.Table:
    data = build_value_batch(frames, 5, base_offset=base, leader_epoch=LeaderEpoch(1))
    return pa.Table.from_batches([rows_of(data, start=0, end=end, origin=origin)])


def fold(*records: MetadataRecord, state: pa.Table | None = None, context: FoldContext = ALL) -> SectionResult:
    return fold_section(0, state, rows_with(*records), context)


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([TOPIC, TopicRecord("u", ID)], "id that is in use"),
        ([PARTITION], "does not exist"),
        ([RemoveTopicRecord(ID)], "does not exist"),
        ([TOPIC, RemoveTopicRecord(ID), PARTITION], "does not exist"),
        ([PARTITION, TOPIC], "does not exist"),
        ([TOPIC, RemoveTopicRecord(ID), RemoveTopicRecord(ID)], "does not exist"),
        ([TOPIC, PartitionChangeRecord(0, ID, leader=1)], "changes a partition"),
        ([TOPIC, PARTITION, PartitionChangeRecord(1, ID, leader=1)], "changes a partition"),
        ([TOPIC, PARTITION, RemoveTopicRecord(ID), TOPIC, PartitionChangeRecord(0, ID)], "changes a partition"),
        ([TOPIC, PartitionRecord(-1, ID)], "negative partition"),
        ([TOPIC, PARTITION, PartitionChangeRecord(0, ID, leader_recovery_state=2)], "recovery state"),
    ],
)
def test_contradicting_records_are_refused(records: list[MetadataRecord], message: str) -> None:
    with pytest.raises(InvalidMetadata, match=message):
        fold(*records)


def test_records_that_contradict_the_state_are_refused() -> None:
    state = fold(TOPIC, PARTITION).state
    with pytest.raises(InvalidMetadata):
        fold(TOPIC, state=state)
    with pytest.raises(InvalidMetadata):
        fold(PartitionChangeRecord(1, ID), state=state)


def test_topic_id_can_be_reused_after_removal() -> None:
    state = fold(TOPIC, PARTITION).state
    again = fold(RemoveTopicRecord(ID), TopicRecord("u", ID), PartitionRecord(3, ID, [7], [7], leader=7), state=state)
    assert again.state.column("partition").to_pylist() == [-1, 3]
    assert again.state.column("name").to_pylist() == ["u", None]
    assert [(row["operation"], row["topic"], row["partition"]) for row in again.changes.to_pylist()] == [
        ("removed", "t", None),
        ("removed", "t", 0),
        ("created", "u", None),
        ("created", "u", 3),
    ]
    assert again.changed_records == 2


def test_repeated_step_changes_nothing() -> None:
    rows = rows_with(TOPIC, PARTITION, PartitionChangeRecord(0, ID, leader=2))
    first = fold_section(0, None, rows, FoldContext(0, 2))
    assert first.records == 2
    whole = fold_section(0, None, rows, ALL)
    for start in (2, 3, 50):
        again = fold_section(0, whole.state, rows, FoldContext(max(start, 3), 1_000, with_changes=True))
        assert (again.records, len(again.changes)) == (0, 0)
        assert again.state == whole.state
    assert fold_section(0, first.state, rows, FoldContext(2, 1_000)).state == whole.state


def test_row_order_does_not_matter() -> None:
    rows = rows_with(TOPIC, PARTITION, PartitionChangeRecord(0, ID, leader=2), PartitionChangeRecord(0, ID, leader=1))
    whole = fold_section(0, None, rows, ALL)
    mixed = fold_section(0, None, rows.take(pa.array([3, 1, 0, 2])), ALL)
    assert (mixed.state, mixed.changes) == (whole.state, whole.changes)
    assert whole.state.column("leader").to_pylist() == [None, 1]
    assert whole.state.column("leader_epoch").to_pylist() == [None, 2]


def test_aborted_transaction_has_no_effect() -> None:
    records: list[MetadataRecord] = [TOPIC, PARTITION, RemoveTopicRecord(ID), TopicRecord("u", NEW)]
    result = fold(*records, context=FoldContext(0, 1_000, aborted=((2, 3),)))
    assert result.state.column("name").to_pylist() == ["t", None, "u"]


def test_state_and_changes_have_their_schemas() -> None:
    result = fold(TOPIC, PARTITION)
    assert result.state.schema == SECTION_STATE
    assert result.changes.schema == SECTION_CHANGES
    nothing = fold_section(3, None, rows_with(TOPIC), ALL)
    assert (len(nothing.state), len(nothing.changes), nothing.records) == (0, 0, 0)


def test_malformed_records_are_refused() -> None:
    good = [encode_record(TOPIC, 0), encode_record(PARTITION, 0)]
    for frame in (good[0] + b"x", good[1][:-1], encode_record(RemoveTopicRecord(ID), 0)[:-1]):
        with pytest.raises(MalformedLog, match="offset 11 "):
            fold_section(0, None, rows_of_frames(good[0], frame, base=10), ALL)


def test_unknown_records_stop_every_fold() -> None:
    rows = rows_of_frames(b"\x01\x05\x09" + bytes(60), base=4)
    with pytest.raises(UnknownRecord, match=r"PartitionChangeRecord \(API key 5, version 9\) at offset 4"):
        fold_registry(None, rows, ALL)
    index = rows.schema.get_field_index("section")
    astray = rows.set_column(index, rows.schema.field(index), pa.array([0], pa.int16()))
    with pytest.raises(UnknownRecord):
        fold_section(0, None, astray, ALL)


@pytest.mark.parametrize("record", [RemoveTopicRecord(ID), PartitionChangeRecord(0, ID), ClearElrRecord("")])
def test_records_not_allowed_in_a_snapshot_are_refused(record: MetadataRecord) -> None:
    rows = rows_with(TOPIC, PARTITION, record, origin=FROM_SNAPSHOT, end=40)
    with pytest.raises(InvalidMetadata, match="not allowed in a snapshot"):
        fold_section(0, None, rows, FoldContext(0, 40, snapshot_end=40))


def test_duplicate_topic_in_a_snapshot_is_refused() -> None:
    with pytest.raises(InvalidMetadata, match="in use"):
        fold_section(
            0, None, rows_with(TOPIC, TOPIC, origin=FROM_SNAPSHOT, end=40), FoldContext(0, 40, snapshot_end=40)
        )


def test_section_absent_from_a_snapshot_becomes_empty() -> None:
    state = fold(TOPIC, PARTITION).state
    rows = rows_with(ConfigRecord(4, "", "k", "v"), origin=FROM_SNAPSHOT, end=40)
    context = FoldContext(
        20, 40, snapshot_end=40, snapshot_epoch=LeaderEpoch(3), snapshot_timestamp_ms=9, with_changes=True
    )
    result = fold_section(0, state, rows, context)
    assert len(result.state) == 0
    assert [
        (row["offset"], row["epoch"], row["timestamp_ms"], row["operation"], row["partition"], row["is_summarized"])
        for row in result.changes.to_pylist()
    ] == [(39, 3, 9, "removed", None, True), (39, 3, 9, "removed", 0, True)]
    assert result.changed_records == 2
