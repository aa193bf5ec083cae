"""Log starts that outlive a disk: kept beside the segments, so that a rebuild brings no deleted records back."""

from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from broker.runtime.loop.thread_pool import PoolFull, WorkPool
from storage.tiered.segment_metadata import TopicIdPartition

T = TypeVar("T")


class LogStarts(Protocol):
    """All block, are called on a pool, and may raise what their store raises."""

    def on_log_start(self, partition: TopicIdPartition, leader_epoch: int, offset: int, *, at_once: bool) -> bool:
        """Keep it, at once or when it is convenient. False: a later leader has spoken, nothing may be deleted."""
        ...

    def kept(self, partition: TopicIdPartition) -> int | None:
        """What the last leader that spoke has said; None where none has."""
        ...

    def forget(self, partition: TopicIdPartition) -> None:
        """The partition is no more. What is forgotten already is no error."""
        ...


class NoLogStarts:
    """For remote storage that has no place for them."""

    def on_log_start(self, partition: TopicIdPartition, leader_epoch: int, offset: int, *, at_once: bool) -> bool:
        return True

    def kept(self, partition: TopicIdPartition) -> int | None:
        return None

    def forget(self, partition: TopicIdPartition) -> None:
        return


class LogStartStoreError(TimeoutError):
    """It could not be told for now."""


async def keep_log_start(
    log_starts: LogStarts, pool: WorkPool, partition: TopicIdPartition, leader_epoch: int, offset: int, *, at_once: bool
) -> bool:
    """`on_log_start` on the pool. Raises LogStartStoreError, PoolFull."""
    return await _tell(pool, partial(log_starts.on_log_start, partition, leader_epoch, offset, at_once=at_once))


async def kept_log_start(log_starts: LogStarts, pool: WorkPool, partition: TopicIdPartition) -> int | None:
    """`kept` on the pool. Raises LogStartStoreError, PoolFull."""
    return await _tell(pool, partial(log_starts.kept, partition))


async def forget_log_start(log_starts: LogStarts, pool: WorkPool, partition: TopicIdPartition) -> None:
    """`forget` on the pool. Raises LogStartStoreError, PoolFull."""
    await _tell(pool, partial(log_starts.forget, partition))


async def _tell(pool: WorkPool, work: Callable[[], T]) -> T:
    try:
        return await pool.submit(work)
    except PoolFull:
        raise
    except Exception as error:
        # What keeps them is remote storage, which may raise anything.
        raise LogStartStoreError(f"the place where log starts are kept failed: {error!r}") from error
