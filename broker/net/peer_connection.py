"""One connection to another node, on the client side: negotiates versions, sends requests, matches responses.

Responses come in the order of requests. A response out of order or malformed ends the connection, because later bytes
cannot be trusted. A missing response ends it too, because later responses cannot arrive either. This file opens nothing
and retries nothing; see `peer.py`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Final, NamedTuple, Protocol, TypeAlias, cast

from broker.net.peer_login import PeerLogin
from broker.net.receiver import FrameReceiver, ReceiveArena
from broker.sasl.mechanism import AuthenticationFailed
from protocol.api_keys import API_BY_KEY, FIRST_PRIVATE_KEY, ApiKey, response_class
from protocol.compiler import decode
from protocol.errors import DecodeError, EncodeError, ErrorCode
from protocol.headers import decode_response, encode_request
from protocol.messages import Message
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

SOFTWARE_NAME: Final = "ottla"
SOFTWARE_VERSION: Final = "0.1.0"
_VERSIONS_HIGHEST: Final = 4  # the newest; lists features whose lowest level is 0
_RESPONSE_START: Final = Struct(">ih")  # of ApiVersions in any version: correlation id, error code
_CORRELATION_IDS: Final = 2**31


class PeerError(Exception):
    """A request to another node has no response; the text is the reason, without final stop."""


class PeerUnavailable(PeerError):
    """No connection could be made, or it ended first. The request may or may not have had its effect."""


class PeerRefused(PeerUnavailable):
    """The machine refused the connection: the process that listened there has ended. Nothing was sent."""


class PeerTimedOut(PeerError):
    """No response came in time. The request may or may not have had its effect."""


class VersionMismatch(PeerError):
    """No version of the API is supported on both sides, or none can express the request. Nothing was sent."""


Outcome: TypeAlias = Message | PeerError
Done: TypeAlias = Callable[[Outcome], None]


class ApiVersionRange(NamedTuple):
    """The versions of an API that a node supports."""

    low: int
    high: int


class Versioned(NamedTuple):
    """A request whose content depends on its version; `build` is called once the version is known.

    `build` may raise VersionMismatch when the version cannot express the request.
    """

    key: ApiKey
    build: Callable[[int], Message]


class PeerLoop(Protocol):
    """The part of an event loop that connections to other nodes need."""

    def time(self) -> float: ...

    def call_soon(self, callback: Callable[[], object], /) -> asyncio.Handle: ...

    def call_later(self, delay: float, callback: Callable[[], object], /) -> asyncio.TimerHandle: ...


class Call:
    """One request until its outcome, which is delivered exactly once, in a later turn of the loop."""

    __slots__ = ("_done", "_loop", "build", "key", "timer", "versions")

    def __init__(
        self, loop: PeerLoop, key: ApiKey, build: Callable[[int], Message], versions: ApiVersionRange, done: Done
    ) -> None:
        self.key = key
        self.build = build
        self.versions = versions
        self.timer: asyncio.TimerHandle | None = None
        self._loop = loop
        self._done: Done | None = done

    def finish(self, outcome: Outcome) -> None:
        """Deliver the outcome, unless there was one before."""
        done, self._done = self._done, None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if done is not None:
            self._loop.call_soon(partial(done, outcome))


class _Sent(NamedTuple):
    correlation_id: int
    version: int
    call: Call


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a connection ended, as a predicate to the node's name.

    `is_fault`: the node violated the protocol. `is_refusal`: the connection was refused. `is_login_failure`: one side
    did not accept the other's credentials.
    """

    reason: str
    is_fault: bool = False
    is_refusal: bool = False
    is_login_failure: bool = False

    def failure(self, name: str) -> PeerUnavailable:
        """Return the outcome of a request to the node of that name."""
        return (PeerRefused if self.is_refusal else PeerUnavailable)(f"{name} {self.reason}")


