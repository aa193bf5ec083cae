"""Log start offsets stored beside the remote segments, so that a rebuilt replica restores no deleted records."""

from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from broker.runtime.loop.thread_pool import PoolFull, WorkPool
from protocol.ids import LeaderEpoch, Offset
from storage.tiered.segment_metadata import TopicIdPartition

T = TypeVar("T")


class LogStarts(Protocol):
    """A store of log start offsets. All methods block, run on a pool, and may raise what their store raises."""

    def on_log_start(
        self, partition: TopicIdPartition, leader_epoch: LeaderEpoch, offset: Offset, *, at_once: bool
    ) -> bool:
        """Store a log start offset, now if `at_once`. Return False if a later leader has stored one: delete nothing."""
        ...

    def is_superseded(self, partition: TopicIdPartition, leader_epoch: LeaderEpoch) -> bool:
        """Whether a leader of a later epoch has stored an offset by now."""
        ...

    def kept(self, partition: TopicIdPartition) -> int | None:
        """Return the offset that the last leader stored; None if there is none."""
        ...

    def withdraw(self, partition: TopicIdPartition, leader_epoch: LeaderEpoch) -> None:
        """Remove the offsets of a leader and of its predecessors, after all segments were deleted."""
        ...

    def forget(self, partition: TopicIdPartition) -> None:
        """Remove the offset of a deleted partition; removing it twice is no error."""
        ...


class NoLogStarts:
    """The store for remote storage that cannot hold log start offsets."""

    def on_log_start(
        self, partition: TopicIdPartition, leader_epoch: LeaderEpoch, offset: Offset, *, at_once: bool
    ) -> bool:
        return True

    def is_superseded(self, partition: TopicIdPartition, leader_epoch: LeaderEpoch) -> bool:
        return False

    def withdraw(self, partition: TopicIdPartition, leader_epoch: LeaderEpoch) -> None:
        return

    def kept(self, partition: TopicIdPartition) -> int | None:
        return None

    def forget(self, partition: TopicIdPartition) -> None:
        return


class LogStartStoreError(TimeoutError):
    """The store of log start offsets failed; the operation can be repeated."""


async def keep_log_start(
    log_starts: LogStarts,
    pool: WorkPool,
    partition: TopicIdPartition,
    leader_epoch: LeaderEpoch,
    offset: Offset,
    *,
    at_once: bool,
) -> bool:
    """Call `on_log_start` on the pool. Raises LogStartStoreError, PoolFull."""
    return await _submit(pool, partial(log_starts.on_log_start, partition, leader_epoch, offset, at_once=at_once))


async def is_superseded(
    log_starts: LogStarts, pool: WorkPool, partition: TopicIdPartition, leader_epoch: LeaderEpoch
) -> bool:
    """Call `is_superseded` on the pool. Raises LogStartStoreError, PoolFull."""
    return await _submit(pool, partial(log_starts.is_superseded, partition, leader_epoch))


async def withdraw_log_start(
    log_starts: LogStarts, pool: WorkPool, partition: TopicIdPartition, leader_epoch: LeaderEpoch
) -> None:
    """Call `withdraw` on the pool. Raises LogStartStoreError, PoolFull."""
    await _submit(pool, partial(log_starts.withdraw, partition, leader_epoch))


async def kept_log_start(log_starts: LogStarts, pool: WorkPool, partition: TopicIdPartition) -> int | None:
    """Call `kept` on the pool. Raises LogStartStoreError, PoolFull."""
    return await _submit(pool, partial(log_starts.kept, partition))


async def forget_log_start(log_starts: LogStarts, pool: WorkPool, partition: TopicIdPartition) -> None:
    """Call `forget` on the pool. Raises LogStartStoreError, PoolFull."""
    await _submit(pool, partial(log_starts.forget, partition))


async def _submit(pool: WorkPool, work: Callable[[], T]) -> T:
    try:
        return await pool.submit(work)
    except PoolFull:
        raise
    except Exception as error:
        # The store is remote storage, whose plug-in may raise anything.
        raise LogStartStoreError(f"the store of log start offsets failed: {error!r}") from error
