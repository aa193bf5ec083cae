"""The log of one partition: append, read, truncate, flush. What clients call a topic partition, on one replica.

Threads. One thread, the loop's, owns a log and calls everything here; `flush` and `warm` alone may run elsewhere
meanwhile, and whatever takes segments away waits for a running `flush`.

Durability. An append is a write to the page cache. `flush` syncs it and then moves the recovery point, below which
nothing is read again after a crash; above it, recovery believes only what the batches themselves say. So order
matters in two places: before the recovery point passes an offset, everything that describes offsets below it is on
disk (batches, finished indexes, producer snapshots, leader epochs, names); and before a truncation cuts below it,
the lowered point is (`before_truncation`).

Failure. An OSError from a write or sync leaves the disk in a state we do not know. The log raises LogDirFailure,
then and at every later call; the offsets in memory are those before the failed call.
"""

import contextlib
import functools
import itertools
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from protocol.primitives import Buffer, Uuid, uuid_to_text
from protocol.records.batch import (
    ATTRIBUTES_POSITION,
    CONTROL_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    parse_header,
    patch,
)
from protocol.records.errors import MalformedBatch, MalformedRecords
from storage.compaction.replacement import replace_segments
from storage.config import LogConfig
from storage.directories.checkpoints import EpochEntry, read_topic_id, write_topic_id
from storage.directories.directory_names import parse_directory_name
from storage.epochs import EpochAndOffset
from storage.errors import (
    CorruptBatch,
    InconsistentTopicId,
    InvalidRecords,
    LogDirFailure,
    OffsetMovedToTier,
    OffsetOutOfRange,
    Rejection,
    UnexpectedOffset,
)
from storage.files import FileSystem, base_name, parent
from storage.index.transaction import AbortedTxn
from storage.lookups import aborted_between, first_at_or_after, first_of_the_latest
from storage.open_segments import OpenSegments
from storage.producer_state import CachedBatch, EndTransactionMarker, Origin, ProducerState
from storage.recovery import LogLoader
from storage.replay import apply_to_producers, marker_of, replay_segment
from storage.segment import (
    DELETED_SUFFIX,
    MMAP_FROM_BYTES,
    FoundTimestamp,
    LogSegment,
    SegmentSlice,
)
from storage.tier_start import TierStart
from storage.validation import Admitted, admit, verify_replicated
from storage.verification import Guard, Verifications

NO_APPEND_TIME = -1
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
"""Topics that must be here whole, whatever their configuration says."""

P = ParamSpec("P")
T = TypeVar("T")


