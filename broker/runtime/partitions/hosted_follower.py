"""The follower side of a hosted partition: appends of fetched records and truncations, driven by a replica fetcher.

Truncation runs on the IO thread (`log_truncation.py`). Until it ends, nothing is appended, readers see the offsets that
are valid before and after, and role changes wait; a new leader epoch thus begins with the truncated log.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker.clock import Clock
from broker.logs import EventLog
from broker.metrics.topics import TopicMeters
from broker.replication.epochs import EpochEnd
from broker.replication.fetch_state import FetchPosition
from broker.replication.follower import FollowerRole
from broker.runtime.partitions.partition_services import LogOperations
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import LeaderEpoch
from protocol.primitives import Buffer, Uuid
from storage.errors import CorruptBatch, LogDirFailure, UnexpectedOffset
from storage.log import Log
from storage.remote_log_start import RemoteLogStart

if TYPE_CHECKING:
    from broker.runtime.partitions.partition import Partition

_log = EventLog("broker.partitions")


class FetchedOutOfOrder(Exception):
    """A leader sent records that begin below this log's end, although the fetch was for the log end offset.

    The leader has a batch across that end, so the logs diverge at `diverges_at` at the latest, and the follower
    truncates there. `diverges_at` is None if the offset is committed and must not be truncated.
    """

    def __init__(self, message: str, diverges_at: int | None = None) -> None:
        super().__init__(message)
        self.diverges_at = diverges_at


class HostedFollower:
    """Implements FollowerReplica for one partition."""

    __slots__ = ("_clock", "_log_operations", "_partition", "index", "topic", "topic_id", "traffic")

    def __init__(self, partition: "Partition", clock: Clock, log_operations: LogOperations) -> None:
        self.topic: str = partition.topic
        self.topic_id: Uuid = partition.topic_id
        self.index: int = partition.index
        self.traffic: TopicMeters = partition.traffic
        self._partition = partition
        self._clock = clock
        self._log_operations = log_operations

    def __str__(self) -> str:
        return str(self._partition)

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self._partition.role.epoch

    @property
    def leader_id(self) -> int | None:
        """The broker that leads, None while the partition has no leader."""
        return self._partition.leader_id

    def fetch_position(self) -> FetchPosition:
        """Return the position of the next fetch. Undefined while the log is truncated."""
        log = self._partition.log
        return FetchPosition(log.log_end_offset, log.epochs.latest_epoch, log.log_start_offset)

    @property
    def is_flushed(self) -> bool:
        """Whether this replica may report its log end to the leader: no record waits for a flush (`flush.messages`)."""
        return self._partition.pending_flush.is_over

    def when_flushed(self, callback: Callable[[], None]) -> None:
        """Call back once `is_flushed` holds, or once the wait is pointless."""
        self._partition.pending_flush.when_over(callback)

    @property
    def local_start_offset(self) -> int:
        """The start of the local log; the log's records below are in remote storage only."""
        return self._partition.log.local_log_start_offset

    def end_for_epoch(self, epoch: LeaderEpoch) -> EpochEnd:
        """Return the end, in this replica's log, of an epoch or of the greatest epoch below."""
        return EpochEnd(*self._partition.log.end_offset_for_epoch(epoch))

    # ---- appends

    def append_fetched(
        self,
        leader_epoch: LeaderEpoch,
        offset: int,
        records: Buffer,
        leader_high_watermark: int,
        leader_log_start_offset: int,
    ) -> bool:
        """Append the leader's answer to a fetch from `offset`; take over its high watermark and log start offset.

        `records` may be empty, and may end within a batch, which is left out. Returns False, with nothing done, if this
        replica no longer follows that leader epoch or its log end is not `offset`. Raises FetchedOutOfOrder, and
        KafkaError: CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR (the log directory is offline then).
        """
        log = self._partition.log
        if not self._may_fetch(leader_epoch) or offset != log.log_end_offset:
            return False
        if len(records):
            self._append(log, records, leader_epoch)
        self._take_over_offsets(log, leader_high_watermark, leader_log_start_offset)
        if log.log_end_offset > offset:
            self._partition.log_end.fire()
        return True

    def _may_fetch(self, leader_epoch: LeaderEpoch) -> bool:
        partition, role = self._partition, self._partition.role
        is_same_epoch = isinstance(role, FollowerRole) and role.epoch == leader_epoch
        return is_same_epoch and not partition.truncation.is_under_way and not partition.is_closed

    def _append(self, log: Log, records: Buffer, leader_epoch: LeaderEpoch) -> None:
        try:
            info = log.append_as_follower(records, now_ms=self._clock.now_ms(), max_epoch=leader_epoch)
        except UnexpectedOffset as error:
            diverges_at = error.found if error.found >= log.high_watermark else None
            raise FetchedOutOfOrder(f"{self}: {error}", diverges_at) from error
        except CorruptBatch as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        except LogDirFailure as failure:
            raise self._partition.offline(failure) from failure
        if info is not None:
            self._partition.pending_flush.on_append(info)

    def _take_over_offsets(self, log: Log, leader_high_watermark: int, leader_log_start_offset: int) -> None:
        """Set the high watermark before the log start offset, which must not exceed the high watermark."""
        before = log.high_watermark
        moved = log.follow_high_watermark(leader_high_watermark)
        if log.high_watermark < before:
            _log.warning("the high watermark decreased", partition=self, before=before, now=log.high_watermark)
        started = log.maybe_increment_log_start_offset(min(leader_log_start_offset, log.high_watermark))
        if moved or started:
            self._partition.marks.fire()

    # ---- truncation

    def truncate(self, leader_epoch: LeaderEpoch, offset: int) -> "asyncio.Future[bool]":
        """Remove everything from `offset` on, by order of the leader of `leader_epoch`.

        Epoch entries that begin at the log end or beyond are removed even where there are no records to remove. The
        result is False if this replica does not follow that leader epoch, now or at the end. Fails with KafkaError
        KAFKA_STORAGE_ERROR (the log directory is offline then).
        """
        answer, log = self._log_operations.create_future(), self._partition.log
        if not self._may_fetch(leader_epoch):
            answer.set_result(False)
        elif offset < log.log_end_offset or log.has_only_deleted_below(offset):
            self._begin_truncation(leader_epoch, offset, self._log_operations.truncate, answer)
        else:
            self._remove_empty_epochs(offset, answer)
        return answer

    def _remove_empty_epochs(self, offset: int, answer: "asyncio.Future[bool]") -> None:
        """Truncate on the loop: no record is removed, so nothing blocks."""
        try:
            self._partition.log.truncate_to(offset, now_ms=self._clock.now_ms())
        except LogDirFailure as failure:
            answer.set_exception(self._partition.offline(failure))
        else:
            answer.set_result(True)

    def truncate_fully_and_start_at(self, leader_epoch: LeaderEpoch, offset: int) -> "asyncio.Future[bool]":
        """Remove everything and restart the log at `offset`. Otherwise as `truncate`."""
        answer = self._log_operations.create_future()
        if self._may_fetch(leader_epoch):
            self._begin_truncation(leader_epoch, offset, self._log_operations.truncate_fully_and_start_at, answer)
        else:
            answer.set_result(False)
        return answer

    def start_behind_remote_log(self, leader_epoch: LeaderEpoch, start: RemoteLogStart) -> "asyncio.Future[bool]":
        """Remove everything and restart the log where remote storage ends, with its auxiliary state.

        Otherwise as `truncate`; the result is also False while the log is not known to be tiered.
        """
        answer = self._log_operations.create_future()
        if self._may_fetch(leader_epoch) and self._partition.log.is_tiered:
            begin = partial(self._log_operations.start_behind_remote_log, start=start)
            self._begin_truncation(leader_epoch, start.next_offset, lambda log, _: begin(log), answer)
        else:
            answer.set_result(False)
        return answer

    def _begin_truncation(
        self,
        leader_epoch: LeaderEpoch,
        offset: int,
        operation: Callable[[Log, int], "asyncio.Future[bool]"],
        answer: "asyncio.Future[bool]",
    ) -> None:
        log = self._partition.log
        _log.info("truncating the log", partition=self, at=offset, end=log.log_end_offset, leader_epoch=leader_epoch)
        self._partition.truncation.begin(log, offset)
        operation(log, offset).add_done_callback(partial(self._on_truncated, leader_epoch, answer))

    def _on_truncated(
        self, leader_epoch: LeaderEpoch, answer: "asyncio.Future[bool]", done: "asyncio.Future[bool]"
    ) -> None:
        """Resume the operations that waited for the log, before the caller of the truncation resumes."""
        partition = self._partition
        waiting, error = partition.truncation.end(), done.exception()
        if isinstance(error, LogDirFailure):
            error = partition.offline(error)
        if error is None:
            partition.pending_flush.on_truncated()
            partition.pending_flush.complete_waiters()
            for callback in waiting:
                callback()
            partition.marks.fire()
            partition.log_end.fire()
        if answer.done():  # the caller has cancelled
            if error is not None and not isinstance(error, KafkaError):
                raise error
        elif error is None:
            answer.set_result(self._may_fetch(leader_epoch))
        else:
            answer.set_exception(error)
