"""Records read column by column equal the records of the node's reader, for any batches."""

import random
import struct
import tracemalloc
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from protocol.ids import LeaderEpoch
from protocol.records.batch import HEADER_SIZE, BatchHeader, TimestampType, iter_headers, pack_batch, write_crc
from protocol.records.builder import Record, build_batch, empty_batch, rebuild_batch
from protocol.records.compression import Codec
from protocol.records.control import ControlType, end_transaction_marker
from protocol.records.errors import MalformedRecords
from protocol.records.reader import iter_records
from spark_jobs.tiered_records.rows import RowLimits, rows_of
from spark_jobs.tiered_records.schema import RECORDS
from storage.index.transaction import AbortedTxn
from storage.tiered.errors import CorruptRemoteData
from tests.spark_jobs.tiered_records.segments import (
    LIMITS,
    arrow_batches,
    in_pieces,
    plain_rows,
    rows,
    segment_of,
    slice_of,
)

BEGAN_MS = 1_700_000_000_000
Headers = Sequence[tuple[str, bytes | None]]


def text(draw: random.Random, sizes: Sequence[int]) -> bytes | None:
    return None if draw.random() < 0.2 else draw.randbytes(draw.choice(sizes))


def headers(draw: random.Random) -> Headers:
    count = draw.choice([0, 0, 0, 1, 2, 5])
    return [(draw.choice(["h", "", "größe", "a" * 70]), text(draw, [0, 1, 100])) for _ in range(count)]


def record(draw: random.Random) -> Record:
    step = draw.choice([0, 1, 7, -20, 3_000, 10**9, -(10**12)])
    return Record(BEGAN_MS + step, text(draw, [0, 4, 11, 13, 64]), text(draw, [0, 1, 30, 130, 9_000]), headers(draw))


def batch(draw: random.Random, base: int) -> bytes:
    """Return a batch of any form, with some or all of its records compacted away."""
    producer_id = draw.choice([-1, -1, 1, 2])
    if producer_id > 0 and draw.random() < 0.2:
        marker = bytearray(end_transaction_marker(ControlType.ABORT, producer_id, 0, 0, BEGAN_MS))
        marker[:8] = base.to_bytes(8, "big")
        return bytes(marker)
    made = build_batch(
        [record(draw) for _ in range(draw.choice([1, 2, 3, 40]))],
        base_offset=base,
        leader_epoch=LeaderEpoch(draw.randrange(4)),
        codec=draw.choice(list(Codec)),
        timestamp_type=draw.choice(list(TimestampType)),
        producer_id=producer_id,
        producer_epoch=0 if producer_id > 0 else -1,
        base_sequence=0 if producer_id > 0 else -1,
        transactional=producer_id > 0,
    )
    match draw.randrange(6):
        case 0:
            return empty_batch(next(iter_headers(made))[1])
        case 1:
            kept = [each for each in iter_records(made) if draw.random() < 0.5]
            horizon = draw.choice([None, BEGAN_MS + 5])
            return rebuild_batch(next(iter_headers(made))[1], kept, delete_horizon_ms=horizon)
    return made


def log(draw: random.Random, count: int) -> list[bytes]:
    batches, offset = [], draw.choice([0, 10**10])
    for _ in range(count):
        batches.append(batch(draw, offset))
        offset = next(iter_headers(batches[-1]))[1].next_offset + draw.choice([0, 0, 5])
    return batches


def aborted(draw: random.Random, batches: Sequence[bytes]) -> list[AbortedTxn]:
    segment = segment_of(batches)
    cuts = sorted(draw.randrange(segment.start_offset, segment.end_offset + 2) for _ in range(4))
    producer = draw.choice([1, 2])
    return [AbortedTxn(producer, cuts[0], cuts[1], 0), AbortedTxn(producer, cuts[1] + 1, cuts[3], 0)]


def limits(draw: random.Random) -> RowLimits:
    sizes = [1, 300, 20_000, 1 << 20]
    return RowLimits(draw.choice(sizes), draw.choice(sizes), draw.choice([1, 7, 1000]), draw.choice(sizes))


