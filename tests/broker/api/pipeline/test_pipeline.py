"""The stages of a connection's pipeline, and what is left out of it."""

from typing import Any

import pytest

from broker.api.pipeline import permission as needs
from broker.api.pipeline.authorization import AllowAll, Authorizer
from broker.api.pipeline.permission import Permission
from broker.api.pipeline.pipeline import RequestPipelines
from broker.api.pipeline.quota import RequestQuota, Unlimited
from broker.api.serving.dispatch import Dispatcher
from broker.api.serving.route import route
from broker.net.request import CloseConnection, ConnectionInfo, EncodedResponse, Request
from protocol.api_keys import ApiKey
from protocol.compiler import encode_bytes
from protocol.errors import ErrorCode
from protocol.framing import SIZE_BYTES
from protocol.headers import RequestHeader, decode_response
from protocol.messages import Message
from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
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


class FixedThrottle:
    """Throttles every request."""

    def throttle_ms(self, principal: str, client_id: str | None) -> float:
        return 40.0


def dispatcher() -> Dispatcher:
    rows = (
        route(ApiKey.HEARTBEAT, lambda _request, _context: HeartbeatResponse(), needs.READ_GROUP),
        route(ApiKey.DESCRIBE_ACLS, lambda _request, _context: DescribeAclsResponse(), needs.DESCRIBE_CLUSTER),
    )
    return Dispatcher(rows, ManualClock(), Observer())


class Client:
    """A connection and its pipeline."""

    def __init__(
        self, *, protocol: str = "PLAINTEXT", authorizer: Authorizer | None = None, quota: RequestQuota | None = None
    ) -> None:
        self.connection = ConnectionInfo("c", "CLIENTS", "10.0.0.1", 1)
        self.dispatcher = dispatcher()
        pipelines = RequestPipelines(
            self.dispatcher, security_protocols={"CLIENTS": protocol}, authorizer=authorizer, quota=quota
        )
        self.pipeline = pipelines.open(self.connection)

    def send(self, request: Message, version: int, response: type[Any]) -> Any:
        header = RequestHeader(request.API_KEY, version, 7, "app")
        body = memoryview(encode_bytes(request, version))
        frame: EncodedResponse = self.pipeline(Request(header, body, self.connection, 0))  # type: ignore[assignment]
        assert frame is not None
        return decode_response(response, version, b"".join(frame)[SIZE_BYTES:])[1]


DESCRIBE = DescribeAclsRequest(1, None, 1, None, None, 1, 1)


@pytest.mark.parametrize(("authorizer", "quota"), [(None, None), (AllowAll(), Unlimited())], ids=["none", "no-op"])
def test_stages_without_effect_are_left_out(authorizer: Authorizer | None, quota: RequestQuota | None) -> None:
    client = Client(authorizer=authorizer, quota=quota)
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


def test_throttled_request_mutes_its_connection() -> None:
    client = Client(quota=FixedThrottle())
    assert client.send(HeartbeatRequest("g", 1, "m"), 4, HeartbeatResponse).error_code == ErrorCode.NONE
    assert client.connection.mute_ms == 40.0


def test_unauthenticated_request_closes_the_connection() -> None:
    with pytest.raises(CloseConnection, match="HANDSHAKE_OR_VERSIONS"):
        Client(protocol="SASL_PLAINTEXT").send(HeartbeatRequest("g", 1, "m"), 4, HeartbeatResponse)
