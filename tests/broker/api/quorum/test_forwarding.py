"""Requests that a broker forwards to the active controller in an envelope, on both sides."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from broker.api.cluster.update_features import KraftVersionUpgrade
from broker.api.configs.incremental_alter_configs import LoggerControl
from broker.api.pipeline.authorization import Authorizer
from broker.api.quorum.envelope import EnvelopeHandler
from broker.api.serving.context import RequestContext
from broker.api.serving.controller_routes import forwarded_routes
from broker.api.serving.creation_wait import CreationWaitHandler
from broker.api.serving.forwarding import ForwardingHandler
from broker.api.serving.quorum_peer import QuorumPeer
from broker.api.serving.route import Route
from broker.config.broker_config import BrokerConfig
from broker.config.load import load_config
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.quota_image import quota_entity, quota_record
from broker.net.peer import PeerUnavailable, VersionMismatch
from broker.net.request import CloseConnection, ConnectionInfo, Request
from broker.runtime.controller.controller_router import ControllerRouter
from broker.runtime.controller.forwarding import Forwarder
from broker.runtime.controller.principals import deserialize_principal, serialize_principal
from protocol.api_keys import ApiKey
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.framing import SIZE_BYTES
from protocol.headers import RequestHeader, decode_response, encode_request
from protocol.messages import Message
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
)
from protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from tests.broker.api.metadata_harness import LiveCluster, context, unrestricted_route
from tests.broker.runtime.controller.other_nodes import SECOND, THIRD, OtherNodes
from tests.support.fakes.fast_forward_loop import run_fast

STATIC = load_config(None, (), {})[0]
TOPIC = CreateTopicsRequest([CreatableTopic("t", 1, 1)])
CLIENT = ConnectionInfo("c", "PLAINTEXT", "192.168.7.1", 50_000, principal="User:alice")


class Controller:
    """The active controller of another node, which answers envelopes."""

    def __init__(self) -> None:
        self.cluster = LiveCluster()
        self.cluster.start_brokers(1)
        self.config: Callable[[], BrokerConfig] = lambda: STATIC
        self.controller = self.cluster
        self.node_id, self.kraft_version = 2, lambda: 1
        self.loggers = cast(LoggerControl, None)
        self.kraft_upgrade: KraftVersionUpgrade | None = None
        self.quorum: QuorumPeer | None = None
        self.authorizer: Authorizer | None = None
        self.rows = list(forwarded_routes(self))
        self.seen: list[RequestContext] = []

    def add(self, key: ApiKey, handler: Callable[[Any, RequestContext], Any]) -> None:
        self.rows.append(unrestricted_route(key, handler))

    def answer(self, envelope: Any) -> Any:
        """Run a handler that never suspends."""
        pending = EnvelopeHandler(lambda: self.rows)(envelope, envelope_context()).__await__()
        with pytest.raises(StopIteration) as finished:
            next(pending)
        return finished.value.value


def envelope_context() -> RequestContext:
    connection = ConnectionInfo("broker", "CONTROLLER", "10.0.0.5", 40_000, principal="User:broker")
    request = Request(RequestHeader(ApiKey.ENVELOPE, 0, 9, "1"), memoryview(b""), connection, 123)
    return RequestContext(0, "1", connection, request)


@dataclass
class Broker:
    """A broker that is not the controller; `second` and `third` are controllers of other nodes."""

    nodes: OtherNodes = field(default_factory=OtherNodes)
    second: Controller = field(default_factory=Controller)
    is_active: bool = False

    def __post_init__(self) -> None:
        self.nodes.answers = {SECOND: self.second.answer}
        self.router = ControllerRouter(1, self, self.nodes.locate, self.nodes)
        self.forwarding = Forwarder(self.router)

    async def ask(self, row: Route, request: Message, version: int, client: ConnectionInfo = CLIENT) -> Any:
        header = RequestHeader(row.key, version, 77, "app")
        wire_request = Request(header, memoryview(b""), client, 0)
        return await ForwardingHandler(row, self.forwarding)(
            request, RequestContext(version, "app", client, wire_request)
        )


async def never(_request: Any, _context: RequestContext) -> Any:
    raise AssertionError("the handler sent a request to its own node's controller")


CREATE_TOPICS = unrestricted_route(ApiKey.CREATE_TOPICS, never)
UNREGISTER = unrestricted_route(ApiKey.UNREGISTER_BROKER, never)


def fast(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run a test on a loop that does not wait."""

    def run() -> None:
        async def scenario() -> None:
            await test()

        run_fast(scenario())

    return run