@settings(max_examples=20, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(seed=st.integers(0, 2**32))
def test_rows_equal_the_records_of_the_nodes_reader(seed: int) -> None:
    draw = random.Random(seed)
    batches = log(draw, draw.choice([1, 3, 30, 120]))
    data, segment = b"".join(batches), segment_of(batches)
    first = draw.randrange(segment.start_offset, segment.end_offset + 1)
    last = draw.choice([segment.end_offset, draw.randrange(first, segment.end_offset + 1)])
    part = slice_of(batches, first, last, draw.choice([-1, BEGAN_MS]), BEGAN_MS + 10**9 + 1, aborted(draw, batches))
    whole = slice_of(batches)
    piece_bytes = draw.choice([97, 5_000, 1 << 20])
    assert rows(whole, data, limits(draw), piece_bytes) == list(plain_rows(whole, data))
    assert rows(part, data, limits(draw), piece_bytes) == list(plain_rows(part, data))


@settings(max_examples=150, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(seed=st.integers(0, 2**32))
def test_malformed_batches_never_give_different_records(seed: int) -> None:
    """Both readers find the same records in batches of a faulty writer with valid checksums, or raise known errors."""
    draw = random.Random(seed)
    batches = [batch(random.Random(draw.randrange(40)), 0)]
    data = bytearray(batches[0])
    if len(data) == HEADER_SIZE:
        return
    for _ in range(draw.choice([1, 1, 3])):
        data[draw.randrange(HEADER_SIZE, len(data))] = draw.choice([0, 1, 0x7F, 0x80, 0xFF])
    write_crc(data, 0, len(data))
    part = slice_of(batches)
    try:
        found = rows(part, bytes(data))
        expected = list(plain_rows(part, bytes(data)))
    except (CorruptRemoteData, MalformedRecords):
        return
    assert found == expected


def test_batch_of_100000_tiny_records_is_divided_into_arrow_batches() -> None:
    records = [Record(BEGAN_MS + number, None, b"%d" % number) for number in range(100_000)]
    batches = [build_batch(records, codec=codec, base_offset=at * 100_000) for at, codec in enumerate((0, Codec.ZSTD))]
    found = arrow_batches(slice_of(batches), b"".join(batches))
    assert max(each.num_rows for each in found) == LIMITS.rows
    table = pa.Table.from_batches(found)
    assert table.column("offset").to_pylist() == list(range(200_000))
    assert table.column("value").to_pylist() == [each.value for each in records] * 2


def test_large_records_get_their_own_arrow_batches() -> None:
    values = [bytes([number]) * 1_000_000 for number in range(5)]
    batches = [build_batch([Record(1, b"k", value, [("h", value)]) for value in values], codec=Codec.LZ4)]
    found = arrow_batches(slice_of(batches), batches[0], RowLimits(bytes=1_500_000))
    assert [each.num_rows for each in found] == [1] * 5
    assert [value for each in found for value in each.column("value").to_pylist()] == values
    assert found[4].column("headers").to_pylist() == [[{"key": "h", "value": values[4]}]]


def test_unread_data_are_limited_to_a_window() -> None:
    """Consumed pieces are released: pieces are read as rows are consumed."""
    batches = [build_batch([Record(1, None, bytes(1000))] * 10, base_offset=10 * number) for number in range(200)]
    data = b"".join(batches)
    taken = 0

    def pieces() -> Iterator[memoryview]:
        nonlocal taken
        for at in range(0, len(data), 10_000):
            taken += 10_000
            yield memoryview(data)[at : at + 10_000]

    given = rows_of(slice_of(batches), pieces(), 0, len(data), limits=RowLimits(window_bytes=50_000))
    given_bytes = 0
    for each in given:
        given_bytes += each.batch.nbytes
        assert taken <= given_bytes + 70_000


def test_small_compressed_batches_need_little_memory() -> None:
    """A decompressor's smallest output buffer is far larger than these batches."""
    batches = [build_batch([Record(1, None, b"v")], base_offset=each, codec=Codec.ZSTD) for each in range(2000)]
    part, data = slice_of(batches), b"".join(batches)
    tracemalloc.start()
    try:
        assert sum(each.num_rows for each in arrow_batches(part, data)) == 2000
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_varying_header_counts_are_read() -> None:
    few = [(f"h{number}", b"%d" % number) for number in range(3)]
    many = [(f"h{number}", None if number % 3 else b"x" * number) for number in range(400)]
    batches = [build_batch([Record(1, b"k", b"v", many if number == 50 else few) for number in range(100)])]
    part = slice_of(batches)
    assert rows(part, batches[0]) == list(plain_rows(part, batches[0]))


def raw_batch(*contents: bytes, count: int | None = None) -> bytes:
    """Build a batch of records with the given contents, which are shorter than 64 bytes."""
    body = b"".join(bytes([2 * len(content)]) + content for content in contents)
    count = len(contents) if count is None else count
    return pack_batch(BatchHeader(0, 0, LeaderEpoch(0), 2, 0, 0, max(count, 1) - 1, 5, 5, -1, -1, -1, count), body)


GOOD = bytes([0, 0, 0, 1, 2, 7, 0])
"""A record without key and headers, with a value of one byte."""


def test_header_name_with_invalid_utf8_is_replaced() -> None:
    data = raw_batch(GOOD, bytes([0, 0, 2, 1, 1, 2, 4, 0x61, 0xFF, 1]))
    assert [each["headers"] for each in rows(slice_of([data]), data)] == [[], [{"key": "a\ufffd", "value": None}]]


@pytest.mark.parametrize(
    ("timestamp_ms", "shown_us"),
    [(-1, -1000), (-5, -5000), (2**62, (2**63 - 1) // 1000 * 1000), (2**63 - 1, (2**63 - 1) // 1000 * 1000)],
)
def test_any_timestamp_is_read(timestamp_ms: int, shown_us: int) -> None:
    data = build_batch([Record(timestamp_ms, None, b"")])
    assert [each["timestamp"] for each in rows(slice_of([data]), data)] == [shown_us]


@pytest.mark.parametrize(
    "batch",
    [
        raw_batch(GOOD, bytes([0, 0, 2, 1, 2, 7])),  # no count of headers
        raw_batch(GOOD, bytes([0, 0, 2, 1, 20, 7, 0])),  # a value beyond the record
        raw_batch(GOOD, bytes([0, 0, 2, 3, 2, 7, 0])),  # a key of -2 bytes
        raw_batch(GOOD, bytes([0, 0, 2, 1, 2, 7, 1])),  # -1 headers
        raw_batch(GOOD, bytes([0, 0, 2, 1, 2, 7, 60])),  # 30 headers, but no bytes for them
        raw_batch(GOOD, bytes([0, 0, 2, 1, 2, 7, 2, 1, 1])),  # a header without a name
        raw_batch(GOOD, bytes([0, 0, 2, 1, 2, 7, 0, 0])),  # bytes after the headers
        raw_batch(GOOD, bytes([0, 0, *[0x80] * 5, 0, 1, 1, 0])),  # an offset delta of six bytes
        raw_batch(GOOD, GOOD, count=1),
        raw_batch(GOOD, GOOD, count=3),
        raw_batch(GOOD, GOOD, count=5),  # both records and one more
        raw_batch(GOOD, count=2**31 - 1),
        raw_batch(GOOD, count=-1),
        raw_batch(b"\0" * 5),
    ],
)
@pytest.mark.parametrize("copies", [1, 100])
def test_malformed_record_is_refused_with_its_batch(batch: bytes, copies: int) -> None:
    batches = [raw_batch(GOOD)] * copies + [batch] * copies
    data = b"".join(struct.pack(">q", number) + each[8:] for number, each in enumerate(batches))
    with pytest.raises(CorruptRemoteData, match=f"the batch at offset {copies}, byte {copies * len(batches[0])}: the"):
        rows(slice_of([data[: len(batches[0])], data[-len(batch) :]]), data)


def damaged(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("at", "sentence"),
    [
        (HEADER_SIZE + 3, "the batch at offset 3, byte {size}: the checksum does not match"),
        (0, "the batch at offset 46[0-9]+, byte {size}: the batch does not belong to this segment"),
        (16, "byte {size}: magic 66 and length [0-9]+ are invalid"),
        (8, "byte {size}: magic 2 and length 1[0-9]+ are invalid"),
    ],
)
def test_corruption_is_reported_after_the_preceding_batches(at: int, sentence: str) -> None:
    batches = [build_batch([Record(1, None, b"v")] * 3, base_offset=3 * number) for number in range(3)]
    data, size = b"".join(batches), len(batches[0])
    pieces = in_pieces(damaged(data, size + at), 50)
    given = rows_of(slice_of(batches), pieces, 0, len(data), limits=RowLimits(window_bytes=1))
    assert next(given).batch.column("offset").to_pylist() == [0, 1, 2]
    with pytest.raises(CorruptRemoteData, match=sentence.format(size=size)):
        next(given)
    assert len(rows(slice_of(batches, last=2), damaged(data, size + at))) == 3, (
        "batches outside the range may be damaged"
    )


@pytest.mark.parametrize("missing", [1, 80])
def test_truncated_segment_is_refused(missing: int) -> None:
    data = build_batch([Record(1, None, b"v")] * 3)
    whole = data + build_batch([Record(1, None, b"v")] * 3, base_offset=3)
    with pytest.raises(CorruptRemoteData, match="the segment ends early, at byte"):
        list(rows_of(slice_of([data, whole[len(data) :]]), in_pieces(whole[:-missing], 60), 0, len(whole)))


def test_only_requested_columns_are_built() -> None:
    data = raw_batch(GOOD, GOOD)
    schema = pa.schema([RECORDS.field("value"), pa.field("offset", pa.int64())])
    (found,) = arrow_batches(slice_of([data]), data, schema=schema)
    assert found.schema == schema
    assert found.to_pydict() == {"value": [b"\7", b"\7"], "offset": [0, 0]}
