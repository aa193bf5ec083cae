"""Reader of records in a remote segment: batches from an offset, the first record of a time, aborted transactions.

Each method reads one segment; the owner of the metadata chooses it. Everything blocks and runs on the threads that read
from remote storage, several at once.

Checksums are verified before data leave this module: a client stops at a wrong checksum, while a failed read is
retried. Source: KIP-405; Kafka's RemoteLogManager.read, .addAbortedTransactions, .findOffsetByTimestamp.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Final, TypeVar

from protocol.primitives import Buffer
from protocol.records.batch import BatchHeader
from protocol.records.errors import MalformedBatch, MalformedRecords
from protocol.records.reader import iter_records
from storage.epochs import UNDEFINED_EPOCH
from storage.index.transaction import AbortedTxn
from storage.segment import FoundTimestamp
from storage.tiered.cache.index_cache import IndexCache
from storage.tiered.errors import CorruptRemoteData, RemoteStorageError
from storage.tiered.remote_storage import IndexKind, RemoteStorageManager
from storage.tiered.segment_metadata import RemoteSegment
from storage.tiered.segments.batch_stream import (
    BatchStream,
    ReadRange,
    RemoteBatches,
    RemoteBlock,
    block_of,
    parts_of,
    whole_batches,
    within,
)

__all__ = ["ReadRange", "RemoteBatches", "RemoteBlock", "SegmentReader", "merged", "whole_batches"]

T = TypeVar("T")

_OFFSET: Final = struct.Struct(">q")


class SegmentReader:
    """Reads segments in `storage` with their indexes in `cache`.

    All methods raise RemoteResourceNotFound, RetriableRemoteStorageError, RemoteStorageError and CorruptRemoteData.
    Damaged data are discarded from all caches and read once more: only damage in the store itself is an error, which
    names the object.
    """

    def __init__(self, storage: RemoteStorageManager, cache: IndexCache) -> None:
        self._storage = storage
        self._cache = cache

    def batches(self, segment: RemoteSegment, wanted: ReadRange) -> RemoteBatches:
        """Return batches of one segment."""
        return self.block(segment, wanted._replace(block_bytes=0)).parts[0]

    def block(self, segment: RemoteSegment, wanted: ReadRange) -> RemoteBlock:
        """Return batches of one segment, possibly in several parts."""
        return self._sound(segment, wanted.position, lambda position: self._block(segment, wanted, position))

    def prepare(self, segment: RemoteSegment, *, with_aborted: bool) -> None:
        """Prefetch the beginning of a segment that is read next, and its aborted transactions on request."""
        self._storage.read_soon(segment, 0)
        if with_aborted and not segment.txn_index_empty:
            with self._cache.hold(segment, IndexKind.TRANSACTION):
                pass

    def _sound(self, segment: RemoteSegment, position: int | None, read: Callable[[int | None], T]) -> T:
        """Return the result of `read`, from `position` if it is known. The second attempt bypasses caches that may have
        been damaged.
        """
        try:
            return read(position)
        except CorruptRemoteData:
            self._discard(segment)
        try:
            return read(None)
        except CorruptRemoteData as error:
            self._discard(segment)
            raise CorruptRemoteData(f"{self._storage.location(segment)} is damaged: {error}") from error

    def _discard(self, segment: RemoteSegment) -> None:
        self._cache.forget([segment.id.id])
        self._storage.discard(segment)

    def _block(self, segment: RemoteSegment, wanted: ReadRange, known: int | None) -> RemoteBlock:
        position = self._position(segment, wanted.offset) if known is None else known
        with _reading(self._storage.read_segment(segment, position)) as pieces:
            piece = next(pieces, memoryview(b""))
            if known is None and position:
                _check_lead(segment, piece, wanted.offset)
            if wanted.block_bytes:
                block = within(segment, piece, position, wanted)
                if block is not None:
                    return block
            return _collected(segment, BatchStream(segment, position, chain([piece], pieces)), wanted)

    def _position(self, segment: RemoteSegment, offset: int) -> int:
        """Return the position from which to search for an offset."""
        if offset <= segment.start_offset:
            return 0
        with self._cache.hold(segment, IndexKind.OFFSET) as indexes:
            return indexes.position_of(offset)

    def aborted(self, segment: RemoteSegment, last: int, offset: int, upper: int) -> tuple[list[AbortedTxn], bool]:
        """Return the aborted transactions with records in [offset, upper) whose markers are in the segment, at most at
        `last`.

        Also return whether the list is complete: after all transactions below `upper` were decided, later markers
        concern none of them.
        """
        found: list[AbortedTxn] = []
        with self._cache.hold(segment, IndexKind.TRANSACTION) as indexes:
            for txn in indexes.aborted():
                if txn.last_offset > last:  # the rest belongs to another history
                    break
                if txn.last_offset >= offset and txn.first_offset < upper:
                    found.append(txn)
                if txn.last_stable_offset >= upper:
                    return found, True
        return found, False

    def first_at_or_after(
        self, segment: RemoteSegment, timestamp: int, from_offset: int, upper: int
    ) -> FoundTimestamp | None:
        """Return the first record in [from_offset, upper) whose timestamp is at least `timestamp`."""
        offsets = from_offset, upper
        return self._sound(segment, None, lambda _: self._first_at_or_after(segment, timestamp, offsets))

    def _first_at_or_after(
        self, segment: RemoteSegment, timestamp: int, offsets: tuple[int, int]
    ) -> FoundTimestamp | None:
        first, upper = offsets
        with self._cache.hold(segment, IndexKind.OFFSET, IndexKind.TIME) as indexes:
            begin = max(indexes.offset_before(timestamp), first)
            position = indexes.position_of(begin)
        with _reading(self._storage.read_segment(segment, position)) as pieces:
            piece = next(pieces, memoryview(b""))
            if position:
                _check_lead(segment, piece, begin)
            stream = BatchStream(segment, position, chain([piece], pieces))
            for header in stream:
                if header.base_offset >= upper:
                    return None
                if header.max_timestamp < timestamp or header.last_offset < first:
                    continue
                for record in _records(segment, stream.batch()):
                    if record.timestamp >= timestamp and first <= record.offset < upper:
                        return record._replace(leader_epoch=header.leader_epoch)
        return None


@contextmanager
def _reading(pieces: Iterator[memoryview]) -> Iterator[Iterator[memoryview]]:
    """Close the object's stream at the end."""
    try:
        yield pieces
    finally:
        close = getattr(pieces, "close", None)
        if close is not None:
            close()


