"""The APIs of a controller's listener, frame by frame, on a standby and on the active controller."""

import inspect
from collections.abc import Awaitable
from typing import Any, TypeVar

import pytest

from broker.api.serving.controller_routes import ControllerServices, controller_routes
from broker.api.serving.dispatch import Dispatcher
from broker.config.load import load_config
from broker.metadata.image.features import SUPPORTED_FEATURES
from broker.net.request import CloseConnection, ConnectionInfo, Request
from broker.quorum.description import QuorumDescription
from broker.quorum.identity import SnapshotId
from broker.quorum.messages import (
    ChangeVotersResponse,
    Response,
    UpdateVoterRequest,
    VoteResponse,
)
from broker.quorum.messages import Request as QuorumRequest
from broker.quorum.messages import VoteRequest as CoreVoteRequest
from broker.runtime.controller.loggers import ProcessLoggers
from protocol.api_keys import API_BY_KEY, ApiKey, request_class, response_class
from protocol.compiler import encode_bytes
from protocol.errors import ErrorCode
from protocol.framing import SIZE_BYTES
from protocol.headers import RequestHeader, decode_response
from protocol.messages import Message
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.broker_registration import BrokerRegistrationResponse
from protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
    Listener,
)
from protocol.messages.create_metadata_snapshot import CreateMetadataSnapshotRequest, CreateMetadataSnapshotResponse
from protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from protocol.messages.describe_node import DescribeNodeRequest, DescribeNodeResponse
from protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from protocol.messages.vote import VoteRequest, VoteRequestPartitionData, VoteRequestTopicData
from protocol.messages.vote import VoteResponse as VoteAnswer
from tests.broker.api.metadata_harness import LiveCluster
from tests.broker.metadata.images import uuid
from tests.support.fakes.clock import ManualClock
from tests.support.quorum_values import make_leader_hint, make_snapshot_id

M = TypeVar("M", bound=Message)

LISTENER = "CONTROLLER"
NEVER_THERE = {ApiKey.DESCRIBE_DELEGATION_TOKEN, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS}
"""APIs that Kafka declares for controllers and serves on brokers only."""
STATIC = load_config(None, (), {})[0]


class Replica:
    """A replica of the metadata log that accepts everything."""

    def __init__(self) -> None:
        self.requests: list[QuorumRequest] = []

    async def handle(self, request: QuorumRequest) -> Response:
        self.requests.append(request)
        hint = make_leader_hint(2, 5)
        match request:
            case CoreVoteRequest():
                return VoteResponse(ErrorCode.NONE, hint, granted=True)
            case UpdateVoterRequest():
                return ChangeVotersResponse(ErrorCode.NONE, hint)
            case _:
                raise AssertionError(request)

    def describe(self) -> QuorumDescription:
        raise AssertionError("unexpected request")


class Observer:
    """Counts nothing."""

    def on_request(self, api_key: int, api_version: int, elapsed_ms: float) -> None: ...

    def on_error(self, api_key: int, code: int) -> None: ...


class Node:
    """A controller node and a client of its listener."""

    def __init__(self) -> None:
        self.cluster = LiveCluster()
        self.replica = Replica()
        services = ControllerServices(
            cluster_id="test-cluster",
            node_id=1,
            kraft_version=lambda: 1,
            config=lambda: STATIC,
            metadata=self.cluster,
            controller=self.cluster,
            active_controller=self.cluster,
            quorum=self.replica,
            loggers=ProcessLoggers(),
            snapshots=self,
            node=self,
        )
        self.rows = controller_routes(services)
        self._dispatch = Dispatcher(self.rows, ManualClock(), Observer())

    async def generate_now(self) -> SnapshotId:
        return make_snapshot_id(5, 1)

    async def describe(self, request: DescribeNodeRequest) -> DescribeNodeResponse:
        return DescribeNodeResponse(node_id=1)

    async def ask(self, request: Message, answer: type[M], version: int | None = None) -> M:
        version = request.MAX_VERSION if version is None else version
        connection = ConnectionInfo("c", LISTENER, "127.0.0.1", 1)
        header = RequestHeader(request.API_KEY, version, 3, "1")
        pending = self._dispatch(Request(header, memoryview(encode_bytes(request, version)), connection, 0))
        frame = await pending if isinstance(pending, Awaitable) else pending
        assert frame is not None
        return decode_response(answer, version, b"".join(frame)[SIZE_BYTES:])[1]


def test_table_serves_the_apis_that_kafka_declares_for_controllers() -> None:
    served = {row.key for row in Node().rows}
    declared = {ApiKey(key) for key, api in API_BY_KEY.items() if "controller" in api.listeners}
    assert served == declared - NEVER_THERE
    assert len(served) == len(Node().rows)


