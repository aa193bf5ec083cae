"""The remote part of a node's logs: remote storage, what is known of it, and who copies, reads and deletes there.

Imported only where `remote.log.storage.system.enable` is on: a node without it pays nothing for it.
"""

import asyncio
import random
from dataclasses import dataclass

from broker.clock import Clock
from broker.config.broker_config import BrokerConfig
from broker.config.errors import ConfigError
from broker.logs import EventLog
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.metrics.family import Family
from broker.metrics.remote_storage import RemoteStorageMetrics, remote_families, under_first_names
from broker.metrics.topics import BrokerTopicMetrics
from broker.net.peer import TcpConnect
from broker.node.data import DataPart
from broker.node.directories import NodeDirectories
from broker.node.metadata import MetadataPart, Spawn
from broker.runtime.controller.driver import MetadataPublisher
from broker.runtime.controller.dynamic_config import DynamicConfig
from broker.runtime.loop.io_thread import BlockingIo
from broker.runtime.loop.loop_slices import LoopSlices
from broker.runtime.loop.thread_pool import ThreadPool
from broker.runtime.loop.throttle import Throttle
from broker.runtime.remote_log.compaction import CompactionTools
from broker.runtime.remote_log.copying import CopyQuota, CopyTools
from broker.runtime.remote_log.expiration import ExpirationTools
from broker.runtime.remote_log.leader_starts import LeaderStarts, ReadLogStart
from broker.runtime.remote_log.log_starts import LogStarts, NoLogStarts
from broker.runtime.remote_log.manager import HostedPartitions, RemoteLogManager, RemotePools
from broker.runtime.remote_log.offsets import RemoteOffsets
from broker.runtime.remote_log.reads import RemoteReads, RemoteReadSettings
from broker.runtime.remote_log.segments import RemoteSegments
from broker.runtime.remote_log.settings import RemoteLogSettings
from broker.runtime.remote_log.tier_source import RemoteTierSource
from broker.runtime.remote_log.topic_descriptions import TopicDescriptions
from broker.runtime.remote_metadata.client import NetworkMetadataClient
from broker.runtime.remote_metadata.foreign_manager import ForeignRemoteMetadata
from broker.runtime.remote_metadata.led_partitions import HostedMetadataLogs
from broker.runtime.remote_metadata.settings import parse_remote_metadata_settings
from broker.runtime.remote_metadata.snapshots import MetadataSnapshots
from broker.runtime.remote_metadata.topic import TopicRemoteMetadata
from broker.runtime.remote_metadata.topic_creation import MetadataTopicCreation, MetadataTopicOnRequest, TopicCreator
from storage.directories.formatting import random_id
from storage.files import FileSystem, join
from storage.tiered.bucket.partition_objects import PartitionObjects
from storage.tiered.cache.index_cache import DIRECTORY_NAME as INDEX_CACHE
from storage.tiered.cache.index_cache import IndexCache
from storage.tiered.cache.index_invalidation import IndexInvalidatingStorage
from storage.tiered.catalog import metadata_snapshot
from storage.tiered.format.log_start_object import read_log_start
from storage.tiered.lifecycle.segment_rewriting import DIRECTORY as COMPACTION_DIRECTORY
from storage.tiered.loading.remote_metadata import is_on_topic, load_remote_metadata
from storage.tiered.loading.remote_storage import is_object_store, load_remote_storage, open_object_store
from storage.tiered.object_store import ObjectStore
from storage.tiered.remote_metadata import RemoteLogMetadataManager, RemoteMetadataContext
from storage.tiered.remote_storage import RemoteStorageContext, RemoteStorageManager
from storage.tiered.segments.reading import SegmentReader
from storage.tiered.stores.backoff import Backoff

CACHE_DIRECTORY = "remote-log-cache"
"""In the first log directory: what remote storage keeps on this disk for itself."""
_FINISH_TIMEOUT_S = 5.0
"""How long a node that stops waits for copies and deletions under way; what is cut off is collected later."""

_log = EventLog("broker.tiered")


