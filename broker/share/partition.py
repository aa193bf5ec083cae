"""A share partition: the records of one partition that are in delivery to the members of one share group (KIP-932).

The leader of the partition holds this state; the share coordinator persists what must survive the leader. An
acknowledgement counts once it is persisted, and an acquisition is never persisted: a new leader delivers acquired
records again. One write is in flight at a time, so that the coordinator applies writes in their order.

Time is an argument, in ms of any clock that does not go back.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from broker.share.acquisition import Acquisition
from broker.share.in_flight import InFlightRecords, Run, ShareTransition
from broker.share.lock_deadlines import LockDeadlines
from broker.share.records import (
    STATE_AFTER,
    AcknowledgementBatch,
    AcknowledgeType,
    AcquiredRecords,
    AcquireRequest,
    DeliveryBatch,
    FetchedBatches,
    OffsetSpan,
    RecordState,
    ShareLimits,
)
from protocol.errors import ErrorCode
from protocol.lazy_dataclass import lazy_dataclass

FENCING_ERRORS = frozenset(
    (
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
"""Errors of the coordinator that end a share partition: another leader, a reset of the group, or its deletion."""


@lazy_dataclass(frozen=True, slots=True)
class PersistedState:
    """The state that the coordinator has. `start_offset` is resolved: a new group's is the reset offset."""

    state_epoch: int
    start_offset: int
    batches: Sequence[DeliveryBatch] = ()


@dataclass(slots=True, eq=False)
class ShareUpdate(ShareTransition):
    """Changes of states that are persisted together. Compared by identity.

    A change that `is_forced` counts at once, whether or not it is persisted.
    """

    batches: list[DeliveryBatch] = field(default_factory=list)
    is_forced: bool = False


