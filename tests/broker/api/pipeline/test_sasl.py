"""SASL on one connection: exchanges, sessions, failures, and every other request before them."""

import asyncio
import inspect
from random import Random
from typing import Any

import pytest

from broker.api.pipeline import permission as needs
from broker.api.pipeline.authentication import ALLOWED_REQUESTS, TRANSITIONS, AuthenticationState
from broker.api.pipeline.pipeline import RequestPipelines
from broker.api.pipeline.sasl import SaslServices
from broker.api.security.sasl_session import refuse_handshake, refuse_token
from broker.api.serving.dispatch import Dispatcher
from broker.api.serving.route import route
from broker.net.request import (
    ANONYMOUS,
    RAW_TOKEN_VERSION,
    CloseConnection,
    ConnectionInfo,
    LoginRefused,
    Request,
)
from broker.sasl.mechanism import Accepted, AuthenticationFailed, Challenge
from broker.sasl.server.mechanisms import OfferedMechanism
from protocol.api_keys import ApiKey
from protocol.compiler import encode_bytes
from protocol.errors import DecodeError, ErrorCode
from protocol.framing import SIZE_BYTES
from protocol.headers import RequestHeader, decode_response
from protocol.messages import Message
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.broker.api.serving.test_controller_routes import Observer
from tests.support.fakes.clock import ManualClock

S = AuthenticationState
FAILURE_DELAY_MS = 100


