"""A share partition in service: loaded from the share coordinator, persisted there, and driven by time.

It serves one leader epoch of the partition. It ends with the leadership, when the coordinator fences it, or when no
member of the group has a session here any more; the next request loads the state again.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from broker.coordination.share_partition_key import SharePartitionKey
from broker.metrics.share import ShareFigures, SharePartitionFigures
from broker.replication.leader import LeaderRole
from broker.runtime.loop.runtime import Runtime
from broker.runtime.loop.waiters import Deadline, Watch, Watches
from broker.runtime.partitions import offset_lookup
from broker.runtime.partitions.offset_lookup import FoundOffset, OffsetQuery, RemoteLookups
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.reads import FetchIsolation
from broker.runtime.share.persister import SharePersister
from broker.share.partition import PersistedState, SharePartition, ShareUpdate
from broker.share.records import AcknowledgementBatch, AcquiredRecords, AcquireRequest, FetchedBatches
from broker.share.settings import OffsetReset, ResetTarget, ShareGroupSettings
from broker.share.state_requests import StateAnswer, member_error
from protocol.errors import ErrorCode, KafkaError
from protocol.lazy_dataclass import lazy_dataclass

UNINITIALIZED_OFFSET = -1


@lazy_dataclass(frozen=True, slots=True)
class ShareServices:
    """The services that all share partitions of a node use.

    `settings` returns the current settings of a group; `remote_offsets` is None without remote storage.
    """

    runtime: Runtime
    persister: SharePersister
    settings: Callable[[str], ShareGroupSettings]
    figures: ShareFigures
    remote_offsets: RemoteLookups | None = None


class LedSharePartition:
    """One share partition under one leader epoch.

    `error` is not NONE once it is out of service. `available` fires when records may be acquired, and at the end.
    `state` is None while it is loading.
    """

    def __init__(
        self,
        key: SharePartitionKey,
        partition: Partition,
        services: ShareServices,
        on_ended: Callable[["LedSharePartition"], None],
    ) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.error = ErrorCode.NONE
        self.state: SharePartition | None = None
        self.available = Watches()
        self._services = services
        self._on_ended = on_ended
        self._acquired_batches = 0
        self._acquired_records = 0
        self._is_writing = False
        self._is_retired = False
        self._results: dict[ShareUpdate, asyncio.Future[ErrorCode]] = {}
        self._timer: Deadline | None = None
        self._timer_ms = 0.0
        self._began_ms = self._now_ms()
        self._marks = Watch(partition.consumer_bounds, self._on_marks)
        self._marks.arm()
        services.persister.read(key, self.leader_epoch, self._on_read)

    @property
    def is_leading(self) -> bool:
        """Whether this node leads the partition in the same epoch still."""
        role = self.partition.role
        return isinstance(role, LeaderRole) and role.epoch == self.leader_epoch and not self.partition.is_closed

    @property
    def figures(self) -> SharePartitionFigures:
        """The metrics."""
        state, topic = self.state, self.partition.topic
        counts = (0, 0, 0) if state is None else (state.in_flight_count, state.batch_count, state.expired_locks)
        acquired = (self._acquired_batches, self._acquired_records)
        return SharePartitionFigures(self.key.group_id, topic, self.key.partition, *counts, *acquired)

    # Loading.

    def _on_read(self, answer: StateAnswer) -> None:
        if self.error is not ErrorCode.NONE:
            return
        if answer.state is None:
            self.end(member_error(answer.error))
            return
        self._services.figures.loads += 1
        self._services.figures.load_ms += self._now_ms() - self._began_ms
        if answer.state.start_offset != UNINITIALIZED_OFFSET:
            self._start(answer.state)
            return
        try:
            found = self._look_up(self._reset_timestamp(self._services.settings(self.key.group_id).reset))
        except KafkaError as error:
            self.end(error.code)
            return
        if isinstance(found, FoundOffset):
            self._start_at(answer.state, found)
        else:
            found.add_done_callback(partial(self._on_found, answer.state))

    def _on_found(self, state: PersistedState, found: "asyncio.Future[FoundOffset]") -> None:
        """Start at an offset of remote storage. After an error the next request loads the state again."""
        if self.error is not ErrorCode.NONE or found.cancelled():
            return
        error = found.exception()
        if isinstance(error, KafkaError):
            self.end(error.code)
        else:
            self._start_at(state, found.result())

    def _start_at(self, state: PersistedState, found: FoundOffset) -> None:
        """Start a new group at the offset that was looked up, or at the end where no record is that late."""
        offset = found.offset
        if offset < 0:
            query = OffsetQuery(offset_lookup.LATEST, self.leader_epoch, FetchIsolation.HIGH_WATERMARK)
            try:
                offset = offset_lookup.list_offset(self.partition, query).offset
            except KafkaError as error:
                self.end(error.code)
                return
        self._start(PersistedState(state.state_epoch, offset, state.batches))

    def _start(self, state: PersistedState) -> None:
        limits = self._services.settings(self.key.group_id).limits
        self.state = SharePartition(limits, self.leader_epoch, state)
        self._on_marks()

    def _reset_timestamp(self, reset: OffsetReset) -> int:
        match reset.target:
            case ResetTarget.EARLIEST:
                return offset_lookup.EARLIEST
            case ResetTarget.LATEST:
                return offset_lookup.LATEST
            case ResetTarget.BY_DURATION:
                return max(0, self._services.runtime.clock.now_ms() - reset.duration_ms)

    def _look_up(self, timestamp: int) -> "FoundOffset | asyncio.Future[FoundOffset]":
        """Look up an offset as ListOffsets does, in remote storage too. Raise KafkaError."""
        query = OffsetQuery(timestamp, self.leader_epoch, FetchIsolation.HIGH_WATERMARK)
        remote = self._services.remote_offsets
        if remote is not None and remote.covers(self.partition):
            return remote.list_offset(self.partition, query, 0)
        return offset_lookup.list_offset(self.partition, query)

    # Members.

    def acquire(self, request: AcquireRequest, fetched: FetchedBatches) -> Sequence[AcquiredRecords]:
        """Acquire records for a member, for the lock duration of the group."""
        assert self.state is not None
        acquired = self.state.acquire(request, fetched, self._lock_deadline_ms())
        self._acquired_batches += len(acquired)
        self._acquired_records += sum(each.last - each.first + 1 for each in acquired)
        self._set_timer()
        return acquired

    def acknowledge(
        self, member_id: str, batches: Sequence[AcknowledgementBatch]
    ) -> "ErrorCode | asyncio.Future[ErrorCode]":
        """Acknowledge records of a member; the result is a future while it is being persisted."""
        if self.error is not ErrorCode.NONE:
            return self.error
        if self.state is None:
            return ErrorCode.INVALID_RECORD_STATE
        update = self.state.acknowledge(member_id, batches, self._lock_deadline_ms())
        if isinstance(update, ErrorCode):
            return update
        for batch in batches:
            for kind in batch.types:
                weight = batch.last - batch.first + 1 if len(batch.types) == 1 else 1
                self._services.figures.acknowledged[kind.name.lower()] += weight
        return self._persist(update)

    def release_member(self, member_id: str) -> "ErrorCode | asyncio.Future[ErrorCode]":
        """Release the records of a member whose session has ended."""
        if self.state is None:
            return ErrorCode.NONE
        return self._persist(self.state.release_member(member_id))

    def on_log_start(self) -> None:
        """Forget records that the log has deleted."""
        if self.state is not None:
            self.state.on_log_start(self.partition.log.log_start_offset)

    # Persistence.

    def _persist(self, update: ShareUpdate) -> "ErrorCode | asyncio.Future[ErrorCode]":
        self._set_timer()
        if not update.batches:
            return ErrorCode.NONE
        future: asyncio.Future[ErrorCode] = self._services.runtime.loop.create_future()
        self._results[update] = future
        self._write()
        return future

    def _write(self) -> None:
        assert self.state is not None
        write = self.state.take_write()
        if write is not None:
            self._is_writing = True
            self._services.persister.write(self.key, write, self._on_written)

    def _on_written(self, answer: StateAnswer) -> None:
        assert self.state is not None
        self._is_writing = False
        self._finish(self.state.on_written(answer.error), member_error(answer.error))
        if self.state.is_fenced:
            self.end(member_error(answer.error))
            return
        self._write()
        self._set_timer()
        self._offer()
        if self._is_retired and not self._is_writing:
            self.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _finish(self, updates: Sequence[ShareUpdate], error: ErrorCode) -> None:
        for update in updates:
            future = self._results.pop(update, None)
            if future is not None and not future.done():  # the client may be gone
                future.set_result(error)

    # Time and changes of the partition.

    def _set_timer(self) -> None:
        assert self.state is not None
        next_ms = self.state.next_deadline_ms
        if next_ms is None or (self._timer is not None and self._timer_ms <= next_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = next_ms
        delay_ms = next_ms - self._now_ms()
        self._timer = self._services.runtime.deadlines.after_ms(delay_ms, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if self.state is None or self.error is not ErrorCode.NONE:
            return
        self.state.expire(max(self._now_ms(), self._timer_ms))
        self._write()
        self._set_timer()
        self._offer()

    def _on_marks(self) -> None:
        """Note a change of the high watermark, the log start or the leadership."""
        if self.error is not ErrorCode.NONE:
            return
        if not self.is_leading:
            self.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        self._marks.arm()
        self.on_log_start()
        self._offer()

    def _offer(self) -> None:
        if self.state is not None and self.state.can_acquire:
            self.available.fire()

    def end(self, error: ErrorCode) -> None:
        """Go out of service. What was not sent to the coordinator fails."""
        if self.error is not ErrorCode.NONE:
            return
        self.error = error
        self._marks.disarm()
        if self._timer is not None:
            self._timer.cancel()
        if self.state is not None:
            self._finish(self.state.fence(), error)
        self._on_ended(self)
        self.available.fire()

    def retire(self) -> None:
        """Go out of service once everything is written: no member of the group has a session here."""
        if self._is_writing:
            self._is_retired = True
        else:
            self.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def reuse(self) -> None:
        """Stay in service: a member has come."""
        self._is_retired = False

    def _now_ms(self) -> float:
        return self._services.runtime.clock.monotonic_ms()

    def _lock_deadline_ms(self) -> float:
        return self._now_ms() + self._services.settings(self.key.group_id).lock_duration_ms
