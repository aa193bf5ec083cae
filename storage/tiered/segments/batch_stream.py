"""Batches out of the bytes of a remote segment, which come in pieces of any size, one behind the other.

What follows on each other in one piece is judged where it lies (`parts_of`); what lies across pieces, or has to be
searched for, goes through a `BatchStream`. Where the bytes come from is not known here.
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
"""Copied with a header that is looked at: what lies between two entries of an index."""
_TRANSACTIONAL_OR_CONTROL: Final = TRANSACTIONAL_FLAG | CONTROL_FLAG


class RemoteBatches(NamedTuple):
    """Whole batches as they were copied. `next_offset` follows the last; `is_transactional`: some are of transactions.

    Without `data`, `next_offset` tells what was in the way: the offset asked for where limits left nothing, or the
    offset after the segment where compaction had left nothing in the rest of it.
    """

    data: memoryview
    next_offset: int
    is_transactional: bool = False


class ReadRange(NamedTuple):
    """What is wanted: whole batches from the one with `offset` on, wholly below `upper`, at most `max_bytes`.

    The first batch comes whole, however large it is: a reader must get on. Who reads in order may take parts of
    `max_bytes` each, `block_bytes` in all, where they lie at hand, and tells with `position` where in the segment the
    last ones ended.
    """

    offset: int
    upper: int
    max_bytes: int
    block_bytes: int = 0
    position: int | None = None


class RemoteBlock(NamedTuple):
    """Parts that follow on each other, at least one. `next_position`, in the segment, is where the last ends, and
    `held_bytes` the memory that is kept alive by any of them.
    """

    parts: tuple[RemoteBatches, ...]
    next_position: int
    held_bytes: int

    @property
    def next_offset(self) -> int:
        """After the last part."""
        return self.parts[-1].next_offset

    @property
    def size_bytes(self) -> int:
        """Of all parts."""
        return sum(len(part.data) for part in self.parts)


def block_of(batches: RemoteBatches, next_position: int = 0) -> RemoteBlock:
    """One part alone, with memory of its own."""
    return RemoteBlock((batches,), next_position, len(batches.data))


class BatchStream:
    """Batch after batch out of pieces of any size. Standing at one, its header is known, and its bytes if asked for.

    Bytes are dropped once they were passed.
    """

    def __init__(self, segment: RemoteSegment, position: int, pieces: Iterator[memoryview]) -> None:
        self._segment = segment
        self._pieces = pieces
        self._piece = memoryview(b"")
        self._buffer = bytearray()
        self._begins = position
        """Where in the segment the buffer begins."""
        self._at = 0
        """Where in the buffer the present batch begins."""
        self._size = 0
        """Of the present batch."""

    def close(self) -> None:
        """Read no more of the object."""
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()

    @property
    def position(self) -> int:
        """Of the present batch, in the segment."""
        return self._begins + self._at

    def __iter__(self) -> "BatchStream":
        return self

    def __next__(self) -> BatchHeader:
        """Go on to the next batch. Raises CorruptRemoteData for what is none, or is not this segment's."""
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
            raise self._corrupt(f"offset {header.base_offset} is not of this segment")
        self._size = header.size
        return header

    def rest(self, max_bytes: int) -> memoryview:
        """From the present batch on, so many bytes or more, or all that are left. Then the stream is over."""
        self._fill(max_bytes)
        return self.so_far()

    def so_far(self) -> memoryview:
        """From the present batch on, what is here. Then the stream is over."""
        return memoryview(self._buffer)[self._at :]

    def batch(self) -> bytes:
        """The present batch. Raises CorruptRemoteData."""
        if not self._fill(self._size):
            raise self._corrupt("a batch is cut short")
        if not crc_is_valid(self._buffer, self._at, self._size):
            raise self._corrupt("a checksum does not match")
        return bytes(self._buffer[self._at : self._at + self._size])

    def _fill(self, size: int) -> bool:
        """Have so many bytes from the beginning of the present batch; whether there are.

        Of a piece, which may be a large one that others share, no more is copied than is wanted now or soon.
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
        """The present batch begins beyond the buffer, which is empty."""
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
    """What is wanted out of a piece that begins at `position`, without a copy, if the piece is worth it: at least half
    of the memory that it keeps alive must be wanted, and half of a part be there. None where it is not. Raises
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
    """Of the batch at the beginning."""
    _, length, *_ = _ESSENTIALS.unpack_from(data)
    return int(length) + LENGTH_PREFIX_SIZE


def _begin_in(segment: RemoteSegment, piece: memoryview, offset: int) -> int:
    """Where the batch with `offset` begins, or the first after it; the end if that is not in the piece, or if something
    else is in the way.
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
    """The whole batches of `data` that are wanted, in parts, and where they end. The first is whole, and wanted.

    Raises CorruptRemoteData for that one. A later one that is damaged ends them, so that the next read meets it. Lean:
    batches may be small, and many.
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
    """The batches of `data` that end within `max_bytes`; the first whole if `min_one`."""
    if len(data) <= max_bytes:
        return data
    end = 0
    while end < len(data):
        size = parse_header(data, end).size
        if end + size > max_bytes and not (min_one and end == 0):
            break
        end += size
    return data[:end]
