"""The data side of a simulated broker: logs, partitions, fetchers and handlers, composed as in `broker.node.data`."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from broker.api.records.fetch import FetchHandler
from broker.api.records.list_offsets import ListOffsetsHandler
from broker.api.records.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from broker.api.records.produce import ProduceHandler
from broker.api.serving.context import RequestContext
from broker.fetch.remote_reads.reads import RemoteReads
from broker.fetch.replica_selector import RackAwareReplicaSelector
from broker.fetch.service import FetchService
from broker.fetch.sessions import FetchSessions
from broker.metadata.image.metadata_image import MetadataImage
from broker.replication.fetch_plan import FetcherSettings, Sender
from broker.runtime.controller.broker_lifecycle import BrokerLifecycle
from broker.runtime.controller.directory_assignments import DirectoryAssignments
from broker.runtime.loop.runtime import Runtime
from broker.runtime.loop.waiters import Deadlines
from broker.runtime.partitions.alter_partition_manager import AlterPartitionManager
from broker.runtime.partitions.broker_view import MetadataBrokerView
from broker.runtime.partitions.hosted_roles import HostedRoles
from broker.runtime.partitions.isr_shrinking import IsrShrinking
from broker.runtime.partitions.log_flusher import LogFlusher
from broker.runtime.partitions.log_operations import StoredLogOperations
from broker.runtime.partitions.log_store import DirectoryFailures, LogStore
from broker.runtime.partitions.log_tasks import LogTasks, LogTaskSettings
from broker.runtime.partitions.offset_lookup import RemoteLookups
from broker.runtime.partitions.registry import Partitions
from broker.runtime.partitions.replica_assignments import ReplicaAssignments
from broker.runtime.replication.replica_fetcher_manager import ReplicaFetcherManager
from protocol.ids import BrokerId
from protocol.messages.fetch import FetchRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from protocol.messages.produce import ProduceRequest
from protocol.primitives import Uuid
from storage.compaction.cleaner import LogCleaner
from storage.config import CleanupPolicy, LogConfig
from storage.directories.checkpoints import TopicPartition
from storage.directories.log_dirs import LogDirs
from storage.directories.removals import PendingRemovals
from tests.simulation.replication.network import LISTENER
from tests.simulation.replication.scenario import Scenario
from tests.simulation.world import SimulatedIo
from tests.support.fakes.runtimes import make_runtime
from tests.support.fakes.transaction_coordinators import FakeCoordinators, make_verifier

if TYPE_CHECKING:
    from tests.simulation.replication.broker import Broker

_SLOTS: Final = 20
_COMPACTION_MS: Final = 150.0
_INTERNAL_SEGMENT_BYTES: Final = 4_000
"""Room for the largest batch of a coordinator: a group with all its members, or the records of a migration."""


class DataPart:
    """The data side of a broker, composed as in `broker.node.data`."""

    def __init__(
        self, broker: "Broker", log_dirs: LogDirs, failures: DirectoryFailures, lifecycle: BrokerLifecycle
    ) -> None:
        scenario, process, node, io = broker.around.scenario, broker.process, broker.node, broker.io
        config_of: Callable[[MetadataImage, str], LogConfig] = partial(log_config, scenario)
        self.process = process
        self.log_dirs = log_dirs
        self.deadlines = Deadlines(process)
        removals = PendingRemovals(node.disk)
        cleaner = LogCleaner(node.disk, dedupe_buffer_bytes=1_000_000, make_durable=log_dirs.checkpoints.make_durable)
        self.store = LogStore(log_dirs, cleaner, removals, io, process, delete_delay_ms=1_000)
        self.store.discard_leftovers()
        flusher = LogFlusher(io, self.deadlines)
        isr_channel = broker.controller_path("isr")
        self.fetchers = ReplicaFetcherManager(
            Runtime(clock=process, loop=process, io=io, files=node.disk, deadlines=self.deadlines, spawn=process.spawn),
            broker,
            broker.cache,
            lambda: Sender(BrokerId(node.id), lifecycle.epoch),
            listener=LISTENER,
            settings=FetcherSettings(
                wait_max_ms=scenario.fetch_wait_max_ms,
                partition_max_bytes=scenario.fetch_partition_max_bytes,
                backoff_ms=scenario.fetch_backoff_ms,
                new_replicas_max=scenario.new_replicas_max,
            ),
            fetcher_count=lambda: scenario.fetchers,
        )
        self.alter_partition_manager = AlterPartitionManager(BrokerId(node.id), isr_channel, lifecycle, process)
        self.partitions = Partitions(
            broker.cache,
            process,
            MetadataBrokerView(BrokerId(node.id), broker.cache, lag_time_max_ms=scenario.lag_time_max_ms),
            StoredLogOperations(self.store, flusher, process),
            HostedRoles(node.id, self.fetchers, self.alter_partition_manager, broker.cache),
        )
        self.replica_assignments = ReplicaAssignments(node.id, self.partitions, self.store, config_of)
        self.isr_shrinking = IsrShrinking(
            self.partitions.roles.isr_updaters, process, self.deadlines, lag_time_max_ms=scenario.lag_time_max_ms
        )
        self.isr_shrinking.start()
        failures.listen(self.partitions.on_directory_failed)
        self.assignments = DirectoryAssignments(
            BrokerId(node.id),
            broker.controller_path("assignments"),
            broker.cache,
            lifecycle,
            self._directory_of,
            process,
        )
        self.partitions.roles.add_listener(self.assignments)
        self.tasks = LogTasks(
            self.partitions, log_dirs, cleaner, removals, flusher, io, process, lambda: LogTaskSettings()
        )
        self._scenario = scenario
        self.handlers = self._build_handlers(io, broker)

    def use_remote_reads(self, remote_reads: RemoteReads, offsets: RemoteLookups, broker: "Broker") -> None:
        """Serve fetches and look-ups of consumers from remote storage too."""
        self.handlers = self._build_handlers(broker.io, broker, remote_reads)
        self.handlers[ListOffsetsRequest] = ListOffsetsHandler(self.partitions, remote=offsets)

    def _build_handlers(
        self, io: SimulatedIo, broker: "Broker", remote_reads: RemoteReads | None = None
    ) -> dict[type, Callable[[Any, RequestContext], Any]]:
        process, random = self.process, Random(f"sessions {broker.node.id} {broker.node.starts}")
        runtime = make_runtime(process, clock=process, io=io, deadlines=self.deadlines)
        verifier = make_verifier(runtime, lambda: broker.cache.image, FakeCoordinators())
        return {
            FetchRequest: FetchHandler(
                FetchService(
                    self.partitions,
                    FetchSessions(_SLOTS, lambda: random.randint(1, 2**31 - 1)),
                    runtime,
                    max_bytes=10_000_000,
                    replica_selector=RackAwareReplicaSelector(lambda: broker.cache.image, process),
                    remote_reads=remote_reads,
                )
            ),
            ProduceRequest: ProduceHandler(self.partitions, runtime, verifier),
            ListOffsetsRequest: ListOffsetsHandler(self.partitions),
            OffsetForLeaderEpochRequest: OffsetForLeaderEpochHandler(self.partitions),
        }

    def start_tasks(self) -> None:
        """Start the maintenance of logs, at short intervals."""
        scenario, tasks = self._scenario, self.tasks
        for job, interval_ms in (
            (tasks.checkpoint_high_watermarks, scenario.checkpoint_interval_ms),
            (tasks.checkpoint_recovery_points, 4 * scenario.checkpoint_interval_ms),
            (tasks.checkpoint_log_starts, 4 * scenario.checkpoint_interval_ms),
            (tasks.apply_retention, scenario.retention_interval_ms),
            (tasks.remove_files, 1_000 * scenario.pace),
        ):
            self.process.spawn(self._repeat(job, interval_ms))
        if scenario.compacts:
            self.process.spawn(self._repeat(tasks.compact, _COMPACTION_MS * scenario.pace))

    async def _repeat(self, job: Callable[[], Any], interval_ms: float) -> None:
        while not self.is_closed:
            await asyncio.sleep(interval_ms / 1000)
            if not self.is_closed:
                await job()

    is_closed = False

    def close_replication(self) -> None:
        """Stop fetchers, ISR changes and responses."""
        self.is_closed = True
        self.assignments.close()
        self.fetchers.close()
        self.isr_shrinking.close()
        self.alter_partition_manager.close()
        self.deadlines.close()

    def _directory_of(self, topic: str, index: int) -> Uuid | None:
        directory = self.log_dirs.directory_of(TopicPartition(topic, index))
        return None if directory is None else directory.id


def log_config(scenario: Scenario, image: MetadataImage, topic: str) -> LogConfig:
    """Return a topic's log configuration: that of the metadata, with the scenario's sizes."""
    configs = image.configs.topic(topic)
    base = _base_config(scenario)
    if configs.get("cleanup.policy") == "compact":
        base = replace(
            base,
            cleanup_policy=frozenset({CleanupPolicy.COMPACT}),
            segment_bytes=min(600, scenario.segment_bytes),
            min_cleanable_dirty_ratio=0.01,
            delete_retention_ms=int(configs.get("delete.retention.ms", "86400000")),
        )
    if topic.startswith("__"):
        base = replace(base, segment_bytes=_INTERNAL_SEGMENT_BYTES)
    return replace(
        base,
        min_insync_replicas=int(configs.get("min.insync.replicas", "1")),
        unclean_leader_election_enable=configs.get("unclean.leader.election.enable") == "true",
        remote_storage_enable=configs.get("remote.storage.enable") == "true",
        retention_bytes=int(configs.get("retention.bytes", "-1")),
        local_retention_bytes=int(configs.get("local.retention.bytes", "-2")),
    )


def _base_config(scenario: Scenario) -> LogConfig:
    return LogConfig(
        segment_bytes=scenario.segment_bytes,
        index_interval_bytes=100,
        flush_messages=scenario.flush_messages,
        retention_ms=-1,
        file_delete_delay_ms=500,
        message_timestamp_after_max_ms=2**63 - 1,
        verify_transactions=True,
    )
