"""A hosted partition: this broker's replica, with its role by the metadata, its log, and the waiters for either.

`broker.replication` holds the rules; this module applies them to a log. The partition appends, moves the high
watermark, wakes the waiters, and translates storage errors into Kafka errors. Everything runs on the event loop, with
no await between reading and writing the same state: there is one writer, and no reader sees a partial change.

An IO error of the log takes its log directory offline with all its partitions. The client gets KAFKA_STORAGE_ERROR.

While the log is truncated (`hosted_follower.py`), role changes wait, so a leader epoch begins with the truncated log.
Likewise, a replica with an empty log of a tiered topic does not lead a partition that had leaders before, until the
log's start is known (`leader_starts.py`). Meanwhile the replica follows no leader, and clients get
NOT_LEADER_OR_FOLLOWER and retry.
"""

from dataclasses import dataclass, field
from functools import partial

from broker.clock import Clock
from broker.metadata.image.topic_names import is_internal
from broker.metrics.topics import TopicMeters
from broker.replication.follower import FollowerRole
from broker.replication.leader import CommitTerms, FollowerFetch, LeaderRole
from broker.replication.partition import Assignment, Role, next_role
from broker.runtime.loop.waiters import OffsetWaiter, OffsetWaiters, WaitCallback, Watches
from broker.runtime.partitions.hosted_follower import HostedFollower
from broker.runtime.partitions.isr_updater import IsrUpdater
from broker.runtime.partitions.log_truncation import LogTruncation
from broker.runtime.partitions.partition_services import BrokerView, LogOperations, RoleEvents
from broker.runtime.partitions.pending_flush import PendingFlush
from broker.runtime.partitions.record_deletion import RecordDeletion
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import LeaderEpoch
from protocol.primitives import Buffer, Uuid
from storage.config import LogConfig
from storage.errors import CorruptBatch, InvalidRecords, LogDirFailure
from storage.log import Log
from storage.producer_state import Origin
from storage.straight_append import AppendInfo
from storage.verification import Guard

ACKS_ALL = -1
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class RecordsRefused(KafkaError):
    """The log has rejected a batch. `record_errors` lists pairs of (index within the batch, error message).

    `log_start_offset` is -1 for a batch that is too large, as in Kafka.
    """

    def __init__(self, error: InvalidRecords, log_start_offset: int) -> None:
        super().__init__(ErrorCode[error.kind.name], error.message)
        self.record_errors = error.record_errors
        self.log_start_offset = -1 if self.code in _TOO_LARGE else log_start_offset


@dataclass(slots=True)
class HostedTopic:
    """The partitions of one topic that are hosted here, by index. `traffic` counts for all of them together."""

    name: str
    id: Uuid
    traffic: TopicMeters
    partitions: "dict[int, Partition]" = field(default_factory=dict)


