"""One partition of `__share_group_state` as a state machine: the share partitions that it keeps (KIP-932).

The group coordinator initializes the state of a share partition, which begins a state epoch. Its leader then reads the
state, which begins a leader epoch, and writes changes. Requests with an older epoch of either kind are fenced.

A share partition is a snapshot and the updates after it, so the log grows until the oldest current snapshot is written
again: after a number of updates, or by the clock when it is cold. Records before the oldest current snapshot are
redundant (`redundant_end`).
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias, assert_never

from broker.coordination.shard import CoordinatorResult
from broker.coordination.share_partition_key import SharePartitionKey
from broker.coordination.timers import CoordinatorClock, TimerQueue
from broker.share_state.records import (
    ShareSnapshotWritten,
    ShareStateEvent,
    ShareStateRecord,
    ShareStateRemoved,
    ShareUpdateWritten,
    decode_record,
    snapshot_written,
    state_removed,
    update_written,
)
from broker.share_state.state import FIRST_LEADER_EPOCH, UNCHANGED, ShareState, StateBatch, combined
from protocol.errors import ErrorCode, KafkaError
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid

_COLD_SNAPSHOT_TIMER: Final = "cold snapshots"
_NO_OFFSET: Final = -1


@lazy_dataclass(frozen=True, slots=True)
class ShareStateConfig:
    """Settings of the share coordinator. A snapshot is written instead of update number `updates_per_snapshot` + 1."""

    updates_per_snapshot: int
    cold_snapshot_interval_ms: int


class ColdSnapshotsDue(NamedTuple):
    """The periodic snapshot of share partitions that have not changed for long."""


class ShareStateWrite(NamedTuple):
    """A change of a share partition's state by its leader; −1 leaves an epoch unchecked, or the start offset as is."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


Outcome: TypeAlias = CoordinatorResult[ShareStateEvent, None]


class ShareStateRefusal(KafkaError):
    """A refusal of the request itself. Errors of the log are about the coordinator instead."""


class _Entry:
    """A share partition: its state, the highest epochs seen, the updates since its last snapshot, and its offset."""

    __slots__ = ("leader_epoch", "snapshot_offset", "state", "state_epoch", "update_count")

    def __init__(self, state: ShareState) -> None:
        self.state = state
        self.state_epoch = state.state_epoch
        self.leader_epoch = state.leader_epoch
        self.update_count = 0
        self.snapshot_offset = _NO_OFFSET