@pytest.mark.parametrize("version", range(2, 8))
def test_controllers_response_is_returned(version: int) -> None:
    async def scenario() -> None:
        broker = Broker()
        response = await broker.ask(CREATE_TOPICS, TOPIC, version)
        assert [(topic.name, topic.error_code) for topic in response.topics] == [("t", ErrorCode.NONE)]
        assert broker.second.cluster.image.topics.names() == ["t"]

    run_fast(scenario())


@fast
async def test_request_runs_as_the_client_and_not_as_the_broker() -> None:
    broker, seen = Broker(), []

    def handle(request: UnregisterBrokerRequest, context: RequestContext) -> UnregisterBrokerResponse:
        seen.append(context)
        return UnregisterBrokerResponse(error_message=f"no {request.broker_id}")

    broker.second.rows = [unrestricted_route(ApiKey.UNREGISTER_BROKER, handle)]
    response = await broker.ask(UNREGISTER, UnregisterBrokerRequest(5), 0)
    assert response.error_message == "no 5"
    (inner,) = seen
    assert (inner.principal, inner.peer_host, inner.client_id) == ("User:alice", "192.168.7.1", "app")
    assert (inner.listener, inner.api_version, inner.received_ms) == ("CONTROLLER", 0, 123)
    assert inner.request.header == RequestHeader(ApiKey.UNREGISTER_BROKER, 0, 77, "app")


@fast
async def test_ipv6_client_is_forwarded_with_its_address() -> None:
    broker, hosts = Broker(), []

    def handle(_request: Any, context: RequestContext) -> UnregisterBrokerResponse:
        hosts.append(context.peer_host)
        return UnregisterBrokerResponse()

    broker.second.rows = [unrestricted_route(ApiKey.UNREGISTER_BROKER, handle)]
    for host in ("2001:db8::1", "fe80::1%eth0"):
        await broker.ask(UNREGISTER, UnregisterBrokerRequest(5), 0, ConnectionInfo("c", "P", host, 1))
    assert hosts == ["2001:db8::1", "fe80::1"]


@fast
async def test_inner_errors_reach_the_client() -> None:
    response = await Broker().ask(UNREGISTER, UnregisterBrokerRequest(99), 0)
    assert response.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert response.error_message == "broker 99 is not registered"


@fast
async def test_exhausted_quota_mutes_the_clients_connection() -> None:
    broker, client = Broker(), ConnectionInfo("c", "PLAINTEXT", "192.168.7.1", 50_000, principal="User:alice")
    broker.second.cluster.append([quota_record(quota_entity({"user": "alice"}), "controller_mutation_rate", 0.01)])
    response = await broker.ask(CREATE_TOPICS, TOPIC, 5, client)
    assert response.throttle_time_ms == client.mute_ms == 89_000


@fast
async def test_standby_redirects_to_the_active_controller() -> None:
    broker, third = Broker(), Controller()
    broker.second.cluster.is_active = False
    broker.nodes.answers[THIRD] = third.answer

    def elect() -> None:
        broker.nodes.leader = THIRD
        broker.router.on_leader_change()

    asyncio.get_running_loop().call_later(1, elect)
    response = await broker.ask(CREATE_TOPICS, TOPIC, 7)
    assert response.topics[0].error_code == ErrorCode.NONE
    assert third.cluster.image.topics.names() == ["t"]


@fast
async def test_request_is_retried_after_a_lost_connection() -> None:
    broker = Broker()
    outcomes: list[Any] = [PeerUnavailable("reset"), None]
    broker.nodes.answers[SECOND] = lambda envelope: outcomes.pop(0) or broker.second.answer(envelope)
    response = await broker.ask(CREATE_TOPICS, TOPIC, 7)
    assert response.topics[0].error_code == ErrorCode.NONE


@fast
async def test_missing_controller_times_out_after_a_minute() -> None:
    broker = Broker()
    broker.nodes.leader = None
    began = asyncio.get_running_loop().time()
    with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
        await broker.ask(CREATE_TOPICS, TOPIC, 7)
    assert asyncio.get_running_loop().time() - began == pytest.approx(60)


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), CloseConnection),
        (VersionMismatch("ENVELOPE is not served there"), CloseConnection),
        (EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED), KafkaError),
        (EnvelopeResponse(response_data=b"\x00\x00\x00\x4d"), KafkaError),
        (EnvelopeResponse(response_data=b"\x00\x00\x00\x01\x00\x00\x00\x00\x00\x01\x01\x00"), KafkaError),
        (EnvelopeResponse(response_data=None), KafkaError),
    ],
    ids=["version", "no envelopes", "not a broker", "cut short", "not my answer", "empty"],
)
def test_refused_envelope_fails_the_request(refusal: Any, expected: type[Exception]) -> None:
    async def scenario() -> None:
        broker = Broker()
        broker.nodes.answers[SECOND] = lambda _envelope: refusal
        with pytest.raises(expected) as caught:
            await broker.ask(CREATE_TOPICS, TOPIC, 7)
        if isinstance(caught.value, KafkaError):
            assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert len(broker.nodes.requests) == 1

    run_fast(scenario())


