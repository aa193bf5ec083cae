"""Batches from the bytes of a remote segment, which arrive in pieces of any size.

Adjacent batches in one piece are checked in place (`parts_of`); batches across pieces, or ones to be searched for, go
through a `BatchStream`. This module does not know the source of the bytes.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from protocol.records.batch import (
    ATTRIBUTES_POSITION,
    CONTROL_FLAG,
    HEADER_SIZE,
    LENGTH_PREFIX_SIZE,
    MAGIC,
    MIN_BATCH_LENGTH,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    crc_is_valid,
    parse_header,
)
from protocol.records.compiled import crc32c
from protocol.records.errors import MalformedBatch
from storage.tiered.errors import CorruptRemoteData
from storage.tiered.segment_metadata import RemoteSegment

_ESSENTIALS: Final = struct.Struct(">qi4xbIhi")
"""Base offset, length, magic, checksum, attributes, last offset delta."""
_AHEAD_BYTES: Final = 4096
"""Bytes copied beyond a header: the distance between two index entries."""
_TRANSACTIONAL_OR_CONTROL: Final = TRANSACTIONAL_FLAG | CONTROL_FLAG


class RemoteBatches(NamedTuple):
    """Whole batches as they were copied. `next_offset` follows the last; `is_transactional`: some belong to
    transactions.

    Without `data`, `next_offset` is the requested offset if limits excluded every batch, or the offset after the
    segment if compaction removed the rest of it.
    """

    data: memoryview
    next_offset: int
    is_transactional: bool = False


class ReadRange(NamedTuple):
    """A read: whole batches from the one with `offset` on, completely below `upper`, at most `max_bytes`.

    The first batch is returned whole, however large, so that readers make progress. A sequential reader may request
    parts of `max_bytes` each, `block_bytes` in all, where they are available without a copy, and passes in `position`
    the end of its last read in the segment.
    """

    offset: int
    upper: int
    max_bytes: int
    block_bytes: int = 0
    position: int | None = None


class RemoteBlock(NamedTuple):
    """Adjacent parts, at least one. `next_position` is the end of the last one in the segment, and `held_bytes` the
    memory that any of them keeps alive.
    """

    parts: tuple[RemoteBatches, ...]
    next_position: int
    held_bytes: int

    @property
    def next_offset(self) -> int:
        """The offset after the last part."""
        return self.parts[-1].next_offset

    @property
    def size_bytes(self) -> int:
        """Size of all parts."""
        return sum(len(part.data) for part in self.parts)


def block_of(batches: RemoteBatches, next_position: int = 0) -> RemoteBlock:
    """Wrap one part that has its own memory."""
    return RemoteBlock((batches,), next_position, len(batches.data))


class BatchStream:
    """Iterator over batches in pieces of any size. At a batch its header is known, and its bytes on request.

    Passed bytes are dropped.
    """

    def __init__(self, segment: RemoteSegment, position: int, pieces: Iterator[memoryview]) -> None:
        self._segment = segment
        self._pieces = pieces
        self._piece = memoryview(b"")
        self._buffer = bytearray()
        self._begins = position
        """Position of the buffer in the segment."""
        self._at = 0
        """Position of the present batch in the buffer."""
        self._size = 0
        """Size of the present batch."""

    def close(self) -> None:
        """Close the object's stream."""
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()

    @property
    def position(self) -> int:
        """Position of the present batch in the segment."""
        return self._begins + self._at

    def __iter__(self) -> "BatchStream":
        return self

    def __next__(self) -> BatchHeader:
        """Advance to the next batch. Raises CorruptRemoteData for invalid or foreign batches."""
        self._at += self._size
        self._size = 0
        if not self._fill(HEADER_SIZE):
            if self.position != self._segment.size_bytes:
                raise self._corrupt(f"the segment of {self._segment.size_bytes} bytes ends early")
            raise StopIteration
        try:
            header = parse_header(self._buffer, self._at)
        except MalformedBatch as error:
            raise self._corrupt(str(error)) from error
        if not self._segment.start_offset <= header.base_offset <= self._segment.end_offset:
            raise self._corrupt(f"offset {header.base_offset} is outside the segment")
        self._size = header.size
        return header

    def rest(self, max_bytes: int) -> memoryview:
        """Return at least `max_bytes` from the present batch on, or everything left. Ends the stream."""
        self._fill(max_bytes)
        return self.so_far()

    def so_far(self) -> memoryview:
        """Return the buffered bytes from the present batch on. Ends the stream."""
        return memoryview(self._buffer)[self._at :]

    def batch(self) -> bytes:
        """Return the present batch. Raises CorruptRemoteData."""
        if not self._fill(self._size):
            raise self._corrupt("a batch is truncated")
        if not crc_is_valid(self._buffer, self._at, self._size):
            raise self._corrupt("a checksum does not match")
        return bytes(self._buffer[self._at : self._at + self._size])

    def _fill(self, size: int) -> bool:
        """Buffer `size` bytes from the beginning of the present batch; return whether they exist.

        A piece may be large and shared with other readers, so no more of it is copied than is needed now or soon.
        """
        while len(self._buffer) < self._at + size:
            self._drop_passed()
            if not len(self._piece):
                piece = next(self._pieces, None)
                if piece is None:
                    return False
                self._piece = piece
            if self._at:
                self._skip_in_piece()
            else:
                taken = max(size - len(self._buffer), _AHEAD_BYTES if size == HEADER_SIZE else 0)
                self._buffer += self._piece[:taken]
                self._piece = self._piece[taken:]
        return True

    def _skip_in_piece(self) -> None:
        """Skip to the present batch, which begins beyond the empty buffer."""
        skipped = min(self._at, len(self._piece))
        self._piece = self._piece[skipped:]
        self._begins += skipped
        self._at -= skipped

    def _drop_passed(self) -> None:
        passed = min(self._at, len(self._buffer))
        del self._buffer[:passed]
        self._begins += passed
        self._at -= passed

    def _corrupt(self, reason: str) -> CorruptRemoteData:
        return CorruptRemoteData(f"{self._segment.id} at {self.position}: {reason}")


