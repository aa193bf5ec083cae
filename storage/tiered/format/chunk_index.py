"""Index of the chunks of a file in the object that stores it (Aiven's "chunk index").

A file is cut into chunks of one size; the last one may be shorter. Stored chunks are adjacent. With encryption or no
transformation all but the last have one size (fixed); with compression each has its own (variable). An empty file has
no chunks.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import field
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from protocol.lazy_dataclass import lazy_dataclass

_INT = struct.Struct(">i")
_HEAD = struct.Struct(">iib")
_MAX_INT = 2**31 - 1


class Chunk(NamedTuple):
    """Chunk `number` of a file: its position in the file and in the object. Positions and sizes in bytes."""

    number: int
    position: int
    size: int
    stored_position: int
    stored_size: int


@lazy_dataclass(frozen=True, slots=True)
class FixedChunkIndex:
    """Index of chunks of one stored size. Raises ValueError for inconsistent sizes."""

    chunk_size: int
    file_size: int
    stored_chunk_size: int
    stored_final_chunk_size: int

    def __post_init__(self) -> None:
        _check_sizes(self.chunk_size, self.file_size, (self.stored_chunk_size, self.stored_final_chunk_size))

    @property
    def count(self) -> int:
        return -(-self.file_size // self.chunk_size)

    @property
    def stored_size(self) -> int:
        """Size of the whole object."""
        return (self.count - 1) * self.stored_chunk_size + self.stored_final_chunk_size if self.count else 0

    def chunk(self, number: int) -> Chunk:
        """Return the chunk with a number below `count`."""
        position = number * self.chunk_size
        is_final = number == self.count - 1
        return Chunk(
            number,
            position,
            min(self.chunk_size, self.file_size - position),
            number * self.stored_chunk_size,
            self.stored_final_chunk_size if is_final else self.stored_chunk_size,
        )


@lazy_dataclass(frozen=True, slots=True)
class VariableChunkIndex:
    """Index of chunks of different stored sizes. Raises ValueError for inconsistent sizes."""

    chunk_size: int
    file_size: int
    stored_sizes: tuple[int, ...]
    _ends: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_sizes(self.chunk_size, self.file_size, self.stored_sizes)
        count = -(-self.file_size // self.chunk_size)
        if len(self.stored_sizes) != count:
            raise ValueError(f"{len(self.stored_sizes)} chunks of {self.chunk_size} do not make {self.file_size} bytes")
        object.__setattr__(self, "_ends", tuple(accumulate(self.stored_sizes)))

    @property
    def count(self) -> int:
        return len(self.stored_sizes)

    @property
    def stored_size(self) -> int:
        """Size of the whole object."""
        return self._ends[-1] if self._ends else 0

    def chunk(self, number: int) -> Chunk:
        """Return the chunk with a number below `count`."""
        position = number * self.chunk_size
        stored_size = self.stored_sizes[number]
        return Chunk(
            number,
            position,
            min(self.chunk_size, self.file_size - position),
            self._ends[number] - stored_size,
            stored_size,
        )


ChunkIndex: TypeAlias = FixedChunkIndex | VariableChunkIndex


def _check_sizes(chunk_size: int, file_size: int, stored_sizes: Iterable[int]) -> None:
    if chunk_size <= 0:
        raise ValueError(f"chunk size {chunk_size} is not positive")
    if file_size < 0 or min(stored_sizes, default=0) < 0:
        raise ValueError("a file or chunk size is negative")


def chunk_index(
    chunk_size: int, file_size: int, stored_sizes: Sequence[int], stored_chunk_size: int | None
) -> ChunkIndex:
    """Return the index of a file that was stored in chunks of `stored_sizes`.

    `stored_chunk_size` is the stored size of every whole chunk; None if it varies. Raises ValueError.
    """
    if stored_chunk_size is None and stored_sizes:
        return VariableChunkIndex(chunk_size, file_size, tuple(stored_sizes))
    whole = chunk_size if stored_chunk_size is None else stored_chunk_size
    index = FixedChunkIndex(chunk_size, file_size, whole, stored_sizes[-1] if stored_sizes else 0)
    if index.count != len(stored_sizes) or any(size != whole for size in stored_sizes[:-1]):
        raise ValueError(f"{len(stored_sizes)} stored chunks of unequal size do not fit {file_size} bytes")
    return index


def chunks_of(index: ChunkIndex, first: int, last: int) -> range:
    """Return the numbers of the chunks with the bytes `first` to `last`; `last` is at most the last file byte."""
    return range(first // index.chunk_size, min(last // index.chunk_size + 1, index.count))


def encode_sizes(sizes: Sequence[int]) -> bytes:
    """Encode chunk sizes, big-endian: count int32, base int32, width int8, all but the last as (size - base) in `width`
    bytes, the last as int32. A single size has no base and no width; no sizes are a count alone.
    """
    if not sizes:
        return _INT.pack(0)
    *most, last = sizes
    if not most:
        return _INT.pack(1) + _INT.pack(last)
    base = min(most)
    width = max(1, -(-(max(most) - base).bit_length() // 8))
    body = b"".join((size - base).to_bytes(width, "big") for size in most)
    return _HEAD.pack(len(sizes), base, width) + body + _INT.pack(last)


def decode_sizes(data: bytes) -> tuple[int, ...]:
    """Decode chunk sizes. Raises ValueError."""
    if len(data) < _INT.size:
        raise ValueError(f"{len(data)} bytes are too few for chunk sizes")
    (count,) = _INT.unpack_from(data)
    if count < 2:
        return _decode_few(data, count)
    if len(data) < _HEAD.size:
        raise ValueError("chunk sizes are truncated")
    _, base, width = _HEAD.unpack_from(data)
    end = _HEAD.size + (count - 1) * width
    if not 1 <= width <= 4 or base < 0 or len(data) != end + _INT.size:
        raise ValueError(f"{count} chunk sizes of width {width} do not fit {len(data)} bytes")
    most = (base + int.from_bytes(data[at : at + width], "big") for at in range(_HEAD.size, end, width))
    return _checked((*most, *_INT.unpack_from(data, end)))


def _decode_few(data: bytes, count: int) -> tuple[int, ...]:
    if count < 0 or len(data) != _INT.size * (count + 1):
        raise ValueError(f"{count} chunk sizes do not fit {len(data)} bytes")
    return _checked(_INT.unpack_from(data, _INT.size) if count else ())


def _checked(sizes: tuple[int, ...]) -> tuple[int, ...]:
    if any(not 0 <= size <= _MAX_INT for size in sizes):
        raise ValueError("a chunk size is negative or above 2^31 - 1")
    return sizes