@dataclass(frozen=True, slots=True)
class RemoteStoragePart:
    """Built, not started. `publishers` want to be published to after the partitions, in this order."""

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
    offsets: RemoteOffsets
    leader_starts: LeaderStarts
    descriptions: TopicDescriptions | None
    traffic: BrokerTopicMetrics

    @property
    def publishers(self) -> tuple[MetadataPublisher, ...]:
        on_topic = (self.metadata,) if isinstance(self.metadata, TopicRemoteMetadata) else ()
        descriptions = () if self.descriptions is None else (self.descriptions,)
        return (*on_topic, self.manager, self, *descriptions)

    def topic_creator(self, others: TopicCreator | None) -> TopicCreator | None:
        """For what clients ask for: the topic of metadata, too, where there is one."""
        if not isinstance(self.metadata, TopicRemoteMetadata):
            return others
        return MetadataTopicOnRequest(self.metadata.ensure_topic, others)

    async def run(self) -> None:
        """Copy, delete and find out, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.manager.run())
            group.create_task(self.leader_starts.run())
            if self.descriptions is not None:
                group.create_task(self.descriptions.run())

    def on_metadata(self, _delta: MetadataDelta, _image: MetadataImage) -> None:
        """Sizes may have changed."""
        config = self.config.current
        self.pools.resize(log_settings(config))
        self.reader_pool.resize(config.remote_log_reader_threads, config.remote_log_reader_max_pending_tasks)
        self.follower_pool.resize(config.remote_log_manager_follower_thread_pool_size)
        self.cache.resize(config.remote_log_index_file_cache_total_size_bytes)

    def families(self) -> list[Family]:
        """What there is to see."""
        return [
            *self.manager.metrics.families(),
            *under_first_names([*self.manager.metrics.families(), *self.traffic.families()]),
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
        ]

    async def finish(self) -> None:
        """Before this node gives up what it leads: let what is under way come to its end, if that is soon."""
        try:
            await asyncio.wait_for(self.manager.finish(), _FINISH_TIMEOUT_S)
        except TimeoutError:
            _log.info("What is under way in remote storage is left to be collected")

    async def close(self) -> None:
        """Read, copy and delete nothing any more. After the tasks of the manager have ended."""
        self.reads.close()
        await self.metadata.close()
        await asyncio.gather(
            self.pools.stop(), self.reader_pool.stop(drop_waiting=True), self.follower_pool.stop(drop_waiting=True)
        )
        await asyncio.to_thread(self.storage.close)
        if self.objects is not None:
            await asyncio.to_thread(self.objects.close)


@dataclass(frozen=True, slots=True)
class RemoteStores:
    """Open. `objects`, `beside` and what is read are for storages that keep segments in a store of objects."""

    storage: RemoteStorageManager
    objects: ObjectStore | None
    beside: PartitionObjects | None
    cluster_id: str
    read_log_start: ReadLogStart

    @property
    def log_starts(self) -> LogStarts:
        return NoLogStarts() if self.beside is None else self.beside


def open_remote_stores(fs: FileSystem, config: BrokerConfig, directories: NodeDirectories) -> RemoteStores:
    """Blocks. Raises ConfigError."""
    name, prefix = config.remote_log_storage_manager_class_name, config.remote_log_storage_manager_impl_prefix
    assert name is not None, "checked with the configuration"
    first = config.log_dirs[0]
    context = RemoteStorageContext(
        fs=fs,
        cache_directory=join(first, CACHE_DIRECTORY),
        broker_id=config.node_id,
        cluster_id=directories.cluster_id,
    )
    settings = config.settings_below(prefix)
    try:
        class_path = config.remote_log_storage_manager_class_path
        loaded = load_remote_storage(name, settings, context, local_root="", prefix=prefix, class_path=class_path)
        for warning in loaded.warnings:
            _log.warning(warning)
        if not is_object_store(name):
            return RemoteStores(loaded.manager, None, None, directories.cluster_id, lambda _: None)
        opened = open_object_store(name, settings, context, local_root="", prefix=prefix)
    except ValueError as error:
        raise ConfigError("remote.log.storage.manager.class.name", str(error)) from error
    kept = PartitionObjects(opened.store, opened.keys, cluster_id=directories.cluster_id, broker_id=config.node_id)
    store, keys = opened.store, opened.keys
    return RemoteStores(
        loaded.manager,
        store,
        kept,
        directories.cluster_id,
        lambda partition: read_log_start(store, keys.partition(partition)),
    )


def build_remote(
    fs: FileSystem,
    stores: RemoteStores,
    metadata: MetadataPart,
    data: DataPart,
    clock: Clock,
    io: BlockingIo,
    loop: asyncio.AbstractEventLoop,
    spawn: Spawn,
) -> RemoteStoragePart:
    """Join the parts, and have followers begin behind what is remote. Raises ConfigError."""
    dynamic = metadata.config
    static = dynamic.current
    cache_bytes = static.remote_log_index_file_cache_total_size_bytes
    joint = _Joint(
        fs=fs,
        stores=stores,
        data=data,
        dynamic=dynamic,
        clock=clock,
        io=io,
        loop=loop,
        metadata=_build_metadata(fs, stores.cluster_id, metadata, data, clock, io, loop, spawn),
        cache=IndexCache(fs, join(static.log_dirs[0], INDEX_CACHE), stores.storage, cache_bytes),
        metrics=RemoteStorageMetrics(clock, log_settings(static).copy_quota_window_ms),
        pools=RemotePools.open(log_settings(static)),
    )
    waiting_max = static.remote_log_reader_max_pending_tasks
    followers = static.remote_log_manager_follower_thread_pool_size
    reader_pool = ThreadPool(static.remote_log_reader_threads, waiting_max, "remote-read", clock=clock)
    # Replicas that are behind wait their turn, each with one thing to do: none is refused.
    follower_pool = ThreadPool(followers, None, "remote-follow", clock=clock)
    reader = SegmentReader(stores.storage, joint.cache)
    manager = joint.manager()
    data.partitions.add_listener(manager)
    leader_starts = joint.leader_starts()
    data.partitions.use_tier(leader_starts)
    descriptions = joint.descriptions()
    if descriptions is not None:
        data.partitions.add_listener(descriptions)
    data.fetchers.use_tier(joint.tier_source(follower_pool))
    return RemoteStoragePart(
        dynamic,
        stores.storage,
        stores.objects,
        joint.cache,
        joint.metadata,
        manager,
        joint.pools,
        reader_pool,
        follower_pool,
        joint.reads(reader, reader_pool),
        joint.offsets(reader, reader_pool),
        leader_starts,
        descriptions,
        data.partitions.traffic,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Joint:
    """What the parts share, and how each is made of it."""

    fs: FileSystem
    stores: RemoteStores
    data: DataPart
    dynamic: DynamicConfig
    clock: Clock
    io: BlockingIo
    loop: asyncio.AbstractEventLoop
    metadata: RemoteLogMetadataManager
    cache: IndexCache
    metrics: RemoteStorageMetrics
    pools: RemotePools

    def settings(self) -> RemoteLogSettings:
        """As they are now."""
        return log_settings(self.dynamic.current)

    def manager(self) -> RemoteLogManager:
        """Copies, expires and compacts. What deletes segments has the cache of indexes forget them."""
        static = self.dynamic.current
        storage = IndexInvalidatingStorage(self.stores.storage, self.cache)
        quota = CopyQuota(self.clock, self.settings, self.metrics)
        copying = self._copying(storage, quota)
        compaction = self._compaction(storage, quota)
        expiration = ExpirationTools(
            segments=self._segments(storage, self.pools.expiration),
            pool=self.pools.expiration,
            log_starts=self.stores.log_starts,
            remember_start=lambda _log: self.io.submit(self.data.log_dirs.checkpoints.write_log_starts),
            clock=self.clock,
            settings=self.settings,
            random=random.random,
            copying=lambda: (*copying.copying.values(), *compaction.compacting.values()),
            slices=LoopSlices(self.clock),
        )
        return RemoteLogManager(
            HostedPartitions(self.data.partitions),
            self.metadata,
            self.metadata,
            copying,
            expiration,
            self.metrics,
            self.loop,
            compaction if static.log_cleaner_enable else None,
        )

    def _segments(self, storage: RemoteStorageManager, pool: ThreadPool) -> RemoteSegments:
        return RemoteSegments(self.dynamic.current.node_id, self.metadata, storage, pool, self.clock, self.metrics)

    def _copying(self, storage: RemoteStorageManager, quota: CopyQuota) -> CopyTools:
        return CopyTools(
            fs=self.fs,
            segments=self._segments(storage, self.pools.copier),
            quota=quota,
            clock=self.clock,
            settings=self.settings,
            new_id=random_id,
            random=random.random,
        )

    def _compaction(self, storage: RemoteStorageManager, quota: CopyQuota) -> CompactionTools:
        static = self.dynamic.current
        return CompactionTools(
            fs=self.fs,
            directory=join(static.log_dirs[0], COMPACTION_DIRECTORY),
            storage=storage,
            segments=self._segments(storage, self.pools.compaction),
            pool=self.pools.compaction,
            quota=quota,
            throttle=Throttle(self.clock, lambda: self.dynamic.current.log_cleaner_io_max_bytes_per_second),
            dedupe_buffer_bytes=static.log_cleaner_dedupe_buffer_size,
            load_factor=static.log_cleaner_io_buffer_load_factor,
            clock=self.clock,
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
            self.loop,
            self.settings,
            random.random,
        )

    def descriptions(self) -> TopicDescriptions | None:
        """None where there is no place for them beside the segments."""
        beside, pool = self.stores.beside, self.pools.expiration
        if beside is None:
            return None
        return TopicDescriptions(
            beside, self.data.partitions, self.stores.cluster_id, pool, self.loop, self.settings, random.random
        )

    def tier_source(self, pool: ThreadPool) -> RemoteTierSource:
        return RemoteTierSource(
            self.metadata,
            self.stores.storage,
            pool,
            self.loop,
            skips_remote=lambda: self.dynamic.current.follower_fetch_last_tiered_offset_enable,
        )

    def reads(self, reader: SegmentReader, pool: ThreadPool) -> RemoteReads:
        static = self.dynamic.current
        window_s = static.remote_log_manager_fetch_quota_window_size_seconds
        return RemoteReads(
            reader,
            self.metadata,
            pool,
            self.loop,
            self.data.deadlines,
            self.clock,
            lambda: read_settings(self.dynamic.current),
            quota_window_ms=static.remote_log_manager_fetch_quota_window_num * window_s * 1000,
        )

    def offsets(self, reader: SegmentReader, pool: ThreadPool) -> RemoteOffsets:
        return RemoteOffsets(
            reader,
            self.metadata,
            pool,
            self.loop,
            self.data.deadlines,
            lambda: self.dynamic.current.remote_list_offsets_request_timeout_ms,
        )


def _build_metadata(
    fs: FileSystem,
    cluster_id: str,
    metadata: MetadataPart,
    data: DataPart,
    clock: Clock,
    io: BlockingIo,
    loop: asyncio.AbstractEventLoop,
    spawn: Spawn,
) -> RemoteLogMetadataManager:
    """Raises ConfigError."""
    if is_on_topic(metadata.config.current.remote_log_metadata_manager_class_name):
        return _build_topic_metadata(fs, metadata, data, clock, io, loop, spawn)
    return _load_metadata(cluster_id, metadata)


def _load_metadata(cluster_id: str, metadata: MetadataPart) -> ForeignRemoteMetadata:
    """Somebody's own. Raises ConfigError."""
    config = metadata.config.current
    listener = config.remote_log_metadata_manager_listener_name or config.inter_broker_listener_name

    def bootstrap_server() -> str | None:
        broker = metadata.cache.image.brokers.get(config.node_id)
        found = None if broker is None else broker.endpoints.get(listener)
        return None if found is None else f"{found.host}:{found.port}"

    try:
        return ForeignRemoteMetadata(
            load_remote_metadata(
                config.remote_log_metadata_manager_class_name,
                config.settings_below(config.remote_log_metadata_manager_impl_prefix),
                RemoteMetadataContext(
                    broker_id=config.node_id,
                    cluster_id=cluster_id,
                    log_directory=config.log_dirs[0],
                    bootstrap_server=bootstrap_server,
                ),
                config.remote_log_metadata_manager_class_path,
            )
        )
    except ValueError as error:
        raise ConfigError("remote.log.metadata.manager.class.name", str(error)) from error


