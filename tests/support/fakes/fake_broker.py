"""A broker with sockets and threads that uses the real codec and returns the answers of a test.

By default it answers ApiVersions (for all its answers) and Metadata (its `topics`, itself as the only broker and
controller). `answer` adds or replaces an API; `requests` records every request.
"""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from protocol.api_keys import API_BY_KEY, ApiKey, request_class
from protocol.compiler import decode
from protocol.errors import ErrorCode
from protocol.headers import RequestHeader, decode_request_header, encode_response
from protocol.messages import Message
from protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.primitives import Uuid
from tests.support.fakes.frame_reader import FrameReader

M = TypeVar("M", bound=Message)

NODE_ID = 1


class Received(NamedTuple):
    header: RequestHeader
    request: Message


class HangUp(Exception):
    """Closes the connection without a response; raised by an answer."""


# Each answer takes the request class of its API, which the type of a dict cannot express.
Answer = Callable[[Any], Message | None]


class FakeBroker:
    """A context manager that listens while it is open. An answer of None sends no response (acks=0)."""

    def __init__(self, topics: dict[str, int] | None = None) -> None:
        self.topics = dict(topics or {})
        self.internal: set[str] = set()
        self.requests: list[Received] = []
        self.versions: dict[int, tuple[int, int]] = {}
        self._answers: dict[int, Answer] = {}
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self._closing = False
        self._arrived = threading.Condition()
        self.port: int = self._socket.getsockname()[1]
        self.answer(ApiKey.API_VERSIONS, lambda _: self._api_versions())
        self.answer(ApiKey.METADATA, self._metadata)
        self.answer(ApiKey.FIND_COORDINATOR, self._find_coordinator)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def answer(self, key: ApiKey, answer: Answer, versions: tuple[int, int] | None = None) -> None:
        """Answer an API, by default in all versions."""
        known = API_BY_KEY[key]
        self._answers[key] = answer
        self.versions[key] = (known.min_version, known.max_version) if versions is None else versions

    def received(self, message_class: type[M]) -> list[M]:
        """Return the requests of one kind so far."""
        return [request for _, request in self.requests if isinstance(request, message_class)]

    def wait_for(self, message_class: type[M], count: int, timeout_s: float = 60) -> list[M]:
        """Wait for `count` requests of one kind, and return them; for requests without a response."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.received(message_class)) >= count, timeout_s)
        return self.received(message_class)

    def hang_up(self) -> None:
        """Close all connections; accept new ones."""
        connections, self._connections = self._connections, []
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> "FakeBroker":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.hang_up()

    def _accept(self) -> None:
        while not self._closing:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        reader = FrameReader()
        with connection, suppress(OSError, HangUp):
            while data := connection.recv(1 << 16):
                for frame in reader.feed(data):
                    response = self._respond(frame)
                    if response is not None:
                        connection.sendall(response)

    def _respond(self, frame: memoryview) -> bytes | None:
        header, position = decode_request_header(frame)
        low, high = self.versions[header.api_key]
        if not low <= header.api_version <= high:
            assert header.api_key == ApiKey.API_VERSIONS, f"a client must not send {header}"
            response: Message | None = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
            header = header._replace(api_version=0)
        else:
            request, _ = decode(request_class(header.api_key), frame, header.api_version, position)
            with self._arrived:
                self.requests.append(Received(header, request))
                self._arrived.notify_all()
            response = self._answers[header.api_key](request)
        if response is None:
            return None
        return b"".join(encode_response(header.api_key, header.api_version, header.correlation_id, response))

    def _api_versions(self) -> ApiVersionsResponse:
        keys = [ApiVersion(key, low, high) for key, (low, high) in sorted(self.versions.items())]
        return ApiVersionsResponse(api_keys=keys)

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        wanted = self.topics if request.topics is None else [topic.name or "" for topic in request.topics]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(NODE_ID, "127.0.0.1", self.port)],
            cluster_id="fake",
            controller_id=NODE_ID,
            topics=[self._topic(name) for name in wanted],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.topics:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
        return MetadataResponseTopic(
            name=name,
            topic_id=topic_id(name),
            is_internal=name in self.internal,
            partitions=[
                MetadataResponsePartition(
                    partition_index=index,
                    leader_id=NODE_ID,
                    leader_epoch=0,
                    replica_nodes=[NODE_ID],
                    isr_nodes=[NODE_ID],
                )
                for index in range(self.topics[name])
            ],
        )

    def _find_coordinator(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        here = ("127.0.0.1", self.port)
        if request.coordinator_keys:
            return FindCoordinatorResponse(
                coordinators=[Coordinator(key, NODE_ID, *here) for key in request.coordinator_keys]
            )
        return FindCoordinatorResponse(node_id=NODE_ID, host=here[0], port=here[1])


def topic_id(name: str) -> Uuid:
    """Return an id that depends on the name only."""
    return Uuid(name.encode().ljust(16, b"\0")[:16])
