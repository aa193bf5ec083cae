"""The log of one partition, a replica of a Kafka topic partition: append, high watermark, truncation.

`LocalLog` holds the segments, and documents threads, durability and failure.
"""

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from protocol.ids import LeaderEpoch
from protocol.primitives import Buffer, Uuid
from protocol.records.batch import (
    ATTRIBUTES_POSITION,
    CONTROL_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    patch,
)
from storage.config import LogConfig
from storage.directories.checkpoints import PARTITION_METADATA_FILE, LeaderEpochEntry, read_topic_id
from storage.directories.directory_names import parse_directory_name
from storage.epochs import EpochAndOffset
from storage.errors import (
    CorruptCheckpoint,
    InvalidRecords,
    LogDirFailure,
    OffsetOutOfRange,
    Rejection,
    UnexpectedOffset,
)
from storage.files import FileSystem, base_name, join
from storage.local_log import NO_REMOTE_OFFSET, LocalLog, check_topic_id, draw_jitter, fails_log, is_tiered
from storage.producer_state import CachedBatch, EndTransactionMarker, Origin, ProducerState
from storage.recovery import LoadedLog, LogCheckpoint, LogLoader
from storage.remote_log_start import RemoteLogStart
from storage.replay import apply_to_producers, marker_of, replay_segment
from storage.straight_append import NO_APPEND_TIME, AppendInfo, append_straight
from storage.synced_records import SyncedRecords
from storage.validation import Admitted, admit, verify_replicated
from storage.verification import Guard, Verifications


def _find_topic_id(fs: FileSystem, directory: str) -> tuple[Uuid | None, CorruptCheckpoint | None]:
    """Return the topic id of a log, or the damage of its file.

    A power failure may tear the file of a log that was never flushed. The log then has no topic id.
    """
    try:
        return read_topic_id(fs, directory), None
    except CorruptCheckpoint as damage:
        return None, damage


