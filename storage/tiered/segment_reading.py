"""Reading records out of a remote segment: batches from an offset on, the first record of a time, who aborted.

One segment at a time; which one, and which comes next, is decided where the metadata is. Everything blocks and runs on
the threads that read from remote storage, several at once.

Checksums are compared before anything leaves here: a client that met a wrong one would stop for good, while a read that
fails is tried again. Source: KIP-405; Kafka's RemoteLogManager.read, .addAbortedTransactions, .findOffsetByTimestamp.
"""

import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final, NamedTuple

from protocol.primitives import Buffer
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
from protocol.records.errors import MalformedBatch, MalformedRecords
from protocol.records.reader import iter_records
from storage.index.transaction import AbortedTxn
from storage.segment import FoundTimestamp
from storage.tiered.errors import CorruptRemoteData, RemoteStorageError
from storage.tiered.index_cache import IndexCache
from storage.tiered.remote_storage import RemoteStorageManager
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

    The first batch comes whole, however large it is: a reader must get on.
    """

    offset: int
    upper: int
    max_bytes: int


class SegmentReader:
    """Reads from segments in `storage`, with the help of their indexes in `cache`.

    All methods raise RemoteResourceNotFound, RetriableRemoteStorageError, RemoteStorageError and CorruptRemoteData.
    What may be wrong in the cache is forgotten first, so that the next attempt fetches it again.
    """

    def __init__(self, storage: RemoteStorageManager, cache: IndexCache) -> None:
        self._storage = storage
        self._cache = cache

    def batches(self, segment: RemoteSegment, wanted: ReadRange) -> RemoteBatches:
        """Batches of one segment."""
        with self._cache.hold(segment) as indexes:
            position = indexes.position_of(wanted.offset)
        try:
            return self._batches(segment, wanted, position)
        except CorruptRemoteData:
            self._cache.forget([segment.id.id])
            raise

    def _batches(self, segment: RemoteSegment, wanted: ReadRange, position: int) -> RemoteBatches:
        stream = BatchStream(segment, position, self._storage.read_segment(segment, position))
        with closing(stream):
            for header in stream:
                if header.last_offset >= wanted.offset:
                    return self._collect(segment, stream, header, wanted)
        return RemoteBatches(memoryview(b""), segment.end_offset + 1)

    def _collect(
        self, segment: RemoteSegment, stream: "BatchStream", first: BatchHeader, wanted: ReadRange
    ) -> RemoteBatches:
        """From `first`, the batch that the stream stands at. What was read before a failure is worth an answer."""
        limit = max(wanted.max_bytes, first.size)
        if first.last_offset >= wanted.upper:
            return RemoteBatches(memoryview(b""), wanted.offset)
        try:
            data = stream.rest(limit)
        except RemoteStorageError:
            data = stream.so_far()
            if len(data) < first.size:
                raise
        if len(data) < first.size:
            raise CorruptRemoteData(f"{segment.id} at offset {first.base_offset}: a batch is cut short")
        return _accepted(segment, data[:limit], wanted)

    def aborted(self, segment: RemoteSegment, last: int, offset: int, upper: int) -> tuple[list[AbortedTxn], bool]:
        """The aborted transactions with records in [offset, upper) whose markers are in the segment, at most at `last`.

        Also whether these are all there are: once all transactions below `upper` were decided, later markers tell
        nothing more of them.
        """
        found: list[AbortedTxn] = []
        with self._cache.hold(segment) as indexes:
            for txn in indexes.aborted():
                if txn.last_offset > last:  # what follows is of another history
                    break
                if txn.last_offset >= offset and txn.first_offset < upper:
                    found.append(txn)
                if txn.last_stable_offset >= upper:
                    return found, True
        return found, False

    def first_at_or_after(
        self, segment: RemoteSegment, timestamp: int, from_offset: int, upper: int
    ) -> FoundTimestamp | None:
        """The first record in [from_offset, upper) whose timestamp is at least `timestamp`."""
        with self._cache.hold(segment) as indexes:
            position = indexes.position_of(max(indexes.offset_before(timestamp), from_offset))
        try:
            return self._first_at_or_after(segment, timestamp, (from_offset, upper), position)
        except CorruptRemoteData:
            self._cache.forget([segment.id.id])
            raise

    def _first_at_or_after(
        self, segment: RemoteSegment, timestamp: int, offsets: tuple[int, int], position: int
    ) -> FoundTimestamp | None:
        first, upper = offsets
        stream = BatchStream(segment, position, self._storage.read_segment(segment, position))
        with closing(stream):
            for header in stream:
                if header.base_offset >= upper:
                    return None
                if header.max_timestamp < timestamp or header.last_offset < first:
                    continue
                for record in _records(segment, stream.batch()):
                    if record.timestamp >= timestamp and first <= record.offset < upper:
                        return record._replace(leader_epoch=header.leader_epoch)
        return None


def _records(segment: RemoteSegment, batch: Buffer) -> Iterator[FoundTimestamp]:
    try:
        for record in iter_records(batch):
            yield FoundTimestamp(record.timestamp, record.offset, -1)
    except (MalformedBatch, MalformedRecords) as error:
        raise CorruptRemoteData(f"{segment.id}: {error}") from error


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

    def __iter__(self) -> "BatchStream":
        return self

    def __next__(self) -> BatchHeader:
        """Go on to the next batch. Raises CorruptRemoteData for what is none, or is not this segment's."""
        self._at += self._size
        self._size = 0
        if not self._fill(HEADER_SIZE):
            if self._begins + self._at != self._segment.size_bytes:
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
        return CorruptRemoteData(f"{self._segment.id} at {self._begins + self._at}: {reason}")


def _accepted(segment: RemoteSegment, data: memoryview, wanted: ReadRange) -> RemoteBatches:
    """The whole batches of `data` that are wanted; the first is whole, and wanted. Raises CorruptRemoteData for it.

    A later one that is damaged ends them, so that the next read meets it. Lean: batches may be small, and many.
    """
    end, next_offset, is_transactional = 0, wanted.offset, False
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
        end, next_offset = after, base + delta + 1
        is_transactional = is_transactional or attributes & _TRANSACTIONAL_OR_CONTROL == TRANSACTIONAL_FLAG
    return RemoteBatches(data[:end], next_offset, is_transactional)


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


def merged(aborted: Sequence[AbortedTxn], more: Sequence[AbortedTxn]) -> list[AbortedTxn]:
    """Both, each transaction once: overlapping segments tell of the same markers."""
    return list(dict.fromkeys([*aborted, *more]))