class AppendInfo(NamedTuple):
    """What became of an append. `flush_due`: flush.messages asks for a `flush` before the append counts.

    `log_append_time_ms` is -1 under CreateTime, but for a duplicate always the greatest timestamp of the batch that it
    repeats, as Kafka has it.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool
    flush_due: bool


class LogSlice(NamedTuple):
    """Whole batches as they are in the log. `next_offset` follows the last of them (the asked offset if there are
    none).

    `cold`: the bytes are not in memory; let `Log.warm` fetch them on another thread before they are touched.
    """

    data: Buffer
    next_offset: int
    cold: bool
    segment_base: int
    position: int


def _check_topic_id(directory: str, expected: Uuid | None, found: Uuid | None) -> None:
    if expected is not None and found is not None and expected != found:
        raise InconsistentTopicId(directory, uuid_to_text(expected), uuid_to_text(found))


def _fatal(
    method: Callable[Concatenate["Log", P], T],
) -> Callable[Concatenate["Log", P], T]:
    """For methods that touch the disk: refuses a failed log, and makes an OSError its failure."""

    @functools.wraps(method)
    def guarded(log: "Log", /, *args: P.args, **kwargs: P.kwargs) -> T:
        if log.failure is not None:
            raise log.failure.again()
        try:
            return method(log, *args, **kwargs)
        except OSError as error:
            raise log.fail(error) from error

    return guarded


class Log:
    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        config: LogConfig,
        *,
        now_ms: int,
        clean_shutdown: bool,
        recovery_point: int,
        log_start_offset: int | None,
        jitter: Callable[[int], int],
        before_truncation: Callable[["Log"], None] | None,
    ) -> None:
        self._fs = fs
        self.directory = directory
        self.topic, self.partition = parse_directory_name(base_name(directory))
        self.config = config
        self.failure: LogDirFailure | None = None
        self.topic_id: Uuid | None = None
        self._jitter = jitter
        self._before_truncation = before_truncation
        self._flushing = threading.Lock()
        self._names_unsynced = True
        self._appended_messages = 0
        self._flushed_messages = 0
        self.last_flush_ms = now_ms
        self._verifications = Verifications()
        self._open_segments = OpenSegments()
        self.verify_transactions = False
        """Whether a client's transaction may begin here only with a guard (KIP-890)."""
        loaded = LogLoader(
            fs,
            directory,
            config,
            clean=clean_shutdown,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset or 0,
            may_start_below=self.is_tiered and log_start_offset is not None,
            now_ms=now_ms,
            draw_jitter=self._draw_jitter,
        ).load()
        self.segments = loaded.segments
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.snapshots = loaded.snapshots
        self.recovery = loaded.recovery
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self.high_watermark = max(loaded.log_start_offset, loaded.segments.first.base_offset)
        self.highest_remote_offset = NO_REMOTE_OFFSET
        """Remote storage durably has everything of this log's history up to here; whoever knows says so. Not kept."""
        self._active = self.segments.active

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        directory: str,
        config: LogConfig,
        *,
        now_ms: int,
        clean_shutdown: bool,
        recovery_point: int = 0,
        log_start_offset: int | None = None,
        topic_id: Uuid | None = None,
        jitter: Callable[[int], int] = random.randrange,
        before_truncation: Callable[["Log"], None] | None = None,
    ) -> "Log":
        """Opens or creates the log in `directory`, mending what a crash left behind.

        `log_start_offset` is what the checkpoint says, if anything; that of a tiered log may lie below its segments.
        `jitter(n)` draws from [0, n). `before_truncation` is called with the log, its recovery point already
        lowered, before anything below the old one is cut: it must write the recovery-point checkpoint. Raises
        InconsistentTopicId if `topic_id` is not the one on disk, CorruptCheckpoint, and LogDirFailure.
        """
        try:
            if not fs.exists(directory):
                fs.make_directory(directory)
                fs.sync_directory(parent(directory))
            found_id = read_topic_id(fs, directory)
            _check_topic_id(directory, topic_id, found_id)
            log = cls(
                fs,
                directory,
                config,
                now_ms=now_ms,
                clean_shutdown=clean_shutdown,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                jitter=jitter,
                before_truncation=before_truncation,
            )
            log.topic_id = found_id
            if topic_id is not None:
                log.set_topic_id(topic_id)
        except OSError as error:
            raise LogDirFailure(directory, error) from error
        return log

    def __repr__(self) -> str:
        return f"Log({self.directory}, {self.log_start_offset}..{self.log_end_offset})"

    # -- facts -----------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def active_segment(self) -> LogSegment:
        return self._active

    @property
    def is_tiered(self) -> bool:
        """Whether older segments may be in remote storage alone."""
        return self.config.remote_storage_enable and self.topic not in NEVER_TIERED

    @property
    def is_copied_to_tier(self) -> bool:
        """Whether closed segments are copied to remote storage; what is there may stay without that (KIP-950)."""
        return self.is_tiered and not self.config.remote_log_copy_disable

    @property
    def local_log_start_offset(self) -> int:
        """From here on records are on this disk; below, from the log's start on, in remote storage alone (KIP-405)."""
        return max(self.log_start_offset, self.segments.first.base_offset)

    @property
    def last_stable_offset(self) -> int:
        """Below it no transaction is undecided; never above the high watermark."""
        unstable = self.producers.first_unstable_offset
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    @property
    def flush_due(self) -> bool:
        """Whether flush.messages have been appended since the last flush."""
        return self._appended_messages - self._flushed_messages >= self.config.flush_messages

    @_fatal
    def set_topic_id(self, topic_id: Uuid) -> None:
        """Writes partition.metadata, durably, if there is none. Raises InconsistentTopicId if there is another."""
        _check_topic_id(self.directory, topic_id, self.topic_id)
        if self.topic_id is None:
            write_topic_id(self._fs, self.directory, topic_id)
            self.topic_id = topic_id

    def fail(self, error: OSError) -> LogDirFailure:
        """Marks the log as failed; it raises what is returned from now on."""
        if self.failure is None:
            self.failure = LogDirFailure(self.directory, error)
        return self.failure

    # -- append ----------------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        batches: Buffer,
        leader_epoch: int,
        *,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        guard: Guard | None = None,
    ) -> AppendInfo:
        """Validates, assigns offsets and writes; one batch from a client, any number from a coordinator.

        `guard` is from `start_verification`. `batches`, if writable, is patched in place. A batch that a producer
        sent before is not written: its first offsets are returned. Raises CorruptBatch, InvalidRecords and
        LogDirFailure; nothing is written then.
        """
        admitted = admit(batches, self.config, now_ms, origin)
        if not admitted:
            raise InvalidRecords(Rejection.INVALID_RECORD, "there is no record batch")
        for batch in admitted[1:]:
            self._check_producer(batch, origin, guard)
        first = self._append_admitted(admitted[0], leader_epoch, now_ms, origin, guard)
        if len(admitted) == 1:
            return first
        for batch in admitted[1:]:
            last = self._append_admitted(batch, leader_epoch, now_ms, origin, guard)
        return last._replace(first_offset=first.first_offset)

    def _append_admitted(
        self, admitted: Admitted, leader_epoch: int, now_ms: int, origin: Origin, guard: Guard | None
    ) -> AppendInfo:
        header, batch = admitted
        marker: EndTransactionMarker | None = None
        if header.producer_id >= 0:
            known = self._check_producer(admitted, origin, guard)
            if isinstance(known, CachedBatch):
                return self._duplicate(known)
            marker = known
        first = self.log_end_offset
        last = first + header.last_offset_delta
        if batch.readonly:
            prefix = bytearray(batch[:ATTRIBUTES_POSITION])
            patch(prefix, 0, first, leader_epoch)
            parts: tuple[Buffer, ...] = (prefix, batch[ATTRIBUTES_POSITION:])
        else:
            patch(batch, 0, first, leader_epoch)
            parts = (batch,)
        self._write_batch(parts, len(batch), last, header.max_timestamp, now_ms)
        if leader_epoch != self.epochs.latest_epoch:
            self.epochs.assign(leader_epoch, first)
        if header.producer_id >= 0:
            self._apply(BatchHeader(first, *header[1:]), marker)
        else:
            self.producers.end_offset = last + 1
        self._appended_messages += header.last_offset_delta + 1
        append_time = header.max_timestamp if self.config.is_log_append_time else NO_APPEND_TIME
        return AppendInfo(first, last, append_time, self.log_start_offset, False, self.flush_due)

    def _check_producer(
        self, admitted: Admitted, origin: Origin, guard: Guard | None
    ) -> CachedBatch | EndTransactionMarker | None:
        """The batch that this one repeats, or the marker that it is. Raises InvalidRecords."""
        header = admitted.header
        if header.producer_id < 0:
            return None
        if not header.attributes & CONTROL_FLAG:
            duplicate = self.producers.check(header, origin)
            if duplicate is None and origin is Origin.CLIENT and self._begins_transaction(header):
                self._verifications.check(header, guard)
            return duplicate
        marker = marker_of(header, admitted.batch)
        if marker is not None:
            self.producers.check_marker(header, marker)
        return marker

    def _begins_transaction(self, header: BatchHeader) -> bool:
        """Whether the coordinator must be asked first, as transaction.partition.verification.enable wants."""
        if not self.verify_transactions or not header.is_transactional:
            return False
        return not self.producers.has_open_transaction(header.producer_id)

    def start_verification(self, batch: Buffer) -> Guard | None:
        """Before a client's transactional batch is appended: the guard to append it with once the coordinator has
        confirmed the transaction; None if there is nothing to ask. Raises CorruptBatch.
        """
        try:
            header = parse_header(batch)
        except MalformedBatch as error:
            raise CorruptBatch(str(error)) from error
        return self._verifications.start(header) if self._begins_transaction(header) else None

    def _duplicate(self, known: CachedBatch) -> AppendInfo:
        return AppendInfo(known.first_offset, known.last_offset, known.timestamp, self.log_start_offset, True, False)

    def _write_batch(
        self, parts: Sequence[Buffer], size: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> None:
        """Rolls if it is time, writes, and moves the log's end."""
        if self.failure is not None:
            raise self.failure.again()
        try:
            if self._active.must_roll(self.config, size, max_timestamp, last_offset, now_ms):
                self.roll(now_ms)
            self._active.write(parts, size)
            self._active.note(size, last_offset, max_timestamp)
        except OSError as error:
            self._active.discard_unnoted()
            raise self.fail(error) from error
        self.log_end_offset = last_offset + 1

    def _apply(self, header: BatchHeader, marker: EndTransactionMarker | None) -> None:
        if header.attributes & TRANSACTIONAL_FLAG:
            self._verifications.end(header.producer_id)
        aborted = apply_to_producers(self.producers, header, marker)
        if aborted is not None:
            try:
                self._active.txn_index.append(aborted)
            except OSError as error:
                raise self.fail(error) from error

    def append_as_follower(self, batches: Buffer, *, now_ms: int, max_epoch: int | None = None) -> AppendInfo | None:
        """Appends whole batches as the leader wrote them; None if there are none. Offsets may have gaps.

        Nothing is taken from the first batch on that is of a later epoch than `max_epoch`: its leader is one that the
        follower has yet to hear of. A log without any batch, given one that began below its end, starts again at that
        batch. Raises CorruptBatch, UnexpectedOffset if the batches begin below the log's end, LogDirFailure.
        """
        admitted = verify_replicated(batches)
        if max_epoch is not None:
            admitted = list(itertools.takewhile(lambda batch: batch.header.leader_epoch <= max_epoch, admitted))
        if not admitted:
            return None
        first = admitted[0].header
        if first.base_offset < self.log_end_offset:
            if self.log_start_offset < self.log_end_offset or first.last_offset < self.log_end_offset:
                raise UnexpectedOffset(self.log_end_offset, first.base_offset)
            self.truncate_fully_and_start_at(first.base_offset, now_ms=now_ms)
        return self._append_assigned(admitted, now_ms)

    def _append_assigned(self, admitted: Sequence[Admitted], now_ms: int) -> AppendInfo:
        """One write per segment; what a batch means is noted before the next segment is begun."""
        marked = [(batch, marker_of(*batch)) for batch in admitted]
        run: list[tuple[Admitted, EndTransactionMarker | None]] = []
        size = 0
        for (header, batch), marker in marked:
            pending = size + len(batch)
            if self._active.must_roll(self.config, pending, header.max_timestamp, header.last_offset, now_ms):
                self._write_run(run, size)
                self.roll(now_ms)
                run, size = [], 0
            run.append((Admitted(header, batch), marker))
            size += len(batch)
        self._write_run(run, size)
        return AppendInfo(
            admitted[0].header.base_offset,
            self.log_end_offset - 1,
            NO_APPEND_TIME,
            self.log_start_offset,
            False,
            self.flush_due,
        )

    def _write_run(self, run: Sequence[tuple[Admitted, EndTransactionMarker | None]], size: int) -> None:
        if not run:
            return
        if self.failure is not None:
            raise self.failure.again()
        try:
            self._active.write([admitted.batch for admitted, _ in run], size)
            for (header, batch), marker in run:
                self._active.note(len(batch), header.last_offset, header.max_timestamp)
                self._on_noted(header, marker)
        except OSError as error:
            self._active.discard_unnoted()
            raise self.fail(error) from error

    def _on_noted(self, header: BatchHeader, marker: EndTransactionMarker | None) -> None:
        self.log_end_offset = header.next_offset
        if header.leader_epoch >= 0 and header.leader_epoch != self.epochs.latest_epoch:
            self.epochs.assign(header.leader_epoch, header.base_offset)
        self._apply(header, marker)
        self._appended_messages += header.record_count

    # -- roll ------------------------------------------------------------------------------------------------------

    @_fatal
    def roll(self, now_ms: int) -> None:
        """Begins a new segment at the log's end, unless the active one begins there already."""
        if self._active.base_offset < self.log_end_offset:
            self._roll(now_ms)

    def _roll(self, now_ms: int) -> None:
        """The new base is the log's end, even where the next batch begins after a gap: no hole between segments."""
        finished = self._active
        finished.finish()
        self.snapshots.take(self.producers)
        self._add_segment(self.log_end_offset, now_ms)
        self._open_segments.use(finished)

    def _add_segment(self, base: int, now_ms: int) -> None:
        segment = LogSegment.create(
            self._fs, self.directory, base, self.config, created_ms=now_ms, jitter_ms=self._draw_jitter()
        )
        self.segments.add(segment)
        self._active = segment
        self._names_unsynced = True

    def _draw_jitter(self) -> int:
        bound = min(self.config.segment_jitter_ms, self.config.segment_ms)
        return self._jitter(bound) if bound > 0 else 0

    # -- read ------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, upper: int, min_one: bool = True) -> LogSlice:
        """Whole batches from the one that contains `offset` (or the next after a gap), all wholly below offset `upper`.

        At most `max_bytes`, but with `min_one` at least the first batch. From one segment at a time. Raises
        OffsetOutOfRange unless log start <= offset <= log end, OffsetMovedToTier for what remote storage alone has, and
        LogDirFailure.
        """
        if self.failure is not None:
            raise self.failure.again()
        end = self.log_end_offset
        if not self.log_start_offset <= offset <= end:
            raise OffsetOutOfRange(offset, self.log_start_offset, end)
        if offset >= upper or offset == end:
            return self._nothing(offset)
        segment = self.segments.floor(offset)
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
        return self._nothing(offset)

    def _nothing(self, offset: int) -> LogSlice:
        return LogSlice(b"", offset, False, self._active.base_offset, self._active.size)

    def _load(self, segment: LogSegment, found: SegmentSlice) -> LogSlice:
        if segment is not self._active:
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
        """Brings a cold slice into memory. Blocks; meant for another thread than the log's.

        A failure is left for whoever touches the bytes: the segment may have been removed and closed meanwhile.
        """
        segment = self.segments.floor(found.segment_base)
        if segment is not None and segment.base_offset == found.segment_base:
            with contextlib.suppress(OSError):
                segment.file.warm(found.position, found.position + len(found.data))

    def aborted_transactions(self, fetch_offset: int, upper: int) -> list[AbortedTxn]:
        """The aborted transactions with records in [fetch_offset, upper), for a read_committed reader to leave out."""
        return aborted_between(self.segments, fetch_offset, upper)

    # -- lookups ---------------------------------------------------------------------------------------------------

    @_fatal
    def offset_for_timestamp(self, timestamp: int) -> FoundTimestamp | None:
        """The first record at or after the log's start with a timestamp of at least `timestamp`; None if there is none.

        Raises CorruptBatch if the batch in question does not open.
        """
        with self._opening():
            return first_at_or_after(self.segments, timestamp, self.log_start_offset)

    @_fatal
    def offset_of_max_timestamp(self) -> FoundTimestamp | None:
        """The first record that carries the greatest timestamp of the log; None in an empty log. Raises
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

    def end_offset_for_epoch(self, epoch: int) -> EpochAndOffset:
        """Where a leader epoch ended in this log (OffsetForLeaderEpoch)."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # -- high watermark, log start ---------------------------------------------------------------------------------

    def advance_high_watermark(self, offset: int) -> bool:
        """Raises the high watermark to `offset`, at most to the log's end; says whether it moved."""
        offset = min(offset, self.log_end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.producers.on_high_watermark(offset)
        return True

    def follow_high_watermark(self, offset: int) -> bool:
        """Takes over the high watermark of a leader, within this log's own bounds; it may go back. Says whether it
        moved.
        """
        offset = max(self.local_log_start_offset, min(offset, self.log_end_offset))
        if offset >= self.high_watermark:
            return self.advance_high_watermark(offset)
        self.high_watermark = offset
        return True

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Raises the log's start; says whether it moved. Files go later. OffsetOutOfRange above the high watermark."""
        if offset > self.high_watermark:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.high_watermark)
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        return True

    def assign_epoch(self, epoch: int) -> None:
        """A new leader's epoch begins at the log's end, before it has written anything."""
        self.epochs.assign(epoch, self.log_end_offset)

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets idle producers; says how many."""
        expired = self.producers.expire(now_ms, expiration_ms)
        for producer_id in expired:
            self._verifications.end(producer_id)
        return len(expired)

    # -- flush -----------------------------------------------------------------------------------------------------

    @_fatal
    def flush(self, now_ms: int | None = None) -> int:
        """Syncs everything below the log's end and moves the recovery point there; returns it. `now_ms` becomes
        `last_flush_ms`.

        Blocks. May run on another thread while the log is appended to; what comes after the call began may be left out.
        """
        with self._flushing:
            messages = self._appended_messages
            end = self.log_end_offset
            if end > self.recovery_point or self._names_unsynced:
                self._sync_up_to(end)
                self.recovery_point = max(self.recovery_point, end)
            self._flushed_messages = messages
            self.last_flush_ms = self.last_flush_ms if now_ms is None else now_ms
            return self.recovery_point

    def _sync_up_to(self, end: int) -> None:
        """From the segment with the last flushed offset on: it may have been finished, its indexes unsynced, since."""
        names_unsynced, self._names_unsynced = self._names_unsynced, False
        for segment in self.segments.from_offset(max(0, self.recovery_point - 1)):
            if segment.base_offset <= end:
                segment.sync(indexes=segment is not self._active)
        self.snapshots.sync(end)
        self.epochs.save()
        if names_unsynced:
            self._fs.sync_directory(self.directory)

    # -- truncation ------------------------------------------------------------------------------------------------

    @_fatal
    def truncate_to(self, offset: int, *, now_ms: int) -> bool:
        """Removes everything at and above `offset`; says whether there was anything.

        A batch that straddles `offset` goes whole, yet the log then ends at `offset`. Where nothing would be left but
        deleted records, they go too. Durable on return.
        """
        if offset < 0:
            raise ValueError(f"cannot truncate to offset {offset}")
        if self.has_only_deleted_below(offset):
            had_more = offset < self.log_end_offset
            self._start_anew(offset, now_ms, offset, self.epochs.entries)
            return had_more
        if offset >= self.log_end_offset:
            self.epochs.truncate_from_end(self.log_end_offset)
            return False
        if offset < self.segments.first.base_offset:
            # Remote storage has what is below, and is asked for it by epoch.
            self._start_anew(offset, now_ms, min(self.log_start_offset, offset), self.epochs.entries)
            return True
        with self._flushing:
            self._lower_recovery_point(offset)
            self._remove_newest(self.segments.based_above(offset))
            self._active = self.segments.active
            self._active.truncate_to(offset)
            self._end_at(offset, min(self.log_start_offset, offset))
            self.producers = self._rebuilt_producers(offset)
        return True

    def has_only_deleted_below(self, offset: int) -> bool:
        """Whether a segment reaches below `offset`, with nothing but what lies below the log's start.

        Whoever cuts the log there cannot know that those records are of the history that comes behind them. The log's
        start hides them, but after a crash it may be an older one: they would be read again, and recovery would take
        their epoch for that of later records of a lower one.
        """
        return self.segments.first.base_offset < offset <= self.log_start_offset

    @_fatal
    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int, log_start_offset: int | None = None) -> None:
        """Removes everything; the log is then empty at `offset`, its start there too unless given. Durable on
        return.
        """
        self._start_anew(offset, now_ms, offset if log_start_offset is None else log_start_offset, ())

    def _start_anew(self, offset: int, now_ms: int, log_start_offset: int, history: Iterable[EpochEntry]) -> None:
        """`history` are the leader epochs, of which those before `offset` stay."""
        with self._flushing:
            self._lower_recovery_point(offset)
            self._remove_newest(list(self.segments), but=offset)
            self.snapshots.remove_above(-1)
            self.epochs.replace(history)
            if not len(self.segments):
                self._add_segment(offset, now_ms)
            else:
                self._active = self.segments.active
                self._active.reset()
                self._active.sync(indexes=False)
            self._fs.sync_directory(self.directory)
            self.producers = ProducerState()
            self.producers.end_offset = offset
            self._end_at(offset, log_start_offset)
            self.high_watermark = offset
            self.highest_remote_offset = NO_REMOTE_OFFSET

    @_fatal
    def start_from_tier(self, start: TierStart, *, now_ms: int, checkpoint: Callable[["Log"], None]) -> None:
        """Removes everything; the log then goes on where remote storage ends, with what is known of that.

        `checkpoint` is called with the new log start, and must write it to the disk before it returns. Durable on
        return; for a crash on the way see `storage.tier_start`.
        """
        offset = start.next_offset
        with self._flushing:
            self._lower_recovery_point(offset)
            self.log_start_offset = start.log_start_offset
            checkpoint(self)
            self._remove_newest(list(self.segments))
            self.snapshots.remove_above(-1)
            self._fs.sync_directory(self.directory)
            self.snapshots.put(start.producers)
            self.epochs.replace(start.epochs)
            self.epochs.save()
            self._fs.sync_directory(self.directory)
            self._add_segment(offset, now_ms)
            self._active.sync(indexes=False)
            self._fs.sync_directory(self.directory)
            self.producers = start.producers
            self.log_end_offset = self.high_watermark = self.recovery_point = offset
            self.highest_remote_offset = NO_REMOTE_OFFSET

    def _lower_recovery_point(self, offset: int) -> None:
        """First in memory and on disk, so that after a crash in the middle all that is unsure is read again."""
        if offset < self.recovery_point:
            self.recovery_point = offset
            if self._before_truncation is not None:
                self._before_truncation(self)

    def _remove_newest(self, segments: Iterable[LogSegment], but: int | None = None) -> None:
        """The last first, each name gone before the next, so that a crash leaves no gap."""
        for segment in sorted(segments, key=lambda segment: segment.base_offset, reverse=True):
            if segment.base_offset != but:
                self.segments.remove(segment)
                segment.remove_files()
        self._fs.sync_directory(self.directory)

    def _end_at(self, offset: int, log_start_offset: int) -> None:
        self.epochs.truncate_from_end(offset)
        self.epochs.save()
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.high_watermark = min(self.high_watermark, offset)
        self.highest_remote_offset = min(self.highest_remote_offset, offset - 1)

    def _rebuilt_producers(self, end: int) -> ProducerState:
        """From the newest snapshot that is left, and the batches since."""
        self.snapshots.remove_above(end)
        producers = self.snapshots.load_newest(end) or ProducerState()
        start = producers.end_offset
        for segment in self.segments:
            replay_segment(producers, segment, max(start, segment.base_offset), end)
        producers.end_offset = end
        producers.on_high_watermark(self.high_watermark)
        return producers

    # -- deletion and replacement of segments ----------------------------------------------------------------------

    @_fatal
    def detach_segments(self, segments: Sequence[LogSegment]) -> list[LogSegment]:
        """Takes segments out of the log and renames their files `.deleted`; the caller removes them in a while
        (`LogSegment.remove_files`). Raise the log's start first, unless remote storage has them. The active segment
        stays: roll before.
        """
        with self._flushing:
            if self.is_tiered:
                self.epochs.save()  # they will not be learnt again from batches that are remote alone
            for segment in segments:
                if segment is self._active:
                    raise AssertionError(f"{self.name}: the active segment cannot be detached")
                self.segments.remove(segment)
                segment.change_suffix(DELETED_SUFFIX)
                self.snapshots.remove(segment.base_offset)
            self._names_unsynced = True
        return list(segments)

    @_fatal
    def replace_segments(self, cleaned: LogSegment, replaced: Sequence[LogSegment]) -> list[LogSegment]:
        """Puts a finished `.cleaned` segment in the place of those it was made from, such that a crash at any
        point leaves either side whole. Returns the replaced ones, renamed `.deleted`, for the caller to remove.
        """
        with self._flushing:
            replace_segments(self._fs, self.directory, self.segments, self.snapshots, cleaned, replaced)
            cleaned.next_offset = self.segments.end_of(cleaned, self.log_end_offset)
        return list(replaced)

    # -- close -----------------------------------------------------------------------------------------------------

    def close(self, clean: bool = True) -> None:
        """Closes the files. Clean: first everything is synced, with a producer snapshot and whole indexes, so that
        the next start need not read the log. Raises LogDirFailure.
        """
        try:
            if clean and self.failure is None:
                self._finish()
        finally:
            with self._flushing:
                for segment in self.segments:
                    segment.close()

    @_fatal
    def _finish(self) -> None:
        self.snapshots.take(self.producers)
        self._active.finish()
        self._names_unsynced = True
        with self._flushing:
            self._sync_up_to(self.log_end_offset)
            self._active.sync(indexes=True)
            self.recovery_point = self.log_end_offset