class ShareStateShard:
    """The share partitions of one partition of the topic.

    `partition_count` returns the partition count of a topic, None for an unknown one. Commands raise ShareStateRefusal.
    """

    def __init__(
        self, config: ShareStateConfig, clock: CoordinatorClock, partition_count: Callable[[Uuid], int | None]
    ) -> None:
        self._config = config
        self._clock = clock
        self._partition_count = partition_count
        self._queue: TimerQueue[ColdSnapshotsDue] = TimerQueue(clock.monotonic_ms)
        self._entries: dict[SharePartitionKey, _Entry] = {}
        self._removed_offset = _NO_OFFSET

    def __len__(self) -> int:
        return len(self._entries)

    # Interface of every shard.

    @property
    def timers(self) -> TimerQueue[ColdSnapshotsDue]:
        return self._queue

    @property
    def parking(self) -> None:
        """None: every record is replayed at once."""

    def decode(self, key: bytes, value: bytes | None) -> ShareStateEvent | None:
        return decode_record(key, value)

    def replay(self, event: ShareStateEvent, offset: int, producer_id: int) -> None:
        match event:
            case ShareSnapshotWritten(key, state):
                self._replay_snapshot(key, state, offset)
            case ShareUpdateWritten(key):
                entry = self._entries.get(key)
                if entry is not None:  # its snapshot is gone only if a tombstone follows
                    self._replay_update(entry, event)
            case ShareStateRemoved(key):
                self._entries.pop(key, None)
                self._removed_offset = offset
            case _:
                assert_never(event)

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        """Do nothing: no transaction writes to this topic."""

    def on_timer(self, cause: ColdSnapshotsDue) -> Outcome:
        self._schedule_cold_snapshots()
        return self._cold_snapshots()

    def on_loaded(self) -> None:
        self._schedule_cold_snapshots()

    def on_unloaded(self) -> None:
        self._queue.clear()

    # Commands.

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> Outcome:
        """Begin a state epoch: the group reads the partition from `start_offset` on.

        A request for the present state epoch without a start offset is a late or repeated one, and changes nothing: the
        partition's leader may have written acknowledgements since. (Apache Kafka resets the state.) The new state keeps
        the highest leader epoch, so that former leaders stay fenced, also after a load.
        """
        _check_partition(key)
        entry = self._entries.get(key)
        if entry is not None and UNCHANGED != state_epoch < entry.state_epoch:
            raise ShareStateRefusal(ErrorCode.FENCED_STATE_EPOCH)
        self._check_exists(key)
        if entry is not None and state_epoch == entry.state_epoch and start_offset == UNCHANGED:
            return CoordinatorResult(None)
        now_ms = self._clock.now_ms()
        state = ShareState(
            snapshot_epoch=0 if entry is None else entry.state.snapshot_epoch + 1,
            state_epoch=state_epoch,
            leader_epoch=FIRST_LEADER_EPOCH if entry is None else entry.leader_epoch,
            start_offset=start_offset,
            create_ms=now_ms,
            write_ms=now_ms,
        )
        return CoordinatorResult(None, [snapshot_written(key, state)])

    def read(self, key: SharePartitionKey, leader_epoch: int) -> CoordinatorResult[ShareStateEvent, ShareState]:
        """Return the state for the partition's leader, and begin its leader epoch if that is new."""
        _check_partition(key)
        entry = self._entries.get(key)
        if entry is None:
            raise ShareStateRefusal(ErrorCode.INVALID_REQUEST, "The share partition's state is not initialized.")
        if leader_epoch < entry.leader_epoch:
            raise ShareStateRefusal(ErrorCode.FENCED_LEADER_EPOCH)
        self._check_exists(key)
        state = entry.state
        if leader_epoch == entry.leader_epoch:
            return CoordinatorResult(state)
        update = ShareUpdateWritten(key, leader_epoch, state.start_offset, state.delivery_complete_count, ())
        return CoordinatorResult(state, [self._record_of(entry, update)])

    def write(self, key: SharePartitionKey, write: ShareStateWrite) -> Outcome:
        """Change the state."""
        _check_partition(key)
        entry = self._entries.get(key)
        if entry is None:
            raise ShareStateRefusal(ErrorCode.INVALID_REQUEST, "The share partition's state is not initialized.")
        if UNCHANGED != write.leader_epoch < entry.leader_epoch:
            raise ShareStateRefusal(ErrorCode.FENCED_LEADER_EPOCH)
        if UNCHANGED != write.state_epoch < entry.state_epoch:
            raise ShareStateRefusal(ErrorCode.FENCED_STATE_EPOCH)
        self._check_exists(key)
        update = ShareUpdateWritten(
            key,
            entry.state.leader_epoch,
            write.start_offset,
            write.delivery_complete_count,
            combined(write.batches, write.start_offset),
        )
        return CoordinatorResult(None, [self._record_of(entry, update)])

    def summary(self, key: SharePartitionKey) -> ShareState | None:
        """Return the state; None if it is not initialized."""
        _check_partition(key)
        self._check_exists(key)
        entry = self._entries.get(key)
        return None if entry is None else entry.state

    def delete(self, key: SharePartitionKey) -> Outcome:
        """Remove the state; a missing one is no error."""
        _check_partition(key)
        self._check_exists(key)
        return CoordinatorResult(None, [state_removed(key)] if key in self._entries else [])

    def on_topics_deleted(self, topic_ids: Iterable[Uuid]) -> Outcome:
        """Remove the states of deleted topics."""
        deleted = frozenset(topic_ids)
        records = [state_removed(key) for key in self._entries if key.topic_id in deleted]
        return CoordinatorResult(None, records, atomic=False)

    def redundant_end(self) -> int | None:
        """Return the offset before which all records are redundant; None without any record that counts."""
        end = min((each.snapshot_offset for each in self._entries.values()), default=self._removed_offset)
        return end if end > 0 else None

    # Records.

    def _record_of(self, entry: _Entry, update: ShareUpdateWritten) -> ShareStateRecord:
        """Return an update, or a snapshot when enough updates follow the last one."""
        if entry.update_count < self._config.updates_per_snapshot:
            return update_written(update, entry.state.snapshot_epoch)
        now_ms = self._clock.now_ms()
        state = replace(
            entry.state.updated(*update[1:]),
            snapshot_epoch=entry.state.snapshot_epoch + 1,
            create_ms=now_ms,
            write_ms=now_ms,
        )
        return snapshot_written(update.key, state)

    def _cold_snapshots(self) -> Outcome:
        """Write snapshots of unchanged share partitions, so that the records before become redundant.

        While no share partition changes, no record becomes redundant either, and none is written.
        """
        states = [(key, entry.state) for key, entry in self._entries.items()]
        if all(state.write_ms != state.create_ms for _, state in states):
            return CoordinatorResult(None)
        now_ms = self._clock.now_ms()
        records = [
            snapshot_written(key, replace(state, snapshot_epoch=state.snapshot_epoch + 1, write_ms=now_ms))
            for key, state in states
            if now_ms - state.write_ms >= self._config.cold_snapshot_interval_ms
        ]
        return CoordinatorResult(None, records, atomic=False)

    def _schedule_cold_snapshots(self) -> None:
        self._queue.schedule(_COLD_SNAPSHOT_TIMER, self._config.cold_snapshot_interval_ms, ColdSnapshotsDue())

    # Replay.

    def _replay_snapshot(self, key: SharePartitionKey, state: ShareState, offset: int) -> None:
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(state)
        entry.state = state
        entry.state_epoch = max(entry.state_epoch, state.state_epoch)
        entry.leader_epoch = max(entry.leader_epoch, state.leader_epoch)
        entry.update_count = 0
        entry.snapshot_offset = offset

    def _replay_update(self, entry: _Entry, update: ShareUpdateWritten) -> None:
        entry.state = entry.state.updated(*update[1:])
        entry.leader_epoch = max(entry.leader_epoch, update.leader_epoch)
        entry.update_count += 1

    def _check_exists(self, key: SharePartitionKey) -> None:
        count = self._partition_count(key.topic_id)
        if count is None or key.partition >= count:
            raise ShareStateRefusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _check_partition(key: SharePartitionKey) -> None:
    if key.partition < 0:
        raise ShareStateRefusal(ErrorCode.INVALID_REQUEST, "A partition index must not be negative.")
