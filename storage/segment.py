"""One segment of a log: a `.log` file of batches with its offset, time and transaction index.

Callers validate batches and assign offsets first. A segment does not know other segments, leader epochs or producers.
Errors of the file system pass through as OSError.
"""

import contextlib
import struct
from builtins import memoryview
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from protocol.ids import LeaderEpoch
from protocol.primitives import Buffer
from protocol.records.batch import (
    HEADER,
    HEADER_SIZE,
    LENGTH_PREFIX_SIZE,
    MIN_BATCH_LENGTH,
    NO_TIMESTAMP,
    BatchHeader,
    parse_header,
)
from storage.config import LogConfig
from storage.file_release import keep_alive
from storage.files import File, FileSystem, join, sync_path
from storage.index.offset import OffsetIndex
from storage.index.time import TimeIndex, TimestampOffset
from storage.index.transaction import TransactionIndex

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
DELETED_SUFFIX = ".deleted"

MAX_SEGMENT_BYTES = 2**31 - 1
"""Positions in the offset index are int32."""
MAX_RELATIVE_OFFSET = 2**31 - 1
MMAP_FROM_BYTES = 64 * 1024
"""Smallest slice that is returned as a view of the mapped file. Smaller slices are copied, which costs less than
growing a mapping.
"""

_WINDOW_BYTES = 16 * 1024
"""Bytes per read when walking over headers: several small batches, and little waste on a large one."""
_SCAN_BYTES = 1024 * 1024
"""Bytes per read when every byte is needed."""
_MAX_CURSORS = 64
"""Number of remembered positions where recent reads ended: the next read of a consumer needs no search."""
_OFFSETS = struct.Struct(">qi11xi")
"""Base offset, batch length, last offset delta."""


class SegmentSlice(NamedTuple):
    """The result of a search: whole batches at positions [start, end), and the offset that follows them."""

    start: int
    end: int
    next_offset: int


