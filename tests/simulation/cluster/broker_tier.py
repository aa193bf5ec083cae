"""Remote storage of one broker process, composed as in `broker.node.remote`: copies, deletions, and remote reads."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import TYPE_CHECKING, Any, Final, cast

from broker.fetch.remote_reads.follower_copies import FollowerCopies
from broker.fetch.remote_reads.read import RemoteRead
from broker.fetch.remote_reads.reads import RemoteReads, RemoteReadSettings
from broker.metrics.remote_storage import RemoteStorageMetrics
from broker.runtime.loop.loop_slices import LoopSlices
from broker.runtime.remote_log.copying import CopyQuota, CopyTools
from broker.runtime.remote_log.expiration import ExpirationTools
from broker.runtime.remote_log.leader_starts import LeaderStarts
from broker.runtime.remote_log.locations import Holes
from broker.runtime.remote_log.manager import HostedTieredReplicas, RemoteLogManager
from broker.runtime.remote_log.offsets import RemoteOffsets
from broker.runtime.remote_log.segment_source import RemoteSegmentSource
from broker.runtime.remote_log.segments import RemoteSegments
from broker.runtime.remote_log.settings import RemoteLogSettings
from broker.runtime.replication.fetch_transport import FetchTransport
from protocol.ids import BrokerId
from protocol.primitives import Uuid
from storage.tiered.bucket.partition_objects import PartitionObjects
from storage.tiered.cache.index_cache import IndexCache
from storage.tiered.cache.index_invalidation import IndexInvalidatingStorage
from storage.tiered.format.log_start_object import read_log_start
from storage.tiered.remote_storage import RemoteStorageManager
from storage.tiered.segments.reading import SegmentReader
from tests.simulation.cluster.tier import SETTINGS, Tier
from tests.simulation.cluster.tier_metadata import LaggingRemoteMetadata
from tests.simulation.remote_log.failures import INDEX_CACHE_BYTES, SimulatedDisk
from tests.simulation.remote_log.uplink import PausingPool, Uplink
from tests.simulation.replication.data_part import DataPart
from tests.simulation.replication.network import LISTENER
from tests.simulation.replication.process import TaskProcess
from tests.simulation.replication.scenario import CLUSTER_ID
from tests.support.fakes.shared_remote_storage import DelayedPool

if TYPE_CHECKING:
    from tests.simulation.cluster.broker import ClusterBroker

_UPLOAD_S: Final = 0.2
"""Mean time of an upload."""
_LOOK_UP_MS: Final = 800
_HOLE_PATIENCE_MS: Final = 10_000
"""Longer than remote metadata are late, so that no look-up skips records."""
_READS: Final = RemoteReadSettings(wait_max_ms=300, reads_max=5, kept_ms=1_000, kept_bytes=20_000)


class BrokerTier:
    """The remote storage of one broker process."""

    def __init__(self, tier: Tier, broker: "ClusterBroker", data: DataPart, random: Random) -> None:
        process, node_id, weather = broker.process, BrokerId(broker.node.id), tier.weather
        loop = cast(asyncio.AbstractEventLoop, process)
        storage = cast(
            RemoteStorageManager,
            Uplink(weather.connect(weather.faulty), lambda: random.expovariate(1.0 / _UPLOAD_S)),
        )
        cache = IndexCache(SimulatedDisk(), "index-cache", storage, INDEX_CACHE_BYTES)
        log_starts = PartitionObjects(
            weather.faulty,
            weather.keys,
            cluster_id=CLUSTER_ID,
            broker_id=node_id,
            interval_ms=1_000,
            now_ms=process.now_ms,
        )
        self.metadata = LaggingRemoteMetadata(tier.metadata, process, random, lambda: tier.is_disturbed)
        pool = DelayedPool(lambda: random.expovariate(1.0 / 0.02), weather.answer_s)
        metrics = RemoteStorageMetrics()
        settings: Callable[[], RemoteLogSettings] = lambda: SETTINGS  # noqa: E731
        removing = IndexInvalidatingStorage(storage, cache)
        copying = CopyTools(
            broker.node.disk,
            RemoteSegments(node_id, self.metadata, removing, PausingPool(weather.answer_s), process, metrics),
            CopyQuota(process, settings, metrics),
            process,
            settings,
            lambda: Uuid(random.randbytes(16)),
            random.random,
        )
        expiration = ExpirationTools(
            RemoteSegments(node_id, self.metadata, removing, pool, process, metrics),
            pool,
            log_starts,
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
            self.metadata,
            storage,
            lambda partition: read_log_start(weather.faulty, weather.keys.partition(partition)),
            pool,
            loop,
            settings,
            random.random,
        )
        data.partitions.roles.add_listener(self.manager)
        data.partitions.roles.use_remote_storage(self.leader_starts)
        data.fetchers.use_remote_storage(RemoteSegmentSource(self.metadata, storage, pool, process))
        reader = SegmentReader(storage, cache)
        self.reads = _ProcessReads(reader, self.metadata, pool, loop, data.deadlines, process, lambda: _READS)
        self.reads.process = process
        self.reads.count = tier.on_remote_read
        self.offsets = RemoteOffsets(
            reader,
            self.metadata,
            pool,
            loop,
            data.deadlines,
            lambda: _LOOK_UP_MS,
            Holes(process, lambda: _HOLE_PATIENCE_MS),
        )
        transport = cast(FetchTransport, broker)
        copies = FollowerCopies(lambda: data.partitions.image, transport, loop, own_id=node_id, listener=LISTENER)
        self.reads.use_replicas(copies)
        self.offsets.use_replicas(copies)

    def start(self, process: TaskProcess) -> None:
        """Begin to copy and to delete. The schedulers' tasks die with the process, without a task group's farewell."""
        manager = self.manager
        manager._expirations.schedule(manager._remover)
        group = _ProcessTasks(process)
        for scheduler in (manager._copies, manager._expirations, manager._followings, self.leader_starts._scheduler):
            scheduler._group = cast(asyncio.TaskGroup, group)
            scheduler._start_due()


class _ProcessReads(RemoteReads):
    """Remote reads whose tasks die with the process."""

    process: TaskProcess
    count: Callable[[], None]
    """Called for each read."""

    def _begin(self, read: RemoteRead, position: Any) -> RemoteRead:
        begun = super()._begin(read, position)
        assert begun.task is not None
        self.count()
        self.process.adopt(begun.task)
        return begun


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
