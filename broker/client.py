"""A small blocking client for the command line and for batch jobs: any request to any node.

Owns connections, the choice of API versions, and the lookup of nodes: any broker, a partition leader, a coordinator.
Callers build requests, read responses and handle error codes. `OpenSocket` opens connections, with TLS if configured.
A running node never imports this module.
"""

import random
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from struct import Struct
from types import TracebackType
from typing import NamedTuple, TypeVar

from broker.client_config import (
    CLIENT_PROPERTIES,
    DEFAULT_PORT,
    SOFTWARE_NAME,
    ClientConfig,
    ClientError,
    Endpoint,
    OpenSocket,
    open_socket,
)
from broker.sasl.client.sasl_login import LoginSequence, SaslLogin, renewal_delay_s
from broker.sasl.mechanism import AuthenticationFailed
from protocol.api_keys import API_BY_KEY, FIRST_PRIVATE_KEY, ApiKey, response_class
from protocol.errors import DecodeError, EncodeError, ErrorCode, KafkaError
from protocol.framing import SIZE_BYTES, frame_size
from protocol.headers import decode_response, encode_request
from protocol.messages import Message
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

__all__ = [
    "CLIENT_PROPERTIES",
    "DEFAULT_PORT",
    "AuthenticationRefused",
    "Client",
    "ClientConfig",
    "ClientError",
    "Connection",
    "ConnectionLost",
    "Endpoint",
    "OpenSocket",
    "UnsupportedVersion",
    "open_socket",
    "raise_for",
]

R = TypeVar("R", bound=Message)
T = TypeVar("T")

SOFTWARE_VERSION = "0.1.0"
MAX_RESPONSE_BYTES = 1 << 30
"""Largest response accepted: an HTTP server's "HTTP", read as a size, is 1.2 GB."""

FIRST_ATTEMPT_TIMEOUT_MS = 1_000
"""Connection timeout of the first attempt per bootstrap server, if several are given."""

READ_CHUNK_BYTES = 1 << 20
"""Initial size of a frame's buffer: a wrong size field cannot allocate more than was sent."""

GROUP_COORDINATOR = 0