class FoundTimestamp(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: LeaderEpoch


class ScannedBatch(NamedTuple):
    position: int
    header: BatchHeader
    batch: memoryview


def segment_file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


class Cut(NamedTuple):
    """The bytes that a repair cuts off. `is_preallocated`: they begin with zeros, as preallocation leaves them."""

    size: int
    is_preallocated: bool


class LogSegment:
    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        created_ms: int,
        jitter_ms: int = 0,
        suffix: str = "",
    ) -> None:
        self._fs = fs
        self._directory = directory
        self.base_offset = base_offset
        self.suffix = suffix
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms
        self._index_interval = config.index_interval_bytes
        self.offset_index = OffsetIndex(fs, self.path(INDEX_SUFFIX), base_offset, config.segment_index_bytes)
        self.time_index = TimeIndex(fs, self.path(TIME_INDEX_SUFFIX), base_offset, config.segment_index_bytes)
        self.txn_index = TransactionIndex(fs, self.path(TXN_INDEX_SUFFIX))
        self._full_bytes = config.segment_bytes if config.preallocate and not suffix else 0
        self._unallocated_bytes = 0
        """The size that the first write gives the file."""
        self._is_preallocated = False
        """Whether the file may be longer than the batches."""
        self._file: File | None = None
        self.size = 0
        self.next_offset = base_offset
        self._bytes_since_index = 0
        self._max_timestamp: TimestampOffset | None = None
        self._is_finished = False
        """Whether the time index ends with the segment's greatest timestamp."""
        self._first_timestamp: int | None = None
        self._cursors: dict[int, int] = {}

    @classmethod
    def create(
        cls,
        fs: FileSystem,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        created_ms: int,
        jitter_ms: int = 0,
        suffix: str = "",
    ) -> "LogSegment":
        """Create an empty segment, overwriting leftover files of its name."""
        segment = cls(fs, directory, base_offset, config, created_ms=created_ms, jitter_ms=jitter_ms, suffix=suffix)
        segment.reset()
        return segment

    @classmethod
    def open(
        cls, fs: FileSystem, directory: str, base_offset: int, config: LogConfig, *, created_ms: int, jitter_ms: int = 0
    ) -> "LogSegment":
        """Open the existing files of a segment; `next_offset` is unknown until `resume`.

        Raises FileNotFoundError if the offset index is lost; a lost time index is replaced by an empty one, as in
        Kafka.
        """
        segment = cls(fs, directory, base_offset, config, created_ms=created_ms, jitter_ms=jitter_ms)
        segment.size = fs.size(segment.path(LOG_SUFFIX))
        segment.offset_index.entries.load()
        if not fs.exists(segment.path(TIME_INDEX_SUFFIX)):
            segment.time_index.reset()
        segment.time_index.load()
        segment._is_finished = True
        return segment

    def path(self, file_suffix: str) -> str:
        return join(self._directory, segment_file_name(self.base_offset, file_suffix) + self.suffix)

    @property
    def file(self) -> File:
        """The batch file, opened on first use: most segments of a log are never read again."""
        file = self._file
        if file is None:
            opened = self._fs.open(self.path(LOG_SUFFIX))
            if (file := self._file) is None:  # another thread may have opened it meanwhile, see `keep_alive`
                self._file = file = opened
        return file

    # -- append ----------------------------------------------------------------------------------------------------

    def write(self, parts: Sequence[Buffer], size: int) -> None:
        """Write batches at the end without indexing them; `note` or `discard_unnoted` must follow."""
        if self.size + size > MAX_SEGMENT_BYTES:
            raise AssertionError(f"segment {self.base_offset} grows beyond {MAX_SEGMENT_BYTES} bytes")
        if self._unallocated_bytes:
            self._preallocate()
        if len(parts) == 1:
            self.file.write(self.size, parts[0])
        else:
            self.file.write_vector(self.size, parts)

    def _preallocate(self) -> None:
        """Give the file its full size; `finish` cuts the rest off. An empty segment keeps an empty file."""
        self.file.truncate(self._unallocated_bytes)
        self._unallocated_bytes = 0
        self._is_preallocated = True

    def discard_unnoted(self) -> None:
        """Cut off batches that were written but not noted, after a failure.

        If the cut fails too, recovery finds or cuts these batches, which were never acknowledged.
        """
        with contextlib.suppress(OSError):
            self.file.truncate(self.size)
            self.file.sync()

    def note(self, size: int, last_offset: int, max_timestamp: int) -> None:
        """Index one written batch and move the segment's end."""
        position = self.size
        newest = self._max_timestamp
        if newest is None:
            newest = self.max_timestamp_so_far
        if max_timestamp > newest[0]:
            self._max_timestamp = newest = TimestampOffset(max_timestamp, last_offset)
        if self._first_timestamp is None and position == 0:
            self._first_timestamp = max_timestamp
        if self._bytes_since_index > self._index_interval:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(newest[0], newest[1])
            self._bytes_since_index = 0
        self._bytes_since_index += size
        self.next_offset = last_offset + 1
        self.size = position + size

    def append(self, batch: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Write and index one batch."""
        file, position, size = self._file, self.size, len(batch)
        if file is None or self._unallocated_bytes or position + size > MAX_SEGMENT_BYTES:
            self.write((batch,), size)
        else:
            file.write(position, batch)
        self.note(size, last_offset, max_timestamp)

    def must_roll(self, config: LogConfig, size: int, max_timestamp: int, last_offset: int, now_ms: int) -> bool:
        """Whether an append of `size` bytes up to `last_offset` needs a new segment.

        The segment's age is the record time since the first batch, or the time since creation if that batch has no
        timestamp.
        """
        filled = self.size
        if filled + size > config.segment_bytes or last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if filled:
            first = self._first_timestamp
            if first is None:
                first = self.first_timestamp
            waited_ms = max_timestamp - first if first >= 0 else now_ms - self.created_ms
            if waited_ms > config.roll_ms - self.jitter_ms:
                return True
        return self.offset_index.is_full or self.time_index.is_full

    # -- facts -----------------------------------------------------------------------------------------------------

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch; -1 for an empty segment."""
        if self._first_timestamp is None:
            if self.size < HEADER_SIZE:
                return NO_TIMESTAMP
            self._first_timestamp = parse_header(self.file.read(0, HEADER_SIZE)).max_timestamp
        return self._first_timestamp

    @property
    def max_timestamp_so_far(self) -> TimestampOffset:
        """The largest timestamp and the last offset of the first batch with it; (-1, base offset) without a
        timestamp.
        """
        if self._max_timestamp is None:
            newest = self.time_index.last if self.time_index.ascends else TimestampOffset(-1, self.base_offset)
            if not self._is_finished or newest.timestamp < 0:
                newest = self._newest_after(newest)
            self._max_timestamp = newest
        return self._max_timestamp

    def _newest_after(self, indexed: TimestampOffset) -> TimestampOffset:
        newest = indexed
        for _, header in self.headers(self.offset_index.lookup(indexed.offset).position):
            if header.max_timestamp > newest.timestamp:
                newest = TimestampOffset(header.max_timestamp, header.last_offset)
        return newest

    @property
    def largest_timestamp(self) -> int:
        """The timestamp for time retention: the largest one, or the file's modification time if no batch has one."""
        timestamp = self.max_timestamp_so_far.timestamp
        return timestamp if timestamp >= 0 else self._fs.modified_ms(self.path(LOG_SUFFIX))

    # -- walking ---------------------------------------------------------------------------------------------------

    def headers(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of the whole batches in [start, end). Raises MalformedBatch."""
        for position, window, at in self._walk(start, self.size if end is None else end, HEADER_SIZE):
            yield position, parse_header(window, at)

    def _walk(self, position: int, end: int, need: int) -> Iterator[tuple[int, bytes, int]]:
        """Yield (position, window, place in the window) of each batch; the window holds at least `need` of its bytes.

        The walk stops before a batch that does not end within `end` or has an impossible length.
        """
        window, window_start = b"", position
        while position + HEADER_SIZE <= end:
            at = position - window_start
            if at + need > len(window):
                window, window_start, at = self.file.read(position, min(_WINDOW_BYTES, end - position)), position, 0
                if len(window) < need:
                    return
            length: int = _OFFSETS.unpack_from(window, at)[1]
            if length < MIN_BATCH_LENGTH or position + length + LENGTH_PREFIX_SIZE > end:
                return
            yield position, window, at
            position += length + LENGTH_PREFIX_SIZE

    def scan(self, end: int) -> Iterator[ScannedBatch]:
        """Yield every batch up to `end` with its bytes, valid until the next step; stop at bytes that are no batch."""
        position, window, window_start = 0, b"", 0
        while position + HEADER_SIZE <= end:
            at = position - window_start
            if at + HEADER_SIZE > len(window):
                window, window_start, at = self.file.read(position, min(_SCAN_BYTES, end - position)), position, 0
            length: int = _OFFSETS.unpack_from(window, at)[1]
            size = length + LENGTH_PREFIX_SIZE
            if length < MIN_BATCH_LENGTH or position + size > end:
                return
            if at + size > len(window):
                wanted = min(max(size, _SCAN_BYTES), end - position)
                window, window_start, at = self.file.read(position, wanted), position, 0
            batch = memoryview(window)[at : at + size]
            yield ScannedBatch(position, BatchHeader._make(HEADER.unpack_from(batch)), batch)
            position += size

    # -- lookups ---------------------------------------------------------------------------------------------------

    def find(self, offset: int) -> int | None:
        """Return the position of the first batch whose last offset is at least `offset`; None if there is none."""
        if offset >= self.next_offset:
            return None
        cursor = self._cursors.get(offset)
        if cursor is not None:
            return cursor
        start = self.offset_index.lookup(offset).position
        for position, window, at in self._walk(start, self.size, _OFFSETS.size):
            base, _, delta = _OFFSETS.unpack_from(window, at)
            if base + delta >= offset:
                return position
        return None

    def whole_batches_end(self, offset: int) -> int:
        """Return the base offset of the batch that spans `offset`, or `offset` where no batch does."""
        position = self.find(offset)
        return offset if position is None else min(offset, _OFFSETS.unpack(self.file.read(position, _OFFSETS.size))[0])

    def slice(self, offset: int, max_bytes: int, upper: int, *, min_one: bool) -> SegmentSlice | None:
        """Return whole batches from the one with `offset` on, below `upper` and within `max_bytes`.

        `min_one` allows a larger first batch. The slice is empty if the limits exclude every batch; None means that the
        segment has no batch at or after `offset`.
        """
        start = self.find(offset)
        if start is None:
            return None
        end, next_offset = self.size, self.next_offset
        if upper < next_offset:
            bound = self.find(upper)
            if bound is not None:
                end, next_offset = bound, upper
        if start + max_bytes < end:
            end, next_offset = self._cut_to_whole_batches(offset, start, start + max_bytes, end, min_one)
        if end <= start:
            return SegmentSlice(start, start, offset)
        self._remember(next_offset, end)
        return SegmentSlice(start, end, next_offset)

    def _cut_to_whole_batches(self, offset: int, start: int, limit: int, end: int, min_one: bool) -> tuple[int, int]:
        """Return (end, next offset) of the batches in [start, end) that end by `limit`."""
        from_position = start
        if limit - start > _WINDOW_BYTES:
            from_position = max(start, self.offset_index.position_floor(limit, offset))
        next_offset = offset
        for position, window, at in self._walk(from_position, end, _OFFSETS.size):
            base, length, delta = _OFFSETS.unpack_from(window, at)
            batch_end = position + length + LENGTH_PREFIX_SIZE
            if batch_end > limit:
                if position > start or not min_one:
                    return position, base
                return batch_end, base + delta + 1
            next_offset = base + delta + 1
        return end, next_offset

    def _remember(self, next_offset: int, end: int) -> None:
        if len(self._cursors) >= _MAX_CURSORS:
            self._cursors.clear()
        self._cursors[next_offset] = end

    def find_next_offset(self) -> int:
        """Return the offset after the last batch, searching from the last index entry on."""
        next_offset = self.base_offset
        for _, header in self.headers(self.offset_index.last.position):
            next_offset = header.next_offset
        return next_offset

    def resume(self) -> None:
        """Make an opened segment the active one: find its end and the bytes since the last index entry."""
        self.next_offset = self.find_next_offset()
        self._bytes_since_index = self.size - self.offset_index.last.position

    # -- lifecycle -------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Empty the segment and its files."""
        self.file.truncate(0)
        self._unallocated_bytes = self._full_bytes
        self.clear_indexes()
        self.size = 0
        self.next_offset = self.base_offset

    def clear_indexes(self) -> None:
        """Drop everything derived from the batches, so that `note` can derive it again from the first batch on."""
        self.offset_index.entries.reset()
        self.time_index.reset()
        self.txn_index.reset()
        self._bytes_since_index = 0
        self._max_timestamp = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self._first_timestamp = None
        self._cursors.clear()

    def rebuild(self, accept: Callable[[ScannedBatch], bool]) -> Cut:
        """Rebuild size and indexes from the batches up to the first that `accept` rejects; `cut` removes the rest."""
        old_size = self.size
        self.clear_indexes()
        self.size = 0
        self.next_offset = self.base_offset
        for batch in self.scan(old_size):
            if not accept(batch):
                break
            self.note(batch.header.size, batch.header.last_offset, batch.header.max_timestamp)
        return Cut(old_size - self.size, not any(self.file.read(self.size, HEADER_SIZE)))

    def cut(self) -> None:
        """Cut off the bytes after the last batch. The cut is not synced."""
        self.file.truncate(self.size)

    def truncate_to(self, offset: int) -> None:
        """Cut the segment before the first batch whose last offset is at least `offset`, and sync the cut."""
        position = self.find(offset)
        if position is not None:
            self.file.truncate(position)
            self.file.sync()
            self.size = position
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self._cursors.clear()
        self._max_timestamp = None
        self._is_finished = False
        self._bytes_since_index = 0
        if position == 0:
            self._first_timestamp = None
        self.next_offset = offset

    def finish(self) -> None:
        """Finish a segment that gets no more appends: add the final time entry, write the indexes and release their
        memory. Cut off the preallocated rest of the file.
        """
        if self._is_preallocated:
            self.file.truncate(self.size)
            self._is_preallocated = False
        newest = self.max_timestamp_so_far
        self.time_index.maybe_append(newest.timestamp, newest.offset, final=True)
        self._is_finished = True
        self.offset_index.entries.release()
        self.time_index.entries.release()

    def sync(self, *, indexes: bool) -> None:
        """Sync the batches and, for a finished segment, the indexes. May run beside the appending thread."""
        file = self._file
        if file is None:
            sync_path(self._fs, self.path(LOG_SUFFIX))
        else:
            file.sync()
        if indexes:
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
                if self._fs.exists(self.path(suffix)):
                    sync_path(self._fs, self.path(suffix))

    def close(self) -> None:
        """Release the file, which opens again on use; a call in progress on another thread completes."""
        file = self._file
        self._file = None
        keep_alive(file)

    def change_suffix(self, suffix: str) -> None:
        """Rename all files of the segment, the batch file last: a `.log` file implies the others."""
        for file_suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, LOG_SUFFIX):
            old = self.path(file_suffix)
            if self._fs.exists(old):
                self._fs.rename(old, old.removesuffix(self.suffix) + suffix)
        self.suffix = suffix
        self.offset_index.entries.path = self.path(INDEX_SUFFIX)
        self.time_index.entries.path = self.path(TIME_INDEX_SUFFIX)
        self.txn_index.path = self.path(TXN_INDEX_SUFFIX)

    def remove_files(self) -> None:
        """Close and remove all files."""
        self.close()
        for file_suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
            self._fs.remove(self.path(file_suffix))
