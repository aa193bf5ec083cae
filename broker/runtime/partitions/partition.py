"""One hosted replica: its role by the metadata, its log, and everybody who waits for either to move.

The rules are `broker.replication`'s; this file applies them to a real log: it appends, moves the high watermark, wakes
who waited for that, and turns what storage raises into what a client is told. All of it happens on the event loop, with
no await between reading and writing the same state, so there is one writer and nobody sees half a change.

An IO error of the log ends its directory: the error goes to the host, which takes the directory offline with all its
partitions, and the client is told KAFKA_STORAGE_ERROR.

While the log is being truncated (`log_truncation.py`), nobody appends, readers find what they knew before, and a new
role waits. So a reign begins with the log that it will have.

For the same reason a replica with an empty log does not lead a topic with remote storage that had leaders before, until
it is known where the log goes on (`leader_starts.py`): it follows nobody meanwhile, and clients are told
NOT_LEADER_OR_FOLLOWER, after which all of them come again.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from broker.logs import EventLog
from broker.metadata.image.topic_names import is_internal
from broker.metrics.replicas import NOT_HOSTED, ReplicaFigures, ReplicaStanding
from broker.metrics.topics import TopicMeters
from broker.replication.epochs import EpochEnd
from broker.replication.follower import FollowerRole
from broker.replication.isr import IsrProposal, PendingExpand, PendingIsr
from broker.replication.isr_changes import Confirmed, Outcome, Refused
from broker.replication.leader import CommitTerms, FollowerFetch, LeaderRole
from broker.replication.partition import Assignment, Role, next_role
from broker.runtime.loop.waiters import OffsetWaiter, OffsetWaiters, WaitCallback, Watches
from broker.runtime.partitions.log_truncation import LogTruncation, Marks
from broker.runtime.partitions.pending_flush import PendingFlush
from protocol.errors import ErrorCode, KafkaError
from protocol.primitives import Buffer, Uuid
from storage.config import LogConfig
from storage.errors import CorruptBatch, InvalidRecords, LogDirFailure, UnexpectedOffset
from storage.log import AppendInfo, Log
from storage.producer_state import Origin
from storage.tier_start import TierStart

ACKS_ALL = -1
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)

_log = EventLog("broker.partitions")


class FetchPosition(NamedTuple):
    """Where a follower fetches on: at its log's end, after a record of `last_epoch` (-1 if unknown)."""

    offset: int
    last_epoch: int
    log_start_offset: int


class FetchedOutOfOrder(Exception):
    """A leader sent records that begin below this log's end, although it was asked for what follows.

    It has a batch across that end, so the logs part at `parts_at` at the latest, and this one is to be cut there; None
    if what lies there is committed, which is for nobody to cut.
    """

    def __init__(self, message: str, parts_at: int | None = None) -> None:
        super().__init__(message)
        self.parts_at = parts_at


class RecordsRefused(KafkaError):
    """The log does not take a batch. `record_errors` lists (index within the batch, what is wrong).

    `log_start_offset` is -1 for a batch that is too large, of which Kafka says no more than that.
    """

    def __init__(self, error: InvalidRecords, log_start_offset: int) -> None:
        super().__init__(ErrorCode[error.kind.name], error.message)
        self.record_errors = error.record_errors
        self.log_start_offset = -1 if self.code in _TOO_LARGE else log_start_offset