def _build_topic_metadata(
    fs: FileSystem,
    metadata: MetadataPart,
    data: DataPart,
    clock: Clock,
    io: BlockingIo,
    loop: asyncio.AbstractEventLoop,
    spawn: Spawn,
) -> TopicRemoteMetadata:
    config = metadata.config.current
    try:
        settings = parse_remote_metadata_settings(config.settings_below(config.remote_log_metadata_manager_impl_prefix))
    except ValueError as error:
        raise ConfigError("remote.log.metadata.manager.impl.prefix", str(error)) from error
    for key in settings.unknown:
        _log.warning("a setting of the keeper of remote metadata is not known", key=key)
    client = NetworkMetadataClient(
        config.node_id,
        metadata.cache,
        settings,
        clock,
        loop,
        TcpConnect(loop),
        listener=config.remote_log_metadata_manager_listener_name or config.inter_broker_listener_name,
    )
    creation = MetadataTopicCreation(
        metadata.forwarding_channel,
        metadata.cache,
        settings,
        loop,
        data.deadlines,
        voter_count=lambda: len(metadata.quorum.driver.core.voters.ids),
        spawn=spawn,
    )
    return TopicRemoteMetadata(
        client,
        creation,
        MetadataSnapshots(fs, join(config.log_dirs[0], metadata_snapshot.DIRECTORY), io),
        HostedMetadataLogs(data.partitions, clock),
        loop,
        data.deadlines,
        settings,
    )


