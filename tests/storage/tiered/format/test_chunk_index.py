from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.tiered.format.chunk_index import (
    Chunk,
    FixedChunkIndex,
    VariableChunkIndex,
    chunk_index,
    chunks_of,
    decode_sizes,
    encode_sizes,
)

SIZES = st.lists(st.integers(0, 2**31 - 1), max_size=50)


def test_fixed_chunks_lie_one_after_another() -> None:
    index = FixedChunkIndex(100, 250, 110, 30)
    assert [index.chunk(number) for number in range(index.count)] == [
        Chunk(0, 0, 100, 0, 110),
        Chunk(1, 100, 100, 110, 110),
        Chunk(2, 200, 50, 220, 30),
    ]
    assert index.stored_size == 250


def test_variable_chunks_lie_one_after_another() -> None:
    index = VariableChunkIndex(100, 250, (10, 20, 30))
    assert [index.chunk(number) for number in range(index.count)] == [
        Chunk(0, 0, 100, 0, 10),
        Chunk(1, 100, 100, 10, 20),
        Chunk(2, 200, 50, 30, 30),
    ]
    assert index.stored_size == 60


@given(st.integers(1, 50), st.integers(0, 500), st.booleans(), st.data())
def test_chunks_cover_file_and_object_without_gap(size: int, total: int, is_fixed: bool, data: st.DataObject) -> None:
    count = -(-total // size)
    stored = (
        [size + 28] * count if is_fixed else data.draw(st.lists(st.integers(1, 99), min_size=count, max_size=count))
    )
    index = chunk_index(size, total, stored, size + 28 if is_fixed else None)
    chunks = [index.chunk(number) for number in range(index.count)]
    assert [chunk.stored_size for chunk in chunks] == stored
    assert sum(chunk.size for chunk in chunks) == total
    assert index.stored_size == sum(stored)
    for one, other in pairwise(chunks):
        assert other.position == one.position + one.size
        assert other.stored_position == one.stored_position + one.stored_size


@given(st.integers(1, 50), st.integers(1, 500), st.data())
def test_chunks_of_a_range_overlap_its_bytes(size: int, total: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, total - 1))
    last = data.draw(st.integers(first, total - 1))
    index = FixedChunkIndex(size, total, size, 1)
    chunks = [index.chunk(number) for number in range(index.count)]
    expected = [each.number for each in chunks if each.position <= last and first < each.position + each.size]
    assert list(chunks_of(index, first, last)) == expected


@pytest.mark.parametrize("sizes", [(100, 110, 30), (100, 100, 30), (110, 30), (110, 110, 110, 30)])
def test_chunks_of_unequal_size_have_no_fixed_index(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="of unequal size"):
        chunk_index(100, 250, sizes, 110)


def test_small_file_keeps_stored_size_of_whole_chunk() -> None:
    assert chunk_index(100, 30, [58], 128) == FixedChunkIndex(100, 30, 128, 58)
    assert chunk_index(100, 30, [12], None) == VariableChunkIndex(100, 30, (12,))


def test_empty_file_has_no_chunks() -> None:
    for stored_chunk_size in (128, None):
        index = chunk_index(100, 0, [], stored_chunk_size)
        assert (index.count, index.stored_size) == (0, 0)


@pytest.mark.parametrize(
    "sizes", [(0, 10, 1, 1), (1, -1, 1, 1), (1, 10, -1, 1), (1, 10, 1, -1)], ids=["chunk", "file", "stored", "final"]
)
def test_nonpositive_chunk_size_and_negative_sizes_are_refused(sizes: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"is not positive|is negative"):
        FixedChunkIndex(*sizes)


def test_index_with_missing_chunks_is_refused() -> None:
    with pytest.raises(ValueError, match="2 chunks of 100 do not make 250 bytes"):
        VariableChunkIndex(100, 250, (10, 20))


def test_sizes_are_encoded_as_by_the_plugin() -> None:
    assert encode_sizes([10, 20, 30]) == bytes.fromhex("00000003 0000000a 01 00 0a 0000001e")


@pytest.mark.parametrize(
    ("sizes", "width"),
    [
        ([0, 1000, 2, 44002, 369], 2),
        ([2**31 - 1, 2**31 - 2, 10], 1),
        ([7, 7, 7], 1),
        ([1, 0xFF + 1, 5], 1),
        ([1, 0xFF + 2, 5], 2),
        ([1, 0xFFFF + 2, 5], 3),
        ([1, 0xFFFFFF + 2, 5], 4),
    ],
)
def test_size_width_follows_the_range_of_sizes(sizes: list[int], width: int) -> None:
    encoded = encode_sizes(sizes)
    assert encoded[8] == width
    assert len(encoded) == 4 + 4 + 1 + (len(sizes) - 1) * width + 4


@given(SIZES)
def test_encoding_round_trips(sizes: list[int]) -> None:
    assert decode_sizes(encode_sizes(sizes)) == tuple(sizes)


@given(st.binary(max_size=40))
def test_random_bytes_are_refused_or_round_trip(data: bytes) -> None:
    try:
        sizes = decode_sizes(data)
    except ValueError:
        return
    assert decode_sizes(encode_sizes(sizes)) == sizes


@pytest.mark.parametrize(
    "data",
    [
        "",
        "0000",
        "ffffffff",
        "00000001",
        "00000001 ffffffff",
        "00000002",
        "00000003 0000000a 01 00 0a 0000001e 00",
        "00000003 0000000a 00 0000001e",
        "00000002 ffffffff 01 00 00000001",
        "7fffffff 00000000 04 00 0000001e",
    ],
)
def test_invalid_size_encodings_are_refused(data: str) -> None:
    with pytest.raises(ValueError, match="chunk size"):
        decode_sizes(bytes.fromhex(data))