class Host(Protocol):
    """What a partition needs of the node and the cluster around it."""

    @property
    def broker_id(self) -> int: ...

    @property
    def lag_time_max_ms(self) -> int:
        """`replica.lag.time.max.ms`."""

    def now_ms(self) -> int:
        """The wall clock's time, for what is stored."""

    def monotonic_ms(self) -> int:
        """For how long something takes."""

    def is_isr_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a broker may join an in-sync set: active, and registered with that epoch (-1: any)."""

    def is_alive(self, broker_id: int) -> bool: ...

    def registered_epoch(self, broker_id: int) -> int:
        """The broker's epoch, -1 if it is not registered."""

    @property
    def figures(self) -> ReplicaFigures: ...

    def propose_isr(self, partition: "Partition", proposal: IsrProposal) -> None:
        """Ask the controller; `partition.on_isr_outcome` follows."""

    def withdraw_isr(self, partition: "Partition") -> None:
        """What was asked for is void."""

    def flush(self, partition: "Partition") -> None:
        """Sync the log soon, off the loop, and call `partition.on_flushed`."""

    def flush_within(self, partition: "Partition", delay_ms: int) -> None:
        """The same, in a while."""

    def on_log_dir_failure(self, failure: LogDirFailure) -> None:
        """A disk failed; may be told several times."""

    def on_role(self, partition: "Partition", *, is_new_reign: bool, was_deferred: bool) -> None:
        """The partition has taken up the role that it has now, or kept it with other members; `was_deferred`: some time
        after the metadata said so."""

    @property
    def knows_tier(self) -> bool:
        """Whether there is remote storage, in which logs may go on that are empty here."""

    def seek_start(self, partition: "Partition") -> None:
        """Find out, later, where the log of a partition goes on that waits for it, and call `become_leader`."""

    def unsettled(self) -> "asyncio.Future[bool]":
        """A new future."""

    def truncate(self, log: Log, offset: int) -> "asyncio.Future[bool]":
        """`Log.truncate_to`, off the loop."""

    def restart(self, log: Log, offset: int) -> "asyncio.Future[bool]":
        """`Log.truncate_fully_and_start_at`, off the loop."""

    def start_from_tier(self, log: Log, start: TierStart) -> "asyncio.Future[bool]":
        """`Log.start_from_tier`, off the loop."""