def log_settings(config: BrokerConfig) -> RemoteLogSettings:
    """For what copies and deletes."""
    window = config.remote_log_manager_copy_quota_window_num * config.remote_log_manager_copy_quota_window_size_seconds
    return RemoteLogSettings(
        copier_threads=config.remote_log_manager_copier_thread_pool_size,
        expiration_threads=config.remote_log_manager_expiration_thread_pool_size,
        follower_threads=config.remote_log_manager_follower_thread_pool_size,
        task_interval_ms=config.remote_log_manager_task_interval_ms,
        backoff=Backoff(
            config.remote_log_manager_task_retry_backoff_ms,
            config.remote_log_manager_task_retry_backoff_max_ms,
            config.remote_log_manager_task_retry_jitter,
        ),
        custom_metadata_max_bytes=config.remote_log_metadata_custom_metadata_max_bytes,
        copy_bytes_per_second=config.remote_log_manager_copy_max_bytes_per_second,
        copy_quota_window_ms=window * 1000,
        remover_interval_ms=config.ottla_remote_partition_remover_task_interval_ms,
        grace_ms=config.ottla_remote_log_collection_grace_ms,
        unknown_topic_retention_ms=config.ottla_remote_log_unknown_topic_retention_ms,
    )


def read_settings(config: BrokerConfig) -> RemoteReadSettings:
    """For what consumers read."""
    return RemoteReadSettings(
        wait_max_ms=config.remote_fetch_max_wait_ms,
        reads_max=config.remote_log_reader_threads + config.remote_log_reader_max_pending_tasks,
        bytes_per_second=config.remote_log_manager_fetch_max_bytes_per_second,
        kept_ms=config.ottla_remote_fetch_result_retention_ms,
        kept_bytes=config.ottla_remote_fetch_result_max_bytes,
        hole_patience_ms=config.ottla_remote_log_hole_patience_ms,
    )