class TestActiveHere:
    """The node itself is the active controller."""

    def test_active_controller_runs_its_own_handler(self) -> None:
        async def scenario() -> None:
            broker, own = Broker(is_active=True), Controller()
            response = await broker.ask(own.rows[0], TOPIC, 7)
            assert response.topics[0].error_code == ErrorCode.NONE
            assert (own.cluster.image.topics.names(), broker.nodes.requests) == (["t"], [])

        run_fast(scenario())

    def test_lost_leadership_forwards_the_request(self) -> None:
        async def scenario() -> None:
            broker = Broker(is_active=True)

            async def lose(request: Any, _context: RequestContext) -> CreateTopicsResponse:
                broker.is_active = False
                own = Controller()
                own.cluster.is_active = False
                response = await own.rows[0].handler(request, context(7))
                assert response.topics[0].error_code == ErrorCode.NOT_CONTROLLER
                return cast(CreateTopicsResponse, response)

            response = await broker.ask(unrestricted_route(ApiKey.CREATE_TOPICS, lose), TOPIC, 7)
            assert response.topics[0].error_code == ErrorCode.NONE
            assert broker.second.cluster.image.topics.names() == ["t"]

        run_fast(scenario())

    def test_own_errors_reach_the_client(self) -> None:
        async def scenario() -> None:
            def refuse(_request: Any, _context: RequestContext) -> Any:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "that level is not known")

            with pytest.raises(KafkaError, match="that level is not known"):
                await Broker(is_active=True).ask(unrestricted_route(ApiKey.CREATE_TOPICS, refuse), TOPIC, 7)

        run_fast(scenario())