def within(segment: RemoteSegment, piece: memoryview, position: int, wanted: ReadRange) -> RemoteBlock | None:
    """Return the requested batches within a piece at `position`, without a copy; None unless that is worth it: at least
    half of the memory that the piece keeps alive must be requested, and half of a part be present. Raises
    CorruptRemoteData.
    """
    begin = _begin_in(segment, piece, wanted.offset)
    held_bytes = memoryview(piece.obj).nbytes
    data = piece[begin : begin + wanted.block_bytes]
    if len(data) < HEADER_SIZE or 2 * len(data) < max(held_bytes, wanted.max_bytes) or _size_of(data) > len(data):
        return None
    parts, end = parts_of(segment, data, wanted)
    return RemoteBlock(parts, position + begin + end, held_bytes)


def _size_of(data: memoryview) -> int:
    """Return the size of the first batch."""
    _, length, *_ = _ESSENTIALS.unpack_from(data)
    return int(length) + LENGTH_PREFIX_SIZE


def _begin_in(segment: RemoteSegment, piece: memoryview, offset: int) -> int:
    """Return the position of the batch with `offset`, or the first after it; the end if it is not in the piece or an
    invalid batch precedes it.
    """
    at = 0
    while at + HEADER_SIZE <= len(piece):
        base, length, magic, _, _, delta = _ESSENTIALS.unpack_from(piece, at)
        if magic != MAGIC or length < MIN_BATCH_LENGTH or not segment.start_offset <= base <= segment.end_offset:
            break
        if base + delta >= offset:
            return at
        at += length + LENGTH_PREFIX_SIZE
    return len(piece)


def parts_of(segment: RemoteSegment, data: memoryview, wanted: ReadRange) -> tuple[tuple[RemoteBatches, ...], int]:
    """Return the requested whole batches of `data` in parts, and their end. The first batch is whole and requested.

    Raises CorruptRemoteData if the first batch is damaged. A later damaged batch ends the parts, so the next read fails
    on it. Kept lean, because batches may be small and many.
    """
    parts: list[RemoteBatches] = []
    begin, end, next_offset, is_transactional = 0, 0, wanted.offset, False
    while end + HEADER_SIZE <= len(data):
        base, length, magic, crc, attributes, delta = _ESSENTIALS.unpack_from(data, end)
        after = end + length + LENGTH_PREFIX_SIZE
        if base + delta >= wanted.upper or after > len(data):
            break
        is_sound = magic == MAGIC and length >= MIN_BATCH_LENGTH and segment.start_offset <= base <= segment.end_offset
        if not is_sound or crc32c(data[end + ATTRIBUTES_POSITION : after]) != crc:
            if end:
                break
            raise CorruptRemoteData(f"{segment.id} at offset {base}: a checksum does not match")
        if after - begin > wanted.max_bytes and end > begin:
            parts.append(RemoteBatches(data[begin:end], next_offset, is_transactional))
            begin, is_transactional = end, False
        end, next_offset = after, base + delta + 1
        is_transactional = is_transactional or attributes & _TRANSACTIONAL_OR_CONTROL == TRANSACTIONAL_FLAG
    parts.append(RemoteBatches(data[begin:end], next_offset, is_transactional))
    return tuple(parts), end


def whole_batches(data: memoryview, max_bytes: int, *, min_one: bool) -> memoryview:
    """Return the batches of `data` that end within `max_bytes`; at least the first one if `min_one`."""
    if len(data) <= max_bytes:
        return data
    end = 0
    while end < len(data):
        size = parse_header(data, end).size
        if end + size > max_bytes and not (min_one and end == 0):
            break
        end += size
    return data[:end]