TRANSIENT: frozenset[ErrorCode] = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Errors that `Client.retrying` retries. The protocol calls more of them retriable, such as an unknown topic or a
rebalance; these fail at once, so that a misspelt topic is reported immediately.
"""

_INT16 = Struct(">h")


class ConnectionLost(ClientError):
    """The node is unreachable, timed out, or closed the connection; a retry may succeed."""


class AuthenticationRefused(ClientError):
    """The login failed. Another attempt with the same credentials would fail too, so nothing retries it."""


class UnsupportedVersion(ClientError):
    """The node and this client share no version of the API, or the shared version lacks a field of the request."""


class _PendingRequest(NamedTuple):
    correlation_id: int
    version: int


class Connection:
    """A connection to one node. Requests may be pipelined; responses arrive in the order of the requests.

    A SASL session of limited time is renewed by another login before a request, after all pending responses (KIP-368).
    """

    def __init__(
        self, endpoint: Endpoint, config: ClientConfig, opened: socket.socket, login: SaslLogin | None = None
    ) -> None:
        self.endpoint = endpoint
        self.versions: dict[int, tuple[int, int]] = {}
        self.api_versions = ApiVersionsResponse()
        self._config = config
        self._socket = opened
        self._login = login
        self._renew_at: float | None = None
        self._awaited: deque[_PendingRequest] = deque()
        self._early_frames: deque[memoryview] = deque()  # read before a login, for the first of `_awaited`
        self._next_correlation_id = 0

    @classmethod
    def open(cls, endpoint: Endpoint, config: ClientConfig, opener: OpenSocket = open_socket) -> "Connection":
        """Connect, request the node's API versions and log in. Raises ConnectionLost or AuthenticationRefused."""
        login = config.login()
        try:
            connection = cls(endpoint, config, opener(endpoint, config), login)
        except OSError as error:
            raise ConnectionLost(f"cannot connect to {endpoint}: {_reason(error)}.") from error
        try:
            connection._negotiate_versions()
            if login is not None:
                connection._log_in(login)
        except ClientError:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        self._socket.close()

    def version_of(self, api_key: int, highest: int | None = None) -> int:
        """Return the highest version that both sides support, at most `highest`. Raises UnsupportedVersion.

        Nodes do not list private APIs; a node without the private API closes the connection.
        """
        known = API_BY_KEY[api_key]
        if api_key >= FIRST_PRIVATE_KEY:
            return known.max_version
        theirs = self.versions.get(api_key)
        if theirs is None:
            raise UnsupportedVersion(f"{self.endpoint} does not serve {known.name}.")
        version = min(known.max_version, theirs[1], known.max_version if highest is None else highest)
        if version < max(known.min_version, theirs[0]):
            raise UnsupportedVersion(
                f"{self.endpoint} serves {known.name} {theirs[0]} to {theirs[1]},"
                f" and this program needs {known.min_version} to {known.max_version}."
            )
        return version

    def serves(self, api_key: int) -> bool:
        return api_key in self.versions

    def send(self, request: Message, *, highest: int | None = None, answered: bool = True) -> int:
        """Send without waiting; `answered` is False for requests without a response (acks=0).

        Return the version used. Raises ConnectionLost, UnsupportedVersion or AuthenticationRefused.
        """
        if self._renew_at is not None and time.monotonic() >= self._renew_at:
            self._renew_login()
        version = self.version_of(request.API_KEY, highest)
        self._write(request, version)
        if answered:
            self._awaited.append(_PendingRequest(self._next_correlation_id, version))
        self._next_correlation_id = (self._next_correlation_id + 1) & 0x7FFFFFFF
        return version

    def receive(self, response_type: type[R], timeout_ms: int | None = None) -> R:
        """Receive the response to the oldest pending request. Raises ConnectionLost."""
        awaited = self._awaited.popleft()
        if self._early_frames:
            frame = self._early_frames.popleft()
        else:
            frame = self._read_frame(self._config.request_timeout_ms if timeout_ms is None else timeout_ms)
        return self._decode(response_type, awaited, frame)

    def _decode(self, response_type: type[R], awaited: _PendingRequest, frame: memoryview) -> R:
        try:
            correlation_id, response = decode_response(response_type, awaited.version, frame)
        except DecodeError as error:
            raise self._lost(f"sent a response that cannot be decoded ({error})") from error
        if correlation_id != awaited.correlation_id:
            raise self._lost("sent a response with the wrong correlation id")
        return response

    def call(
        self, request: Message, response_type: type[R], *, highest: int | None = None, timeout_ms: int | None = None
    ) -> R:
        """Send and wait for the response. Raises ConnectionLost or UnsupportedVersion."""
        self.send(request, highest=highest)
        return self.receive(response_type, timeout_ms)

    def _log_in(self, login: SaslLogin) -> None:
        """Log in while no response is pending. Raises ConnectionLost, UnsupportedVersion or AuthenticationRefused."""
        sequence = LoginSequence(login)
        request: Message | None = sequence.first()
        try:
            if (pending := login.prepare()) is not None:
                pending.result()  # ends by the timeouts of the token endpoint
            while request is not None:
                version = self.version_of(request.API_KEY)
                self._write(request, version)
                sent = _PendingRequest(self._next_correlation_id, version)
                self._next_correlation_id = (self._next_correlation_id + 1) & 0x7FFFFFFF
                frame = self._read_frame(self._config.request_timeout_ms)
                request = sequence.respond(self._decode(response_class(request.API_KEY), sent, frame))
        except AuthenticationFailed as error:
            self.close()
            raise AuthenticationRefused(f"{self.endpoint} failed the login with {error}.") from error
        delay = renewal_delay_s(sequence.lifetime_ms, random.random())
        self._renew_at = None if delay is None else time.monotonic() + delay

    def _renew_login(self) -> None:
        """Read all pending responses, then log in again."""
        assert self._login is not None
        while len(self._early_frames) < len(self._awaited):
            self._early_frames.append(self._read_frame(self._config.request_timeout_ms))
        self._log_in(self._login)

    def _negotiate_versions(self) -> None:
        response = self._request_versions(ApiVersionsRequest.MAX_VERSION)
        if response is None:
            response = self._request_versions(0)
        if response is None or response.error_code:
            raise self._lost("did not report its API versions")
        self.api_versions = response
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def _request_versions(self, version: int) -> ApiVersionsResponse | None:
        """Return None if the node lacks this version of ApiVersions: its response then has version 0 (KIP-511)."""
        self._write(ApiVersionsRequest(SOFTWARE_NAME, SOFTWARE_VERSION), version)
        self._next_correlation_id += 1
        frame = self._read_frame(self._config.connect_timeout_ms)
        if len(frame) >= 6 and _INT16.unpack_from(frame, 4)[0] == ErrorCode.UNSUPPORTED_VERSION:
            return None
        try:
            return decode_response(ApiVersionsResponse, version, frame)[1]
        except DecodeError as error:
            raise self._lost("sent a response that is not in the Kafka protocol") from error

    def _write(self, request: Message, version: int) -> None:
        try:
            chunks = encode_request(request, version, self._next_correlation_id, self._config.client_id)
        except EncodeError as error:
            name = API_BY_KEY[request.API_KEY].name
            raise UnsupportedVersion(
                f"{self.endpoint} serves {name} up to version {version}, which lacks a field of the request: {error}."
            ) from error
        try:
            self._socket.settimeout(self._config.request_timeout_ms / 1000)
            self._socket.sendall(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        except OSError as error:
            raise self._lost(f"did not accept the request ({_reason(error)})") from error

    def _read_frame(self, timeout_ms: int) -> memoryview:
        deadline = time.monotonic() + timeout_ms / 1000
        try:
            size = frame_size(self._read_exactly(SIZE_BYTES, deadline), 0, MAX_RESPONSE_BYTES)
        except DecodeError as error:
            raise self._lost("sent a response that is not in the Kafka protocol") from error
        return memoryview(self._read_exactly(size, deadline))

    def _read_exactly(self, size: int, deadline: float) -> bytearray:
        data = bytearray(min(size, READ_CHUNK_BYTES))
        filled = 0
        while filled < size:
            if filled == len(data):
                data += bytes(min(size - filled, len(data)))
            filled += self._read_into(memoryview(data)[filled:], deadline)
        return data

    def _read_into(self, room: memoryview, deadline: float) -> int:
        try:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            count = self._socket.recv_into(room)
        except TimeoutError as error:
            raise self._lost("did not respond in time") from error
        except OSError as error:
            raise self._lost(f"broke the connection ({_reason(error)})") from error
        if count == 0:
            raise self._lost("closed the connection")
        return count

    def _lost(self, reason: str) -> ConnectionLost:
        """Close the connection and return the error: the position in the response stream is unknown."""
        self.close()
        return ConnectionLost(f"{self.endpoint} {reason}.")


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no response in time"
    if tls_reason := getattr(error, "reason", None):  # of ssl.SSLError
        return f"TLS: {tls_reason.replace('_', ' ').lower()}"
    return (error.strerror or str(error) or type(error).__name__).rstrip(".")


class Client:
    """Connections to the nodes of one cluster, opened on first use. Not thread-safe."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        opener: OpenSocket = open_socket,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.config = config
        self._opener = opener
        self._monotonic = monotonic
        self._sleep = sleep
        self._bootstrap: Connection | None = None
        self._endpoints: dict[int, Endpoint] = {}
        self._connections: dict[tuple[int, str], Connection] = {}
        self._has_connected = False

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Close all connections and forget all nodes; the next call starts from the bootstrap servers."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._endpoints.clear()
        if self._bootstrap is not None:
            self._bootstrap.close()
            self._bootstrap = None

    def any(self) -> Connection:
        """Return a connection to the first bootstrap server that responds. Raises ConnectionLost if none does."""
        if self._bootstrap is None:
            self._bootstrap = self._connect_to_bootstrap()
        return self._bootstrap

    def _connect_to_bootstrap(self) -> Connection:
        """Try all servers with a short timeout before waiting longer: a starting node accepts connections before it
        responds.
        """
        timeout_ms = self.config.connect_timeout_ms
        is_alone = len(self.config.bootstrap) == 1
        failures: list[str] = []
        for limit_ms in (timeout_ms,) if is_alone else (min(FIRST_ATTEMPT_TIMEOUT_MS, timeout_ms), timeout_ms):
            failures = []
            for endpoint in self.config.bootstrap:
                try:
                    connection = self._connect(endpoint, limit_ms)
                except ConnectionLost as error:
                    failures.append(str(error).rstrip("."))
                else:
                    self._has_connected = True
                    return connection
        raise ConnectionLost("; ".join(failures) + ".")

    def _connect(self, endpoint: Endpoint, limit_ms: int) -> Connection:
        """Connect within `limit_ms`. Raises ConnectionLost."""
        return Connection.open(endpoint, replace(self.config, connect_timeout_ms=limit_ms), self._opener)

    def node(self, node_id: int, purpose: str = "") -> Connection:
        """Return a connection to a broker by its id. `purpose` separates requests that must not wait for each other.

        Raises ConnectionLost, or KafkaError(BROKER_NOT_AVAILABLE) if no live broker has the id.
        """
        connection = self._connections.get((node_id, purpose))
        if connection is None:
            if node_id not in self._endpoints:
                self.metadata([])
            endpoint = self._endpoints.get(node_id)
            if endpoint is None:
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not a live broker.")
            connection = self._connections[node_id, purpose] = Connection.open(endpoint, self.config, self._opener)
        return connection

    def call(self, request: Message, response_type: type[R], *, highest: int | None = None) -> R:
        """Send the request to any broker and return its response. Raises ConnectionLost, UnsupportedVersion."""
        return self.any().call(request, response_type, highest=highest)

    def metadata(self, topics: Iterable[str] | None = None, *, auto_create: bool = False) -> MetadataResponse:
        """Request metadata of `topics` (None: all); remember the endpoints of the live brokers."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        response = self.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=auto_create), MetadataResponse)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code))
        self._endpoints = {broker.node_id: Endpoint(broker.host, broker.port) for broker in response.brokers}
        return response

    def leaders(self, topics: Iterable[str], *, auto_create: bool = False) -> dict[str, MetadataResponseTopic]:
        """Return topics by name. Raises KafkaError if a topic has an error or a partition has no leader."""
        response = self.metadata(topics, auto_create=auto_create)
        for topic in response.topics:
            raise_for(topic.error_code, f"topic {topic.name!r}")
            for partition in topic.partitions:
                if partition.leader_id < 0:
                    raise_for(
                        partition.error_code or ErrorCode.LEADER_NOT_AVAILABLE,
                        f"{topic.name}-{partition.partition_index}",
                    )
        return {topic.name: topic for topic in response.topics if topic.name is not None}

    def coordinator(self, key: str, kind: int = GROUP_COORDINATOR, purpose: str = "") -> Connection:
        """Connect to the coordinator of a group or transactional id. Raises KafkaError if FindCoordinator fails."""
        return self.node(self.coordinator_id(key, kind), purpose)

    def coordinator_id(self, key: str, kind: int = GROUP_COORDINATOR) -> int:
        """Return the node id of the coordinator. Raises KafkaError if FindCoordinator fails."""
        subject = f"group {key!r}" if kind == GROUP_COORDINATOR else f"transactional id {key!r}"
        request = FindCoordinatorRequest(key_type=kind)
        if self.any().version_of(ApiKey.FIND_COORDINATOR) >= 4:
            request.coordinator_keys = [key]
        else:
            request.key = key
        response = self.call(request, FindCoordinatorResponse)
        if response.coordinators:
            found = response.coordinators[0]
            raise_for(found.error_code, subject, found.error_message)
            node_id, endpoint = found.node_id, Endpoint(found.host, found.port)
        else:
            raise_for(response.error_code, subject, response.error_message)
            node_id, endpoint = response.node_id, Endpoint(response.host, response.port)
        self._endpoints.setdefault(node_id, endpoint)
        return node_id

    def retrying(self, attempt: Callable[[], T], also: frozenset[ErrorCode] = frozenset()) -> T:
        """Return the result of `attempt`; retry after lost connections and transient errors until the API timeout.

        Forget the cluster before a retry, so that new leaders and coordinators are found. Raises the error of the last
        attempt. There is no retry before the first successful connection: the address is wrong or no broker is running.
        """
        deadline = self._monotonic() + self.config.api_timeout_ms / 1000
        backoff_ms = self.config.retry_backoff_ms
        while True:
            try:
                return attempt()
            except (ConnectionLost, KafkaError) as error:
                if isinstance(error, KafkaError) and error.code not in TRANSIENT | also:
                    raise
                if not self._has_connected or self._monotonic() + backoff_ms / 1000 >= deadline:
                    raise
            self.forget()
            self._sleep(backoff_ms / 1000)
            backoff_ms = min(2 * backoff_ms, self.config.retry_backoff_max_ms)


def raise_for(code: int, subject: str, message: str | None = None) -> None:
    """Raise KafkaError for any code but 0, with the broker's message if it sent one."""
    if code:
        known = ErrorCode(code) if code in ErrorCode._value2member_map_ else ErrorCode.UNKNOWN_SERVER_ERROR
        raise KafkaError(known, message or f"{subject}: {known.message}")
