"""Columns of byte strings in one shared buffer, and copies of many strings without a step per string.

Values are copied by length: all values of one length at a time, as items of that many bytes. Metadata has few lengths
(a replica list of three is always twelve bytes), so this costs some ten nanoseconds per value.
"""

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_MAX_LENGTHS: Final = 64
"""With more lengths than this, values are copied byte by byte."""
_COUNTED: Final = 1 << 16
"""Values below this limit are distinguished by counting."""


class Strings(NamedTuple):
    """Byte strings in `pool`, each with its start and length."""

    pool: Bytes
    starts: Ints
    lengths: Ints

    def take(self, rows: Ints | Bools) -> "Strings":
        """Return the strings of some rows in the given order, without copying."""
        return Strings(self.pool, self.starts[rows], self.lengths[rows])

    def joined(self) -> Bytes:
        """Return the concatenated strings."""
        return take_bytes(self.pool, self.starts, self.lengths)

    def array(self, type: pa.DataType | None = None, nulls: Bools | None = None) -> pa.Array:
        """Return the strings as an Arrow array, binary by default."""
        return binary_array(self.joined(), self.lengths, type, nulls)

    def to_list(self) -> list[bytes]:
        """Return the strings as Python objects."""
        data, ends = self.joined().tobytes(), np.cumsum(self.lengths)
        bounds = zip((ends - self.lengths).tolist(), ends.tolist(), strict=True)
        return [data[start:end] for start, end in bounds]

    def value(self, row: int) -> bytes:
        start = int(self.starts[row])
        return self.pool[start : start + int(self.lengths[row])].tobytes()


def strings_of(column: pa.Array | pa.ChunkedArray) -> Strings:
    """Return the values of a binary, string or fixed-size binary column without copying; null is empty.

    The pool holds nothing else, also if the column is a slice.
    """
    array = flat(column)
    if pa.types.is_fixed_size_binary(array.type):
        return _fixed_strings(array)
    _, offsets, data = array.buffers()
    is_large = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    width = np.int64 if is_large else np.int32
    bounds = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    pool = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    first, end = int(bounds[0]), int(bounds[-1])
    return Strings(pool[first:end], bounds[:-1] - first, bounds[1:] - bounds[:-1])


def flat(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks == 1:
            return column.chunk(0)
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column


def numbers(column: pa.Array | pa.ChunkedArray) -> Ints:
    """Return the values of an integer column; the value of a null is undefined."""
    array = flat(column)
    values = array.buffers()[1]
    if values is None:
        return np.zeros(len(array), np.int64)
    width = np.dtype(f"i{array.type.bit_width // 8}")
    return np.frombuffer(values, width)[array.offset : array.offset + len(array)].astype(np.int64)


def booleans(column: pa.Array | pa.ChunkedArray) -> Bools:
    """Return the values of a boolean column without nulls."""
    values: Bools = flat(column).to_numpy(zero_copy_only=False).astype(np.bool_)
    return values


def is_null(column: pa.Array | pa.ChunkedArray) -> Bools:
    """Return a mask of the nulls of a column."""
    return booleans(flat(column).is_null())


def int_array(values: npt.NDArray[Any], type: pa.DataType, nulls: Bools | None = None) -> pa.Array:
    """Return an Arrow array of integers with the given nulls."""
    return pa.array(values.astype(type.to_pandas_dtype(), copy=False), type, mask=nulls)


def binary_array(
    data: bytes | Bytes, lengths: Ints, type: pa.DataType | None = None, nulls: Bools | None = None
) -> pa.Array:
    """Return an Arrow array of the strings concatenated in `data`. A null has no bytes."""
    bounds = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=bounds[1:])
    kind = pa.binary() if type is None else type
    return pa.Array.from_buffers(kind, len(lengths), [_validity(nulls), pa.py_buffer(bounds), pa.py_buffer(data)])


def fixed_array(data: Bytes, width: int, nulls: Bools | None = None) -> pa.Array:
    """Return an Arrow array of strings of `width` bytes; nulls have bytes too."""
    count = len(data) // width
    return pa.Array.from_buffers(pa.binary(width), count, [_validity(nulls), pa.py_buffer(np.ascontiguousarray(data))])


def take_bytes(pool: Bytes, starts: Ints, lengths: Ints) -> Bytes:
    """Return the concatenation of the strings at these positions."""
    ends = np.cumsum(lengths)
    out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    put_bytes(out, ends - lengths, pool, starts, lengths)
    return out


def put_bytes(out: Bytes, places: Ints, pool: Bytes, starts: Ints, lengths: Ints) -> None:
    """Copy strings to their places in `out`."""
    sizes = distinct(lengths)
    if len(sizes) > _MAX_LENGTHS:
        _put_one_by_one(out, places, pool, starts, lengths)
        return
    for size in sizes:
        if size:
            rows = slice(None) if len(sizes) == 1 else np.flatnonzero(lengths == size)
            items(out, size)[places[rows]] = items(pool, size)[starts[rows]]


def distinct(values: Ints) -> list[int]:
    """Return the distinct values of a column of non-negative numbers, ascending."""
    if not len(values):
        return []
    least, greatest = int(values.min()), int(values.max())
    if least == greatest:
        return [least]
    found = np.flatnonzero(np.bincount(values)) if greatest < _COUNTED else np.unique(values)
    return list(found.tolist())


def items(pool: Bytes, size: int) -> npt.NDArray[Any]:
    """Return a view of a buffer as overlapping items of `size` bytes, indexed by their start."""
    count = max(0, len(pool) - size + 1)
    return np.ndarray((count,), f"V{size}", pool.data if count else b"", strides=(1,))


def integers_at(pool: Bytes, places: Ints, size: int = 4) -> Ints:
    """Return the signed big-endian integers that begin at these positions."""
    count = max(0, len(pool) - size + 1)
    values = np.ndarray((count,), f">i{size}", pool.data if count else b"", strides=(1,))
    return values[places].astype(np.int64)


def _put_one_by_one(out: Bytes, places: Ints, pool: Bytes, starts: Ints, lengths: Ints) -> None:
    within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    out[np.repeat(places, lengths) + within] = pool[np.repeat(starts, lengths) + within]


def _fixed_strings(array: pa.Array) -> Strings:
    width = array.type.byte_width
    data = array.buffers()[1]
    pool = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    starts = np.arange(len(array), dtype=np.int64) * width
    first = array.offset * width
    return Strings(pool[first : first + len(array) * width], starts, np.full(len(array), width, np.int64))


def _validity(nulls: Bools | None) -> pa.Buffer | None:
    return None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
