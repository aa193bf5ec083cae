"""Headers of record batches are parsed, checked and patched without the body."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.ids import LeaderEpoch
from protocol.records.batch import (
    HEADER,
    MAX_SEQUENCE,
    BatchHeader,
    TimestampType,
    crc_is_valid,
    iter_headers,
    next_sequence,
    pack_batch,
    parse_header,
    patch,
    patch_log_append_time,
)
from protocol.records.builder import Record, build_batch
from protocol.records.compiled import crc32c
from protocol.records.errors import MalformedBatch
from tests.protocol.profile import more_examples


def batch(records: int = 2, **fields: int) -> bytearray:
    return bytearray(build_batch([Record(1000 + n, b"k", b"v") for n in range(records)], **fields))  # type: ignore[arg-type]


def test_checksum_is_crc32c() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(memoryview(bytearray(b"xx123456789"))[2:]) == 0xE3069283


def test_header_has_61_bytes_in_kafkas_layout() -> None:
    header = BatchHeader(1, 49, LeaderEpoch(2), 2, 3, 0x38, 4, 5, 6, 7, 8, 9, 10)
    packed = HEADER.pack(*header)
    assert len(packed) == 61
    assert struct.unpack_from(">q", packed, 43) == (7,)
    assert parse_header(b"??" + packed, 2) == header


def test_properties_follow_from_the_fields() -> None:
    header = parse_header(
        batch(3, base_offset=10, producer_id=5, producer_epoch=1, base_sequence=MAX_SEQUENCE, codec=0)
    )
    assert (header.size, header.last_offset, header.next_offset) == (len(batch(3)), 12, 13)
    assert header.last_sequence == 1
    assert header.has_producer
    assert header.has_sequence
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert not header.is_control
    assert not header.is_transactional
    assert header.delete_horizon_ms is None
    assert parse_header(batch()).last_sequence == -1


@pytest.mark.parametrize("position", [16])
@pytest.mark.parametrize("magic", [0, 1, 3, 127])
def test_other_magic_is_refused(position: int, magic: int) -> None:
    data = batch()
    data[position] = magic
    with pytest.raises(MalformedBatch, match=f"magic {magic}"):
        parse_header(data)


@pytest.mark.parametrize("length", [-1, 0, 48])
def test_length_below_the_header_size_is_refused(length: int) -> None:
    data = batch()
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(MalformedBatch, match="batch length"):
        parse_header(data)


def test_too_few_bytes_are_refused() -> None:
    with pytest.raises(MalformedBatch, match="60 bytes"):
        parse_header(bytes(batch()[:60]))


def test_headers_are_walked_up_to_an_incomplete_batch() -> None:
    one, two = batch(1), batch(2, base_offset=1)
    assert [(p, h.base_offset) for p, h in iter_headers(one + two + batch()[:-1])] == [(0, 0), (len(one), 1)]
    assert list(iter_headers(b"")) == []


def test_offset_and_epoch_are_patched_outside_of_the_checksum() -> None:
    data = bytearray(b"xx") + batch()
    patch(data, 2, 2**40, LeaderEpoch(7))
    header = parse_header(data, 2)
    assert (header.base_offset, header.leader_epoch) == (2**40, 7)
    assert crc_is_valid(data, 2, header.size)


def test_log_append_time_is_patched_with_a_new_checksum() -> None:
    data = batch()
    patch_log_append_time(memoryview(data), 0, len(data), 5555)
    header = parse_header(data)
    assert (header.max_timestamp, header.timestamp_type) == (5555, TimestampType.LOG_APPEND_TIME)
    assert crc_is_valid(data, 0, len(data))


@more_examples
@given(position=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_flipped_bit_after_the_checksum_is_detected(position: int, bit: int) -> None:
    data = batch()
    data[17 + position % (len(data) - 17)] ^= 1 << bit
    assert not crc_is_valid(data, 0, len(data))


def test_packing_computes_length_magic_and_checksum() -> None:
    header = parse_header(batch())._replace(batch_length=1, magic=9, crc=4, base_offset=77)
    packed = pack_batch(header, b"body")
    assert parse_header(packed).size == len(packed) == 65
    assert parse_header(packed).base_offset == 77
    assert crc_is_valid(packed, 0, len(packed))


@given(st.integers(0, MAX_SEQUENCE), st.integers(-MAX_SEQUENCE, MAX_SEQUENCE))
def test_sequences_wrap_from_the_greatest_to_zero(sequence: int, increment: int) -> None:
    assert next_sequence(sequence, increment) == (sequence + increment) % 2**31
