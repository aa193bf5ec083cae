"""The metadata side of a node: the quorum on its log, the controller on the quorum, and who reads what they agree."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from broker.clock import Clock
from broker.config.broker_config import BrokerConfig
from broker.metadata.controller import Controller, OwnBroker
from broker.metadata.state import ControllerSettings
from broker.node.directories import NodeDirectories, read_bootstrap
from broker.runtime.config_schema import KafkaConfigSchema
from broker.runtime.controller_channel import LocalControllerChannel
from broker.runtime.controller_driver import ControllerDriver
from broker.runtime.dynamic_config import DynamicConfig
from broker.runtime.io_thread import BlockingIo
from broker.runtime.metadata_cache import MetadataCache
from broker.runtime.quorum import KRAFT_VERSION, METADATA_LOG_NAME, ListenerEndpoint, SingleVoterQuorum, Voter
from broker.runtime.topic_creation import TopicCreation
from protocol.primitives import Uuid
from storage.config import CleanupPolicy, LogConfig
from storage.files import FileSystem, join
from storage.formatting import random_id
from storage.log import Log

Spawn = Callable[[Coroutine[Any, Any, None]], object]
METADATA_TOPIC = METADATA_LOG_NAME.rpartition("-")[0]

# Without snapshots the log is never trimmed, and a lone voter needs no traffic to keep its watermark moving: records
# that say nothing, which Kafka writes every metadata.max.idle.interval.ms, would only make every start longer.
NO_IDLE_RECORDS_MS = 0


class ActiveController:
    """Which node the active controller is, for handlers."""

    def __init__(self, driver: ControllerDriver) -> None:
        self._driver = driver

    @property
    def controller_id(self) -> int | None:
        """Its id; None while there is none."""
        return self._driver.leader.leader_id


@dataclass(frozen=True, slots=True)
class MetadataPart:
    """Built, not started. `quorum.start()` begins; publishers are added to `driver` in the order they are told."""

    log: Log
    quorum: SingleVoterQuorum
    driver: ControllerDriver
    cache: MetadataCache
    config: DynamicConfig
    topics: TopicCreation
    active_controller: ActiveController

    def close(self) -> None:
        """Decide and commit nothing any more, and close the log. Blocks for an fsync."""
        self.driver.close()
        self.quorum.close()
        self.log.close(clean=True)


def build_metadata(
    fs: FileSystem,
    config: BrokerConfig,
    directories: NodeDirectories,
    incarnation_id: Uuid,
    clock: Clock,
    io: BlockingIo,
    loop: asyncio.AbstractEventLoop,
    spawn: Spawn,
    on_fatal: Callable[[BaseException], None],
) -> MetadataPart:
    """Open the metadata log and put the quorum and the controller on it. Blocks. Raises StorageError."""
    directory = join(directories.metadata_directory, METADATA_LOG_NAME)
    log = Log.open(fs, directory, _log_config(config), now_ms=clock.now_ms(), clean_shutdown=False)
    quorum = SingleVoterQuorum(
        log,
        fs=fs,
        directory=directory,
        voter=_voter(config, directories.metadata_directory_id),
        clock=clock,
        io=io,
        on_fatal=on_fatal,
    )
    controller = Controller(
        _settings(config, directories.cluster_id), KafkaConfigSchema(config), random=random.Random(), new_id=random_id
    )
    driver = ControllerDriver(
        controller,
        quorum,
        clock=clock,
        loop=loop,
        bootstrap=read_bootstrap(fs, directories.metadata_directory),
        own_broker=OwnBroker(config.node_id, incarnation_id),
    )
    quorum.add_listener(driver)
    cache, dynamic = MetadataCache(), DynamicConfig(config)
    driver.add_publisher(cache)
    driver.add_publisher(dynamic)
    topics = TopicCreation(LocalControllerChannel(driver), cache, config, voter_count=1, spawn=spawn)
    return MetadataPart(log, quorum, driver, cache, dynamic, topics, ActiveController(driver))


def _log_config(config: BrokerConfig) -> LogConfig:
    """The metadata log's own settings; nothing is ever deleted from it by age or size."""
    return LogConfig(
        segment_bytes=config.internal_metadata_log_segment_bytes or config.metadata_log_segment_bytes,
        segment_ms=config.metadata_log_segment_ms,
        retention_bytes=-1,
        retention_ms=-1,
        cleanup_policy=frozenset({CleanupPolicy.DELETE}),
        max_message_bytes=config.internal_metadata_max_batch_size_in_bytes,
    )


def _voter(config: BrokerConfig, directory_id: Uuid) -> Voter:
    endpoints = tuple(
        ListenerEndpoint(listener.name, listener.host or "localhost", listener.port)
        for listener in config.controller_listeners
    )
    return Voter(config.node_id, directory_id, endpoints)


def _settings(config: BrokerConfig, cluster_id: str) -> ControllerSettings:
    return ControllerSettings(
        cluster_id=cluster_id,
        node_id=config.node_id,
        default_replication_factor=config.default_replication_factor,
        default_partition_count=config.num_partitions,
        session_timeout_ms=config.broker_session_timeout_ms,
        kraft_version=KRAFT_VERSION,
        max_idle_interval_ms=NO_IDLE_RECORDS_MS,
        leader_imbalance_check_interval_ms=config.leader_imbalance_check_interval_seconds * 1000,
        auto_leader_rebalance=config.auto_leader_rebalance_enable,
        unclean_election_interval_ms=config.unclean_leader_election_interval_ms,
    )
