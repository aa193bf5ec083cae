"""The stages of a connection's pipeline, and what is left out of it."""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any

import pytest

from broker.api.pipeline import permission as needs
from broker.api.pipeline.authorization import AllowAll, Authorizer
from broker.api.pipeline.permission import Permission
from broker.api.pipeline.pipeline import RequestPipelines
from broker.api.pipeline.quota import ClientThrottle
from broker.api.serving.dispatch import Dispatcher
from broker.api.serving.route import route
from broker.metadata.image.quota_image import quota_entity
from broker.net.request import CloseConnection, ConnectionInfo, EncodedResponse, Request
from broker.quotas.client_quotas import BrokerQuotas
from broker.rates.windowed_rate import QuotaWindows
from protocol.api_keys import ApiKey
from protocol.compiler import encode_bytes
from protocol.errors import ErrorCode
from protocol.framing import SIZE_BYTES
from protocol.headers import RequestHeader, decode_response
from protocol.messages import Message
from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.primitives import Buffer
from tests.broker.api.serving.test_controller_routes import Observer
from tests.support.fakes.clock import ManualClock

ALICE = "User:alice"


class OnePrincipal:
    """Allows everything to one principal, and records its questions."""

    def __init__(self, principal: str) -> None:
        self.principal = principal
        self.permissions: list[Permission] = []

    def is_allowed(self, principal: str, host: str, permission: Permission, resource_name: str) -> bool:
        assert (host, resource_name) == ("10.0.0.1", "kafka-cluster")
        self.permissions.append(permission)
        return principal == self.principal

    def is_allowed_on_some(self, principal: str, host: str, permission: Permission) -> bool:
        return self.is_allowed(principal, host, permission, "kafka-cluster")


def dispatcher(clock: ManualClock, quotas: BrokerQuotas, authorizer: Authorizer | None) -> Dispatcher:
    async def replicated() -> ProduceResponse:
        return ProduceResponse()

    def produce(request: ProduceRequest, _context: object) -> object:
        if request.acks == ALL_REPLICAS:
            return replicated()
        return ProduceResponse() if request.acks else None

    async def list_groups(_request: object, _context: object) -> ListGroupsResponse:
        clock.advance_ms(300)
        await asyncio.sleep(0)
        clock.advance_ms(200)
        return ListGroupsResponse()

    rows = (
        route(ApiKey.HEARTBEAT, lambda _request, _context: HeartbeatResponse(), needs.READ_GROUP),
        route(ApiKey.PRODUCE, produce, needs.WRITE_TOPIC),
        route(ApiKey.LIST_GROUPS, list_groups, needs.DESCRIBE_GROUP),
        route(ApiKey.DESCRIBE_ACLS, lambda _request, _context: DescribeAclsResponse(), needs.DESCRIBE_CLUSTER),
    )
    return Dispatcher(rows, clock, Observer(), ClientThrottle(quotas, clock), authorizer)


class Client:
    """A connection and its pipeline."""

    def __init__(
        self,
        *,
        protocol: str = "PLAINTEXT",
        authorizer: Authorizer | None = None,
        limits: Mapping[str, float] | None = None,
    ) -> None:
        self.clock, self.quotas = ManualClock(), BrokerQuotas(QuotaWindows())
        for manager, rate in (limits or {}).items():
            getattr(self.quotas, manager).set_rate(quota_entity({"user": "ANONYMOUS"}), rate)
        self.connection = ConnectionInfo("c", "CLIENTS", "10.0.0.1", 1, protocol)
        self.dispatcher = dispatcher(self.clock, self.quotas, authorizer)
        pipelines = RequestPipelines(self.dispatcher)
        self.pipeline = pipelines.open(self.connection)

    def dispatch(self, request: Message, version: int) -> EncodedResponse | Awaitable[EncodedResponse]:
        header = RequestHeader(request.API_KEY, version, 7, "app")
        body = memoryview(encode_bytes(request, version))
        return self.pipeline(Request(header, body, self.connection, 0, 15_000))

    def send(self, request: Message, version: int, response: type[Any]) -> Any:
        frame: EncodedResponse = self.dispatch(request, version)  # type: ignore[assignment]
        assert frame is not None
        return decode_response(response, version, b"".join(frame)[SIZE_BYTES:])[1]


