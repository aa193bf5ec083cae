"""Simulated nodes: connections that the test opens, answers and breaks, on a manual clock."""

import asyncio
from collections.abc import Callable
from typing import Any

from broker.net.peer import NetworkClient, Outcome, PeerSettings, SaslConnect, SocketAddress
from broker.net.peer_connection import Ending
from broker.sasl.client.sasl_login import SaslLogin
from protocol.api_keys import ApiKey, request_class
from protocol.compiler import decode
from protocol.headers import RequestHeader, decode_request_header, encode_response
from protocol.messages import Message
from protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from tests.support.fakes.frame_reader import FrameReader
from tests.support.fakes.manual_loop import ManualLoop

NODE = SocketAddress("node", 9093)
OTHER = SocketAddress("other", 9093)


class Opened:
    """One connection attempt, as the other node sees it."""

    def __init__(self, protocol: Any, on_failure: Callable[[Ending], None]) -> None:
        self.protocol = protocol
        self.fail = on_failure
        self.is_cancelled = False
        self.transport = OneWayTransport()
        self.unread = 0

    def cancel(self) -> None:
        self.is_cancelled = True

    def accept(self) -> None:
        self.protocol.connection_made(self.transport)

    def agree(self, **versions: tuple[int, int]) -> None:
        """Accept the connection and answer ApiVersions."""
        self.accept()
        (header, _) = self.take()
        assert header.api_key == ApiKey.API_VERSIONS
        self.answer(header, served(**versions))

    @property
    def requests(self) -> list[tuple[RequestHeader, Message]]:
        """All requests so far."""
        return [_decoded(frame) for frame in FrameReader().feed(b"".join(self.transport.sent))]

    def take(self) -> tuple[RequestHeader, Message]:
        """Return the next request."""
        self.unread += 1
        return self.requests[self.unread - 1]

    def answer(self, header: RequestHeader, response: Message) -> None:
        self.send(b"".join(encode_response(header.api_key, header.api_version, header.correlation_id, response)))

    def send(self, data: bytes) -> None:
        room = self.protocol.get_buffer(-1)
        room[: len(data)] = data
        self.protocol.buffer_updated(len(data))


class OneWayTransport(asyncio.Transport):
    """Keeps written data."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.is_aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_aborted
        self.sent.append(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.write(data)

    def abort(self) -> None:
        self.is_aborted = True


class NetworkClientHarness:
    """A `NetworkClient` under test, and the outcomes of its requests."""

    def __init__(self, spread: float = 0.5, login: SaslLogin | None = None, **settings: int) -> None:
        self.loop = ManualLoop()
        self.attempts: list[Opened] = []
        self.outcomes: list[Outcome] = []
        self.peers = NetworkClient(
            self.loop,
            self._connect if login is None else SaslConnect(self._connect, login),
            client_id="raft-client-1",
            settings=PeerSettings(**settings),
            spread=lambda: spread,
        )

    def _connect(
        self, endpoint: SocketAddress, protocol: asyncio.BaseProtocol, on_failure: Callable[[Ending], None]
    ) -> Opened:
        self.attempts.append(Opened(protocol, on_failure))
        return self.attempts[-1]

    @property
    def last(self) -> Opened:
        return self.attempts[-1]

    def send(self, request: Any, timeout_ms: int = 2_000, to: SocketAddress = NODE, **options: Any) -> None:
        self.peers.send(to, request, self.outcomes.append, timeout_ms=timeout_ms, **options)

    def run(self, ms: float = 0) -> None:
        """Advance the clock."""
        self.loop.advance(ms / 1000)

    def take_outcomes(self) -> list[Outcome]:
        """Return the outcomes since the last call."""
        self.loop.run_soon()
        assert not self.loop.failures
        outcomes, self.outcomes[:] = list(self.outcomes), []
        return outcomes


def served(**versions: tuple[int, int]) -> ApiVersionsResponse:
    """Return an ApiVersions response with the given APIs, by the names of their keys, and ApiVersions itself."""
    ranges = {"API_VERSIONS": (0, 4), **versions}
    return ApiVersionsResponse(api_keys=[ApiVersion(ApiKey[key], *ranges[key]) for key in ranges])


def _decoded(frame: memoryview) -> tuple[RequestHeader, Message]:
    header, position = decode_request_header(frame)
    request, _ = decode(request_class(header.api_key), frame, header.api_version, position)
    return header, request