class Log(LocalLog):
    """The log of one partition with its producers, leader epochs, high watermark and log start offset."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        config: LogConfig,
        loaded: LoadedLog,
        *,
        now_ms: int,
        jitter: Callable[[int], int],
        before_truncation: Callable[["Log"], None] | None,
    ) -> None:
        super().__init__(fs, directory, config, loaded, now_ms=now_ms, jitter=jitter)
        self._before_truncation = before_truncation
        self.verifications = Verifications()
        self.high_watermark = max(loaded.log_start_offset, loaded.segments.first.base_offset)
        self.highest_remote_offset = NO_REMOTE_OFFSET
        """The last offset of this log's history that remote storage holds durably. Set by the owner; not persisted."""

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
        synced: SyncedRecords | None = None,
        jitter: Callable[[int], int] = random.randrange,
        before_truncation: Callable[["Log"], None] | None = None,
    ) -> "Log":
        """Open or create the log in `directory`, and repair the effects of a crash.

        `log_start_offset` comes from the checkpoint, if it has one; that of a tiered log may lie below the first
        segment. `jitter(n)` draws from [0, n). `before_truncation` is called with the log after its recovery point was
        lowered and before a truncation below the old one; it must write the recovery-point checkpoint. A new log is not
        synced. Raises InconsistentTopicId if `topic_id` differs from the one on disk, SyncedRecordsLost if the log ends
        below the end of `synced`, CorruptCheckpoint, and LogDirFailure.
        """
        try:
            if not fs.exists(directory):
                fs.make_directory(directory)
            found_id, damage = _find_topic_id(fs, directory)
            check_topic_id(directory, topic_id, found_id)
            loaded = LogLoader(
                fs,
                directory,
                config,
                LogCheckpoint(clean_shutdown, recovery_point, log_start_offset, synced),
                may_start_below=is_tiered(parse_directory_name(base_name(directory)).topic, config),
                now_ms=now_ms,
                draw_jitter=partial(draw_jitter, config, jitter),
            ).load()
            log = cls(fs, directory, config, loaded, now_ms=now_ms, jitter=jitter, before_truncation=before_truncation)
            if damage is not None and not log.is_blank and (clean_shutdown or recovery_point > 0):
                raise damage
            if damage is not None:  # the first flush syncs the removal, before the recovery point says otherwise
                fs.remove(join(directory, PARTITION_METADATA_FILE))
            log.topic_id = found_id
            if topic_id is not None:
                log.set_topic_id(topic_id)
        except OSError as error:
            raise LogDirFailure(directory, error) from error
        return log

    # -- append --------------------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        batches: Buffer,
        leader_epoch: LeaderEpoch,
        *,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        guard: Guard | None = None,
    ) -> AppendInfo:
        """Validate batches, assign offsets and write; one batch from a client, any number from a coordinator.

        `guard` comes from `start_verification`. `batches`, if writable, is patched in place. A duplicate batch of a
        producer is not written; its first offsets are returned. Raises CorruptBatch, InvalidRecords and LogDirFailure;
        then nothing is written.
        """
        admitted = admit(batches, self.config, now_ms, origin)
        if len(admitted) == 1:
            info = append_straight(self, admitted[0], leader_epoch, now_ms, origin)
            if info is not None:
                return info
        return self.append_generally(admitted, leader_epoch, now_ms, origin, guard)

    def append_generally(
        self, admitted: Sequence[Admitted], leader_epoch: LeaderEpoch, now_ms: int, origin: Origin, guard: Guard | None
    ) -> AppendInfo:
        """Append valid batches as `append_as_leader` does, without the straight path of an ordinary one."""
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
        self, admitted: Admitted, leader_epoch: LeaderEpoch, now_ms: int, origin: Origin, guard: Guard | None
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
        self.appended_messages += header.last_offset_delta + 1
        append_time = header.max_timestamp if self.config.is_log_append_time else NO_APPEND_TIME
        return AppendInfo(first, last, append_time, self.log_start_offset, False, self.flush_due)

    def _check_producer(
        self, admitted: Admitted, origin: Origin, guard: Guard | None
    ) -> CachedBatch | EndTransactionMarker | None:
        """Return the batch that this one repeats, or the batch's transaction marker. Raises InvalidRecords."""
        header = admitted.header
        if header.producer_id < 0:
            return None
        if not header.attributes & CONTROL_FLAG:
            duplicate = self.producers.check(header, origin, self.high_watermark)
            if duplicate is None and self._begins_transaction(header):
                self.verifications.check(header, guard)
            return duplicate
        marker = marker_of(header, admitted.batch)
        if marker is not None:
            self.producers.check_marker(header, marker)
        return marker

    def _begins_transaction(self, header: BatchHeader) -> bool:
        """Whether the coordinator must verify the transaction first (transaction.partition.verification.enable)."""
        if not self.config.verify_transactions or not header.is_transactional:
            return False
        return not self.producers.has_open_transaction(header.producer_id, header.producer_epoch)

    def start_verification(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> Guard | None:
        """Return the guard for the append of a transaction's first batch after the coordinator confirmed the
        transaction; None if it is open. Raises InvalidRecords for an outdated producer epoch.
        """
        self.producers.check_epoch(producer_id, epoch)
        if self.producers.has_open_transaction(producer_id, epoch):
            return None
        return self.verifications.start(producer_id, epoch, sequence, now_ms)

    def accepts(self, producer_id: int, guard: Guard) -> bool:
        """Whether no append has ended the verification that the guard belongs to."""
        return self.verifications.accepts(producer_id, guard)

    def _duplicate(self, known: CachedBatch) -> AppendInfo:
        return AppendInfo(known.first_offset, known.last_offset, known.timestamp, self.log_start_offset, True, False)

    def _apply(self, header: BatchHeader, marker: EndTransactionMarker | None) -> None:
        if header.attributes & TRANSACTIONAL_FLAG:
            self.verifications.end(header.producer_id)
        aborted = apply_to_producers(self.producers, header, marker)
        if aborted is not None:
            try:
                self.active_segment.txn_index.append(aborted)
            except OSError as error:
                raise self.fail(error) from error

    def append_as_follower(
        self, batches: Buffer, *, now_ms: int, max_epoch: LeaderEpoch | None = None
    ) -> AppendInfo | None:
        """Append whole batches as the leader wrote them; return None without a whole batch. Offsets may have gaps.

        Batches from the first one with an epoch above `max_epoch` on are left out: the follower does not know that
        leader epoch yet. An empty log restarts at a first batch that begins below its end. Raises CorruptBatch,
        UnexpectedOffset if the batches begin below the log end offset, LogDirFailure.
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
        """Write once per segment; apply the effects of each batch before the next segment begins."""
        marked = [(each, marker_of(*each) if each.header.attributes & CONTROL_FLAG else None) for each in admitted]
        run: list[tuple[Admitted, EndTransactionMarker | None]] = []
        size = 0
        for each, marker in marked:
            header, batch = each
            pending = size + len(batch)
            last_offset = header.base_offset + header.last_offset_delta
            if self.active_segment.must_roll(self.config, pending, header.max_timestamp, last_offset, now_ms):
                self._write_run(run, size)
                self.roll(now_ms)
                run, size = [], 0
            run.append((each, marker))
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
            self.active_segment.write([admitted.batch for admitted, _ in run], size)
            for (header, batch), marker in run:
                self.active_segment.note(len(batch), header.last_offset, header.max_timestamp)
                self._on_noted(header, marker)
        except OSError as error:
            self.active_segment.discard_unnoted()
            raise self.fail(error) from error

    def _on_noted(self, header: BatchHeader, marker: EndTransactionMarker | None) -> None:
        # Offsets count, as in Kafka: a compacted batch may have lost all its records.
        next_offset = header.base_offset + header.last_offset_delta + 1
        self.appended_messages += next_offset - self.log_end_offset
        self.log_end_offset = next_offset
        if 0 <= header.leader_epoch != self.epochs.latest_epoch:
            self.epochs.assign(header.leader_epoch, header.base_offset)
        self._apply(header, marker)

    # -- high watermark, log start offset, leader epochs, producers ----------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided; never above the high watermark."""
        unstable = self.producers.first_unstable_offset
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    def advance_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark to `offset`, at most to the log end offset; return whether it moved."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.producers.on_high_watermark(offset)
        return True

    def follow_high_watermark(self, offset: int) -> bool:
        """Set the high watermark to the leader's, within the bounds of this log; it may go back. Return whether it
        moved.
        """
        offset = max(self.local_log_start_offset, min(offset, self.log_end_offset))
        if offset >= self.high_watermark:
            return self.advance_high_watermark(offset)
        self.high_watermark = offset
        return True

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Raise the log start offset; return whether it moved. Segments are deleted later.

        Raises OffsetOutOfRange above the high watermark.
        """
        if offset > self.high_watermark:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.high_watermark)
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        return True

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> EpochAndOffset:
        """Return the end offset of a leader epoch in this log (OffsetForLeaderEpoch)."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def assign_epoch(self, epoch: LeaderEpoch) -> None:
        """Start a new leader's epoch at the log end offset, before the leader has appended a batch."""
        self.epochs.assign(epoch, self.log_end_offset)

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Remove idle producers; return how many."""
        expired = self.producers.expire(now_ms, expiration_ms)
        for producer_id in expired:
            self.verifications.end(producer_id)
        self.verifications.expire(now_ms, expiration_ms)
        return len(expired)

    # -- truncation ----------------------------------------------------------------------------------------------------

    @fails_log
    def truncate_to(self, offset: int, *, now_ms: int) -> bool:
        """Remove everything at and above `offset`; return whether there was anything.

        The log ends at the base offset of a batch that spans `offset`, so that no offset is left without its record. A
        log left with deleted records only becomes empty. Durable on return.
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
        if (segment := self.segments.floor(offset)) is None:
            # Offsets below the first segment are in remote storage, where followers look them up by epoch.
            self._start_anew(offset, now_ms, min(self.log_start_offset, offset), self.epochs.entries)
            return True
        offset = segment.whole_batches_end(offset)
        with self._flushing:
            self._lower_recovery_point(offset)
            self._remove_newest(self.segments.based_above(offset))
            self.active_segment = self.segments.active
            self.active_segment.truncate_to(offset)
            self._end_at(offset, min(self.log_start_offset, offset))
            self.producers = self._rebuilt_producers(offset)
        return True

    def has_only_deleted_below(self, offset: int) -> bool:
        """Whether the segments reach below `offset`, and all records there lie below the log start offset.

        A truncation to `offset` must remove those records, because they may belong to another history than the records
        appended next. The log start offset hides them, but a crash may bring an older log start offset back: the
        records would be read again, and recovery would take their epoch for that of later records with a lower epoch.
        """
        return self.segments.first.base_offset < offset <= self.log_start_offset

    @fails_log
    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int, log_start_offset: int | None = None) -> None:
        """Remove everything; the log is then empty at `offset`, which is its log start offset unless given.

        Durable on return.
        """
        self._start_anew(offset, now_ms, offset if log_start_offset is None else log_start_offset, ())

    def _start_anew(self, offset: int, now_ms: int, log_start_offset: int, history: Iterable[LeaderEpochEntry]) -> None:
        """Empty the log at `offset`. `history` holds leader epochs, of which those before `offset` stay."""
        with self._flushing:
            self._lower_recovery_point(0)  # or recovery would miss what a crash on the way has removed already
            self._remove_newest(list(self.segments), but=offset)
            self.snapshots.remove_above(-1)
            self.epochs.replace(history)
            if not len(self.segments):
                self._add_segment(offset, now_ms)
            else:
                self.active_segment = self.segments.active
                self.active_segment.reset()
                self.active_segment.sync(indexes=False)
            self._fs.sync_directory(self.directory)
            self.producers = ProducerState()
            self.producers.end_offset = offset
            self._end_at(offset, log_start_offset)
            self.high_watermark = offset
            self.highest_remote_offset = NO_REMOTE_OFFSET

    @fails_log
    def start_behind_remote_log(
        self, start: RemoteLogStart, *, now_ms: int, checkpoint: Callable[["Log"], None]
    ) -> None:
        """Remove everything and continue the log at the end of remote storage, with its epochs and producers.

        `checkpoint` is called with the new log start offset and must write it to disk before it returns. Durable on
        return; for a crash on the way see `storage.remote_log_start`.
        """
        offset = start.next_offset
        with self._flushing:
            self._lower_recovery_point(0)
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
            self.active_segment.sync(indexes=False)
            self._fs.sync_directory(self.directory)
            self._sync_identity()
            self.producers = start.producers
            self.log_end_offset = self.high_watermark = self.recovery_point = offset
            self.highest_remote_offset = NO_REMOTE_OFFSET

    def _lower_recovery_point(self, offset: int) -> None:
        """Lower the recovery point in memory and on disk first: after a crash midway, recovery reads the uncertain
        part.
        """
        if offset < self.recovery_point:
            self.recovery_point = offset
            if self._before_truncation is not None:
                self._before_truncation(self)

    def _end_at(self, offset: int, log_start_offset: int) -> None:
        self.epochs.truncate_from_end(offset)
        self.epochs.save()
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.high_watermark = min(self.high_watermark, offset)
        self.highest_remote_offset = min(self.highest_remote_offset, offset - 1)

    def _rebuilt_producers(self, end: int) -> ProducerState:
        """Load the newest remaining snapshot and replay the batches after it."""
        self.snapshots.remove_above(end)
        producers = self.snapshots.load_newest(end) or ProducerState()
        start = producers.end_offset
        for segment in self.segments:
            replay_segment(producers, segment, max(start, segment.base_offset), end)
        producers.end_offset = end
        producers.on_high_watermark(self.high_watermark)
        return producers
