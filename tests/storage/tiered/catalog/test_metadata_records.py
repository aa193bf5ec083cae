"""Records of `__remote_log_metadata`: bytes of Kafka's own serializer, and invalid bytes."""

from dataclasses import replace

import pytest

from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Uuid, uuid_from_text
from storage.tiered.catalog.metadata_partitioner import metadata_partition
from storage.tiered.catalog.metadata_records import UndecodableEvent, decode_event, encode_event, partition_of
from storage.tiered.segment_metadata import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    RemoteSegmentId,
    SegmentEpoch,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)
from tests.storage.tiered.sample_segments import PARTITION

ID = RemoteSegmentId(PARTITION, uuid_from_text("adh9f8BMS4anaUnD8KWfWg"))
SEGMENT = RemoteSegment(
    id=ID,
    start_offset=1000,
    end_offset=1999,
    max_timestamp_ms=1_700_000_000_000,
    broker_id=BrokerId(2),
    event_timestamp_ms=1_700_000_000_001,
    size_bytes=1_073_741_824,
    leader_epochs=(SegmentEpoch(LeaderEpoch(3), 1000), SegmentEpoch(LeaderEpoch(7), 1500)),
    custom_metadata=b"\x00\x01there",
    txn_index_empty=True,
)
UPDATE = SegmentUpdate(ID, SegmentState.COPY_FINISHED, 1_700_000_000_002, BrokerId(3), b"there")
DELETE = PartitionDelete(PARTITION, PartitionDeleteState.MARKED, 1_700_000_000_003, BrokerId(4))


EVENTS = [
    SEGMENT,
    replace(SEGMENT, compacted_to=0),
    UPDATE,
    UPDATE._replace(custom_metadata=None),
    UPDATE._replace(only_unfinished=True),
    DELETE,
]


@pytest.mark.parametrize("event", EVENTS)
def test_events_round_trip(event: RemoteSegment | SegmentUpdate | PartitionDelete) -> None:
    assert decode_event(encode_event(event)) == event
    assert partition_of(event) == PARTITION


def test_records_have_kafkas_bytes() -> None:
    """Written by Kafka 4.2's RemoteLogMetadataSerde for the same values."""
    assert encode_event(SEGMENT).hex() == KAFKA_SEGMENT
    assert encode_event(UPDATE).hex() == KAFKA_UPDATE
    assert encode_event(DELETE).hex() == KAFKA_DELETE


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "tombstone"),
        (b"", "."),
        (b"\x02\x00\x00", "frame version 2"),
        (b"\x01\x09\x00", "record type 9"),
        (b"\x01\x03\x00", "record type 3"),
        (b"\x01\x00\x01", "version 1 of record type 0"),
        (encode_event(SEGMENT)[:-9], "."),
        (encode_event(UPDATE)[:-2] + b"\x04\x00", "state 4"),
        (encode_event(DELETE)[:-2] + b"\xff\x00", "state -1"),
    ],
)
def test_invalid_event_is_refused_with_reason(value: bytes | None, reason: str) -> None:
    with pytest.raises(UndecodableEvent, match=reason):
        decode_event(value)


def test_invalid_segment_is_refused() -> None:
    no_epochs = encode_event(SEGMENT).replace(
        bytes.fromhex("03" + "00000003" + "00000000000003e8" + "00" + "00000007" + "00000000000005dc" + "00"), b"\x01"
    )
    with pytest.raises(UndecodableEvent, match="no leader epochs"):
        decode_event(no_epochs)


def test_size_out_of_range_raises_value_error() -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        encode_event(
            RemoteSegment(
                id=ID,
                start_offset=0,
                end_offset=0,
                max_timestamp_ms=0,
                broker_id=BrokerId(0),
                event_timestamp_ms=0,
                size_bytes=2**31,
                leader_epochs=(SegmentEpoch(LeaderEpoch(0), 0),),
            )
        )


@pytest.mark.parametrize(
    ("topic_id", "partition", "expected"),
    [
        ("AAAAAAAAAAAAAAAAAAAAAQ", 0, 35),
        ("AAAAAAAAAAAAAAAAAAAAAQ", 1, 6),
        ("lZ6vvmajTWKDBUTV6SQAtQ", 0, 9),
        ("lZ6vvmajTWKDBUTV6SQAtQ", 42, 33),
    ],
)
def test_partitions_are_found_by_kafkas_formula(topic_id: str, partition: int, expected: int) -> None:
    assert metadata_partition(TopicIdPartition(Uuid(uuid_from_text(topic_id)), "any", partition), 50) == expected


KAFKA_SEGMENT = (
    "01000007746f70696331959eafbe66a34d62830544d5e92400b50000002a0069d87d7fc04c4b86a76949c3f0a59f5a000000"
    "0000000003e800000000000007cf000000020000018bcfe568000000018bcfe56801030000000300000000000003e8000000000700000000000005dc004000000008000174686572650001000101"
)
KAFKA_UPDATE = (
    "01010007746f70696331959eafbe66a34d62830544d5e92400b50000002a0069d87d7fc04c4b86a76949c3f0a59f5a000000"
    "00030000018bcfe568020674686572650100"
)
KAFKA_DELETE = "01020007746f70696331959eafbe66a34d62830544d5e92400b50000002a00000000040000018bcfe568030000"
