"""Controller, quorum, lifecycle and their helpers on one event loop, as in a single node."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from broker.clock import SystemClock
from broker.config.load import load_config
from broker.metadata.controller.configs import AlterOperation, ConfigOperation
from broker.metadata.controller.controller import Controller, LocalBroker
from broker.metadata.controller.producer_ids import BLOCK_SIZE, ProducerIdBlock
from broker.metadata.controller.state import ConfigLayers, ControllerSettings
from broker.metadata.image.config_image import ConfigResource, ResourceType
from broker.metadata.image.features import SUPPORTED_FEATURES, bootstrap_records
from broker.metadata.image.topic_names import CLUSTER_METADATA_TOPIC, GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from broker.quorum.core import QuorumCore
from broker.quorum.identity import Instant
from broker.quorum.settings import QuorumSettings
from broker.runtime.controller.auto_topic_creation import AutoTopicCreation
from broker.runtime.controller.broker_lifecycle import BrokerIdentity, BrokerLifecycle, BrokerState
from broker.runtime.controller.channel import LocalControllerChannel
from broker.runtime.controller.config_schema import KafkaConfigSchema
from broker.runtime.controller.driver import ControllerDriver
from broker.runtime.controller.loggers import ProcessLoggers
from broker.runtime.controller.metadata_cache import MetadataCache
from broker.runtime.controller.producer_ids import ControllerBlocks, ProducerIds
from broker.runtime.quorum.driver import QuorumDriver
from broker.runtime.quorum.metadata_log import RaftMetadataLog
from broker.runtime.quorum.replica_io import ReplicaIo
from broker.runtime.quorum.state_file import QuorumStateFile
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerId
from storage.config import LogConfig
from tests.broker.metadata.images import CLUSTER_ID, LISTENER, directory_of, endpoint, incarnation_of, uuid
from tests.broker.runtime.quorum.quorum_node import DIRECTORY, Unanswered, format_voters
from tests.broker.runtime.quorum.quorum_trio import voter
from tests.support.fakes.inline_io import InlineIo
from tests.support.fakes.memory_files import MemoryFileSystem, checked
from tests.support.fakes.runtimes import make_runtime

CONFIG = load_config(None, (), {})[0]


class LoneNode:
    """The metadata components of a node, wired by hand."""

    def __init__(self, fs: MemoryFileSystem, incarnation: int) -> None:
        clock, loop = SystemClock(), asyncio.get_running_loop()
        own = voter(1)
        if not checked(fs).exists(DIRECTORY):
            format_voters(fs, own)
        self.log = RaftMetadataLog.open(checked(fs), DIRECTORY, LogConfig(), clock.now_ms())
        self.failures: list[BaseException] = []
        state_file = QuorumStateFile(checked(fs), DIRECTORY)
        settings = QuorumSettings(key=own.key, cluster_id=CLUSTER_ID, can_vote=True, listeners=own.listeners)
        recovered = replace(self.log.recovered, election=state_file.read())
        quorum = QuorumDriver(
            QuorumCore(settings, recovered, Random(incarnation), Instant(clock.monotonic_ms(), clock.now_ms())),
            ReplicaIo(self.log, state_file, Unanswered()),
            make_runtime(loop, clock=clock),
            on_fatal=self.failures.append,
        )
        random = Random(incarnation)
        controller = Controller(
            ControllerSettings(CLUSTER_ID, node_id=1),
            KafkaConfigSchema(CONFIG),
            random=random,
            new_id=lambda: uuid(random.randrange(1, 1 << 60)),
        )
        incarnation_id = incarnation_of(1, incarnation)
        self.driver = ControllerDriver(
            controller,
            quorum,
            make_runtime(loop, clock=clock, io=InlineIo(loop)),
            bootstrap=bootstrap_records(),
            local_broker=LocalBroker(BrokerId(1), incarnation_id),
        )
        self.cache = MetadataCache()
        identity = BrokerIdentity(
            BrokerId(1), CLUSTER_ID, incarnation_id, {LISTENER: endpoint(1)}, SUPPORTED_FEATURES, (directory_of(1),)
        )
        self.lifecycle = BrokerLifecycle(identity, LocalControllerChannel(self.driver), clock=clock)
        self.tasks: set[asyncio.Task[None]] = set()
        self.topics = AutoTopicCreation(
            LocalControllerChannel(self.driver), self.cache, CONFIG, voter_count=lambda: 1, spawn=self.spawn
        )
        for publisher in (self.cache, self.lifecycle):
            self.driver.add_publisher(publisher)
        quorum.add_listener(self.driver)
        self.quorum = quorum

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.add(asyncio.get_running_loop().create_task(work))

    async def background(self) -> None:
        """Wait for the background tasks."""
        while self.tasks:
            await self.tasks.pop()


@asynccontextmanager
async def running(fs: MemoryFileSystem, incarnation: int = 1) -> AsyncIterator[LoneNode]:
    """Run a node; kill it at the end."""
    node = LoneNode(fs, incarnation)
    active = asyncio.Event()
    node.driver.watch_activation(active.set)
    node.quorum.start()
    async with asyncio.timeout(60):
        await active.wait()
        task = asyncio.get_running_loop().create_task(node.lifecycle.run())
        await node.lifecycle.wait_caught_up()
        node.lifecycle.become_ready()
        await node.lifecycle.wait_unfenced()
        yield node
        task.cancel()
        node.driver.close()
        node.quorum.close()
    assert node.failures == []


async def test_killed_node_serves_again_at_once_with_all_metadata() -> None:
    fs = MemoryFileSystem()
    async with running(fs) as node:
        node.topics.request_topic("t")
        await node.background()
        first = node.cache.image.topics.by_name("t")
        assert first is not None
    async with running(fs, incarnation=2) as node:
        again = node.cache.image.topics.by_name("t")
        assert again is not None
        assert again.id == first.id
        assert again.partitions[0].leader == 1
        assert again.partitions[0].leader_epoch > first.partitions[0].leader_epoch
        assert node.lifecycle.state is BrokerState.RUNNING


class TestTopicCreation:
    async def test_topic_creation_runs_once_per_name(self) -> None:
        async with running(MemoryFileSystem()) as node:
            for _ in range(5):
                node.topics.request_topic("t")
            assert len(node.tasks) == 1
            await node.background()
            assert node.cache.image.topics.names() == ["t"]

    async def test_internal_topics_have_their_own_settings_on_one_broker(self) -> None:
        async with running(MemoryFileSystem()) as node:
            node.topics.ensure_internal_topic(GROUP_OFFSETS_TOPIC)
            node.topics.request_topic(TRANSACTION_STATE_TOPIC)
            await node.background()
            offsets = node.cache.image.topics.by_name(GROUP_OFFSETS_TOPIC)
            assert offsets is not None
            assert (offsets.partition_count, len(offsets.partitions[0].replicas)) == (50, 1)
            configs = node.cache.image.configs
            assert configs.topic(GROUP_OFFSETS_TOPIC)["cleanup.policy"] == "compact"
            assert configs.topic(TRANSACTION_STATE_TOPIC)["min.insync.replicas"] == "1"
            node.topics.ensure_internal_topic(GROUP_OFFSETS_TOPIC)
            assert not node.tasks, "the topic exists"

    async def test_unknown_internal_topic_is_refused(self) -> None:
        async with running(MemoryFileSystem()) as node:
            node.topics.request_topic(CLUSTER_METADATA_TOPIC)
            node.topics.request_topic("bad name")
            await node.background()
            assert node.cache.image.topics.names() == []
            with pytest.raises(KafkaError):
                node.topics.ensure_internal_topic("t")

    async def test_failed_creation_can_be_retried(self) -> None:
        async with running(MemoryFileSystem()) as node:
            node.driver.close()
            node.topics.request_topic("t")
            await node.background()
            node.topics.request_topic("t")
            assert len(node.tasks) == 1
            await node.background()


class TestProducerIds:
    async def test_producer_ids_are_unique_across_a_kill(self) -> None:
        fs = MemoryFileSystem()
        given: list[int] = []
        for incarnation in (1, 2):
            async with running(fs, incarnation) as node:
                ids = ProducerIds(ControllerBlocks(LocalControllerChannel(node.driver), node.lifecycle, 1))
                given += [await ids.next_id() for _ in range(BLOCK_SIZE + 10)]
                await asyncio.sleep(0)
        assert len(set(given)) == len(given) == 2 * (BLOCK_SIZE + 10)
        assert given[:3] == [0, 1, 2]

    async def test_waiting_callers_share_one_request(self) -> None:
        class Source:
            allocations = 0

            async def allocate(self) -> ProducerIdBlock:
                self.allocations += 1
                await asyncio.sleep(0)
                return ProducerIdBlock(1000 * self.allocations, 10)

        source = Source()
        ids = ProducerIds(source)
        given = await asyncio.gather(*(ids.next_id() for _ in range(8)))
        assert sorted(given) == list(range(1000, 1008))
        assert source.allocations == 1

    async def test_missing_controller_is_retriable(self) -> None:
        class Source:
            async def allocate(self) -> ProducerIdBlock:
                raise KafkaError(ErrorCode.NOT_CONTROLLER)

        with pytest.raises(KafkaError) as caught:
            await ProducerIds(Source()).next_id()
        assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class TestConfigSchema:
    NOTHING = ConfigLayers({}, {}, {})

    def test_topic_values_follow_the_layers(self) -> None:
        schema = KafkaConfigSchema(load_config(None, ("min.insync.replicas=2",), {})[0])
        key = "min.insync.replicas"
        assert schema.topic_value(key, self.NOTHING) == "2"
        assert schema.topic_value(key, ConfigLayers({}, {}, {key: "3"})) == "3"
        assert schema.topic_value(key, ConfigLayers({}, {key: "4"}, {key: "3"})) == "4"
        assert schema.topic_value(key, ConfigLayers({key: "5"}, {}, {key: "3"})) == "5"
        assert schema.topic_value(key, self.NOTHING) == "2"
        assert schema.topic_value("unclean.leader.election.enable", ConfigLayers({}, {}, {})) == "false"

    @pytest.mark.parametrize(
        ("resource", "configs", "code"),
        [
            (ConfigResource(ResourceType.TOPIC, "t"), {"retention.ms": "x"}, ErrorCode.INVALID_CONFIG),
            (ConfigResource(ResourceType.TOPIC, "t"), {"nonsense": "1"}, ErrorCode.INVALID_CONFIG),
            (ConfigResource(ResourceType.TOPIC, ""), {}, ErrorCode.INVALID_REQUEST),
            (ConfigResource(ResourceType.TOPIC, "bad name"), {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
            (ConfigResource(ResourceType.GROUP, "g"), {"nonsense": "1"}, ErrorCode.INVALID_CONFIG),
            (ConfigResource(ResourceType.GROUP, ""), {}, ErrorCode.INVALID_REQUEST),
            (ConfigResource(ResourceType.CLIENT_METRICS, "m"), {"nonsense": "1"}, ErrorCode.INVALID_REQUEST),
            (ConfigResource(ResourceType.CLIENT_METRICS, "m"), {"match": "x"}, ErrorCode.INVALID_CONFIG),
            (ConfigResource(ResourceType.CLIENT_METRICS, "m"), {"interval.ms": "1"}, ErrorCode.INVALID_REQUEST),
            (ConfigResource(ResourceType.CLIENT_METRICS, "m"), {"interval.ms": "x"}, ErrorCode.INVALID_CONFIG),
        ],
    )
    def test_invalid_operations_are_refused(
        self, resource: ConfigResource, configs: dict[str, str], code: ErrorCode
    ) -> None:
        with pytest.raises(KafkaError) as caught:
            KafkaConfigSchema(CONFIG).validate(resource, configs, {}, self.NOTHING)
        assert caught.value.code is code

    @pytest.mark.parametrize(
        ("topic", "configs", "is_tiered"),
        [
            ("t", {}, True),
            ("t", {"retention.ms": "5000"}, True),
            ("t", {"remote.storage.enable": "false"}, False),
            ("t", {"remote.storage.enable": "true"}, False),
            ("t", {"cleanup.policy": "compact"}, False),
            ("__consumer_offsets", {}, False),
        ],
    )
    def test_tiered_default_is_pinned_at_creation(self, topic: str, configs: dict[str, str], is_tiered: bool) -> None:
        storage = ("remote.log.storage.system.enable=true", "remote.log.storage.manager.class.name=local")
        by_default = load_config(None, (*storage, "ottla.log.remote.storage.enable=true"), {})[0]
        kept = KafkaConfigSchema(by_default).configs_stored_at_creation(topic, configs, self.NOTHING)
        assert kept == ({"remote.storage.enable": "true"} if is_tiered else {})
        assert KafkaConfigSchema(CONFIG).configs_stored_at_creation(topic, configs, self.NOTHING) == {}

    def test_schema_knows_lists_and_defaults(self) -> None:
        schema = KafkaConfigSchema(CONFIG)
        assert schema.is_list(ResourceType.TOPIC, "cleanup.policy")
        assert not schema.is_list(ResourceType.TOPIC, "retention.ms")
        assert not schema.is_list(ResourceType.TOPIC, "nonsense")
        assert schema.default_of(ResourceType.TOPIC, "cleanup.policy") == "delete"
        effective = {
            each.name: each for each in schema.effective_topic_configs(ConfigLayers({"flush.ms": "1"}, {}, {}))
        }
        assert (effective["flush.ms"].value, effective["flush.ms"].source) == ("1", 1)
        assert effective["retention.ms"].source == 5


class TestLoggerLevels:
    def operation(self, name: str, operation: int, value: str | None = None) -> list[ConfigOperation]:
        return [ConfigOperation(name, operation, value)]

    def test_levels_are_set_shown_and_deleted(self) -> None:
        logging.getLogger("ottla.test.levels")
        levels = ProcessLoggers()
        levels.alter(self.operation("ottla.test.levels", AlterOperation.SET, "DEBUG"), validate_only=True)
        before = levels.levels()["ottla.test.levels"]
        levels.alter(self.operation("ottla.test.levels", AlterOperation.SET, "DEBUG"), validate_only=False)
        assert levels.levels()["ottla.test.levels"] == "DEBUG"
        levels.alter(self.operation("ottla.test.levels", AlterOperation.DELETE), validate_only=False)
        assert levels.levels()["ottla.test.levels"] == before

    @pytest.mark.parametrize(
        ("name", "operation", "value", "code"),
        [
            ("root", AlterOperation.SET, "LOUD", ErrorCode.INVALID_CONFIG),
            ("ottla.no.such.logger", AlterOperation.SET, "INFO", ErrorCode.INVALID_CONFIG),
            ("root", AlterOperation.DELETE, None, ErrorCode.INVALID_REQUEST),
            ("root", AlterOperation.APPEND, "INFO", ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_invalid_operations_are_refused(
        self, name: str, operation: int, value: str | None, code: ErrorCode
    ) -> None:
        with pytest.raises(KafkaError) as caught:
            ProcessLoggers().alter(self.operation(name, operation, value), validate_only=False)
        assert caught.value.code is code
