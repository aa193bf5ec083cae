"""Ottla's broker-to-controller channel with an Apache Kafka controller: its own and forwarded requests."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from broker.api.pipeline.permission import Unrestricted
from broker.api.serving.forwarding import ForwardingHandler
from broker.api.serving.route import route
from broker.metadata.image.features import SUPPORTED_FEATURES
from broker.net.peer import NetworkClient, SocketAddress, TcpConnect
from broker.net.request import ConnectionInfo, Request
from broker.runtime.controller.channel import ControllerChannel
from broker.runtime.controller.controller_router import ControllerLocation, ControllerRouter
from broker.runtime.controller.driver import ControllerDriver
from broker.runtime.controller.forwarding import Forwarder
from protocol.api_keys import API_BY_KEY, ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.headers import RequestHeader
from protocol.messages import Message
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from protocol.messages.controller_registration import ControllerRegistrationRequest
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.unregister_broker import UnregisterBrokerRequest
from storage.directories.formatting import random_id
from tests.support.kafka.apache_kafka import apache_kafka, unavailable_reason

pytestmark = pytest.mark.interop

APACHE_ID, OWN_ID = 1, 7
CLIENT = ConnectionInfo("c", "PLAINTEXT", "192.168.7.1", 50_000)


class Apache:
    """A running Apache Kafka node: its controller endpoint and cluster id."""

    def __init__(self, directory: Path) -> None:
        settings = _properties(directory / "server.properties")
        port = settings["listeners"].rpartition(":")[2]
        self.controller = SocketAddress("127.0.0.1", int(port))
        self.cluster_id = _properties(directory / "data" / "meta.properties")["cluster.id"]


def _properties(path: Path) -> dict[str, str]:
    lines = (line.partition("=") for line in path.read_text().splitlines() if not line.startswith("#"))
    return {key: value.replace("\\", "") for key, _, value in lines}


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apache]:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("controller")
    with apache_kafka(directory):
        yield Apache(directory)


class OwnBroker:
    """The controller channel of an Ottla broker."""

    is_active = False

    def __init__(self, apache: Apache) -> None:
        loop = asyncio.get_running_loop()
        self.apache = apache
        self.peers = NetworkClient(loop, TcpConnect(loop), client_id=str(OWN_ID))
        router = ControllerRouter(OWN_ID, self, lambda: ControllerLocation(APACHE_ID, apache.controller), self.peers)
        self.channel = ControllerChannel(cast(ControllerDriver, self), router)
        self.forwarding = Forwarder(router)
        self.epoch = -1

    async def register(self) -> None:
        """Register with a new incarnation id."""
        request = BrokerRegistrationRequest(
            broker_id=OWN_ID,
            cluster_id=self.apache.cluster_id,
            incarnation_id=random_id(),
            listeners=[Listener("PLAINTEXT", "127.0.0.1", 19_092, 0)],
            features=[Feature(name, levels.minimum, levels.maximum) for name, levels in SUPPORTED_FEATURES.items()]
            + [Feature(name, 0, 9) for name in ("transaction.version", "share.version", "streams.version")],
            log_dirs=[random_id()],
        )
        self.epoch = (await self.channel.register_broker(request)).broker_epoch

    async def forward(self, request: Message, version: int | None = None) -> Any:
        """Forward a client's request and return the response that the client would get."""
        key = ApiKey(request.API_KEY)
        api = API_BY_KEY[key]
        header = RequestHeader(key, api.max_version if version is None else version, 11, "app")
        asked = Request(header, memoryview(b""), CLIENT, 0)
        context: Any = type("Context", (), {"request": asked, "connection": CLIENT})()
        row = route(key, lambda *_: None, Unrestricted("test"))
        return await ForwardingHandler(row, self.forwarding)(request, context)


@asynccontextmanager
async def own_broker(apache: Apache) -> AsyncIterator[OwnBroker]:
    broker = OwnBroker(apache)
    try:
        yield broker
    finally:
        broker.peers.close()


