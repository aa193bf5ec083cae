"""Remote storage of a tiered topic: the product's remote log manager on every broker, over shared storage and metadata.

The store is down for a while, or loses responses (`StoreFaults`). Events of the remote metadata never fail; they are
applied after a delay, in order. The tiered plane (`remote_log/`) simulates worse stores and worse metadata.
Leaders that do not know that they are deposed go on copying and deleting.
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import TYPE_CHECKING, Any, Final, cast

from broker.metrics.remote_storage import RemoteStorageMetrics
from broker.runtime.loop.loop_slices import LoopSlices
from broker.runtime.remote_log.copying import CopyQuota, CopyTools
from broker.runtime.remote_log.expiration import ExpirationTools
from broker.runtime.remote_log.leader_starts import LeaderStarts
from broker.runtime.remote_log.manager import HostedTieredReplicas, RemoteLogManager
from broker.runtime.remote_log.segment_source import RemoteSegmentSource
from broker.runtime.remote_log.segments import RemoteSegments
from broker.runtime.remote_log.settings import RemoteLogSettings
from protocol.ids import BrokerId
from protocol.primitives import Uuid
from storage.tiered.errors import RetriableRemoteStorageError
from storage.tiered.segment_metadata import RemoteSegment, TopicIdPartition
from storage.tiered.stores.backoff import Backoff
from tests.simulation.replication.data_part import DataPart
from tests.simulation.replication.process import TaskProcess
from tests.simulation.world import World
from tests.support.fakes.memory_remote_metadata import Event, MemoryRemoteMetadata, RemoteMetadataLog
from tests.support.fakes.shared_remote_storage import DelayedPool, Fault, Operation, SharedRemoteStorage

if TYPE_CHECKING:
    from tests.simulation.replication.broker import Node

TIERED: Final = "tiered"
"""The name of the tiered topic."""
SETTINGS: Final = RemoteLogSettings(
    task_interval_ms=300, remover_interval_ms=1_000, grace_ms=1_000, backoff=Backoff(100, 1_000, 0.2)
)


class KeptLogStarts:
    """Log start offsets beside the segments, by partition and leader epoch. Implements LogStarts."""

    def __init__(self) -> None:
        self._kept: dict[TopicIdPartition, dict[int, int]] = {}

    def on_log_start(self, partition: TopicIdPartition, leader_epoch: int, offset: int, *, at_once: bool) -> bool:
        if self.is_superseded(partition, leader_epoch):
            return False
        self._kept.setdefault(partition, {})[leader_epoch] = offset
        return True

    def is_superseded(self, partition: TopicIdPartition, leader_epoch: int) -> bool:
        return max(self._kept.get(partition, {}), default=-1) > leader_epoch

    def withdraw(self, partition: TopicIdPartition, leader_epoch: int) -> None:
        kept = self._kept.get(partition, {})
        for epoch in [epoch for epoch in kept if epoch <= leader_epoch]:
            del kept[epoch]

    def kept(self, partition: TopicIdPartition) -> int | None:
        kept = self._kept.get(partition)
        return kept[max(kept)] if kept else None

    def forget(self, partition: TopicIdPartition) -> None:
        self._kept.pop(partition, None)


class StoreFaults:
    """Faults of the store: it is down, or the responses of a share of its requests are lost."""

    def __init__(self, random: Random) -> None:
        self.is_down = False
        self.lost_share = 0.0
        self._random = random

    def plan(self, operation: Operation, segment: RemoteSegment) -> Fault | None:
        """Return the fault of a request, if it has one."""
        if self.is_down:
            return Fault(RetriableRemoteStorageError("the store is down"))
        if self.lost_share and self._random.random() < self.lost_share:
            return Fault(RetriableRemoteStorageError("the response is lost"), applies=True)
        return None

    def end(self) -> None:
        """End all faults."""
        self.is_down, self.lost_share = False, 0.0


class Tier:
    """State shared by all brokers: the store, the remote metadata, and the log start offsets beside the segments."""

    def __init__(self, world: World, random: Random) -> None:
        self.faults = StoreFaults(random)
        self.storage = SharedRemoteStorage(self.faults.plan)
        self.metadata = RemoteMetadataLog()
        self.log_starts = KeptLogStarts()
        self._world = world
        self._random = random
        self._publish = self.metadata.publish
        self._due_ms = 0.0
        self.metadata.publish = self._publish_later  # type: ignore[method-assign]

    def _publish_later(self, event: Event, done: "asyncio.Future[None]") -> None:
        """Apply an event after all earlier ones, whatever becomes of its publisher."""
        self._due_ms = max(self._due_ms, self._world.now_ms + self._random.expovariate(1.0 / 20.0))
        self._world.schedule(self._due_ms - self._world.now_ms, self._publish, event, done)


class BrokerTier:
    """The remote log manager of one broker process, composed as in `broker.node.remote`."""

    def __init__(self, tier: Tier, node: "Node", data: DataPart, process: TaskProcess, random: Random) -> None:
        loop = cast(asyncio.AbstractEventLoop, process)
        self._random = random
        self.metadata = MemoryRemoteMetadata(tier.metadata, make_future=process.create_future)
        copies = DelayedPool(lambda: random.expovariate(1.0 / 0.2))
        pool = DelayedPool(lambda: random.expovariate(1.0 / 0.02))
        metrics = RemoteStorageMetrics()
        settings: Callable[[], RemoteLogSettings] = lambda: SETTINGS  # noqa: E731
        copying = CopyTools(
            node.disk,
            RemoteSegments(BrokerId(node.id), self.metadata, tier.storage, copies, process, metrics),
            CopyQuota(process, settings, metrics),
            process,
            settings,
            lambda: Uuid(random.randbytes(16)),
            random.random,
        )
        expiration = ExpirationTools(
            RemoteSegments(BrokerId(node.id), self.metadata, tier.storage, pool, process, metrics),
            pool,
            tier.log_starts,
            lambda _log: data.store._io.submit(data.log_dirs.checkpoints.write_log_starts),
            process,
            settings,
            random.random,
            lambda: tuple(copying.copying.values()),
            LoopSlices(process),
        )
        self.manager = RemoteLogManager(
            HostedTieredReplicas(data.partitions), self.metadata, self.metadata, copying, expiration, metrics, loop
        )
        self.leader_starts = LeaderStarts(
            self.metadata, tier.storage, lambda _partition: None, pool, loop, settings, random.random
        )
        data.partitions.roles.add_listener(self.manager)
        data.partitions.roles.use_remote_storage(self.leader_starts)
        data.fetchers.use_remote_storage(RemoteSegmentSource(self.metadata, tier.storage, pool, process))

    def start(self, process: TaskProcess) -> None:
        """Begin to copy and to delete. The schedulers' tasks die with the process, without a task group's farewell."""
        manager = self.manager
        manager._expirations.schedule(manager._remover)
        group = _ProcessTasks(process)
        for scheduler in (manager._copies, manager._expirations, manager._followings, self.leader_starts._scheduler):
            scheduler._group = cast(asyncio.TaskGroup, group)
            scheduler._start_due()


class _ProcessTasks:
    """The tasks of schedulers; an error of one ends the node."""

    def __init__(self, process: TaskProcess) -> None:
        self._process = process

    def create_task(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = self._process.create_task(work)
        task.add_done_callback(_raise_error)
        return task


def _raise_error(task: "asyncio.Task[None]") -> None:
    if not task.cancelled():
        error = task.exception()
        if error is not None:
            raise error