def _check_lead(segment: RemoteSegment, piece: memoryview, offset: int) -> None:
    """Check an index entry: it holds an offset of its batch, so the batch never begins beyond the requested offset."""
    if len(piece) >= _OFFSET.size and _OFFSET.unpack_from(piece)[0] > offset:
        raise CorruptRemoteData(f"the index of {segment.id} leads past offset {offset}")


def _collected(segment: RemoteSegment, stream: BatchStream, wanted: ReadRange) -> RemoteBlock:
    """Return the batch with the offset, or the first after it, and what follows. Raises CorruptRemoteData."""
    for header in stream:
        if header.last_offset >= wanted.upper:
            return block_of(RemoteBatches(memoryview(b""), wanted.offset))
        if header.last_offset >= wanted.offset:
            return _collected_from(segment, stream, header, wanted)
    return block_of(RemoteBatches(memoryview(b""), segment.end_offset + 1), segment.size_bytes)


def _collected_from(segment: RemoteSegment, stream: BatchStream, first: BatchHeader, wanted: ReadRange) -> RemoteBlock:
    """Return batches from `first`, the present batch of the stream. Bytes read before a failure are returned."""
    limit, begins = max(wanted.max_bytes, first.size), stream.position
    try:
        data = stream.rest(limit)
    except RemoteStorageError:
        data = stream.so_far()
        if len(data) < first.size:
            raise
    if len(data) < first.size:
        raise CorruptRemoteData(f"{segment.id} at offset {first.base_offset}: a batch is truncated")
    parts, end = parts_of(segment, data[:limit], wanted)
    return block_of(parts[0], begins + end)


def _records(segment: RemoteSegment, batch: Buffer) -> Iterator[FoundTimestamp]:
    try:
        for record in iter_records(batch):
            yield FoundTimestamp(record.timestamp, record.offset, UNDEFINED_EPOCH)
    except (MalformedBatch, MalformedRecords) as error:
        raise CorruptRemoteData(f"{segment.id}: {error}") from error


def merged(aborted: Sequence[AbortedTxn], more: Sequence[AbortedTxn]) -> list[AbortedTxn]:
    """Merge two lists without duplicates: overlapping segments contain the same markers."""
    return list(dict.fromkeys([*aborted, *more]))
