"""Batches to rows: the columns, and refused batches."""

import struct

import pyarrow as pa
import pytest

from broker.metadata.image.records import MetadataRecord, encode_record
from protocol.ids import LeaderEpoch
from protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClearElrRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from protocol.primitives import Uuid, encode_uvarint
from protocol.records.builder import Record, build_batch, build_value_batch
from protocol.records.compression import Codec
from protocol.records.control import ControlType, control_batch
from spark_jobs.metadata.log_rows import (
    FROM_SNAPSHOT,
    LOG_ROWS,
    MalformedLog,
    UnknownRecord,
    rows_of,
    section_rows,
    split_by_section,
)
from spark_jobs.metadata.summary import summarize
from tests.spark_jobs.metadata.logs import FOREVER

ID = Uuid(bytes([0xF8]) + bytes(15))
OTHER = Uuid(bytes([0x08]) + bytes(15))


def batch(*records: MetadataRecord, base: int = 0, codec: Codec = Codec.NONE) -> bytes:
    frames = [encode_record(record, record.MAX_VERSION) for record in records]
    return build_value_batch(frames, 1_000 + base, base_offset=base, leader_epoch=LeaderEpoch(5), codec=codec)


def raw_batch(*frames: bytes, base: int = 0) -> bytes:
    return build_value_batch(frames, 1_000, base_offset=base, leader_epoch=LeaderEpoch(5))


def control(base: int) -> bytes:
    return control_batch([(ControlType.LEADER_CHANGE, b"value")], 7, base_offset=base, leader_epoch=LeaderEpoch(6))


def rows(data: bytes, start: int = 0, end: int = FOREVER) -> list[dict[str, object]]:
    found: list[dict[str, object]] = rows_of(data, start=start, end=end).to_pylist()
    return found


@pytest.mark.parametrize("codec", list(Codec))
def test_every_record_is_a_row(codec: Codec) -> None:
    data = batch(NoOpRecord(), PartitionChangeRecord(3, ID), base=40, codec=codec) + control(42)
    table = rows_of(data, start=0, end=FOREVER)
    assert table.schema == LOG_ROWS
    first, second, last = table.to_pylist()
    common = {"epoch": 5, "timestamp_ms": 1_040, "batch_end": 42, "is_control": False, "origin": 0}
    frame = encode_record(NoOpRecord(), 0)
    assert first == {"offset": 40, "key": 20, "version": 0, "section": -1, "frame": frame, **common}
    frame = encode_record(PartitionChangeRecord(3, ID), 2)
    assert second == {"offset": 41, "key": 5, "version": 2, "section": 31, "frame": frame, **common}
    assert last == {
        "offset": 42,
        "epoch": 6,
        "timestamp_ms": 7,
        "batch_end": 43,
        "is_control": True,
        "origin": 0,
        "key": 2,
        "version": 0,
        "section": -1,
        "frame": b"value",
    }


@pytest.mark.parametrize(
    ("record", "section"),
    [
        (TopicRecord("t", ID), 31),
        (TopicRecord("", OTHER), 1),
        (TopicRecord("n" * 126, OTHER), 1),
        (TopicRecord("n" * 127, ID), 31),
        (TopicRecord("é" * 124, ID), 31),
        (RemoveTopicRecord(ID), 31),
        (PartitionRecord(0, OTHER, [1], [1], directories=[ID]), 1),
        (ClearElrRecord("t"), -1),
    ],
)
def test_topic_id_determines_the_section(record: MetadataRecord, section: int) -> None:
    assert rows(batch(record))[0]["section"] == section


def test_bounds_cut_into_batches() -> None:
    data = b"".join(batch(NoOpRecord(), NoOpRecord(), NoOpRecord(), base=base) for base in (0, 3, 6))
    assert [row["offset"] for row in rows(data, 2, 7)] == [2, 3, 4, 5, 6]
    assert [row["batch_end"] for row in rows(data, 2, 7)] == [3, 6, 6, 6, 9]
    assert rows(data, 9) == []


def test_batches_outside_the_bounds_are_not_parsed() -> None:
    damaged = bytearray(batch(NoOpRecord()))
    damaged[-1] ^= 1
    assert len(rows(bytes(damaged) + batch(NoOpRecord(), base=1), 1)) == 1


