"""Many batches scanned together give the values of each alone, whatever records are among them."""

import random
import re
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from broker.metadata.image.records import encode_record
from protocol.ids import LeaderEpoch
from protocol.messages.metadata_records import ConfigRecord, NoOpRecord, PartitionChangeRecord
from protocol.primitives import Uuid
from protocol.records.batch import HEADER_SIZE, iter_headers, write_crc
from protocol.records.builder import Record, build_batch
from protocol.records.compression import Codec
from spark_jobs.metadata.log_rows import MalformedLog, rows_of
from spark_jobs.metadata.record_scan import MIN_LANES
from tests.spark_jobs.metadata.logs import FOREVER


def frame(draw: random.Random) -> bytes:
    match draw.randrange(4):
        case 0:
            return encode_record(NoOpRecord(), 0)
        case 1:
            text = "v" * draw.choice([0, 30, 60, 100, 8_000, 16_500])
            return encode_record(ConfigRecord(2, "t", "k", text), 0)
        case _:
            return encode_record(PartitionChangeRecord(1, Uuid(bytes(16)), isr=[1] * draw.randrange(40)), 2)


def batch(draw: random.Random, base: int, *, plain: bool) -> bytes:
    count = draw.choice([1, 2, 5, 30, 70])
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    step = 0
    if not plain:
        key = draw.choice([None, b"", b"key"])
        headers = draw.choice([(), (("h", b"v"),)])
        step = draw.choice([0, 1, 1_000, -7])
    codec = Codec.NONE if plain else draw.choice([Codec.NONE, Codec.NONE, Codec.LZ4])
    records = [Record(10_000 + step * number, key, frame(draw), headers) for number in range(count)]
    return build_batch(records, base_offset=base, leader_epoch=LeaderEpoch(1), codec=codec)


def log(draw: random.Random) -> list[bytes]:
    batches, offset = [], 0
    for _ in range(2 * MIN_LANES):
        batches.append(batch(draw, offset, plain=draw.random() < 0.8))
        offset += next(iter_headers(batches[-1]))[1].record_count
    return batches


def one_by_one(batches: list[bytes]) -> pa.Table:
    return pa.Table.from_batches([rows_of(each, start=0, end=FOREVER) for each in batches]).combine_chunks()


def together(batches: list[bytes]) -> pa.Table:
    return pa.Table.from_batches([rows_of(b"".join(batches), start=0, end=FOREVER)])


@settings(max_examples=30, phases=[Phase.explicit, Phase.generate])
@given(draw=st.randoms(use_true_random=False))
def test_vectorized_scan_equals_the_scan_by_batch(draw: random.Random) -> None:
    batches = log(draw)
    assert together(batches) == one_by_one(batches)


@settings(max_examples=150, phases=[Phase.explicit, Phase.generate])
@given(draw=st.randoms(use_true_random=False))
def test_damage_covered_by_the_checksum_gives_equal_rows_or_refusals(draw: random.Random) -> None:
    """A broken writer: the same rows, or the same refusal."""
    batches = log(random.Random(draw.randrange(3)))
    broken = draw.randrange(len(batches))
    data = bytearray(batches[broken])
    for _ in range(draw.choice([1, 1, 3])):
        data[draw.randrange(HEADER_SIZE, min(len(data), HEADER_SIZE + 300))] = draw.choice([0, 1, 0x7F, 0x80, 0xFF])
    write_crc(data, 0, len(data))
    batches[broken] = bytes(data)
    try:
        expected = one_by_one(batches)
    except MalformedLog as error:
        with pytest.raises(MalformedLog, match=re.escape(str(error).partition(":")[0])):
            together(batches)
    else:
        assert together(batches) == expected


@pytest.mark.parametrize("attributes", [0x01, 0x80, 0xFF])
def test_attributes_of_records_are_ignored(attributes: int) -> None:
    plain = log(random.Random(1))
    changed = bytearray(plain[0])
    first = HEADER_SIZE
    while changed[first] & 0x80:
        first += 1
    changed[first + 1] = attributes
    write_crc(changed, 0, len(changed))
    batches = [bytes(changed), *plain[1:]]
    assert one_by_one(batches) == one_by_one(plain)
    assert together(batches) == one_by_one(plain)


def test_batch_of_exceptional_length_is_scanned() -> None:
    draw = random.Random(1)
    batches = log(draw)
    end = next(iter_headers(batches[-1]))[1].next_offset
    records = [Record(5, None, encode_record(NoOpRecord(), 0)) for _ in range(9_000)]
    batches.append(build_batch(records, base_offset=end, leader_epoch=LeaderEpoch(1)))
    assert together(batches) == one_by_one(batches)
    assert together(batches[-1:]) == one_by_one(batches[-1:])


def test_three_byte_offset_deltas_are_scanned() -> None:
    count, batches = 9_000, []
    for number in range(MIN_LANES):
        records = [Record(5, None, encode_record(NoOpRecord(), 0))] * count
        batches.append(build_batch(records, base_offset=number * count, leader_epoch=LeaderEpoch(1)))
    assert together(batches) == one_by_one(batches)
