"""Byte strings in buffers: from any Arrow column, and copied by length."""

import random

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.metadata.byte_columns import (
    Strings,
    binary_array,
    distinct,
    fixed_array,
    int_array,
    integers_at,
    is_null,
    numbers,
    strings_of,
    take_bytes,
)


@pytest.mark.parametrize("type", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_strings_are_read_from_any_column_type(type: pa.DataType) -> None:
    values = ["", "a", "bcd", None, "e" * 300]
    expected = [(value or "").encode() for value in values]
    array = pa.array(values, type)
    assert strings_of(array).to_list() == expected
    assert strings_of(array.slice(1, 3)).to_list() == expected[1:4]
    assert strings_of(array.slice(1, 3)).pool.tobytes() == b"".join(expected[1:4])
    chunked = pa.chunked_array([array.slice(0, 2), array.slice(2)])
    assert strings_of(chunked).to_list() == expected
    assert strings_of(pa.chunked_array([], type)).to_list() == []
    assert is_null(chunked).tolist() == [False, False, False, True, False]


def test_fixed_size_strings_are_read() -> None:
    array = pa.array([b"ab", b"cd", b"ef"], pa.binary(2))
    assert strings_of(array.slice(1)).to_list() == [b"cd", b"ef"]
    assert fixed_array(np.frombuffer(b"abcdef", np.uint8), 2) == array


@pytest.mark.parametrize("kinds", [1, 3, 100])
def test_copies_handle_few_and_many_lengths(kinds: int) -> None:
    draw = random.Random(kinds)
    pool = np.frombuffer(draw.randbytes(5_000), np.uint8)
    sizes = [draw.randrange(200) for _ in range(kinds)]
    lengths = np.array([draw.choice(sizes) for _ in range(500)])
    starts = np.array([draw.randrange(5_000 - size) for size in lengths.tolist()])
    strings = Strings(pool, starts, lengths)
    expected = [strings.value(row) for row in range(500)]
    assert take_bytes(pool, starts, lengths).tobytes() == b"".join(expected)
    assert strings.array().to_pylist() == expected
    assert strings.take(lengths == sizes[0]).to_list() == [each for each in expected if len(each) == sizes[0]]


def test_numbers_are_read_from_any_integer_column() -> None:
    for type in (pa.int8(), pa.int16(), pa.int32(), pa.int64()):
        array = pa.array([1, -2, None, 4], type)
        assert numbers(array)[[0, 1, 3]].tolist() == [1, -2, 4]
        assert numbers(array.slice(1, 1)).tolist() == [-2]
        assert numbers(pa.array([], type)).tolist() == []
    assert int_array(np.array([1, 2]), pa.int16(), np.array([False, True])).to_pylist() == [1, None]
    pool = np.frombuffer(b"x\xff\xff\xff\xfe\x00\x00\x00\x05", np.uint8)
    assert integers_at(pool, np.array([1, 5])).tolist() == [-2, 5]
    assert integers_at(np.empty(0, np.uint8), np.empty(0, np.int64)).tolist() == []


def test_distinct_returns_sorted_unique_values() -> None:
    assert distinct(np.array([], np.int64)) == []
    assert distinct(np.array([7, 7])) == [7]
    assert distinct(np.array([9, 0, 9, 3])) == [0, 3, 9]
    assert distinct(np.array([1 << 40, 5])) == [5, 1 << 40]


def test_binary_arrays_keep_their_nulls() -> None:
    array = binary_array(b"abc", np.array([1, 0, 2]), pa.string(), np.array([False, True, False]))
    assert array.to_pylist() == ["a", None, "bc"]
    array.validate(full=True)
