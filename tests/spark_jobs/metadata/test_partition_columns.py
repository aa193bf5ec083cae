"""Records of partitions read in lanes, against the node's decoder on records of every form and on damaged ones."""

import random

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from broker.metadata.image.records import decode_record, encode_record
from protocol.errors import DecodeError, EncodeError
from protocol.messages.metadata_records import PartitionChangeRecord, PartitionRecord
from protocol.primitives import Uuid, encode_uvarint
from spark_jobs.metadata.byte_columns import Strings
from spark_jobs.metadata.frame_heads import MalformedLog, frame_heads
from spark_jobs.metadata.partition_columns import PartitionColumns, partition_columns

FIELDS = {
    "replicas": "replicas",
    "isr": "isr",
    "removing_replicas": "removing_replicas",
    "adding_replicas": "adding_replicas",
    "directories": "directories",
    "elr": "eligible_leader_replicas",
    "last_known_elr": "last_known_elr",
}


def columns_of(*frames: bytes) -> PartitionColumns:
    lengths = np.array([len(frame) for frame in frames])
    offsets = np.arange(len(frames)) + 100
    strings = Strings(np.frombuffer(b"".join(frames), np.uint8), np.cumsum(lengths) - lengths, lengths)
    return partition_columns(strings, frame_heads(strings, offsets), offsets)


def check(columns: PartitionColumns, row: int, record: PartitionRecord | PartitionChangeRecord) -> None:
    """Check that the row equals the record."""
    whole = isinstance(record, PartitionRecord)
    assert columns.whole[row] == whole
    assert columns.partitions[row] == record.partition_id
    assert columns.topic_ids().value(row) == record.topic_id
    for name, field in FIELDS.items():
        value = getattr(record, field)
        column = columns.lists[name]
        assert column.present[row] == (whole or value is not None), name
        start = column.starts[row]
        raw = columns.pool[start : start + column.lengths[row]].tobytes()
        assert raw == b"".join(e if isinstance(e, bytes) else e.to_bytes(4, "big", signed=True) for e in value or ())
    assert columns.leader.present[row] == (whole or record.leader != -2)
    if columns.leader.present[row]:
        assert columns.leader.values[row] == record.leader
    recovery = columns.leader_recovery_state
    assert recovery.present[row] == (whole or record.leader_recovery_state != -1)
    if recovery.present[row]:
        assert recovery.values[row] == record.leader_recovery_state
    if isinstance(record, PartitionRecord):
        assert (columns.leader_epoch[row], columns.partition_epoch[row]) == (
            record.leader_epoch,
            record.partition_epoch,
        )


def random_frame(draw: random.Random) -> bytes:
    """Return a record of any version, with lists of any length."""

    def ids() -> list[int]:
        return [draw.randrange(-1, 2**31) for _ in range(draw.choice([0, 1, 2, 3, 3, 3, 31, 32, 126, 127, 130]))]

    def directories() -> list[Uuid]:
        return [Uuid(draw.randbytes(16)) for _ in range(draw.choice([0, 1, 3, 7, 8, 130]))]

    version = draw.randrange(3)
    index, topic_id = draw.randrange(2**31), Uuid(draw.randbytes(16))
    record: PartitionRecord | PartitionChangeRecord
    if draw.random() < 0.4:
        record = PartitionRecord(index, topic_id, ids(), ids(), ids(), ids())
        record.leader, record.leader_epoch = draw.randrange(-1, 9), draw.randrange(2**31)
        record.partition_epoch, record.leader_recovery_state = draw.randrange(2**31), draw.randrange(2)
    else:
        record = PartitionChangeRecord(index, topic_id)
        for name in ("isr", "replicas", "removing_replicas", "adding_replicas"):
            setattr(record, name, draw.choice([None, None, ids()]))
        record.leader = draw.choice([-2, -2, -1, 4, 2**31 - 1])
        record.leader_recovery_state = draw.choice([-1, 0, 1])
    if version >= 1:
        record.directories = directories()
    if version >= 2:
        record.eligible_leader_replicas = draw.choice([None, ids()])
        record.last_known_elr = draw.choice([None, ids()])
    return encode_record(record, version)


@settings(phases=[Phase.explicit, Phase.generate])
@given(draw=st.randoms(use_true_random=False))
def test_columns_equal_the_decoded_records(draw: random.Random) -> None:
    frames = [random_frame(draw) for _ in range(draw.randrange(1, 30))]
    columns = columns_of(*frames)
    for row, frame in enumerate(frames):
        record = decode_record(frame)
        assert isinstance(record, PartitionRecord | PartitionChangeRecord)
        check(columns, row, record)


@settings(max_examples=300, phases=[Phase.explicit, Phase.generate])
@given(draw=st.randoms(use_true_random=False))
def test_malformed_frames_are_refused_as_by_the_decoder(draw: random.Random) -> None:
    """Bytes after the head are changed, cut or added: both give the same values, or an error with the offset."""
    good, damaged = random_frame(draw), bytearray(random_frame(draw))
    match draw.randrange(3):
        case 0:
            damaged[draw.randrange(3, len(damaged))] = draw.randrange(256)
        case 1:
            del damaged[draw.randrange(23, len(damaged)) :]
        case 2:
            damaged += draw.randbytes(draw.randrange(1, 5))
    try:
        record = decode_record(bytes(damaged))
    except DecodeError:
        with pytest.raises(MalformedLog, match="offset 101 "):
            columns_of(good, bytes(damaged), good)
        return
    assert isinstance(record, PartitionRecord | PartitionChangeRecord)
    check(columns_of(good, bytes(damaged), good), 1, record)


def test_unknown_tagged_fields_are_dropped_and_the_last_repeated_one_counts() -> None:
    """Unknown fields are dropped, however long; the last of repeated fields counts."""
    head = encode_record(PartitionChangeRecord(7, Uuid(bytes(16))), 2)[:-1]
    unknown = encode_uvarint(99) + encode_uvarint(2) + b"ab"
    far = encode_uvarint(1_000) + encode_uvarint(200) + bytes(200)
    leader = [b"\x01\x04" + number.to_bytes(4, "big") for number in (5, 6)]
    frames = [
        head + bytes([3]) + unknown + leader[0] + leader[1],
        head + bytes([2]) + leader[0] + far,
        head + bytes([1]) + unknown,
    ]
    columns = columns_of(*frames)
    for row, frame in enumerate(frames):
        record = decode_record(frame)
        assert isinstance(record, PartitionChangeRecord)
        check(columns, row, record)
    assert columns.leader.present.tolist() == [True, True, False]
    assert columns.leader.values[:2].tolist() == [6, 5]


def test_fields_unknown_to_the_version_are_ignored() -> None:
    """In version 0 the numbers of directories and eligible leaders are unknown tags."""
    frame = bytearray(encode_record(PartitionChangeRecord(7, Uuid(bytes(16)), directories=[], last_known_elr=[3]), 2))
    frame[2] = 0
    record = decode_record(bytes(frame))
    assert isinstance(record, PartitionChangeRecord)
    assert record.directories is None
    check(columns_of(bytes(frame)), 0, record)


def test_long_lists_are_decoded() -> None:
    try:
        frame = encode_record(PartitionChangeRecord(1, Uuid(bytes(16)), isr=list(range(20_000))), 2)
    except EncodeError:
        return
    check(columns_of(frame), 0, PartitionChangeRecord(1, Uuid(bytes(16)), isr=list(range(20_000))))
