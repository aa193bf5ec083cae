"""The cluster as the console reaches it: the metadata image, other nodes over their listeners, and this node's own
request path.

Reads of the image and requests to other nodes run with the rights of this node, so views check the rights of the
principal first. Actions run in this node's own request path with the principal itself, through authorizer, policies,
quotas and audit.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from http import HTTPStatus
from itertools import count
from typing import Final, Generic, Protocol, TypeVar

from broker.api.pipeline.audit import AuditTrail
from broker.api.pipeline.authorization import Authorizer
from broker.api.pipeline.permission import Requirement
from broker.clock import Clock
from broker.console.listing import Filter
from broker.console.request import ConsoleError, ConsoleRequest, Json
from broker.metadata.image.metadata_image import MetadataImage
from broker.net.peer import PeerError, SocketAddress
from broker.net.request import ConnectionInfo, Dispatch, Request
from protocol.api_keys import API_BY_KEY, ApiKey
from protocol.compiler import encode_bytes
from protocol.errors import ErrorCode
from protocol.headers import RequestHeader, decode_response
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages import Message

R = TypeVar("R", bound=Message)
T = TypeVar("T")

ANSWER_TIMEOUT_MS: Final = 2_000
ACTION_TIMEOUT_S: Final = 30.0
CLIENT_ID: Final = "ottla-console"
_SIZE_BYTES: Final = 4


class NodeRequests(Protocol):
    """Sends requests to other nodes; see `broker.net.peer.NetworkClient`."""

    def request(
        self,
        endpoint: SocketAddress,
        request: Message,
        answer: type[R],
        *,
        timeout_ms: float,
        versions: tuple[int, int] | None = None,
    ) -> "asyncio.Future[R]": ...


@lazy_dataclass(frozen=True, slots=True)
class NodeAccess:
    """The parts of this node that the console uses.

    `brokers` and `controllers` send requests over the listeners `broker_listener` and `controller_listener`.
    `open_dispatch` returns this node's request path, None before clients are served. `audit` observes the decisions
    about what the console does with the node's own rights.
    """

    node_id: int
    cluster_id: str
    release: str
    image: Callable[[], MetadataImage]
    leader_id: Callable[[], int | None]
    broker_listener: str
    controller_listener: str
    brokers: NodeRequests
    controllers: NodeRequests
    open_dispatch: Callable[[ConnectionInfo], Dispatch | None]
    authorizer: Authorizer | None
    audit: AuditTrail | None
    clock: Clock


class Answers(Generic[R]):
    """Answers by node id, and the nodes without one."""

    def __init__(self) -> None:
        self.by_id: dict[int, R] = {}
        self.missing: list[Json] = []


class ConsoleCluster:
    """Requests to the cluster on behalf of the console."""

    def __init__(self, node: NodeAccess) -> None:
        self.node = node
        self._correlation_ids = count(1)

    @property
    def image(self) -> MetadataImage:
        """The latest metadata image of this node."""
        return self.node.image()

    @property
    def live_brokers(self) -> list[int]:
        """The ids of all unfenced brokers, in order."""
        return sorted(broker.id for broker in self.image.brokers.brokers.values() if not broker.fenced)

    async def ask(
        self, node_id: int, request: Message, answer: type[R], *, versions: tuple[int, int] | None = None
    ) -> R:
        """Return the answer of a broker, or of a controller without the broker role. Raise PeerError."""
        image, node = self.image.brokers, self.node
        broker = image.brokers.get(node_id)
        if broker is not None:
            endpoint, peers = broker.endpoints.get(node.broker_listener), node.brokers
        else:
            controller = image.controllers.get(node_id)
            endpoint = None if controller is None else controller.endpoints.get(node.controller_listener)
            peers = node.controllers
        if endpoint is None:
            raise PeerError(f"node {node_id} has no known address")
        address = SocketAddress(endpoint.host, endpoint.port)
        return await peers.request(address, request, answer, timeout_ms=ANSWER_TIMEOUT_MS, versions=versions)

    async def ask_all(
        self, node_ids: Iterable[int], make: Callable[[int], Message | None], answer: type[R]
    ) -> Answers[R]:
        """Ask nodes at the same time; `make` returns None for a node that has nothing to say."""
        requests = {id: request for id in node_ids if (request := make(id)) is not None}
        found = await asyncio.gather(
            *(self.ask(id, request, answer) for id, request in requests.items()), return_exceptions=True
        )
        answers: Answers[R] = Answers()
        for id, one in zip(requests, found, strict=True):
            if isinstance(one, PeerError):
                answers.missing.append({"broker": id, "reason": str(one)})
            elif isinstance(one, BaseException):
                raise one
            else:
                answers.by_id[id] = one
        return answers

    async def ask_any(self, request: Message, answer: type[R]) -> R:
        """Return the answer of this broker, or of the first one that answers. Raise ConsoleError if none does."""
        ids = self.live_brokers
        ids.sort(key=lambda id: id != self.node.node_id)
        for id in ids[:3]:
            try:
                return await self.ask(id, request, answer)
            except PeerError:
                continue
        raise ConsoleError(HTTPStatus.SERVICE_UNAVAILABLE, "No broker answers.")

    async def submit(self, asked: ConsoleRequest, request: Message, answer: type[R]) -> R:
        """Return the answer of this node's own request path to the principal. Raise ConsoleError."""
        node = self.node
        connection = self._connection(asked)
        dispatch = node.open_dispatch(connection)
        if dispatch is None:
            raise ConsoleError(HTTPStatus.SERVICE_UNAVAILABLE, "The node does not serve clients yet.")
        api = API_BY_KEY[ApiKey(request.API_KEY)]
        version = api.max_version - api.unstable
        header = RequestHeader(request.API_KEY, version, next(self._correlation_ids), CLIENT_ID)
        body = bytearray(encode_bytes(request, version))
        clock = node.clock
        sent = Request(header, memoryview(body), connection, clock.now_ms(), len(body), clock.monotonic_ms())
        try:
            async with asyncio.timeout(ACTION_TIMEOUT_S):
                frame = dispatch(sent)
                if frame is not None and not isinstance(frame, list):
                    frame = await frame
        except TimeoutError:
            sentence = f"{api.name} was not answered within {ACTION_TIMEOUT_S:.0f} s."
            raise ConsoleError(HTTPStatus.GATEWAY_TIMEOUT, sentence) from None
        assert frame is not None, "no request of the console goes without a response"
        return decode_response(answer, version, b"".join(frame)[_SIZE_BYTES:])[1]

    # Rights.

    def allows(self, asked: ConsoleRequest, requirement: Requirement, name: str) -> bool:
        """Whether the principal has what `requirement` says on a resource."""
        authorizer = self.node.authorizer
        return authorizer is None or all(
            any(authorizer.is_allowed(asked.principal, asked.host, permission, name) for permission in clause)
            for clause in requirement.clauses
        )

    def require(
        self, asked: ConsoleRequest, requirement: Requirement, name: str, what: str, api: ApiKey | None = None
    ) -> None:
        """Raise ConsoleError without the right; `what` names the action in the sentence.

        The decision is audited as one about a request of `api`, for what the node does with its own rights.
        """
        is_allowed = self.allows(asked, requirement, name)
        audit = self.node.audit
        if api is not None and audit is not None and self.node.authorizer is not None:
            audit.decided(self._connection(asked), api, requirement, name, is_allowed=is_allowed)
        if not is_allowed:
            raise ConsoleError(HTTPStatus.FORBIDDEN, f"{asked.principal} is not authorized to {what}.")

    def allowed(self, asked: ConsoleRequest, requirement: Requirement, names: Sequence[str]) -> Sequence[str]:
        """Return the names on which the principal has what `requirement` says; for the few names of one answer."""
        if self.node.authorizer is None:
            return names
        return [name for name in names if self.allows(asked, requirement, name)]

    def filters(self, asked: ConsoleRequest, requirement: Requirement, name: Callable[[T], str]) -> list[Filter[T]]:
        """Return the filter of a list's rows by what `requirement` says; none without an authorizer."""
        authorizer = self.node.authorizer
        if authorizer is None:
            return []
        # Decisions of an authorizer without a generation may change at any time, so that they are never kept.
        generation: Hashable = getattr(authorizer, "generation", object())
        key = (asked.principal, asked.host, requirement, generation)
        return [Filter(key, lambda row: self.allows(asked, requirement, name(row)))]

    def _connection(self, asked: ConsoleRequest) -> ConnectionInfo:
        return ConnectionInfo("console", self.node.broker_listener, asked.host, 0, principal=asked.principal)


def check(code: int, message: str | None, what: str) -> None:
    """Raise ConsoleError for an error code of a response; `what` names the object in the sentence."""
    if code == ErrorCode.NONE:
        return
    error = ErrorCode(code)
    status = _STATUSES.get(error, HTTPStatus.CONFLICT)
    raise ConsoleError(status, f"{what}: {message or error.message} ({error.name})")


_STATUSES: Final[Mapping[ErrorCode, HTTPStatus]] = {
    **dict.fromkeys(
        (
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ),
        HTTPStatus.FORBIDDEN,
    ),
    **dict.fromkeys(
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_ID),
        HTTPStatus.NOT_FOUND,
    ),
}