@lazy_dataclass(frozen=True, slots=True)
class StateWrite:
    """One request to the share coordinator; `delivery_complete_count` is KIP-1226's."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[DeliveryBatch]
    updates: Sequence[ShareUpdate]


class SharePartition:
    """The records in delivery from one partition to one group, under one leader epoch."""

    def __init__(self, limits: ShareLimits, leader_epoch: int, state: PersistedState) -> None:
        self.limits = limits
        self.leader_epoch = leader_epoch
        self.state_epoch = state.state_epoch
        self.start_offset = state.start_offset
        self.end_offset = state.start_offset
        """The offset after the last record that was ever acquired."""
        self.is_fenced = False
        """Whether another leader, or a reset of the group, has ended this state."""
        self.expired_locks = 0
        """Records whose lock has elapsed."""
        self._in_flight = InFlightRecords()
        self._available_from = state.start_offset
        self._deadlines = LockDeadlines()
        self._waiting: list[ShareUpdate] = []
        self._written: StateWrite | None = None
        self._load(state.batches)

    def _load(self, batches: Sequence[DeliveryBatch]) -> None:
        """Adopt persisted batches. Offsets between them were never delivered, or their release was not persisted."""
        for first, last, state, count in sorted(batches):
            first = max(first, self.end_offset)
            if last < first:
                continue
            if self.end_offset < first:
                self._append(self.end_offset, first - 1, RecordState.AVAILABLE, 0)
            state = state if state.is_final else RecordState.AVAILABLE
            if state is RecordState.AVAILABLE and count >= self.limits.delivery_limit:
                state = RecordState.ARCHIVED
            self._append(first, last, state, count)
        self._advance()

    def _append(self, first: int, last: int, state: RecordState, count: int) -> None:
        self._in_flight.append(Run(first, last, first, last, state, count))
        self.end_offset = last + 1

    # Views.

    @property
    def runs(self) -> Iterable[Run]:
        """The records in flight, in order."""
        return self._in_flight

    @property
    def batch_count(self) -> int:
        """The number of runs in flight."""
        return len(self._in_flight)

    @property
    def in_flight_count(self) -> int:
        """The number of offsets between the start and the end of the window."""
        return self.end_offset - self.start_offset

    @property
    def next_fetch_offset(self) -> int:
        """The offset from which records can be acquired next."""
        run = self._in_flight.first_available(self._available_from)
        self._available_from = self.end_offset if run is None else run.first
        return self._available_from

    @property
    def can_acquire(self) -> bool:
        """Whether a member may acquire records, if the log has them."""
        if self.is_fenced:
            return False
        return self.in_flight_count < self.limits.max_in_flight or self.next_fetch_offset < self.end_offset

    @property
    def next_deadline_ms(self) -> float | None:
        """The earliest time at which `expire` may have something to do."""
        return self._deadlines.next_ms

    # Acquisition.

    def acquire(self, request: AcquireRequest, fetched: FetchedBatches, deadline_ms: float) -> list[AcquiredRecords]:
        """Acquire records that a read has found for a member, until `deadline_ms`."""
        if self.is_fenced or not fetched.batches or fetched.batches[-1].last < self.start_offset:
            return []
        self._archive_missing(fetched.fetch_offset, fetched.batches[0].first - 1)
        first = max(fetched.batches[0].first, self.start_offset)
        last = fetched.batches[-1].last
        room = min(request.max_records, self.limits.max_in_flight - self.in_flight_count)
        if room <= 0:
            last = min(last, self.end_offset - 1)
            room = min(request.max_records, last - first + 1)
        acquisition = Acquisition(self._in_flight, self.limits, request, room, deadline_ms)
        acquisition.take_known(fetched, first, last)
        if acquisition.has_room and last >= self.end_offset:
            acquisition.take_new(fetched, max(first, self.end_offset), last)
        newest = self._in_flight.last
        if newest is not None:
            self.end_offset = max(self.end_offset, newest.last + 1)
        result = acquisition.result()
        if fetched.aborted:
            result = self._archive_aborted(fetched.aborted, result)
        for run in acquisition.acquired:
            if run.state is RecordState.ACQUIRED:
                self._deadlines.add(run)
        self._deadlines.trim(self._in_flight, len(self._in_flight))
        return result

    def _archive_missing(self, first: int, last: int) -> None:
        """Archive available records that a read did not find: compaction has removed them."""
        if first > last:
            return
        self._archive(first, last, RecordState.AVAILABLE)
        self._advance()

    def _archive_aborted(
        self, aborted: Sequence[OffsetSpan], acquired: Sequence[AcquiredRecords]
    ) -> list[AcquiredRecords]:
        """Archive acquired records of aborted transactions, and return the others."""
        kept = list(acquired)
        for first, last in aborted:
            parts: list[AcquiredRecords] = []
            for each in kept:
                if each.last < first or last < each.first:
                    parts.append(each)
                    continue
                self._archive(max(first, each.first), min(last, each.last), RecordState.ACQUIRED)
                if each.first < first:
                    parts.append(each._replace(last=first - 1))
                if last < each.last:
                    parts.append(each._replace(first=last + 1))
            kept = parts
        self._advance()
        return kept

    def _archive(self, first: int, last: int, state: RecordState) -> None:
        for run in self._in_flight.cut_out(first, last):
            if run.state is state and run.transition is None:
                run.settle(RecordState.ARCHIVED)

    # Acknowledgement.

    def acknowledge(
        self, member_id: str, batches: Sequence[AcknowledgementBatch], renewed_until_ms: float
    ) -> ShareUpdate | ErrorCode:
        """Acknowledge records of a member: all batches, or none of them with INVALID_RECORD_STATE or INVALID_REQUEST.

        Offsets below the start offset are ignored, as the log has lost them. The result counts once `on_written` has
        returned it without an error; without batches it counts at once. `batches` are in order and do not overlap.
        """
        if self.is_fenced:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        for batch in batches:
            error = self._check(member_id, batch)
            if error is not ErrorCode.NONE:
                return error
        update = ShareUpdate()
        for first, last, kind in _by_type(batches):
            if last < self.start_offset:
                continue
            for run in self._in_flight.cut_out(max(first, self.start_offset), last):
                if kind is AcknowledgeType.RENEW:
                    run.deadline_ms = renewed_until_ms
                    self._deadlines.add(run)
                else:
                    self._begin(update, run, STATE_AFTER[kind])
        self._queue(update)
        return update

    def _check(self, member_id: str, batch: AcknowledgementBatch) -> ErrorCode:
        if batch.last < self.start_offset:
            return ErrorCode.NONE
        if batch.last >= self.end_offset:
            return ErrorCode.INVALID_REQUEST
        runs = self._in_flight.overlapping(max(batch.first, self.start_offset), batch.last)
        is_held = all(
            run.state is RecordState.ACQUIRED and run.transition is None and run.member_id == member_id for run in runs
        )
        return ErrorCode.NONE if runs and is_held else ErrorCode.INVALID_RECORD_STATE

    def release_member(self, member_id: str) -> ShareUpdate:
        """Release all records of a member whose session has ended; see `acknowledge` for the result."""
        update = ShareUpdate()
        for run in self._in_flight:
            if run.state is RecordState.ACQUIRED and run.transition is None and run.member_id == member_id:
                self._begin(update, run, RecordState.AVAILABLE)
        self._queue(update)
        return update

    def expire(self, now_ms: float) -> ShareUpdate:
        """Release records whose lock has elapsed. They are available at once."""
        update = ShareUpdate(is_forced=True)
        ranges = list(self._deadlines.due(now_ms))
        for first, last in ranges:
            for run in self._in_flight.cut_out(max(first, self.start_offset), last):
                is_due = run.state is RecordState.ACQUIRED and run.deadline_ms <= now_ms
                if is_due and run.transition is None:
                    self.expired_locks += run.size
                    self._begin(update, run, RecordState.AVAILABLE)
                    run.settle(run.state)
                    self._offer(run)
        self._queue(update)
        self._advance()
        self._in_flight.join(ranges)
        return update

    def _begin(self, update: ShareUpdate, run: Run, state: RecordState) -> None:
        """Begin the transition of acquired records; a release after the last delivery archives them."""
        if state is RecordState.AVAILABLE and run.delivery_count >= self.limits.delivery_limit:
            state = RecordState.ARCHIVED
        run.prior_state, run.state, run.transition = run.state, state, update
        last = update.batches[-1] if update.batches else None
        if last is not None and (last.last + 1, last.state, last.delivery_count) == (
            run.first,
            state,
            run.delivery_count,
        ):
            update.batches[-1] = last._replace(last=run.last)
        else:
            update.batches.append(DeliveryBatch(run.first, run.last, state, run.delivery_count))

    def _queue(self, update: ShareUpdate) -> None:
        if update.batches:
            self._waiting.append(update)

    # Persistence.

    def take_write(self) -> StateWrite | None:
        """Return the next request to the coordinator; None if there is none, or while one is in flight."""
        if self._written is not None or not self._waiting or self.is_fenced:
            return None
        updates, self._waiting = self._waiting, []
        done = sum(run.size for run in self._in_flight if run.state.is_final)
        batches = [batch for update in updates for batch in update.batches]
        self._written = StateWrite(self.state_epoch, self.leader_epoch, self.start_offset, done, batches, updates)
        return self._written

    def on_written(self, error: ErrorCode) -> Sequence[ShareUpdate]:
        """Settle the write in flight, and return its updates. After an error the records are acquired as before.

        A fencing error ends the share partition: no other update will ever be settled.
        """
        write = self._written
        assert write is not None, "a write is in flight"
        self._written = None
        if error in FENCING_ERRORS:
            self.is_fenced = True
        for update in write.updates:
            if not update.is_forced:
                self._settle(update, is_persisted=error is ErrorCode.NONE)
        self._advance()
        self._in_flight.join(batch[:2] for batch in write.batches)
        return write.updates

    def fence(self) -> Sequence[ShareUpdate]:
        """End the share partition, and return the updates that were not yet sent."""
        self.is_fenced = True
        dropped, self._waiting = self._waiting, []
        return dropped

    def _settle(self, update: ShareUpdate, *, is_persisted: bool) -> None:
        for batch in update.batches:
            for run in self._in_flight.overlapping(batch.first, batch.last):
                if run.transition is not update:
                    continue
                if is_persisted:
                    run.settle(run.state)
                    self._offer(run)
                else:
                    run.state, run.transition = run.prior_state, None
                    self._deadlines.add(run)

    # The window.

    def on_log_start(self, log_start_offset: int) -> None:
        """Forget records that the log has deleted."""
        if log_start_offset <= self.start_offset:
            return
        self._in_flight.drop_below(log_start_offset)
        self.start_offset = log_start_offset
        self.end_offset = max(self.end_offset, log_start_offset)
        self._available_from = max(self._available_from, log_start_offset)
        self._advance()

    def _offer(self, run: Run) -> None:
        if run.is_available:
            self._available_from = min(self._available_from, run.first)

    def _advance(self) -> None:
        """Move the start offset over records in final states."""
        self._in_flight.drop_done()
        first = self._in_flight.first
        self.start_offset = self.end_offset if first is None else max(self.start_offset, first.first)
        self._available_from = max(self._available_from, self.start_offset)


def _by_type(batches: Iterable[AcknowledgementBatch]) -> Iterable[tuple[int, int, AcknowledgeType]]:
    """Return ranges of offsets with one type each."""
    for first, last, types in batches:
        if len(types) == 1:
            yield first, last, types[0]
            continue
        since = first
        for offset in range(first, last + 1):
            if offset == last or types[offset + 1 - first] is not types[offset - first]:
                yield since, offset, types[offset - first]
                since = offset + 1