async def test_broker_registers_heartbeats_and_unregisters(apache: Apache) -> None:
    async with own_broker(apache) as broker:
        await broker.register()
        assert broker.epoch > 0
        ready = BrokerHeartbeatRequest(OWN_ID, broker.epoch, broker.epoch + 100, want_fence=False)
        answer = await broker.channel.heartbeat(ready)
        assert (answer.is_caught_up, answer.is_fenced, answer.should_shut_down) == (True, False, False)
        leaving = BrokerHeartbeatRequest(OWN_ID, broker.epoch, broker.epoch + 100, want_shut_down=True)
        assert (await broker.channel.heartbeat(leaving)).should_shut_down
        assert (await broker.forward(UnregisterBrokerRequest(OWN_ID))).error_code == ErrorCode.NONE
        with pytest.raises(KafkaError, match="STALE_BROKER_EPOCH"):
            await broker.channel.heartbeat(ready)


async def test_kafka_answers_other_broker_requests(apache: Apache) -> None:
    async with own_broker(apache) as broker:
        await broker.register()
        granted = await broker.channel.allocate_producer_ids(AllocateProducerIdsRequest(OWN_ID, broker.epoch))
        assert granted.producer_id_len == 1_000
        assigned = await broker.channel.assign_directories(AssignReplicasToDirsRequest(OWN_ID, broker.epoch))
        assert assigned.error_code == ErrorCode.NONE
        altered = await broker.channel.alter_partitions(AlterPartitionRequest(OWN_ID, broker.epoch))
        assert altered.error_code == ErrorCode.NONE
        created = await broker.channel.create_topics(CreateTopicsRequest([CreatableTopic("direct", 1, 1)]))
        assert [(topic.name, topic.error_code) for topic in created.topics] == [("direct", ErrorCode.NONE)]
        registered = await broker.channel.register_controller(ControllerRegistrationRequest(99, random_id()))
        assert registered.error_code == ErrorCode.NONE, "Kafka does not check whether the controller is a voter"


async def test_registration_waits_for_the_former_incarnation(apache: Apache) -> None:
    async with own_broker(apache) as broker:
        await broker.register()
        await broker.channel.heartbeat(BrokerHeartbeatRequest(OWN_ID, broker.epoch, broker.epoch + 100))
        with pytest.raises(KafkaError, match="DUPLICATE_BROKER_REGISTRATION"):
            await broker.register()
        fenced = BrokerHeartbeatRequest(OWN_ID, broker.epoch, broker.epoch + 100, want_fence=True)
        assert (await broker.channel.heartbeat(fenced)).is_fenced


async def test_client_requests_are_forwarded_in_envelopes(apache: Apache) -> None:
    async with own_broker(apache) as broker:
        for version in range(2, 8):
            created = await broker.forward(CreateTopicsRequest([CreatableTopic(f"t{version}", 1, 1)]), version)
            assert [(topic.name, topic.error_code) for topic in created.topics] == [(f"t{version}", ErrorCode.NONE)]
        more = await broker.forward(CreatePartitionsRequest([CreatePartitionsTopic("t7", 3, None)], 30_000))
        assert more.results[0].error_code == ErrorCode.NONE
        change = AlterConfigsResource(2, "t7", [AlterableConfig("retention.ms", 0, "1000")])
        altered = await broker.forward(IncrementalAlterConfigsRequest([change]))
        assert altered.responses[0].error_code == ErrorCode.NONE
        asked = [DeleteTopicState("t6"), DeleteTopicState("nope")]
        deleted = await broker.forward(DeleteTopicsRequest(asked, timeout_ms=30_000))
        assert {topic.name: topic.error_code for topic in deleted.responses} == {
            "t6": ErrorCode.NONE,
            "nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        partition = DescribeQuorumRequestTopicData("__cluster_metadata", [DescribeQuorumRequestPartitionData(0)])
        described = await broker.forward(DescribeQuorumRequest([partition]))
        assert described.topics[0].partitions[0].leader_id == APACHE_ID


async def test_requests_that_are_not_forwardable_are_refused(apache: Apache) -> None:
    async with own_broker(apache) as broker:
        with pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR"):
            await broker.forward(ListGroupsRequest())
