"""The console's cluster over an image, with answers of a test in place of other nodes, and without sockets."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from broker.api.pipeline.permission import Requirement
from broker.console.cluster import ConsoleCluster, NodeAccess
from broker.console.request import ConsoleRequest, Json
from broker.metadata.image.metadata_image import MetadataImage
from broker.net.peer import PeerError, SocketAddress
from broker.net.request import ConnectionInfo, Dispatch, EncodedResponse, Request
from protocol.api_keys import request_class
from protocol.compiler import decode
from protocol.headers import encode_response
from protocol.messages import Message
from tests.broker.metadata.images import LISTENER
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.fake_authorizer import GrantedPermissions

M = TypeVar("M", bound=Message)

ALICE = "User:alice"
_PORT_BASE = 9_000

# Each answer takes the request class of its key, which the type of a dict cannot express.
Answer = Callable[[int, Any], Message]


class FakeNodes:
    """Answers requests to nodes by the class of the request; `answers` take the node's id and the request.

    A node in `silent` does not answer. `asked` lists all requests in order.
    """

    def __init__(self) -> None:
        self.answers: dict[type[Message], Answer] = {}
        self.silent: set[int] = set()
        self.asked: list[tuple[int, Message]] = []

    def request(
        self,
        endpoint: SocketAddress,
        request: Message,
        answer: type[M],
        *,
        timeout_ms: float,
        versions: tuple[int, int] | None = None,
    ) -> "asyncio.Future[M]":
        node = endpoint.port - _PORT_BASE
        self.asked.append((node, request))
        future: asyncio.Future[M] = asyncio.get_running_loop().create_future()
        make = self.answers.get(type(request))
        if node in self.silent or make is None:
            future.set_exception(PeerError("does not answer"))
            return future
        made = make(node, request)
        assert isinstance(made, answer)
        future.set_result(made)
        return future


class AuditedDecisions:
    """Lists the audited decisions: principal, API, resource, outcome."""

    def __init__(self) -> None:
        self.decisions: list[tuple[str, int, str | None, bool]] = []

    def decided(
        self,
        client: ConnectionInfo,
        api_key: int,
        requirement: Requirement,
        resource_name: str | None,
        *,
        is_allowed: bool,
    ) -> None:
        self.decisions.append((client.principal, api_key, resource_name, is_allowed))

    def login_failed(self, client: ConnectionInfo, mechanism: str, user: str | None, reason: str) -> None:
        raise AssertionError("the console knows no logins")


class ConsoleHarness:
    """A cluster for views and actions. `submitted` lists the requests in the node's own path, with their principals;
    `own` answers them.
    """

    def __init__(self, image: MetadataImage, authorizer: GrantedPermissions | None = None) -> None:
        self.image = image
        self.nodes = FakeNodes()
        self.clock = ManualClock()
        self.audit = AuditedDecisions()
        self.own: dict[type[Message], Callable[[Any], Message]] = {}
        self.submitted: list[tuple[str, Message]] = []
        self.is_serving = True
        self.leader_id: int | None = 1
        self.node = NodeAccess(
            node_id=1,
            cluster_id="test-cluster",
            release="1.0",
            image=lambda: self.image,
            leader_id=lambda: self.leader_id,
            broker_listener=LISTENER,
            controller_listener=LISTENER,
            brokers=self.nodes,
            controllers=self.nodes,
            open_dispatch=self._open,
            authorizer=authorizer,
            audit=self.audit,
            clock=self.clock,
        )
        self.cluster = ConsoleCluster(self.node)

    def _open(self, connection: ConnectionInfo) -> Dispatch | None:
        def dispatch(request: Request) -> EncodedResponse:
            header = request.header
            message, _ = decode(request_class(header.api_key), request.body, header.api_version)
            self.submitted.append((connection.principal, message))
            answer = self.own[type(message)](message)
            return [
                bytes(part)
                for part in encode_response(header.api_key, header.api_version, header.correlation_id, answer)
            ]

        return dispatch if self.is_serving else None


def asked(principal: str = ALICE, /, body: Json | None = None, **parameters: object) -> ConsoleRequest:
    """Return a request with these parameters."""
    return ConsoleRequest({key: str(value) for key, value in parameters.items()}, principal, "10.0.0.1", body or {})