class NamedExchange:
    """Accepts a principal's name, after one challenge; the name `bad` fails, and `token` is a delegation token."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def respond(self, token: bytes) -> Challenge | Accepted:
        if token == b"more":
            return Challenge(b"challenge")
        if token == b"bad":
            raise AuthenticationFailed("the name is bad", "bad")
        if token == b"token":
            return Accepted(b"done", "User:owner", self._clock.now_ms() + 5_000, is_token=True)
        return Accepted(b"done", f"User:{token.decode('latin-1')}", None)


class SlowExchange:
    """Answers later."""

    async def respond(self, token: bytes) -> Challenge | Accepted:
        await asyncio.sleep(0)
        if token == b"bad":
            raise AuthenticationFailed("the name is bad")
        return Accepted(b"", "User:slow", None)


class FailedLogins:
    """An audit trail that keeps failed logins."""

    def __init__(self, kept: list[tuple[str, str | None, str]]) -> None:
        self._kept = kept

    def decided(self, *_: Any, **__: Any) -> None:
        raise AssertionError("there is no authorizer")

    def login_failed(self, _client: ConnectionInfo, mechanism: str, user: str | None, reason: str) -> None:
        self._kept.append((mechanism, user, reason))


class SaslClient:
    """A connection of a SASL listener."""

    def __init__(self, *, max_reauth_ms: int = 0) -> None:
        self.clock = ManualClock()
        self.slept_s: list[float] = []
        self.authenticated: list[bool] = []
        rows = (
            route(ApiKey.API_VERSIONS, lambda _request, _context: ApiVersionsResponse(), needs.BEFORE_AUTHENTICATION),
            route(ApiKey.HEARTBEAT, lambda _request, _context: HeartbeatResponse(), needs.READ_GROUP),
            route(ApiKey.SASL_HANDSHAKE, refuse_handshake, needs.BEFORE_AUTHENTICATION),
            route(ApiKey.SASL_AUTHENTICATE, refuse_token, needs.BEFORE_AUTHENTICATION),
        )
        mechanisms = {
            "NAMED": OfferedMechanism(lambda: NamedExchange(self.clock), max_reauth_ms),
            "SLOW": OfferedMechanism(SlowExchange),
        }

        async def sleep(seconds: float) -> None:
            self.slept_s.append(seconds)

        self.failures: list[tuple[str, str | None, str]] = []
        services = {
            "CLIENTS": SaslServices(mechanisms, self.clock, sleep, FAILURE_DELAY_MS, FailedLogins(self.failures))
        }
        self.connection = ConnectionInfo("c", "CLIENTS", "10.0.0.1", 1, "SASL_PLAINTEXT")
        pipelines = RequestPipelines(Dispatcher(rows, self.clock, Observer()), services)
        self.pipeline = pipelines.open(self.connection)
        self.connection.when_authenticated(self.authenticated.append)

    def frame(self, key: int, version: int, body: bytes) -> bytes:
        """Send the body of a request; return the response frame without its size."""
        response = self.pipeline(
            Request(RequestHeader(key, version, 7, "app"), memoryview(bytearray(body)), self.connection, 0)
        )
        if inspect.isawaitable(response):

            async def wait(pending: Any) -> Any:
                return await pending

            response = asyncio.run(wait(response))
        return b"".join(bytes(part) for part in response or [])[SIZE_BYTES:]

    def send(self, request: Message, version: int, answer: type[Any]) -> Any:
        frame = self.frame(request.API_KEY, version, encode_bytes(request, version))
        return decode_response(answer, version, memoryview(frame))[1]

    def handshake(self, mechanism: str = "NAMED", version: int = 1) -> SaslHandshakeResponse:
        found: SaslHandshakeResponse = self.send(SaslHandshakeRequest(mechanism), version, SaslHandshakeResponse)
        return found

    def token(self, token: bytes, version: int = 2) -> SaslAuthenticateResponse:
        found: SaslAuthenticateResponse = self.send(SaslAuthenticateRequest(token), version, SaslAuthenticateResponse)
        return found

    def heartbeat(self) -> None:
        self.send(HeartbeatRequest("g", 1, "m"), 4, HeartbeatResponse)


def test_exchange_names_the_principal() -> None:
    client = SaslClient()
    client.send(ApiVersionsRequest(), 4, ApiVersionsResponse)
    assert client.handshake() == SaslHandshakeResponse(ErrorCode.NONE, ["NAMED", "SLOW"])
    assert client.token(b"more").auth_bytes == b"challenge"
    assert (client.connection.principal, client.authenticated) == (ANONYMOUS, [])
    assert client.token(b"alice").auth_bytes == b"done"
    assert (client.connection.principal, client.authenticated) == ("User:alice", [True])
    client.heartbeat()


def test_exchange_may_answer_later() -> None:
    client = SaslClient()
    client.handshake("SLOW")
    client.token(b"x")
    assert client.connection.principal == "User:slow"


@pytest.mark.parametrize("mechanism", ["NAMED", "SLOW"])
def test_failure_is_answered_after_a_delay_and_ends_the_connection(mechanism: str) -> None:
    client = SaslClient()
    client.handshake(mechanism)
    with pytest.raises(LoginRefused) as caught:
        client.token(b"bad")
    frame = b"".join(bytes(part) for part in caught.value.last_response or [])[SIZE_BYTES:]
    _, response = decode_response(SaslAuthenticateResponse, 2, memoryview(frame))
    assert (response.error_code, response.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, "the name is bad")
    assert client.slept_s == [FAILURE_DELAY_MS / 1000]
    with pytest.raises(CloseConnection):
        client.handshake()
    assert client.failures == [(mechanism, "bad" if mechanism == "NAMED" else None, "the name is bad")]


def test_unknown_mechanism_is_refused_with_the_enabled_ones() -> None:
    client = SaslClient()
    with pytest.raises(LoginRefused) as caught:
        client.handshake("GSSAPI")
    frame = b"".join(bytes(part) for part in caught.value.last_response or [])[SIZE_BYTES:]
    _, response = decode_response(SaslHandshakeResponse, 1, memoryview(frame))
    assert response == SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["NAMED", "SLOW"])


def test_raw_tokens_follow_the_first_version_of_the_handshake() -> None:
    client = SaslClient()
    client.handshake(version=0)
    assert client.frame(ApiKey.SASL_AUTHENTICATE, RAW_TOKEN_VERSION, b"more") == b"challenge"
    assert client.frame(ApiKey.SASL_AUTHENTICATE, RAW_TOKEN_VERSION, b"alice") == b"done"
    client.heartbeat()


@pytest.mark.parametrize("key", [key for key in ApiKey if key not in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE)])
def test_no_other_request_passes_before_authentication(key: ApiKey) -> None:
    with pytest.raises(CloseConnection):
        SaslClient().frame(key, 0, b"")


def test_session_ends_with_its_lifetime_and_may_be_renewed_before() -> None:
    client = SaslClient(max_reauth_ms=10_000)
    client.handshake()
    assert client.token(b"alice").session_lifetime_ms == 10_000
    client.clock.advance_ms(9_999)
    client.heartbeat()
    client.handshake()
    with pytest.raises(CloseConnection):
        client.heartbeat()
    client.token(b"alice")
    assert client.authenticated == [True, False]
    client.clock.advance_ms(9_999)
    client.heartbeat()
    client.clock.advance_ms(1)
    with pytest.raises(CloseConnection, match="EXPIRED"):
        client.heartbeat()


def test_expired_session_may_begin_another_exchange() -> None:
    client = SaslClient(max_reauth_ms=10_000)
    client.handshake()
    client.token(b"alice")
    client.clock.advance_ms(20_000)
    client.handshake()
    client.token(b"alice")
    client.heartbeat()


def test_session_of_a_token_ends_with_the_token() -> None:
    client = SaslClient(max_reauth_ms=10_000)
    client.handshake()
    assert client.token(b"token").session_lifetime_ms == 5_000
    assert client.connection.is_token_authenticated


@pytest.mark.parametrize(("mechanism", "token"), [("NAMED", b"bob"), ("SLOW", b"x")])
def test_reauthentication_keeps_principal_and_mechanism(mechanism: str, token: bytes) -> None:
    client = SaslClient(max_reauth_ms=10_000)
    client.handshake()
    client.token(b"alice")
    client.clock.advance_ms(5_000)
    client.handshake(mechanism)
    with pytest.raises(LoginRefused):
        client.token(token)
    assert client.connection.principal == "User:alice"


def test_early_or_misplaced_requests_of_an_exchange_are_illegal() -> None:
    client = SaslClient()
    client.handshake()
    client.token(b"alice")
    assert client.handshake().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.token(b"alice").error_code == ErrorCode.ILLEGAL_SASL_STATE


@pytest.mark.parametrize("seed", range(10))
def test_random_requests_reach_no_state_outside_of_the_table(seed: int) -> None:
    random = Random(seed)
    keys = [*ApiKey]
    for _ in range(60):
        client = SaslClient(max_reauth_ms=random.choice((0, 3_000)))
        for _ in range(random.randrange(1, 12)):
            client.clock.advance_ms(random.choice((0, 900, 3_000)))
            was_known = client.connection.principal != ANONYMOUS
            choice = random.random()
            try:
                if choice < 0.35:
                    client.handshake(random.choice(("NAMED", "SLOW", "NONE")), random.choice((0, 1, 1)))
                elif choice < 0.7:
                    client.token(random.choice((b"more", b"alice", b"bad", b"token")), random.choice((0, 1, 2)))
                elif choice < 0.8:
                    client.heartbeat()
                    assert was_known
                else:
                    client.frame(random.choice(keys), random.randrange(-1, 5), random.randbytes(random.randrange(20)))
            except (CloseConnection, DecodeError):
                break
            authenticated = client.pipeline._authentication.state  # type: ignore[attr-defined]
            assert authenticated in {*ALLOWED_REQUESTS, S.AUTHENTICATED, *TRANSITIONS.values()}
            assert client.connection.is_authenticated == (client.connection.principal != ANONYMOUS)
