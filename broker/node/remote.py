"""The remote storage of a node's logs (KIP-405): storage, metadata, and the tasks that copy, read and delete segments.

Imported only where `remote.log.storage.system.enable` is true: other nodes do not pay for it.
"""

import asyncio
import random

from broker.fetch.remote_reads.follower_copies import FollowerCopies
from broker.fetch.remote_reads.reads import RemoteReads
from broker.logs import EventLog
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.metrics.family import Family
from broker.metrics.object_store import cache_families, store_families
from broker.metrics.remote_storage import (
    RemoteStorageMetrics,
    follower_reads_family,
    remote_families,
    skipped_holes_family,
    under_first_names,
)
from broker.metrics.remote_work import remote_work_families
from broker.metrics.topics import BrokerTopicMetrics
from broker.node.data import DataPart
from broker.node.metadata import MetadataPart
from broker.node.remote_metadata import build_remote_metadata
from broker.node.remote_settings import log_settings, read_settings
from broker.node.remote_stores import RemoteStores
from broker.node.runtime import NodeRuntime
from broker.runtime.controller.driver import MetadataPublisher
from broker.runtime.controller.dynamic_config import DynamicConfig
from broker.runtime.loop.loop_slices import LoopSlices
from broker.runtime.loop.thread_pool import ThreadPool
from broker.runtime.loop.throttle import Throttle
from broker.runtime.remote_log.compaction import CompactionTools
from broker.runtime.remote_log.copying import CopyQuota, CopyTools
from broker.runtime.remote_log.expiration import ExpirationTools
from broker.runtime.remote_log.leader_starts import LeaderStarts
from broker.runtime.remote_log.locations import Holes
from broker.runtime.remote_log.manager import HostedTieredReplicas, RemoteLogManager, RemotePools
from broker.runtime.remote_log.offsets import RemoteOffsets
from broker.runtime.remote_log.segment_source import RemoteSegmentSource
from broker.runtime.remote_log.segments import RemoteSegments
from broker.runtime.remote_log.settings import RemoteLogSettings
from broker.runtime.remote_log.topic_descriptions import TopicDescriptions
from broker.runtime.remote_metadata.topic import TopicRemoteMetadata
from broker.runtime.remote_metadata.topic_creation import MetadataTopicCreator, RequestedTopicCreator
from broker.runtime.replication.fetch_transport import NetworkFetchTransport
from protocol.lazy_dataclass import lazy_dataclass
from storage.directories.formatting import random_id
from storage.files import join
from storage.tiered.cache.index_cache import DIRECTORY_NAME as INDEX_CACHE
from storage.tiered.cache.index_cache import IndexCache
from storage.tiered.cache.index_invalidation import IndexInvalidatingStorage
from storage.tiered.lifecycle.segment_rewriting import DIRECTORY as COMPACTION_DIRECTORY
from storage.tiered.object_store import ObjectStore
from storage.tiered.remote_metadata import RemoteLogMetadataManager
from storage.tiered.remote_storage import RemoteStorageManager
from storage.tiered.segments.reading import SegmentReader
from storage.tiered.statistics import RemoteStorageStatistics

_FINISH_TIMEOUT_S = 5.0
"""Time for which a stopping node waits for copies and deletions in progress. Interrupted ones are cleaned up later."""

_log = EventLog("broker.tiered")


