"""Record frames, compared with bytes that Apache Kafka 4.2 wrote."""

import pytest

from broker.metadata.image.records import decode_record, encode_record
from protocol.errors import DecodeError
from protocol.messages.metadata_records import (
    BeginTransactionRecord,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
)
from protocol.primitives import uuid_from_text

# Values of records in the log of a fresh Apache Kafka 4.2.0 node.
WRITTEN_BY_KAFKA = [
    ("01 17 00 01 00 12 12 426f6f747374726170207265636f726473", BeginTransactionRecord(name="Bootstrap records"), 0),
    ("01 0c 00 11 6d657461646174612e76657273696f6e 001d 00", FeatureLevelRecord("metadata.version", 29), 0),
    (
        "01 04 00 02 03 7431 0d 726574656e74696f6e2e6d73 05 31303030 00",
        ConfigRecord(2, "t1", "retention.ms", "1000"),
        0,
    ),
    ("01 14 00 00", NoOpRecord(), 0),
]


@pytest.mark.parametrize(("frame", "record", "version"), WRITTEN_BY_KAFKA)
def test_frames_are_those_of_kafka(frame: str, record: NoOpRecord, version: int) -> None:
    raw = bytes.fromhex(frame)
    assert decode_record(raw) == record
    assert decode_record(memoryview(raw)) == record
    assert encode_record(record, version) == raw


def test_partition_change_holds_only_changed_fields() -> None:
    record = PartitionChangeRecord(partition_id=1, topic_id=uuid_from_text("Gt1nPB-eT666DoxUs7depg"), isr=[], leader=-1)
    assert decode_record(encode_record(record, 2)) == record


@pytest.mark.parametrize(
    ("frame", "sentence"),
    [
        ("", "cut short"),
        ("00140000", "frame version is 0"),
        ("02140000", "frame version is 2"),
        ("01630000", "key 99 is unknown"),
        ("01140100", "version 1 of NoOpRecord"),
        ("0114000000", "1 bytes are left over"),
        ("010c0011", "."),
    ],
)
def test_invalid_frames_are_refused(frame: str, sentence: str) -> None:
    with pytest.raises(DecodeError, match=sentence):
        decode_record(bytes.fromhex(frame))