class Partition:
    """A replica that this node hosts, with an open log.

    `log_end` and `marks` are watched by readers: the one fires when the log grows, the other when what is committed,
    the log's start or the leadership changes. A consumer need not know of the first. `traffic` counts what clients
    send and fetch, for all partitions of the topic together.
    """

    __slots__ = (
        "_committed",
        "_cut",
        "_hold",
        "_host",
        "_is_closed",
        "_standing",
        "_trimmed",
        "_withheld",
        "consumer_bounds",
        "follower_bounds",
        "index",
        "is_internal",
        "log",
        "log_end",
        "marks",
        "role",
        "topic",
        "topic_id",
        "traffic",
    )

    def __init__(
        self, topic: str, topic_id: Uuid, index: int, log: Log, role: Role, host: Host, traffic: TopicMeters
    ) -> None:
        self.topic = topic
        self.is_internal = is_internal(topic)
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.role = role
        self.traffic = traffic
        self._host = host
        self._committed = OffsetWaiters()
        self._trimmed = OffsetWaiters()
        self._hold = PendingFlush(log, partial(host.flush, self), partial(host.flush_within, self))
        self._cut = LogTruncation()
        self._is_closed = False
        self._withheld: Assignment | None = None
        self._standing = NOT_HOSTED
        self.log_end = Watches()
        self.marks = Watches()
        self.consumer_bounds = (self.marks,)
        self.follower_bounds = (self.log_end, self.marks)

    @classmethod
    def open(
        cls,
        topic: str,
        topic_id: Uuid,
        index: int,
        log: Log,
        assignment: Assignment,
        host: Host,
        traffic: TopicMeters,
    ) -> "Partition":
        """Take up the role that the metadata assigns."""
        lacks_start = _lacks_start(log, assignment, host)
        change = next_role(
            None,
            assignment,
            broker_id=host.broker_id,
            log_end_offset=log.log_end_offset,
            now_ms=host.monotonic_ms(),
            may_lead=not lacks_start,
        )
        assert change is not None
        partition = cls(topic, topic_id, index, log, change.role, host, traffic)
        partition._begin_reign()
        partition._note_standing()
        partition._withhold(assignment if lacks_start else None)
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
    def has_committed_own_epoch(self) -> bool:
        """Whether what is committed here is all that any leader before may have told consumers of."""
        return not isinstance(self.role, LeaderRole) or self.role.has_committed_own_epoch(self.log.high_watermark)

    @property
    def is_following(self) -> bool:
        return isinstance(self.role, FollowerRole)

    @property
    def leader_epoch(self) -> int:
        return self.role.epoch

    @property
    def leader_id(self) -> int | None:
        """The broker that leads; None while nobody does."""
        return self.role.leader_id if isinstance(self.role, FollowerRole) else self._host.broker_id

    @property
    def is_truncating(self) -> bool:
        """Whether the log is the IO thread's for now: it must not be touched."""
        return self._cut.is_under_way

    @property
    def marks_while_cut(self) -> Marks | None:
        """What readers are told while the log is being cut; None otherwise."""
        return self._cut.marks

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call back when the log is not being cut, which may be now; never if the replica goes before that."""
        self._cut.when_over(callback)

    def assign(self, assignment: Assignment) -> None:
        """Follow the metadata, as soon as the log is nobody else's. What waits for a reign that is over fails; readers
        look again."""
        self.when_settled(partial(self._take_role, assignment, was_deferred=self.is_truncating))

    def _take_role(self, assignment: Assignment, *, was_deferred: bool, knows_start: bool = False) -> None:
        lacks_start = not (knows_start or self.is_leader) and _lacks_start(self.log, assignment, self._host)
        change = next_role(
            self.role,
            assignment,
            broker_id=self._host.broker_id,
            log_end_offset=self.log.log_end_offset,
            now_ms=self._host.monotonic_ms(),
            may_lead=not lacks_start,
        )
        if change is None:
            return
        before, self.role = self.role, change.role
        if isinstance(before, LeaderRole):
            self._leave_behind(before)
        if change.is_new_reign:
            self._begin_reign()
        else:
            self._move_high_watermark()
            self._wake_followers()
        self._note_standing()
        self._withhold(assignment if lacks_start else None)
        self._host.on_role(self, is_new_reign=change.is_new_reign, was_deferred=was_deferred)

    @property
    def awaits_log_start(self) -> bool:
        """Whether this replica is to lead and does not yet, because nobody knows where its log goes on."""
        return self._withheld is not None

    def _withhold(self, assignment: Assignment | None) -> None:
        self._withheld = assignment
        if assignment is not None:
            self._host.seek_start(self)

    def become_leader(self, leader_epoch: int) -> None:
        """The log is what a leader's must be: take up the role that waits for that, unless another epoch has come."""
        withheld = self._withheld
        if withheld is not None and withheld.leader_epoch == leader_epoch:
            self._take_role(withheld, was_deferred=True, knows_start=True)

    def _leave_behind(self, before: LeaderRole) -> None:
        """What was under way on behalf of a state that is no more."""
        if not isinstance(self.role, LeaderRole):
            self._fail_writers(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if isinstance(before.isr, PendingIsr) and (
            not isinstance(self.role, LeaderRole) or self.role.isr is not before.isr
        ):
            self._host.withdraw_isr(self)
            if isinstance(self.role, LeaderRole) and self.role.isr.committed == before.isr.proposed:
                self._count_change(before.isr)  # the metadata was faster than the answer

    def close(self, error: ErrorCode) -> None:
        """This replica is hosted no longer: who waits is told `error`, readers look again and find it gone."""
        self._is_closed = True
        self._withheld = None
        self._cut.forget_waiting()
        self._host.withdraw_isr(self)
        self._stand(NOT_HOSTED)
        self._fail_writers(error)
        self._trimmed.fail(error)
        self.marks.fire()
        self.log_end.fire()

    def offline(self, failure: LogDirFailure) -> KafkaError:
        """Hand a failure to the host; returns what the client is told."""
        self._host.on_log_dir_failure(failure)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    def _begin_reign(self) -> None:
        """A leader's epoch is in its log before its first record: followers ask where epochs begin."""
        if isinstance(self.role, LeaderRole):
            self.log.assign_epoch(self.role.epoch)
            self._move_high_watermark()
        self.marks.fire()

    def _fail_writers(self, error: ErrorCode) -> None:
        self._committed.fail(error)
        self._hold.fail(error)

    # ---- writing

    def append(self, records: Buffer, required_acks: int, origin: Origin = Origin.CLIENT) -> AppendInfo:
        """Append as the leader. Raises KafkaError; RecordsRefused where the batch is at fault.

        `records`, if writable, is patched in place (offset, epoch); it is not kept.
        """
        role, log = self.role, self.log
        if not isinstance(role, LeaderRole):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if required_acks == ACKS_ALL and not role.has_enough_replicas(log.config.min_insync_replicas):
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        now_ms = self._host.now_ms()
        previous_end = log.log_end_offset
        try:
            info = log.append_as_leader(records, role.epoch, now_ms=now_ms, origin=origin)
        except InvalidRecords as error:
            raise RecordsRefused(error, log.log_start_offset) from error
        except CorruptBatch as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        except LogDirFailure as failure:
            raise self.offline(failure) from failure
        if not info.duplicate:
            if role.followers:
                role.on_append(previous_end, self._host.monotonic_ms())
            self._hold.on_append(info)
            self._move_high_watermark()
            self.log_end.fire()
        return info

    def on_flushed(self) -> None:
        """Everything below the log's recovery point is on the disk."""
        if self._hold.on_flushed():
            self._move_high_watermark()
            self._hold.settle()

    def outcome(self, offset: int, acks: int) -> ErrorCode | None:
        """How a produce with `acks` ends whose records lie below `offset`; None while it has to wait."""
        role = self.role
        if not isinstance(role, LeaderRole):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if acks != ACKS_ALL:
            return ErrorCode.NONE if offset <= self._hold.end else None
        if self.log.high_watermark < offset:
            return None
        return role.outcome_when_committed(self.log.config.min_insync_replicas)

    def when_acknowledged(self, offset: int, acks: int, callback: WaitCallback) -> OffsetWaiter:
        """Call back once `outcome` is known, or with the error that ends this leadership."""
        if acks == ACKS_ALL:
            return self._committed.add(offset, callback)
        return self._hold.when_reached(offset, callback)

    def when_committed(self, offset: int, callback: WaitCallback) -> OffsetWaiter:
        """Call back once the high watermark reaches `offset`, or with the error that ends this leadership."""
        return self._committed.add(offset, callback)

    def _move_high_watermark(self) -> None:
        """Commit what may be committed, and wake who waited for it."""
        role, log = self.role, self.log
        if not isinstance(role, LeaderRole):
            return
        mark = self._hold.end
        if role.followers:
            mark = role.high_watermark(log.high_watermark, mark, self._commit_terms())
        if log.advance_high_watermark(mark):
            self._committed.reached(mark)
            self.marks.fire()

    def _commit_terms(self) -> CommitTerms:
        host = self._host
        return CommitTerms(
            self.log.config.min_insync_replicas, host.monotonic_ms(), host.lag_time_max_ms, host.is_isr_eligible
        )

    def configure(self, config: LogConfig) -> None:
        """Take a new configuration; it may allow to commit what could not be before."""
        self.log.config = config
        self._move_high_watermark()
        self._note_standing()

    # ---- following

    def fetch_position(self) -> FetchPosition:
        """From where a follower fetches on. Means nothing while the log is being cut."""
        log = self.log
        return FetchPosition(log.log_end_offset, log.epochs.latest_epoch, log.log_start_offset)

    @property
    def is_flushed(self) -> bool:
        """Whether the leader may be told of all that this replica has: nothing waits for a flush (`flush.messages`)."""
        return self._hold.is_over

    def when_flushed(self, callback: Callable[[], None]) -> None:
        """Call back when that is so, or when nobody need wait for it any more."""
        self._hold.when_over(callback)

    @property
    def local_start_offset(self) -> int:
        """Where this replica's own disk begins; what its log has before that is in remote storage alone."""
        return self.log.local_log_start_offset

    def end_for_epoch(self, epoch: int) -> EpochEnd:
        """Where an epoch, or the greatest below it, ends in this replica's own log."""
        return EpochEnd(*self.log.end_offset_for_epoch(epoch))

    def append_fetched(
        self, leader_epoch: int, offset: int, records: Buffer, leader_high_watermark: int, leader_log_start_offset: int
    ) -> bool:
        """Append what the leader of `leader_epoch` answered to a fetch from `offset`, and take over its marks as far as
        this log reaches. `records` may be empty, and may end within a batch, which is left out.

        False, with nothing done, if this replica no longer follows that leader or stands elsewhere meanwhile. Raises
        FetchedOutOfOrder, and KafkaError: CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR (of which the host knows then).
        """
        if not self._may_fetch(leader_epoch) or offset != self.log.log_end_offset:
            return False
        if len(records):
            self._append_replicated(records, leader_epoch)
        self._take_over_marks(leader_high_watermark, leader_log_start_offset)
        if self.log.log_end_offset > offset:
            self.log_end.fire()
        return True

    def _may_fetch(self, leader_epoch: int) -> bool:
        role = self.role
        is_same_reign = isinstance(role, FollowerRole) and role.epoch == leader_epoch
        return is_same_reign and not self.is_truncating and not self._is_closed

    def _append_replicated(self, records: Buffer, leader_epoch: int) -> None:
        log = self.log
        try:
            info = log.append_as_follower(records, now_ms=self._host.now_ms(), max_epoch=leader_epoch)
        except UnexpectedOffset as error:
            parts_at = error.found if error.found >= log.high_watermark else None
            raise FetchedOutOfOrder(f"{self}: {error}", parts_at) from error
        except CorruptBatch as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        except LogDirFailure as failure:
            raise self.offline(failure) from failure
        if info is not None:
            self._hold.on_append(info)

    def _take_over_marks(self, leader_high_watermark: int, leader_log_start_offset: int) -> None:
        """The leader's start comes after its high watermark, above which no log may start."""
        log = self.log
        before = log.high_watermark
        moved = log.follow_high_watermark(leader_high_watermark)
        if log.high_watermark < before:
            _log.warning("the high watermark went back", partition=self, before=before, now=log.high_watermark)
        started = log.maybe_increment_log_start_offset(min(leader_log_start_offset, log.high_watermark))
        if moved or started:
            self.marks.fire()

    def truncate(self, leader_epoch: int, offset: int) -> "asyncio.Future[bool]":
        """Forget everything from `offset` on, as the leader of `leader_epoch` made it necessary. Even without such
        records, epochs that begin at the log's end or beyond are forgotten.

        The result is False if this replica no longer follows that leader, now or when it is done. Fails with KafkaError
        KAFKA_STORAGE_ERROR (of which the host knows then).
        """
        answer = self._host.unsettled()
        if not self._may_fetch(leader_epoch):
            answer.set_result(False)
        elif offset < self.log.log_end_offset or self.log.has_only_deleted_below(offset):
            self._begin_cut(leader_epoch, offset, self._host.truncate, answer)
        else:
            self._forget_void_epochs(offset, answer)
        return answer

    def _forget_void_epochs(self, offset: int, answer: "asyncio.Future[bool]") -> None:
        """No records go, so no disk is waited for."""
        try:
            self.log.truncate_to(offset, now_ms=self._host.now_ms())
        except LogDirFailure as failure:
            answer.set_exception(self.offline(failure))
        else:
            answer.set_result(True)

    def truncate_fully_and_start_at(self, leader_epoch: int, offset: int) -> "asyncio.Future[bool]":
        """Forget everything, and go on from `offset`. As `truncate`."""
        answer = self._host.unsettled()
        if self._may_fetch(leader_epoch):
            self._begin_cut(leader_epoch, offset, self._host.restart, answer)
        else:
            answer.set_result(False)
        return answer

    def start_from_tier(self, leader_epoch: int, start: TierStart) -> "asyncio.Future[bool]":
        """Forget everything, and go on where remote storage ends, with what is known of that. As `truncate`.

        The result is False, too, while this log is not known to be one whose records may be elsewhere.
        """
        answer = self._host.unsettled()
        if self._may_fetch(leader_epoch) and self.log.is_tiered:
            begin = partial(self._host.start_from_tier, start=start)
            self._begin_cut(leader_epoch, start.next_offset, lambda log, _: begin(log), answer)
        else:
            answer.set_result(False)
        return answer

    def _begin_cut(
        self,
        leader_epoch: int,
        offset: int,
        on_disk: Callable[[Log, int], "asyncio.Future[bool]"],
        answer: "asyncio.Future[bool]",
    ) -> None:
        log = self.log
        _log.info("cutting the log", partition=self, at=offset, end=log.log_end_offset, leader_epoch=leader_epoch)
        self._cut.begin(log, offset)
        on_disk(log, offset).add_done_callback(partial(self._on_cut, leader_epoch, answer))

    def _on_cut(self, leader_epoch: int, answer: "asyncio.Future[bool]", done: "asyncio.Future[bool]") -> None:
        """The log is ours again: what waited for it comes first, before whoever wanted the cut."""
        waiting, error = self._cut.end(), done.exception()
        if isinstance(error, LogDirFailure):
            error = self.offline(error)
        if error is None:
            self._hold.on_cut()
            self._hold.settle()
            for callback in waiting:
                callback()
            self.marks.fire()
            self.log_end.fire()
        if answer.done():  # who wanted it waits no longer
            if error is not None and not isinstance(error, KafkaError):
                raise error
        elif error is None:
            answer.set_result(self._may_fetch(leader_epoch))
        else:
            answer.set_exception(error)

    # ---- followers

    def on_follower_fetch(self, fetch: FollowerFetch) -> ErrorCode:
        """Take note of how far a follower has come; what that commits is committed, and who caught up is proposed as a
        member. Raises KafkaError if another broker leads."""
        role, host = self.leader_role, self._host
        registered = host.registered_epoch(fetch.broker_id)
        error = role.on_follower_fetch(fetch, self.log.log_end_offset, host.monotonic_ms(), registered)
        if error is ErrorCode.NONE:
            if fetch.broker_id not in role.isr.committed:
                self._propose(role.propose_expand(fetch.broker_id, self.log.high_watermark, host.is_isr_eligible))
            self._move_high_watermark()
            if len(self._trimmed):
                self._trimmed.reached(self.low_watermark())
        return error

    def is_in_sync(self, broker_id: int) -> bool:
        """Whether the controller has confirmed that a follower of this leader is a member."""
        return isinstance(self.role, LeaderRole) and broker_id in self.role.isr.committed

    def shrink_isr(self) -> None:
        """Propose to drop the members that have lagged for too long, and wait no more for who might have become one."""
        if isinstance(self.role, LeaderRole):
            host = self._host
            self._propose(self.role.propose_shrink(self.log.log_end_offset, host.monotonic_ms(), host.lag_time_max_ms))
            self._move_high_watermark()

    def _propose(self, pending: PendingIsr | None) -> None:
        if pending is None:
            return
        role, host = self.leader_role, self._host
        proposal = role.proposal(pending, host.registered_epoch(host.broker_id))
        _log.info(
            "proposing a larger in-sync set"
            if isinstance(pending, PendingExpand)
            else "proposing a smaller in-sync set",
            partition=self,
            committed=sorted(pending.committed),
            proposed=sorted(pending.proposed),
            high_watermark=self.log.high_watermark,
            end=self.log.log_end_offset,
        )
        host.propose_isr(self, proposal)

    def on_isr_outcome(self, outcome: Outcome) -> None:
        """The controller's word on a proposal. It means nothing once the state that was proposed on is no more."""
        role = self.role
        if not isinstance(role, LeaderRole) or role.isr is not outcome.proposal.pending:
            return
        if isinstance(outcome, Confirmed):
            self._confirm(role, outcome)
            return
        if outcome.error is not None:
            self._host.figures.failed_isr_updates += 1
            _log.warning("an in-sync set was not changed", partition=self, reason=outcome.error.name)
        if isinstance(outcome, Refused):
            role.on_isr_refused()
            self._move_high_watermark()

    def _confirm(self, role: LeaderRole, outcome: Confirmed) -> None:
        if not role.on_isr_confirmed(outcome.leader_epoch, outcome.partition_epoch, outcome.isr):
            return
        self._count_change(outcome.proposal.pending)
        _log.info("the in-sync set is changed", partition=self, isr=sorted(outcome.isr))
        self._note_standing()
        self._move_high_watermark()
        self._wake_followers()

    def _count_change(self, made: PendingIsr) -> None:
        figures = self._host.figures
        if isinstance(made, PendingExpand):
            figures.isr_expands += 1
        else:
            figures.isr_shrinks += 1

    def _wake_followers(self) -> None:
        """The in-sync set has changed. Who is no member any more is looked at with each of its fetches, or it could not
        come back while the log rests."""
        self.log_end.fire()

    def _note_standing(self) -> None:
        role = self.role
        if isinstance(role, LeaderRole):
            self._stand(ReplicaStanding(True, True, *role.standing(self.log.config.min_insync_replicas)))
        else:
            self._stand(ReplicaStanding(True))

    def _stand(self, now: ReplicaStanding) -> None:
        self._host.figures.move(self._standing, now)
        self._standing = now

    # ---- trimming

    def low_watermark(self) -> int:
        """Below it, no live replica has records. Raises KafkaError if another broker leads."""
        return self.leader_role.low_watermark(self.log.log_start_offset, self._host.is_alive)

    def delete_records(self, offset: int) -> int:
        """Raise the log start to `offset` (-1: to the high watermark); returns where it was asked to be.

        Raises KafkaError: POLICY_VIOLATION, OFFSET_OUT_OF_RANGE, NOT_LEADER_OR_FOLLOWER.
        """
        assert self.leader_role
        if not self.log.config.is_deleting:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        target = self.log.high_watermark if offset == -1 else offset
        if not 0 <= target <= self.log.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if self.log.maybe_increment_log_start_offset(target):
            self.on_log_start_moved()
        return target

    def when_trimmed(self, offset: int, callback: WaitCallback) -> OffsetWaiter:
        """Call back once the low watermark reaches `offset`, or with an error if this replica goes away."""
        return self._trimmed.add(offset, callback)

    def on_log_start_moved(self) -> None:
        """Deletion or retention moved the start of the log."""
        if self.is_leader and len(self._trimmed):
            self._trimmed.reached(self.low_watermark())
        self.marks.fire()


def _lacks_start(log: Log, assignment: Assignment, host: Host) -> bool:
    """Whether a log that is about to be a leader's is empty, though there may have been records under a leader before:
    remote storage may have them. Nobody wrote before the first leader."""
    return (
        assignment.leader == host.broker_id
        and assignment.leader_epoch > 0
        and log.is_tiered
        and log.log_end_offset == log.log_start_offset
        and host.knows_tier
    )