class TestEnvelope:
    """The controller's side of forwarding."""

    def envelope(self, request: Message = TOPIC, version: int = 7, **changes: Any) -> EnvelopeRequest:
        frame = b"".join(encode_request(request, version, 5, "app"))[SIZE_BYTES:]
        return EnvelopeRequest(
            **{
                "request_data": frame,
                "request_principal": serialize_principal("User:alice"),
                "client_host_address": b"\x7f\x00\x00\x01",
                **changes,
            }
        )

    def test_response_has_the_clients_correlation_id_and_version(self) -> None:
        answer = Controller().answer(self.envelope())
        assert answer.error_code == ErrorCode.NONE
        correlation_id, response = decode_response(CreateTopicsResponse, 7, answer.response_data)
        assert (correlation_id, response.topics[0].name) == (5, "t")

    @pytest.mark.parametrize("principal", [None, b"", b"\x00", b"\x00\x00", b"\x00\x09\x01\x01\x00", b"\x00\x00\x05Us"])
    def test_malformed_principal_is_refused(self, principal: bytes | None) -> None:
        answer = Controller().answer(self.envelope(request_principal=principal))
        assert answer.error_code == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE

    @pytest.mark.parametrize("address", [b"", b"\x01\x02\x03", b"127.0.0.1"])
    def test_malformed_address_is_refused(self, address: bytes) -> None:
        answer = Controller().answer(self.envelope(client_host_address=address))
        assert answer.error_code == ErrorCode.INVALID_REQUEST

    def test_unforwarded_api_is_refused(self) -> None:
        answer = Controller().answer(self.envelope(DescribeClusterRequest(), 1))
        assert answer.error_code == ErrorCode.INVALID_REQUEST

    @pytest.mark.parametrize("data", [b"", b"\x00\x13\x00\x07", b"\x00\x13\x00\x63" + bytes(12)])
    def test_unreadable_request_or_unknown_version_is_refused(self, data: bytes) -> None:
        answer = Controller().answer(self.envelope(request_data=data))
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION

    def test_truncated_body_is_refused(self) -> None:
        whole = self.envelope()
        answer = Controller().answer(self.envelope(request_data=bytes(whole.request_data)[:-6]))
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION

    def test_standby_answers_not_controller_in_the_envelope(self) -> None:
        controller = Controller()
        controller.cluster.is_active = False
        for request, version in ((TOPIC, 7), (DeleteTopicsRequest([DeleteTopicState("t")]), 6)):
            answer = controller.answer(self.envelope(request, version))
            assert answer.error_code == ErrorCode.NOT_CONTROLLER

    def test_quorum_follower_answers_not_controller_in_the_envelope(self) -> None:
        controller = Controller()
        partition = DescribeQuorumResponsePartitionData(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        refusal = DescribeQuorumResponse(topics=[DescribeQuorumResponseTopicData("__cluster_metadata", [partition])])
        controller.add(ApiKey.DESCRIBE_QUORUM, lambda _request, _context: refusal)
        assert controller.answer(self.envelope(DescribeQuorumRequest(), 2)).error_code == ErrorCode.NOT_CONTROLLER

    @pytest.mark.parametrize("is_token", [False, True])
    def test_handler_knows_whether_a_token_authenticated_the_client(self, is_token: bool) -> None:
        controller, seen = Controller(), []

        def handler(_request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
            seen.append((context.principal, context.connection.is_token_authenticated))
            return DescribeQuorumResponse()

        controller.add(ApiKey.DESCRIBE_QUORUM, handler)
        principal = serialize_principal("User:owner", is_token=is_token)
        controller.answer(self.envelope(DescribeQuorumRequest(), 2, request_principal=principal))
        assert seen == [("User:owner", is_token)]


class TestPrincipals:
    @pytest.mark.parametrize("principal", ["User:ANONYMOUS", "User:CN=a,O=b:c", "Robot:é", "User:"])
    def test_principal_survives_a_round_trip(self, principal: str) -> None:
        assert deserialize_principal(serialize_principal(principal)) == (principal, False)
        assert deserialize_principal(serialize_principal(principal, is_token=True)) == (principal, True)

    def test_principal_has_kafkas_bytes(self) -> None:
        assert serialize_principal("User:bob") == b"\x00\x00\x05User\x04bob\x00\x00"

    def test_trailing_bytes_are_refused(self) -> None:
        with pytest.raises(DecodeError):
            deserialize_principal(serialize_principal("User:bob") + b"\x00")


class TestCreationWait:
    """The response to a creation waits until this broker has the partitions."""

    class Wait:
        def __init__(self) -> None:
            self.waits: list[Callable[[MetadataImage], bool]] = []

        async def wait_for(self, is_known: Callable[[MetadataImage], bool]) -> None:
            self.waits.append(is_known)

    async def wait_of(self, row: Route, request: Message, version: int) -> list[Callable[[MetadataImage], bool]]:
        wait = self.Wait()
        await CreationWaitHandler(row.handler, wait)(request, context(version))
        return wait.waits

    def rows(self, controller: Controller) -> dict[ApiKey, Route]:
        return {row.key: row for row in controller.rows}

    async def test_wait_ends_when_topic_ids_are_known(self) -> None:
        controller = Controller()
        former = controller.cluster.create_topic("t", [[1]])
        before = controller.cluster.image
        await controller.cluster.submit(lambda decide, _now: decide.delete_topics([former]))
        request = CreateTopicsRequest([CreatableTopic("t", 1, 1), CreatableTopic("bad name", 1, 1)])
        (is_known,) = await self.wait_of(self.rows(controller)[ApiKey.CREATE_TOPICS], request, 7)
        assert [is_known(before), is_known(controller.cluster.image)] == [False, True]

    async def test_wait_ends_when_topic_names_are_known_in_versions_without_ids(self) -> None:
        controller = Controller()
        response = await self.rows(controller)[ApiKey.CREATE_TOPICS].handler(TOPIC, context(6))
        response.topics[0].topic_id = type(response.topics[0])().topic_id
        row = unrestricted_route(ApiKey.CREATE_TOPICS, lambda _request, _context: _done(response))
        (is_known,) = await self.wait_of(row, TOPIC, 6)
        assert [is_known(Controller().cluster.image), is_known(controller.cluster.image)] == [False, True]

    async def test_wait_ends_when_partition_counts_are_known(self) -> None:
        controller = Controller()
        controller.cluster.create_topic("t", [[1]])
        before = controller.cluster.image
        request = CreatePartitionsRequest([CreatePartitionsTopic("t", 3, None), CreatePartitionsTopic("nope", 3, None)])
        (is_known,) = await self.wait_of(self.rows(controller)[ApiKey.CREATE_PARTITIONS], request, 3)
        assert [is_known(before), is_known(controller.cluster.image)] == [False, True]

    async def test_failed_creation_waits_for_nothing(self) -> None:
        controller = Controller()
        request = CreateTopicsRequest([CreatableTopic("t", 1, 1)], validate_only=True)
        assert await self.wait_of(self.rows(controller)[ApiKey.CREATE_TOPICS], request, 7) == []


async def _done(response: Any) -> Any:
    return response