def test_snapshot_rows_have_the_last_offset_of_the_snapshot() -> None:
    table = rows_of(batch(NoOpRecord(), NoOpRecord()), start=0, end=500, origin=FROM_SNAPSHOT)
    assert [(row["offset"], row["batch_end"], row["origin"]) for row in table.to_pylist()] == [(499, 500, 1)] * 2


def test_incomplete_batch_at_the_end_is_left_out() -> None:
    whole = batch(NoOpRecord())
    for cut in (1, 30, 61, 65):
        assert len(rows(whole + batch(NoOpRecord(), base=1)[:cut])) == 1
    assert rows(b"") == []


def test_invalid_batches_are_refused() -> None:
    with pytest.raises(MalformedLog):
        rows(bytes(100))
    data = bytearray(batch(NoOpRecord(), NoOpRecord()))
    for position in range(21, len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 4
        with pytest.raises(MalformedLog, match="CRC"):
            rows(bytes(damaged))


def test_gap_between_batches_is_refused() -> None:
    with pytest.raises(MalformedLog, match="begins at offset 2 instead of 1"):
        rows(batch(NoOpRecord()) + batch(NoOpRecord(), base=2))


def test_record_without_value_is_refused() -> None:
    with pytest.raises(MalformedLog, match="without value"):
        rows(build_batch([Record(0, b"key", None)]))


@pytest.mark.parametrize(
    "frame",
    [b"", b"\x01", b"\x01\x05", b"\x02\x05\x00\x00", b"\x01\x80\x80\x80\x80\x80\x01", b"\x01\x05\x02" + bytes(19)],
)
def test_incomplete_frame_head_is_refused(frame: bytes) -> None:
    with pytest.raises(MalformedLog, match="offset 7 "):
        rows(raw_batch(frame, base=7))


def test_overlong_varints_in_the_frame_head_are_read() -> None:
    (row,) = rows(raw_batch(b"\x81\x00\x94\x00\x80\x00\x00"))
    assert (row["key"], row["version"], row["section"]) == (20, 0, -1)
    assert rows(raw_batch(b"\x01" + encode_uvarint(300) + b"\x00"))[0]["key"] == 300


@pytest.mark.parametrize(("key", "version"), [(29, 0), (300, 1), (3, 3), (5, 3), (20, 1), (6, 0)])
def test_unknown_record_is_a_row_that_the_summary_refuses(key: int, version: int) -> None:
    frame = b"\x01" + encode_uvarint(key) + encode_uvarint(version) + bytes(40)
    data = batch(NoOpRecord()) + raw_batch(frame, base=1)
    table = rows_of(data, start=0, end=FOREVER)
    assert table.to_pylist()[1]["section"] == -1
    with pytest.raises(UnknownRecord, match=rf"\(API key {key}, version {version}\) at offset 1,") as caught:
        summarize(table)
    assert (caught.value.offset, caught.value.key, caught.value.version) == (1, key, version)


def test_key_beyond_int16_is_refused() -> None:
    with pytest.raises(UnknownRecord, match="70000"):
        rows(raw_batch(b"\x01" + encode_uvarint(70_000) + b"\x00"))


def test_rows_are_divided_by_section() -> None:
    records: list[MetadataRecord] = [
        *(TopicRecord("a", ID), PartitionRecord(0, ID), ClearElrRecord(""), NoOpRecord()),
        *(BeginTransactionRecord(), RemoveTopicRecord(OTHER), AbortTransactionRecord()),
    ]
    table = pa.Table.from_batches([rows_of(batch(*records) + control(7), start=0, end=FOREVER)])
    expected = {31: [0, 1, 2], 1: [2, 5], 7: [2], 32: [0, 2, 3, 4, 5, 6]}
    for section, mine in split_by_section(table, expected):
        assert sorted(mine.column("offset").to_pylist()) == expected[section]
        assert section_rows(table, section).column("offset").to_pylist() == expected[section]


def test_wrong_record_count_is_refused() -> None:
    data = bytearray(batch(NoOpRecord(), NoOpRecord()))
    struct.pack_into(">i", data, 23, 4)
    from protocol.records.batch import write_crc

    write_crc(data, 0, len(data))
    with pytest.raises(MalformedLog, match="2 records for 5 offsets"):
        rows(bytes(data))