class PeerConnection(asyncio.BufferedProtocol):
    """A connection; `on_room` is called when another request can be sent, `on_end` once at the end.

    The first `on_room` follows the negotiation of versions, and the login if `login` is given. A session of limited
    time is renewed by another login: requests wait, those in flight are answered first. Before `on_end`, requests in
    flight fail with PeerUnavailable.
    """

    __slots__ = (
        "_client_id",
        "_in_flight",
        "_is_over",
        "_is_ready",
        "_is_stuck",
        "_login",
        "_login_request",
        "_max_in_flight",
        "_name",
        "_next_id",
        "_on_end",
        "_on_room",
        "_receiver",
        "_transport",
        "_versions",
        "_versions_asked",
    )

    def __init__(
        self,
        name: str,
        arena: ReceiveArena,
        *,
        client_id: str,
        frame_bytes_max: int,
        max_in_flight: int,
        on_room: Callable[[], None],
        on_end: Callable[[Ending], None],
        login: PeerLogin | None = None,
    ) -> None:
        self._name = name
        self._client_id = client_id
        self._max_in_flight = max_in_flight
        self._on_room = on_room
        self._on_end = on_end
        self._receiver = FrameReceiver(arena, frame_bytes_max, lambda: True)
        self._transport: asyncio.Transport | None = None
        self._versions: dict[int, ApiVersionRange] | None = None
        self._versions_asked = -1
        self._login = login
        self._login_request: tuple[ApiKey, int] | None = None  # key and version of the request without response
        self._is_ready = False
        self._in_flight: deque[_Sent] = deque()
        self._next_id = 0
        self._is_stuck = False
        self._is_over = False

    @property
    def is_ready(self) -> bool:
        """Whether versions are negotiated and a login, where needed, has succeeded once."""
        return self._is_ready

    @property
    def is_logging_in(self) -> bool:
        """Whether a request of a login has no response."""
        return self._login_request is not None

    @property
    def versions(self) -> Mapping[int, ApiVersionRange] | None:
        """The versions that the node serves, by API key; None until negotiated."""
        return self._versions

    @property
    def has_room(self) -> bool:
        """Whether `begin` may be called."""
        if not self._is_ready or self._is_stuck or len(self._in_flight) >= self._max_in_flight:
            return False
        return self._login is None or not (self._login.is_under_way or self._login.is_due)

    @property
    def in_flight(self) -> int:
        """The number of requests without response."""
        return len(self._in_flight)

    def carries(self, call: Call) -> bool:
        """Whether `call` was sent here and has no response."""
        return any(sent.call is call for sent in self._in_flight)

    def begin(self, call: Call) -> None:
        """Send a request. Raises VersionMismatch."""
        version = self._choose(call.key, call.versions)
        try:
            self._write(call.build(version), version)
        except EncodeError as error:
            raise VersionMismatch(f"{call.key.name} version {version} cannot express this: {error}") from error
        self._in_flight.append(_Sent(self._next_id, version, call))

    def renew_login(self) -> None:
        """Log in again if the session ends soon and no request is in flight."""
        if self._login is None or not self._is_ready or self._is_over:
            return
        if self._login.is_due and not self._in_flight:
            self._send_login(self._login.begin())

    def end(self, ending: Ending) -> None:
        """Close and fail the requests in flight. Does nothing the second time."""
        if self._is_over:
            return
        self._is_over = True
        if self._transport is not None:
            self._transport.abort()
        self._receiver.abandon()
        while self._in_flight:
            self._in_flight.popleft().call.finish(ending.failure(self._name))
        self._on_end(ending)

    # Calls of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Negotiate versions first, unless the connection has been given up."""
        self._transport = cast(asyncio.Transport, transport)
        if self._is_over:
            self._transport.abort()
        else:
            self._ask_versions(_VERSIONS_HIGHEST)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory for the next bytes."""
        return self._receiver.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle the responses that are complete now."""
        for frame in self._receiver.received(nbytes):
            if not self._is_over:
                self._take(frame)
        if self._receiver.failure is not None:
            self.end(Ending("sent a response of invalid size", is_fault=True))
        elif not self._is_over:
            self.renew_login()
            if self.has_room and not self._is_over:
                self._on_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """End, because the transport is gone."""
        self.end(Ending("closed the connection" if exc is None else f"broke the connection ({exc})"))

    def pause_writing(self) -> None:
        """Begin no request while the node does not read; waiting requests are sent later or time out."""
        self._is_stuck = True

    def resume_writing(self) -> None:
        """Continue, because the node reads again."""
        self._is_stuck = False
        if self.has_room and not self._is_over:
            self._on_room()

    # Sending.

    def _choose(self, key: ApiKey, wanted: ApiVersionRange) -> int:
        """Return the highest version of `wanted` that both sides support. Raises VersionMismatch."""
        assert self._versions is not None
        theirs = self._versions.get(key)
        if theirs is None:
            if key >= FIRST_PRIVATE_KEY:  # never advertised; a node that does not know it closes the connection
                return wanted.high
            raise VersionMismatch(f"{key.name} is not served there")
        version = min(wanted.high, theirs.high)
        if version < max(wanted.low, theirs.low):
            raise VersionMismatch(
                f"{key.name} is served there in versions {theirs.low} to {theirs.high}, "
                f"wanted are {wanted.low} to {wanted.high}"
            )
        return version

    def _write(self, message: Message, version: int) -> None:
        assert self._transport is not None
        correlation_id = (self._next_id + 1) % _CORRELATION_IDS
        chunks = encode_request(message, version, correlation_id, self._client_id)
        self._next_id = correlation_id
        if len(chunks) == 1:
            self._transport.write(chunks[0])
        else:
            self._transport.writelines(chunks)

    def _ask_versions(self, version: int) -> None:
        self._versions_asked = version
        self._write(ApiVersionsRequest(SOFTWARE_NAME, SOFTWARE_VERSION), version)

    def _send_login(self, request: Message) -> None:
        key = ApiKey(request.API_KEY)
        try:
            version = self._choose(key, _LOGIN_VERSIONS[key])
        except VersionMismatch as error:
            self.end(Ending(f"cannot be logged in to: {error}", is_login_failure=True))
            return
        self._login_request = (key, version)
        self._write(request, version)

    # Receiving.

    def _take(self, frame: memoryview) -> None:
        try:
            if self._versions is None:
                self._take_versions(frame)
            elif self._login_request is not None:
                self._take_login(frame, *self._login_request)
            else:
                self._take_response(frame)
        except DecodeError as error:
            self.end(Ending(f"sent a malformed response ({error})", is_fault=True))

    def _take_versions(self, frame: memoryview) -> None:
        """Take the served versions. An unknown version of ApiVersions is answered in version 0 (KIP-511)."""
        if len(frame) < _RESPONSE_START.size:
            raise DecodeError("ApiVersions response is cut short")
        correlation_id, code = _RESPONSE_START.unpack_from(frame)
        refused = code == ErrorCode.UNSUPPORTED_VERSION
        response, _ = decode(ApiVersionsResponse, frame, 0 if refused else self._versions_asked, 4)
        served = {each.api_key: ApiVersionRange(each.min_version, each.max_version) for each in response.api_keys}
        if correlation_id != self._next_id:
            raise DecodeError(f"response {correlation_id} to request {self._next_id}")
        if refused and self._versions_asked > 0:
            theirs = served.get(ApiKey.API_VERSIONS, ApiVersionRange(0, 0)).high
            self._ask_versions(max(0, min(theirs, self._versions_asked - 1)))
        elif code:
            self.end(Ending(f"answered ApiVersions with error {code}", is_fault=True))
        else:
            self._versions = served
            if self._login is None:
                self._is_ready = True
            else:
                self._send_login(self._login.begin())

    def _take_login(self, frame: memoryview, key: ApiKey, version: int) -> None:
        """Take a response of the login; send the next request or become ready."""
        assert self._login is not None
        correlation_id, response = decode_response(response_class(key), version, frame)
        if correlation_id != self._next_id:
            raise DecodeError(f"response {correlation_id} to request {self._next_id}")
        self._login_request = None
        try:
            request = self._login.respond(response)
        except AuthenticationFailed as error:
            self.end(Ending(f"failed the login with {error}", is_login_failure=True))
            return
        if request is None:
            self._is_ready = True
        else:
            self._send_login(request)

    def _take_response(self, frame: memoryview) -> None:
        if not self._in_flight:
            raise DecodeError("response without request")
        sent = self._in_flight[0]
        correlation_id, message = decode_response(response_class(sent.call.key), sent.version, frame)
        if correlation_id != sent.correlation_id:
            raise DecodeError(f"response {correlation_id} to request {sent.correlation_id}")
        self._in_flight.popleft()
        sent.call.finish(message)


def versions_of(key: ApiKey) -> ApiVersionRange:
    """Return the stable versions of an API."""
    api = API_BY_KEY[key]
    return ApiVersionRange(api.min_version, api.max_version - api.unstable)


_LOGIN_VERSIONS: Final = {
    ApiKey.SASL_HANDSHAKE: ApiVersionRange(1, 1),  # version 0 announces tokens without SaslAuthenticate
    ApiKey.SASL_AUTHENTICATE: versions_of(ApiKey.SASL_AUTHENTICATE),
}