async def awaited(response: EncodedResponse | Awaitable[EncodedResponse]) -> list[Buffer]:
    assert not isinstance(response, list | None)
    frame = await asyncio.ensure_future(response)  # as connections do
    assert frame is not None
    return frame


ALL_REPLICAS = -1
DESCRIBE = DescribeAclsRequest(1, None, 1, None, None, 1, 1)


@pytest.mark.parametrize("authorizer", [None, AllowAll()], ids=["none", "no-op"])
def test_stages_without_effect_are_left_out(authorizer: Authorizer | None) -> None:
    client = Client(authorizer=authorizer)
    assert client.pipeline is client.dispatcher


def test_unauthorized_cluster_request_is_refused_in_its_own_response() -> None:
    client = Client(authorizer=OnePrincipal(ALICE))
    assert client.send(DESCRIBE, 3, DescribeAclsResponse).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    client.connection.principal = ALICE
    assert client.send(DESCRIBE, 3, DescribeAclsResponse).error_code == ErrorCode.NONE


def test_permissions_on_other_resources_are_left_to_handlers() -> None:
    unprivileged = OnePrincipal("User:nobody")
    response = Client(authorizer=unprivileged).send(HeartbeatRequest("g", 1, "m"), 4, HeartbeatResponse)
    assert (response.error_code, unprivileged.permissions) == (ErrorCode.NONE, [])


def test_unsupported_version_closes_the_connection_before_authorization() -> None:
    client = Client(authorizer=OnePrincipal(ALICE))
    request = Request(RequestHeader(ApiKey.DESCRIBE_ACLS, 99, 1, ""), memoryview(b""), client.connection, 0)
    with pytest.raises(CloseConnection, match="DESCRIBE_ACLS version 99"):
        client.pipeline(request)


def test_produce_above_its_quota_reports_its_throttle_time_and_mutes() -> None:
    client = Client(limits={"produce": 1_000.0})
    response = client.send(ProduceRequest(None, 1, 0, []), 9, ProduceResponse)
    assert (response.throttle_time_ms, client.connection.mute_ms) == (5_000, 5_000)


def test_produce_that_waits_for_replicas_is_charged_and_muted_at_once() -> None:
    client = Client(limits={"produce": 1_000.0})
    waiting = client.dispatch(ProduceRequest(None, ALL_REPLICAS, 0, []), 9)
    assert client.connection.mute_ms == 5_000
    client.connection.mute_ms = 0  # the connection begins its mute
    frame = asyncio.run(awaited(waiting))
    response = decode_response(ProduceResponse, 9, b"".join(frame)[SIZE_BYTES:])[1]
    assert (response.throttle_time_ms, client.connection.mute_ms) == (5_000, 0)
    [figures] = client.quotas.produce.figures(client.clock.monotonic_ms(), 9)
    assert figures.rate == pytest.approx(1_500)


def test_produce_without_response_mutes_for_its_bytes_alone() -> None:
    client = Client(limits={"produce": 1_000.0, "request": 0.001})
    client.clock.advance_ms(1_000)
    assert client.dispatch(ProduceRequest(None, 0, 0, []), 9) is None
    assert client.connection.mute_ms == 5_000


def test_request_above_its_share_of_the_loop_is_throttled_for_a_window_at_most() -> None:
    client = Client(limits={"request": 1.0})
    frame = asyncio.run(awaited(client.dispatch(ListGroupsRequest(), 4)))
    response = decode_response(ListGroupsResponse, 4, b"".join(frame)[SIZE_BYTES:])[1]
    assert (response.throttle_time_ms, client.connection.mute_ms) == (1_000, 1_000)
    [figures] = client.quotas.request.figures(client.clock.monotonic_ms(), 9)
    assert figures.rate == pytest.approx(50 / 10, rel=0.05)  # half a second of ten


def test_heavier_request_within_its_share_is_not_throttled() -> None:
    client = Client(limits={"request": 6.0})
    frame = asyncio.run(awaited(client.dispatch(ListGroupsRequest(), 4)))
    response = decode_response(ListGroupsResponse, 4, b"".join(frame)[SIZE_BYTES:])[1]
    assert (response.throttle_time_ms, client.connection.mute_ms) == (0, 0)
