"""The segments of one log on local disk: write, roll, read, flush, delete and replace segments.

Threads. One thread, the loop's, owns a log and calls every method; `flush` and `warm` alone may run on another thread
at the same time. A method that removes segments waits for a running `flush`.

Durability. A write goes to the page cache. `flush` syncs it and then moves the recovery point; recovery does not read
batches below the recovery point again after a crash, and above it believes only the batches themselves. Order matters
in two places: before the recovery point passes an offset, everything that describes offsets below it is on disk
(batches, finished indexes, producer snapshots, leader epochs, directory entries, the topic id); and before a truncation
cuts below the recovery point, the lowered recovery point is on disk (`before_truncation`). The creation of a log syncs
no file: the metadata bring an empty log back.

Failure. An OSError from a write or sync leaves the disk in an unknown state. The log raises LogDirFailure, then and at
every later call; the offsets in memory stay those before the failed call.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from protocol.primitives import Buffer, Uuid, uuid_to_text
from protocol.records.errors import MalformedBatch, MalformedRecords
from storage.compaction.replacement import replace_segments
from storage.config import LogConfig
from storage.directories.checkpoints import PARTITION_METADATA_FILE, write_topic_id
from storage.directories.directory_names import parse_directory_name
from storage.errors import (
    CorruptBatch,
    InconsistentTopicId,
    LogDirFailure,
    OffsetMovedToTier,
    OffsetOutOfRange,
)
from storage.files import FileSystem, base_name, join, parent, sync_path
from storage.index.transaction import AbortedTxn
from storage.lookups import aborted_between, first_at_or_after, first_of_the_latest
from storage.open_segments import OpenSegments
from storage.recovery import LoadedLog
from storage.segment import DELETED_SUFFIX, MMAP_FROM_BYTES, FoundTimestamp, LogSegment, SegmentSlice

NO_REMOTE_OFFSET = -1
NEVER_TIERED = frozenset(
    {
        "__consumer_offsets",
        "__transaction_state",
        "__share_group_state",
        "__remote_log_metadata",
        "__cluster_metadata",
    }
)
"""Topics whose logs stay whole on the local disk, whatever their configuration says."""

P = ParamSpec("P")
T = TypeVar("T")


L = TypeVar("L", bound="LocalLog")


class LogSlice(NamedTuple):
    """Whole batches as stored in the log. `next_offset` follows the last batch; it is the requested offset without a
    batch.

    `cold`: the bytes are not in the page cache; read them with `Log.warm` on another thread before use.
    """

    data: Buffer
    next_offset: int
    cold: bool
    segment_base: int
    position: int


def check_topic_id(directory: str, expected: Uuid | None, found: Uuid | None) -> None:
    """Raise InconsistentTopicId if both ids are known and differ."""
    if expected is not None and found is not None and expected != found:
        raise InconsistentTopicId(directory, uuid_to_text(expected), uuid_to_text(found))


def is_tiered(topic: str, config: LogConfig) -> bool:
    """Whether older segments of a topic's logs may be in remote storage alone."""
    return config.remote_storage_enable and topic not in NEVER_TIERED


def draw_jitter(config: LogConfig, jitter: Callable[[int], int]) -> int:
    """Return a random delay of a segment's roll in ms; `jitter(n)` draws from [0, n)."""
    bound = min(config.segment_jitter_ms, config.segment_ms)
    return jitter(bound) if bound > 0 else 0