class Partition:
    """A replica that this broker hosts, with an open log.

    Readers watch `log_end` and `marks`: `log_end` fires when the log grows, `marks` when the high watermark, the log
    start offset or the leadership changes. Consumers need `marks` only. `traffic` counts the clients' bytes and records
    for all partitions of the topic together.

    `follower` is the partition as a replica fetcher sees it, `isr_updater` proposes changes of the in-sync replicas,
    `record_deletion` moves the log start offset.
    """

    __slots__ = (
        "_brokers",
        "_clock",
        "_committed",
        "_deferred_assignment",
        "_events",
        "_log_operations",
        "consumer_bounds",
        "follower",
        "follower_bounds",
        "index",
        "is_closed",
        "is_internal",
        "isr_updater",
        "log",
        "log_end",
        "marks",
        "pending_flush",
        "record_deletion",
        "role",
        "topic",
        "topic_id",
        "traffic",
        "truncation",
    )

    def __init__(
        self,
        topic: HostedTopic,
        index: int,
        log: Log,
        role: Role,
        clock: Clock,
        brokers: BrokerView,
        log_operations: LogOperations,
        events: RoleEvents,
    ) -> None:
        self.topic = topic.name
        self.topic_id = topic.id
        self.is_internal = is_internal(topic.name)
        self.traffic = topic.traffic
        self.index = index
        self.log = log
        self.role = role
        self._clock = clock
        self._brokers = brokers
        self._log_operations = log_operations
        self._events = events
        self._committed = OffsetWaiters()
        self._deferred_assignment: Assignment | None = None
        self.is_closed = False
        self.log_end = Watches()
        self.marks = Watches()
        # Compiled, a tuple of a fixed length would be another object at each access, and readers compare identities.
        self.consumer_bounds: tuple[Watches, ...] = (self.marks,)
        self.follower_bounds: tuple[Watches, ...] = (self.log_end, self.marks)
        self.truncation = LogTruncation()
        self.pending_flush = PendingFlush(
            log, partial(log_operations.flush, self), partial(log_operations.flush_within, self)
        )
        self.follower = HostedFollower(self, clock, log_operations)
        self.isr_updater = IsrUpdater(self, clock, brokers, events)
        self.record_deletion = RecordDeletion(self)

    @classmethod
    def open(
        cls,
        topic: HostedTopic,
        index: int,
        log: Log,
        assignment: Assignment,
        clock: Clock,
        brokers: BrokerView,
        log_operations: LogOperations,
        events: RoleEvents,
    ) -> "Partition":
        """Take the role that the metadata assigns."""
        lacks_start = _lacks_log_start(log, assignment, brokers, events)
        change = next_role(
            None,
            assignment,
            broker_id=brokers.broker_id,
            log_end_offset=log.log_end_offset,
            now_ms=int(clock.monotonic_ms()),
            may_lead=not lacks_start,
        )
        assert change is not None
        partition = cls(topic, index, log, change.role, clock, brokers, log_operations, events)
        partition._begin_epoch()
        partition.isr_updater.update_metrics()
        partition._defer(assignment if lacks_start else None)
        return partition

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    # ---- roles

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, LeaderRole)

    @property
    def leader_role(self) -> LeaderRole:
        """The leader's state. Raises KafkaError NOT_LEADER_OR_FOLLOWER if another broker leads."""
        if not isinstance(self.role, LeaderRole):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.role

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.role.epoch

    @property
    def leader_id(self) -> int | None:
        """The broker that leads, None while the partition has no leader."""
        return self.role.leader_id if isinstance(self.role, FollowerRole) else self._brokers.broker_id

    def assign(self, assignment: Assignment) -> None:
        """Apply the metadata, once no truncation is under way.

        Waiters of a leader epoch that is over fail; readers look again.
        """
        was_deferred = self.truncation.is_under_way
        self.truncation.when_over(partial(self._apply, assignment, was_deferred=was_deferred))

    def _apply(self, assignment: Assignment, *, was_deferred: bool, knows_log_start: bool = False) -> None:
        needs_log_start = not (knows_log_start or self.is_leader)
        lacks_start = needs_log_start and _lacks_log_start(self.log, assignment, self._brokers, self._events)
        change = next_role(
            self.role,
            assignment,
            broker_id=self._brokers.broker_id,
            log_end_offset=self.log.log_end_offset,
            now_ms=int(self._clock.monotonic_ms()),
            may_lead=not lacks_start,
        )
        if change is None:
            return
        before, self.role = self.role, change.role
        if isinstance(before, LeaderRole):
            if not self.is_leader:
                self._fail_producers(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.isr_updater.on_role_change(before)
        if change.is_new_epoch:
            self._begin_epoch()
        else:
            self.move_high_watermark()
            if _has_lost_replicas(before, self.role):
                self.log_end.fire()  # the next fetch of such a replica reports its position
        self.isr_updater.update_metrics()
        self._defer(assignment if lacks_start else None)
        self._events.on_role(self, is_new_epoch=change.is_new_epoch, was_deferred=was_deferred)

    @property
    def awaits_log_start(self) -> bool:
        """Whether the metadata makes this replica the leader and the start of its log is not known yet."""
        return self._deferred_assignment is not None

    def _defer(self, assignment: Assignment | None) -> None:
        self._deferred_assignment = assignment
        if assignment is not None:
            self._events.find_log_start(self)

    def become_leader(self, leader_epoch: LeaderEpoch) -> None:
        """Take the deferred leader role, now that the log starts where it must; ignored if the epoch has changed."""
        deferred = self._deferred_assignment
        if deferred is not None and deferred.leader_epoch == leader_epoch:
            self._apply(deferred, was_deferred=True, knows_log_start=True)

    def close(self, error: ErrorCode) -> None:
        """Stop hosting this replica: waiters fail with `error`, readers look again and find no partition."""
        self.is_closed = True
        self._deferred_assignment = None
        self.truncation.forget_waiting()
        self.isr_updater.withdraw()
        self._fail_producers(error)
        self.record_deletion.waiters.fail(error)
        self.marks.fire()
        self.log_end.fire()

    def offline(self, failure: LogDirFailure) -> KafkaError:
        """Take the log directory offline; return the error for the client."""
        self._log_operations.on_log_dir_failure(failure)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    @property
    def is_truncating(self) -> bool:
        """Whether the IO thread is truncating the log, which must not be touched meanwhile."""
        return self.truncation.is_under_way

    def low_watermark(self) -> int:
        """Return the least log start offset of the live replicas. Raises KafkaError if another broker leads."""
        return self.leader_role.low_watermark(self.log.log_start_offset, self._brokers.is_alive)

    def on_log_start_moved(self) -> None:
        """Wake waiters and readers after DeleteRecords or retention raised the log start offset."""
        waiters = self.record_deletion.waiters
        if self.is_leader and len(waiters):
            waiters.reached(self.low_watermark())
        self.marks.fire()

    def _begin_epoch(self) -> None:
        """Note a new leader epoch in the leader's log before its first record: followers ask where epochs begin."""
        if isinstance(self.role, LeaderRole):
            self.log.assign_epoch(self.role.epoch)
            self.move_high_watermark()
        self.marks.fire()

    def _fail_producers(self, error: ErrorCode) -> None:
        self._committed.fail(error)
        self.pending_flush.fail(error)

    # ---- writes

    def append(
        self, records: Buffer, required_acks: int, origin: Origin = Origin.CLIENT, guard: Guard | None = None
    ) -> AppendInfo:
        """Append as the leader. Raises KafkaError; RecordsRefused if the batch is invalid.

        `records`, if writable, is patched in place (offset, epoch) and not kept. `guard` is the result of
        `Log.start_verification` for the first batch of a transaction (KIP-890).
        """
        role, log = self.role, self.log
        if not isinstance(role, LeaderRole):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if required_acks == ACKS_ALL and not role.has_enough_replicas(log.config.min_insync_replicas):
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        previous_end = log.log_end_offset
        try:
            info = log.append_as_leader(records, role.epoch, now_ms=self._clock.now_ms(), origin=origin, guard=guard)
        except InvalidRecords as error:
            raise RecordsRefused(error, log.log_start_offset) from error
        except CorruptBatch as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        except LogDirFailure as failure:
            raise self.offline(failure) from failure
        if not info.duplicate:
            if role.followers:
                role.on_append(previous_end)
            self.pending_flush.on_append(info)
            self.move_high_watermark()
            if self.log_end.armed:
                self.log_end.fire()
        return info

    def on_flushed(self) -> None:
        """Commit and acknowledge the records below the log's recovery point."""
        if self.pending_flush.on_flushed():
            self.move_high_watermark()
            self.pending_flush.complete_waiters()

    def outcome(self, offset: int, acks: int) -> ErrorCode | None:
        """Return the result of a produce with `acks` whose records end at `offset`; None while the produce waits."""
        role = self.role
        if not isinstance(role, LeaderRole):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if acks != ACKS_ALL:
            return ErrorCode.NONE if offset <= self.pending_flush.end else None
        if self.log.high_watermark < offset:
            return None
        return role.outcome_when_committed(self.log.config.min_insync_replicas)

    def when_acknowledged(self, offset: int, acks: int, callback: WaitCallback) -> OffsetWaiter:
        """Call back once `outcome` is known, or with the error that ends this leadership."""
        if acks == ACKS_ALL:
            return self._committed.add(offset, callback)
        return self.pending_flush.when_reached(offset, callback)

    def move_high_watermark(self) -> None:
        """Advance the leader's high watermark as far as the rules allow, and wake its waiters."""
        role, log = self.role, self.log
        if not isinstance(role, LeaderRole):
            return
        mark = self.pending_flush.end
        if role.followers:
            mark = role.high_watermark(log.high_watermark, mark, self._commit_terms())
        if log.advance_high_watermark(mark):
            if len(self._committed):
                self._committed.reached(mark)
            if self.marks.armed:
                self.marks.fire()

    def _commit_terms(self) -> CommitTerms:
        brokers = self._brokers
        return CommitTerms(
            self.log.config.min_insync_replicas,
            int(self._clock.monotonic_ms()),
            brokers.lag_time_max_ms,
            brokers.is_isr_eligible,
        )

    def configure(self, config: LogConfig) -> None:
        """Apply a new configuration. A lower `min.insync.replicas` may commit records."""
        self.log.config = config
        self.move_high_watermark()
        self.isr_updater.update_metrics()

    # ---- followers

    def on_follower_fetch(self, fetch: FollowerFetch) -> ErrorCode:
        """Record a follower's progress: commit, and propose a follower that has caught up as an ISR member.

        Raises KafkaError if another broker leads.
        """
        role = self.leader_role
        registered = self._brokers.registered_epoch(fetch.broker_id)
        now_ms = int(self._clock.monotonic_ms())
        error = role.on_follower_fetch(fetch, self.log.log_end_offset, now_ms, registered)
        if error is ErrorCode.NONE:
            if fetch.broker_id not in role.isr.committed:
                self.isr_updater.maybe_expand(fetch.broker_id)
            self.move_high_watermark()
            if len(self.record_deletion.waiters):
                self.record_deletion.waiters.reached(self.low_watermark())
        return error


def _has_lost_replicas(before: Role, now: Role) -> bool:
    """Whether a replica is no longer assigned, or no longer a possible member of the ISR."""
    if not (isinstance(before, LeaderRole) and isinstance(now, LeaderRole)):
        return True
    return not (before.isr.maximal <= now.isr.maximal and before.followers.keys() <= now.followers.keys())


def _lacks_log_start(log: Log, assignment: Assignment, brokers: BrokerView, events: RoleEvents) -> bool:
    """Whether a future leader's log is empty although an earlier leader may have moved records to remote storage.

    Before leader epoch 1 there was no earlier leader.
    """
    return (
        assignment.leader == brokers.broker_id
        and assignment.leader_epoch > 0
        and log.is_tiered
        and log.log_end_offset == log.log_start_offset
        and events.has_remote_storage
    )