async def test_api_versions_is_the_same_on_a_standby() -> None:
    node = Node()
    active = await node.ask(ApiVersionsRequest("a", "1"), ApiVersionsResponse)
    node.cluster.is_active = False
    standby = await node.ask(ApiVersionsRequest("a", "1"), ApiVersionsResponse)
    assert standby == active
    assert [each.api_key for each in active.api_keys] == sorted(row.key for row in node.rows if row.is_advertised)
    ranges = {each.api_key: (each.min_version, each.max_version) for each in active.api_keys}
    assert ranges[ApiKey.FETCH] == (12, 18)
    assert ranges[ApiKey.BROKER_REGISTRATION] == (0, 4)
    assert {each.name for each in active.supported_features} == set(SUPPORTED_FEATURES)
    assert {each.name: each.max_version_level for each in active.finalized_features}["kraft.version"] == 1


async def test_unserved_api_closes_the_connection() -> None:
    with pytest.raises(CloseConnection):
        await Node().ask(request_class(ApiKey.PRODUCE)(), response_class(ApiKey.PRODUCE))


async def test_broker_registers_and_sends_heartbeats() -> None:
    node = Node()
    registered = await node.ask(node.cluster.registration(7), BrokerRegistrationResponse)
    epoch = registered.broker_epoch
    assert (registered.error_code, epoch) == (ErrorCode.NONE, node.cluster.image.brokers.brokers[7].epoch)
    beat = await node.ask(BrokerHeartbeatRequest(7, epoch, node.cluster.image.offset), BrokerHeartbeatResponse)
    assert (beat.error_code, beat.is_caught_up, beat.is_fenced) == (ErrorCode.NONE, True, False)
    granted = await node.ask(AllocateProducerIdsRequest(7, epoch), AllocateProducerIdsResponse)
    assert (granted.producer_id_start, granted.producer_id_len) == (0, 1_000)
    stale = await node.ask(AllocateProducerIdsRequest(7, epoch + 1), AllocateProducerIdsResponse)
    assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
    assigned = await node.ask(AssignReplicasToDirsRequest(7, epoch), AssignReplicasToDirsResponse)
    assert assigned.error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    "key",
    [
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ALTER_PARTITION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.UNREGISTER_BROKER,
    ],
)
async def test_standby_answers_not_controller(key: ApiKey) -> None:
    node = Node()
    node.cluster.is_active = False
    answer: Any = await node.ask(request_class(key)(), response_class(key))
    assert answer.error_code == ErrorCode.NOT_CONTROLLER


class TestDescribeCluster:
    async def describe(self, node: Node, endpoint_type: int, version: int = 2) -> DescribeClusterResponse:
        request = DescribeClusterRequest(endpoint_type=endpoint_type)
        return await node.ask(request, DescribeClusterResponse, version)

    async def test_registered_controllers_are_listed_by_listener(self) -> None:
        node = Node()
        for controller_id, listener in ((3, LISTENER), (2, LISTENER), (4, "OTHER")):
            registration = ControllerRegistrationRequest(
                controller_id,
                uuid(controller_id),
                listeners=[Listener(listener, f"host-{controller_id}", 9093, 0)],
                features=[Feature(name, *levels) for name, levels in SUPPORTED_FEATURES.items()],
            )
            answer = await node.ask(registration, ControllerRegistrationResponse)
            assert answer.error_code == ErrorCode.NONE
        described = await self.describe(node, 2)
        assert [(each.broker_id, each.host, each.port) for each in described.brokers] == [
            (2, "host-2", 9093),
            (3, "host-3", 9093),
        ]
        assert (described.endpoint_type, described.controller_id) == (2, 1)
        assert described.cluster_id == "test-cluster"

    async def test_missing_leader_leaves_no_controller(self) -> None:
        node = Node()
        node.cluster.controller_id = None
        assert (await self.describe(node, 2)).controller_id == -1

    @pytest.mark.parametrize(
        ("endpoint_type", "code"),
        [(1, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
    )
    async def test_other_endpoint_types_are_refused(self, endpoint_type: int, code: ErrorCode) -> None:
        assert (await self.describe(Node(), endpoint_type)).error_code == code

    async def test_version_0_cannot_request_controllers(self) -> None:
        described = await Node().ask(DescribeClusterRequest(), DescribeClusterResponse, 0)
        assert described.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


class TestReplicas:
    """Requests of the quorum reach the replica."""

    async def test_vote_reaches_the_replica(self) -> None:
        node = Node()
        candidate = VoteRequestPartitionData(0, 6, 3, last_offset_epoch=5, last_offset=10)
        request = VoteRequest("test-cluster", 1, [VoteRequestTopicData("__cluster_metadata", [candidate])])
        answer = await node.ask(request, VoteAnswer)
        assert answer.topics[0].partitions[0].vote_granted
        assert len(node.replica.requests) == 1

    async def test_snapshot_is_cut_on_demand(self) -> None:
        answer = await Node().ask(CreateMetadataSnapshotRequest(1_000), CreateMetadataSnapshotResponse)
        assert (answer.end_offset, answer.epoch) == (5, 1)

    async def test_voter_update_reaches_the_replica(self) -> None:
        answer = await Node().ask(UpdateRaftVoterRequest(voter_id=3), UpdateRaftVoterResponse)
        assert answer.error_code == ErrorCode.NONE


def test_every_handler_takes_a_request_and_its_context() -> None:
    for row in Node().rows:
        signature = inspect.signature(row.handler)
        assert len(signature.parameters) == 2, row.key.name
