"""Reading records out of a remote segment: batches from an offset on, the first record of a time, who aborted.

One segment at a time; which one, and which comes next, is decided where the metadata is. Everything blocks and runs on
the threads that read from remote storage, several at once.

Checksums are compared before anything leaves here: a client that met a wrong one would stop for good, while a read that
fails is tried again. Source: KIP-405; Kafka's RemoteLogManager.read, .addAbortedTransactions, .findOffsetByTimestamp.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

from protocol.primitives import Buffer
from protocol.records.batch import HEADER_SIZE, BatchHeader, crc_is_valid, parse_header
from protocol.records.errors import MalformedBatch, MalformedRecords
from protocol.records.reader import iter_records
from storage.index.transaction import AbortedTxn
from storage.segment import FoundTimestamp
from storage.tiered.errors import CorruptRemoteData, RemoteStorageError
from storage.tiered.index_cache import IndexCache
from storage.tiered.remote_storage import RemoteStorageManager
from storage.tiered.segment_metadata import RemoteSegment


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
        stream = _BatchStream(segment, position, self._storage.read_segment(segment, position))
        with closing(stream):
            for header in stream:
                if header.last_offset >= wanted.offset:
                    return self._collect(stream, header, wanted)
        return RemoteBatches(memoryview(b""), segment.end_offset + 1)

    def _collect(self, stream: "_BatchStream", first: BatchHeader, wanted: ReadRange) -> RemoteBatches:
        """From `first`, the batch that the stream stands at. What was read before a failure is worth an answer."""
        header: BatchHeader | None = first
        next_offset, is_transactional = wanted.offset, False
        stream.keep()
        try:
            while header is not None and header.last_offset < wanted.upper and stream.has_room(wanted.max_bytes):
                stream.accept()
                next_offset = header.next_offset
                is_transactional = is_transactional or (header.is_transactional and not header.is_control)
                header = next(stream, None) if stream.accepted + HEADER_SIZE <= wanted.max_bytes else None
        except RemoteStorageError:
            if not stream.accepted:
                raise
        return RemoteBatches(stream.kept(), next_offset, is_transactional)

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
        stream = _BatchStream(segment, position, self._storage.read_segment(segment, position))
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


class _BatchStream:
    """Batch after batch out of pieces of any size. Standing at one, its header is known, and its bytes if asked for.

    Before `keep`, bytes are dropped once they were passed; after it, all accepted batches stay in the one buffer.
    """

    def __init__(self, segment: RemoteSegment, position: int, pieces: Iterator[memoryview]) -> None:
        self._segment = segment
        self._pieces = pieces
        self._buffer = bytearray()
        self._begins = position
        """Where in the segment the buffer begins."""
        self._at = 0
        """Where in the buffer the present batch begins."""
        self._size = 0
        """Of the present batch."""
        self._is_keeping = False
        self.accepted = 0
        """Bytes of the accepted batches."""

    def close(self) -> None:
        """Read no more of the object."""
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()

    def __iter__(self) -> "_BatchStream":
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

    def keep(self) -> None:
        """From the present batch on, what is accepted stays."""
        self._drop_passed()
        self._is_keeping = True

    def has_room(self, max_bytes: int) -> bool:
        """Whether the present batch fits, or is the first."""
        return not self.accepted or self._at + self._size <= max_bytes

    def accept(self) -> None:
        """Take the present batch. Raises CorruptRemoteData."""
        self._complete()
        self.accepted = self._at + self._size

    def kept(self) -> memoryview:
        """All accepted batches."""
        return memoryview(self._buffer)[: self.accepted]

    def batch(self) -> bytes:
        """The present batch. Raises CorruptRemoteData."""
        self._complete()
        return bytes(self._buffer[self._at : self._at + self._size])

    def _complete(self) -> None:
        """Have the present batch whole, its checksum compared."""
        if not self._fill(self._size):
            raise self._corrupt("a batch is cut short")
        if not crc_is_valid(self._buffer, self._at, self._size):
            raise self._corrupt("a checksum does not match")

    def _fill(self, size: int) -> bool:
        """Have so many bytes from the beginning of the present batch; whether there are."""
        while len(self._buffer) < self._at + size:
            if not self._is_keeping:
                self._drop_passed()
            piece = next(self._pieces, None)
            if piece is None:
                return False
            self._buffer += piece
        return True

    def _drop_passed(self) -> None:
        passed = min(self._at, len(self._buffer))
        del self._buffer[:passed]
        self._begins += passed
        self._at -= passed

    def _corrupt(self, reason: str) -> CorruptRemoteData:
        return CorruptRemoteData(f"{self._segment.id} at {self._begins + self._at}: {reason}")


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