def fails_log(method: Callable[Concatenate[L, P], T]) -> Callable[Concatenate[L, P], T]:
    """Decorate a method that touches the disk: it raises the failure of a failed log, and an OSError fails the log."""

    @functools.wraps(method)
    def guarded(log: L, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if log.failure is not None:
            raise log.failure.again()
        try:
            return method(log, *args, **kwargs)
        except OSError as error:
            raise log.fail(error) from error

    return guarded


class LocalLog:
    """The segments of one log with the state recovered from them.

    `Log` extends this class instead of wrapping it: a second object would cost a call for each append and read.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        config: LogConfig,
        loaded: LoadedLog,
        *,
        now_ms: int,
        jitter: Callable[[int], int],
    ) -> None:
        self._fs = fs
        self.directory = directory
        self.topic, self.partition = parse_directory_name(base_name(directory))
        self.config = config
        self.failure: LogDirFailure | None = None
        self.topic_id: Uuid | None = None
        self._jitter = jitter
        self._flushing = threading.Lock()
        self._names_unsynced = True
        self._identity_unsynced = loaded.recovery_point == 0
        """Whether the topic id and the name of the log's directory may be in the page cache alone."""
        found = loaded.recovery
        has_lost = bool(found.cut_bytes or found.preallocated_bytes or found.removed_segments)
        self._was_blank = loaded.log_end_offset == 0 and not has_lost
        self.appended_messages = 0
        self.flushed_messages = 0
        self.last_flush_ms = now_ms
        self._open_segments = OpenSegments()
        self.segments = loaded.segments
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.snapshots = loaded.snapshots
        self.recovery = loaded.recovery
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self.active_segment = self.segments.active

    def __repr__(self) -> str:
        return f"Log({self.directory}, {self.log_start_offset}..{self.log_end_offset})"

    # -- facts ---------------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def is_tiered(self) -> bool:
        """Whether older segments may be in remote storage alone."""
        return is_tiered(self.topic, self.config)

    @property
    def is_copied_to_remote(self) -> bool:
        """Whether closed segments are copied to remote storage; without it, earlier copies stay there (KIP-950)."""
        return self.is_tiered and not self.config.remote_log_copy_disable

    @property
    def is_blank(self) -> bool:
        """Whether the log has no record, and had none since it was opened."""
        return self._was_blank and self.log_end_offset == 0 and self.appended_messages == 0

    @property
    def local_log_start_offset(self) -> int:
        """The first offset on the local disk; offsets from the log start offset up to it are in remote storage alone
        (KIP-405).
        """
        return max(self.log_start_offset, self.segments.first.base_offset)

    @property
    def flush_due(self) -> bool:
        """Whether the log end offset has advanced by at least flush.messages since the last flush."""
        return self.appended_messages - self.flushed_messages >= self.config.flush_messages

    @fails_log
    def set_topic_id(self, topic_id: Uuid) -> None:
        """Write partition.metadata unless it exists. Raises InconsistentTopicId if it has another topic id.

        The file of a log without records becomes durable with the first flush.
        """
        check_topic_id(self.directory, topic_id, self.topic_id)
        if self.topic_id is None:
            write_topic_id(self._fs, self.directory, topic_id, sync=not self.is_blank)
            self.topic_id = topic_id

    def fail(self, error: OSError) -> LogDirFailure:
        """Mark the log as failed and return the failure, which every later call raises."""
        if self.failure is None:
            self.failure = LogDirFailure(self.directory, error)
        return self.failure

    # -- write and roll ------------------------------------------------------------------------------------------------

    def _write_batch(
        self, parts: Sequence[Buffer], size: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> None:
        """Roll if due, write a batch, and move the log end offset."""
        if self.failure is not None:
            raise self.failure.again()
        try:
            if self.active_segment.must_roll(self.config, size, max_timestamp, last_offset, now_ms):
                self.roll(now_ms)
            self.active_segment.write(parts, size)
            self.active_segment.note(size, last_offset, max_timestamp)
        except OSError as error:
            self.active_segment.discard_unnoted()
            raise self.fail(error) from error
        self.log_end_offset = last_offset + 1

    @fails_log
    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log end offset, unless the active segment begins there."""
        if self.active_segment.base_offset < self.log_end_offset:
            self._roll(now_ms)

    def _roll(self, now_ms: int) -> None:
        """Base the new segment on the log end offset, even if the next batch follows a gap: segments leave no hole."""
        finished = self.active_segment
        finished.finish()
        self.snapshots.take(self.producers)
        self._add_segment(self.log_end_offset, now_ms)
        self._open_segments.use(finished)

    def _add_segment(self, base: int, now_ms: int) -> None:
        segment = LogSegment.create(
            self._fs,
            self.directory,
            base,
            self.config,
            created_ms=now_ms,
            jitter_ms=draw_jitter(self.config, self._jitter),
        )
        self.segments.add(segment)
        self.active_segment = segment
        self._names_unsynced = True

    # -- read ----------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, upper: int, min_one: bool = True) -> LogSlice:
        """Return whole batches from the one that contains `offset` (or the next after a gap), all below offset `upper`.

        The batches come from one segment and take at most `max_bytes`; `min_one` allows a larger first batch. Raises
        OffsetOutOfRange unless log start offset <= offset <= log end offset, OffsetMovedToTier for offsets in remote
        storage alone, and LogDirFailure.
        """
        if self.failure is not None:
            raise self.failure.again()
        end = self.log_end_offset
        if not self.log_start_offset <= offset <= end:
            raise OffsetOutOfRange(offset, self.log_start_offset, end)
        if offset >= upper or offset == end:
            return self._empty_slice(offset)
        active = self.active_segment
        segment = active if offset >= active.base_offset else self.segments.floor(offset)
        if segment is None:
            raise OffsetMovedToTier(offset, self.log_start_offset, self.segments.first.base_offset)
        try:
            while segment is not None and segment.base_offset < upper:
                found = segment.slice(offset, max_bytes, upper, min_one=min_one)
                if found is not None:
                    return self._load(segment, found)
                segment = self.segments.after(segment)
        except OSError as error:
            raise self.fail(error) from error
        return self._empty_slice(offset)

    def _empty_slice(self, offset: int) -> LogSlice:
        return LogSlice(b"", offset, False, self.active_segment.base_offset, self.active_segment.size)

    def _load(self, segment: LogSegment, found: SegmentSlice) -> LogSlice:
        if segment is not self.active_segment:
            self._open_segments.use(segment)
        start, end, next_offset = found
        file = segment.file
        if end - start < MMAP_FROM_BYTES:
            data = file.read_cached(start, end - start)
            if data is not None:
                return LogSlice(data, next_offset, False, segment.base_offset, start)
        cold = not file.is_cached(start, end)
        return LogSlice(file.view(start, end), next_offset, cold, segment.base_offset, start)

    def warm(self, found: LogSlice) -> None:
        """Read a cold slice into the page cache. Blocks; runs on another thread than the log's.

        An OSError is ignored: the segment may have been removed and closed meanwhile, and a failing disk fails the next
        read.
        """
        segment = self.segments.floor(found.segment_base)
        if segment is not None and segment.base_offset == found.segment_base:
            with contextlib.suppress(OSError):
                segment.file.warm(found.position, found.position + len(found.data))

    def aborted_transactions(self, fetch_offset: int, upper: int) -> list[AbortedTxn]:
        """Return the aborted transactions with records in [fetch_offset, upper); a read_committed consumer skips
        them.
        """
        return aborted_between(self.segments, fetch_offset, upper)

    @fails_log
    def offset_for_timestamp(self, timestamp: int) -> FoundTimestamp | None:
        """Return the first record at or above the log start offset whose timestamp is at least `timestamp`, or None.

        Raises CorruptBatch if the batch that holds the record does not parse.
        """
        with self._opening():
            return first_at_or_after(self.segments, timestamp, self.log_start_offset)

    @fails_log
    def offset_of_max_timestamp(self) -> FoundTimestamp | None:
        """Return the first record with the greatest timestamp of the log, or None for an empty log. Raises
        CorruptBatch.
        """
        with self._opening():
            return first_of_the_latest(self.segments, self.log_start_offset)

    @contextlib.contextmanager
    def _opening(self) -> Iterator[None]:
        try:
            yield
        except (MalformedBatch, MalformedRecords) as error:
            raise CorruptBatch(f"{self.name}: {error}") from error

    # -- flush ---------------------------------------------------------------------------------------------------------

    @fails_log
    def flush(self, now_ms: int | None = None) -> int:
        """Sync everything below the log end offset; move the recovery point there and return it.

        `now_ms` becomes `last_flush_ms`. Blocks. May run on another thread during appends; batches that are appended
        after the call began may be left out.
        """
        with self._flushing:
            messages = self.appended_messages
            end = self.log_end_offset
            if end > self.recovery_point or self._names_unsynced:
                self._sync_up_to(end)
                self.recovery_point = max(self.recovery_point, end)
            self.flushed_messages = messages
            self.last_flush_ms = self.last_flush_ms if now_ms is None else now_ms
            return self.recovery_point

    def _sync_up_to(self, end: int) -> None:
        """Start at the segment with the last flushed offset: it may have been finished since, with its indexes
        unsynced.
        """
        names_unsynced, self._names_unsynced = self._names_unsynced, False
        for segment in self.segments.from_offset(max(0, self.recovery_point - 1)):
            if segment.base_offset <= end:
                segment.sync(indexes=segment is not self.active_segment)
        self.snapshots.sync(end)
        self.epochs.save()
        if names_unsynced:
            self._fs.sync_directory(self.directory)
        self._sync_identity()

    def _sync_identity(self) -> None:
        """Sync the topic id, and the name of the log's directory in its parent, unless an earlier flush has."""
        if self._identity_unsynced:
            if self.topic_id is not None:
                sync_path(self._fs, join(self.directory, PARTITION_METADATA_FILE))
            self._fs.sync_directory(parent(self.directory))
            self._identity_unsynced = False

    # -- deletion and replacement of segments --------------------------------------------------------------------------

    @fails_log
    def detach_segments(self, segments: Sequence[LogSegment]) -> list[LogSegment]:
        """Remove segments from the log, rename their files to `.deleted` and return the segments.

        The caller removes the files after file.delete.delay.ms (`LogSegment.remove_files`). Raise the log start offset
        first, unless remote storage has the segments. The active segment cannot be detached; roll first.
        """
        with self._flushing:
            if self.is_tiered:
                self.epochs.save()  # batches that are in remote storage alone cannot restore them
            for segment in segments:
                if segment is self.active_segment:
                    raise AssertionError(f"{self.name}: the active segment cannot be detached")
                self.segments.remove(segment)
                segment.change_suffix(DELETED_SUFFIX)
                self.snapshots.remove(segment.base_offset)
            self._names_unsynced = True
        return list(segments)

    @fails_log
    def replace_segments(self, cleaned: LogSegment, replaced: Sequence[LogSegment]) -> list[LogSegment]:
        """Replace segments by the finished `.cleaned` segment that was made from them; a crash leaves either side
        whole.

        Return the replaced segments, renamed to `.deleted`, whose files the caller removes.
        """
        with self._flushing:
            replace_segments(self._fs, self.directory, self.segments, self.snapshots, cleaned, replaced)
            cleaned.next_offset = self.segments.end_of(cleaned, self.log_end_offset)
        return list(replaced)

    def _remove_newest(self, segments: Iterable[LogSegment], but: int | None = None) -> None:
        """Remove the segment with the highest base offset first, so that a crash leaves no gap."""
        for segment in sorted(segments, key=lambda segment: segment.base_offset, reverse=True):
            if segment.base_offset != but:
                self.segments.remove(segment)
                segment.remove_files()
        self._fs.sync_directory(self.directory)

    # -- close ---------------------------------------------------------------------------------------------------------

    def close(self, clean: bool = True) -> None:
        """Close the files. A clean close first syncs everything, with a producer snapshot and complete indexes, so that
        the next start need not read the log. A log without records is left as it is. Raises LogDirFailure.
        """
        try:
            if clean and self.failure is None and not (self.is_blank and self._identity_unsynced):
                self._finish()
        finally:
            with self._flushing:
                for segment in self.segments:
                    segment.close()

    @fails_log
    def _finish(self) -> None:
        self.snapshots.take(self.producers)
        self.active_segment.finish()
        self._names_unsynced = True
        with self._flushing:
            self._sync_up_to(self.log_end_offset)
            self.active_segment.sync(indexes=True)
            self.recovery_point = self.log_end_offset