@lazy_dataclass(frozen=True, slots=True)
class RemoteStoragePart:
    """The components of remote storage, built and not started.

    The caller adds `publishers` after the partitions, in this order.
    """

    config: DynamicConfig
    storage: RemoteStorageManager
    objects: ObjectStore | None
    cache: IndexCache
    metadata: RemoteLogMetadataManager
    manager: RemoteLogManager
    pools: RemotePools
    reader_pool: ThreadPool
    follower_pool: ThreadPool
    reads: RemoteReads
    follower_copies: FollowerCopies
    offsets: RemoteOffsets
    leader_starts: LeaderStarts
    descriptions: TopicDescriptions | None
    traffic: BrokerTopicMetrics
    statistics: RemoteStorageStatistics

    @property
    def publishers(self) -> tuple[MetadataPublisher, ...]:
        on_topic = (self.metadata,) if isinstance(self.metadata, TopicRemoteMetadata) else ()
        descriptions = () if self.descriptions is None else (self.descriptions,)
        return (*on_topic, self.manager, self, *descriptions)

    def topic_creator(self, others: RequestedTopicCreator | None) -> RequestedTopicCreator | None:
        """Return a creator that also creates the remote metadata topic on a client's request, where there is one."""
        if not isinstance(self.metadata, TopicRemoteMetadata):
            return others
        return MetadataTopicCreator(self.metadata.ensure_topic, others)

    async def run(self) -> None:
        """Copy, delete and look up log starts until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.manager.run())
            group.create_task(self.leader_starts.run())
            if self.descriptions is not None:
                group.create_task(self.descriptions.run())

    def on_metadata(self, _delta: MetadataDelta, _image: MetadataImage) -> None:
        """Apply dynamic sizes of thread pools and caches."""
        config = self.config.current
        self.pools.resize(log_settings(config))
        self.reader_pool.resize(config.remote_log_reader_threads, config.remote_log_reader_max_pending_tasks)
        self.follower_pool.resize(config.remote_log_manager_follower_thread_pool_size)
        self.cache.resize(config.remote_log_index_file_cache_total_size_bytes)

    def families(self) -> list[Family]:
        """Return the metric families of remote storage."""
        return [
            *self.manager.metrics.families(),
            *under_first_names([*self.manager.metrics.families(), *self.traffic.families()]),
            skipped_holes_family(lambda: self.reads.holes.skipped),
            follower_reads_family(lambda: self.reads.figures.from_replicas),
            *remote_families(
                self.reads.figures,
                open_reads=lambda: self.reads.open_count,
                fetch_quota=self.reads.quota.use,
                copies=self.manager.metrics,
                look_ups=self.offsets,
                copier_idle=lambda: self.pools.copier.idle_ratio(),
                reader_idle=lambda: self.reader_pool.idle_ratio(),
                reader_queue=lambda: self.reader_pool.pending,
                index_cache_bytes=lambda: self.cache.size_bytes,
            ),
            *remote_work_families(self.reads.figures, self.manager.metrics),
            *store_families(self.statistics.store),
            *cache_families("chunk", "chunks of segments", self.statistics.chunks),
            *cache_families("index", "indexes of segments", self.cache),
        ]

    async def finish(self) -> None:
        """Wait a short time for work in progress to finish, before this node resigns its leaderships."""
        try:
            await asyncio.wait_for(self.manager.finish(), _FINISH_TIMEOUT_S)
        except TimeoutError:
            _log.info("Leaving unfinished work in remote storage for later cleanup")

    async def close(self) -> None:
        """Stop reading, copying and deleting. Call after the tasks of the manager have ended."""
        self.reads.close()
        self.follower_copies.close()
        await self.metadata.close()
        await asyncio.gather(
            self.pools.stop(), self.reader_pool.stop(drop_waiting=True), self.follower_pool.stop(drop_waiting=True)
        )
        await asyncio.to_thread(self.storage.close)
        if self.objects is not None:
            await asyncio.to_thread(self.objects.close)


def build_remote(
    runtime: NodeRuntime, stores: RemoteStores, metadata: MetadataPart, data: DataPart
) -> RemoteStoragePart:
    """Build remote storage over the data side. Followers then start after remote segments. Raise ConfigError."""
    dynamic = metadata.config
    static = dynamic.current
    cache_bytes = static.remote_log_index_file_cache_total_size_bytes
    builder = _RemoteBuilder(
        runtime=runtime,
        stores=stores,
        data=data,
        dynamic=dynamic,
        metadata=build_remote_metadata(runtime, stores.cluster_id, metadata, data),
        cache=IndexCache(runtime.files, join(static.log_dirs[0], INDEX_CACHE), stores.storage, cache_bytes),
        metrics=RemoteStorageMetrics(runtime.clock, log_settings(static).copy_quota_window_ms),
        pools=RemotePools.open(log_settings(static)),
    )
    waiting_max = static.remote_log_reader_max_pending_tasks
    followers = static.remote_log_manager_follower_thread_pool_size
    reader_pool = ThreadPool(static.remote_log_reader_threads, waiting_max, "remote-read", clock=runtime.clock)
    # An unlimited queue: every lagging replica waits with at most one task, and none is refused.
    follower_pool = ThreadPool(followers, None, "remote-follow", clock=runtime.clock)
    reader = SegmentReader(stores.storage, builder.cache)
    reads, follower_copies = builder.reads(reader, reader_pool), builder.follower_copies()
    reads.use_replicas(follower_copies)
    offsets = builder.offsets(reader, reader_pool)
    offsets.use_replicas(follower_copies)
    data.shares.partitions.use_remote_offsets(offsets)
    manager = builder.manager()
    data.partitions.roles.add_listener(manager)
    leader_starts = builder.leader_starts()
    data.partitions.roles.use_remote_storage(leader_starts)
    descriptions = builder.descriptions()
    if descriptions is not None:
        data.partitions.roles.add_listener(descriptions)
    data.fetchers.use_remote_storage(builder.remote_log_source(follower_pool))
    return RemoteStoragePart(
        dynamic,
        stores.storage,
        stores.objects,
        builder.cache,
        builder.metadata,
        manager,
        builder.pools,
        reader_pool,
        follower_pool,
        reads,
        follower_copies,
        offsets,
        leader_starts,
        descriptions,
        data.partitions.traffic,
        stores.statistics,
    )


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class _RemoteBuilder:
    """The shared inputs of the components, with a factory method for each component."""

    runtime: NodeRuntime
    stores: RemoteStores
    data: DataPart
    dynamic: DynamicConfig
    metadata: RemoteLogMetadataManager
    cache: IndexCache
    metrics: RemoteStorageMetrics
    pools: RemotePools

    def settings(self) -> RemoteLogSettings:
        """Return the current settings."""
        return log_settings(self.dynamic.current)

    def manager(self) -> RemoteLogManager:
        """Build the manager that copies, expires and compacts. Deletions also drop segments from the index cache."""
        static = self.dynamic.current
        storage = IndexInvalidatingStorage(self.stores.storage, self.cache)
        quota = CopyQuota(self.runtime.clock, self.settings, self.metrics)
        copying = self._copying(storage, quota)
        compaction = self._compaction(storage, quota)
        expiration = ExpirationTools(
            segments=self._segments(storage, self.pools.expiration),
            pool=self.pools.expiration,
            log_starts=self.stores.log_starts,
            remember_start=lambda _log: self.runtime.io.submit(self.data.log_dirs.checkpoints.write_log_starts),
            clock=self.runtime.clock,
            settings=self.settings,
            random=random.random,
            copying=lambda: (*copying.copying.values(), *compaction.compacting.values()),
            slices=LoopSlices(self.runtime.clock),
        )
        return RemoteLogManager(
            HostedTieredReplicas(self.data.partitions),
            self.metadata,
            self.metadata,
            copying,
            expiration,
            self.metrics,
            self.runtime.loop,
            compaction if static.log_cleaner_enable else None,
        )

    def _segments(self, storage: RemoteStorageManager, pool: ThreadPool) -> RemoteSegments:
        return RemoteSegments(
            self.dynamic.current.node_id, self.metadata, storage, pool, self.runtime.clock, self.metrics
        )

    def _copying(self, storage: RemoteStorageManager, quota: CopyQuota) -> CopyTools:
        return CopyTools(
            fs=self.runtime.files,
            segments=self._segments(storage, self.pools.copier),
            quota=quota,
            clock=self.runtime.clock,
            settings=self.settings,
            new_id=random_id,
            random=random.random,
        )

    def _compaction(self, storage: RemoteStorageManager, quota: CopyQuota) -> CompactionTools:
        static = self.dynamic.current
        return CompactionTools(
            fs=self.runtime.files,
            directory=join(static.log_dirs[0], COMPACTION_DIRECTORY),
            storage=storage,
            segments=self._segments(storage, self.pools.compaction),
            pool=self.pools.compaction,
            quota=quota,
            throttle=Throttle(self.runtime.clock, lambda: self.dynamic.current.log_cleaner_io_max_bytes_per_second),
            dedupe_buffer_bytes=static.log_cleaner_dedupe_buffer_size,
            load_factor=static.log_cleaner_io_buffer_load_factor,
            clock=self.runtime.clock,
            settings=self.settings,
            new_id=random_id,
            random=random.random,
            metrics=self.metrics,
        )

    def leader_starts(self) -> LeaderStarts:
        return LeaderStarts(
            self.metadata,
            self.stores.storage,
            self.stores.read_log_start,
            self.pools.expiration,
            self.runtime.loop,
            self.settings,
            random.random,
        )

    def descriptions(self) -> TopicDescriptions | None:
        """Build the writer of topic descriptions; None where the storage has no place for them."""
        beside, pool = self.stores.beside, self.pools.expiration
        if beside is None:
            return None
        return TopicDescriptions(
            beside, self.data.partitions, self.stores.cluster_id, pool, self.runtime.loop, self.settings, random.random
        )

    def remote_log_source(self, pool: ThreadPool) -> RemoteSegmentSource:
        return RemoteSegmentSource(
            self.metadata,
            self.stores.storage,
            pool,
            self.runtime.loop,
            skips_remote=lambda: self.dynamic.current.follower_fetch_last_tiered_offset_enable,
        )

    def follower_copies(self) -> FollowerCopies:
        static = self.dynamic.current
        transport = NetworkFetchTransport(
            self.runtime.loop,
            self.runtime.connect_to(static.inter_broker_listener_name),
            timeout_ms=static.replica_socket_timeout_ms,
            response_max_bytes=static.replica_fetch_response_max_bytes,
        )
        return FollowerCopies(
            lambda: self.data.partitions.image,
            transport,
            self.runtime.loop,
            own_id=static.node_id,
            listener=static.inter_broker_listener_name,
        )

    def reads(self, reader: SegmentReader, pool: ThreadPool) -> RemoteReads:
        static = self.dynamic.current
        window_s = static.remote_log_manager_fetch_quota_window_size_seconds
        return RemoteReads(
            reader,
            self.metadata,
            pool,
            self.runtime.loop,
            self.runtime.deadlines,
            self.runtime.clock,
            lambda: read_settings(self.dynamic.current),
            quota_window_ms=static.remote_log_manager_fetch_quota_window_num * window_s * 1000,
        )

    def offsets(self, reader: SegmentReader, pool: ThreadPool) -> RemoteOffsets:
        return RemoteOffsets(
            reader,
            self.metadata,
            pool,
            self.runtime.loop,
            self.runtime.deadlines,
            lambda: self.dynamic.current.remote_list_offsets_request_timeout_ms,
            Holes(self.runtime.clock, lambda: self.dynamic.current.ottla_remote_log_hole_patience_ms),
        )
