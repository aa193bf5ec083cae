"""SASL on one connection: SaslHandshake, SaslAuthenticate, and sessions that end (KIP-43, KIP-152, KIP-368).

The stage answers both APIs itself while an exchange is due or allowed, and passes every other request on. A failed
exchange is answered after `connection.failed.authentication.delay.ms`, and the connection ends with this answer.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from broker.api.pipeline.audit import AuditTrail
from broker.api.pipeline.authentication import (
    AuthenticationEvent,
    AuthenticationState,
    ConnectionAuthentication,
)
from broker.clock import Clock
from broker.net.request import (
    RAW_TOKEN_VERSION,
    CloseConnection,
    ConnectionInfo,
    Dispatch,
    EncodedResponse,
    LoginRefused,
    Request,
)
from broker.sasl.mechanism import Accepted, AuthenticationFailed, Challenge, ServerExchange
from broker.sasl.server.mechanisms import OfferedMechanism, OfferedMechanisms
from protocol.api_keys import API_BY_KEY, ApiKey
from protocol.compiler import decoder
from protocol.errors import ErrorCode
from protocol.framing import SIZE_BYTES
from protocol.headers import encode_response
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages import Message
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

MIN_REAUTHENTICATION_INTERVAL_MS: Final = 1000
"""A handshake that follows an authentication sooner is answered with ILLEGAL_SASL_STATE, as by Kafka."""

M = TypeVar("M", SaslHandshakeRequest, SaslAuthenticateRequest)

_S, _E = AuthenticationState, AuthenticationEvent


@lazy_dataclass(frozen=True, slots=True)
class SaslServices:
    """The mechanisms of a listener, and what their exchanges need. `sleep` takes seconds."""

    mechanisms: OfferedMechanisms
    clock: Clock
    sleep: Callable[[float], Awaitable[None]]
    failure_delay_ms: int = 100
    audit: AuditTrail | None = None


class _OtherMechanism:
    """The exchange of a client that changed its mechanism for its re-authentication, which fails at its first token."""

    def __init__(self, chosen: str, former: str) -> None:
        self._text = (
            f"SASL mechanism '{chosen}' requested by client is not supported for re-authentication of mechanism "
            f"'{former}'"
        )

    def respond(self, token: bytes) -> Accepted:
        raise AuthenticationFailed(self._text)


class SaslStage:
    """Lets requests of one connection pass once its client is authenticated."""

    __slots__ = (
        "_authentication",
        "_began_ms",
        "_connection",
        "_exchange",
        "_expires_ms",
        "_mechanism",
        "_next_stage",
        "_offered",
        "_services",
    )

    def __init__(
        self,
        next_stage: Dispatch,
        authentication: ConnectionAuthentication,
        connection: ConnectionInfo,
        services: SaslServices,
    ) -> None:
        self._next_stage = next_stage
        self._authentication = authentication
        self._connection = connection
        self._services = services
        self._exchange: ServerExchange | None = None
        self._offered: OfferedMechanism | None = None
        self._mechanism = ""
        self._began_ms = -float(MIN_REAUTHENTICATION_INTERVAL_MS)
        self._expires_ms: float | None = None

    def __call__(self, request: Request) -> EncodedResponse | Awaitable[EncodedResponse]:
        """Handle one request; see `broker.net.request.Dispatch`."""
        authentication, key = self._authentication, request.header.api_key
        if authentication.state is _S.AUTHENTICATED:
            if self._expires_ms is not None and self._services.clock.monotonic_ms() >= self._expires_ms:
                authentication.on(_E.SESSION_EXPIRED)
            elif key != ApiKey.SASL_HANDSHAKE or self._is_too_early():
                return self._next_stage(request)
        authentication.check(key)
        if key == ApiKey.API_VERSIONS:
            if request.header.api_version <= API_BY_KEY[ApiKey.API_VERSIONS].max_version:
                authentication.on(_E.VERSIONS_ANSWERED)
            return self._next_stage(request)
        return self._handshake(request) if key == ApiKey.SASL_HANDSHAKE else self._authenticate(request)

    def _is_too_early(self) -> bool:
        return self._services.clock.monotonic_ms() - self._began_ms < MIN_REAUTHENTICATION_INTERVAL_MS

    # SaslHandshake

    def _handshake(self, request: Request) -> EncodedResponse:
        chosen = _decoded(SaslHandshakeRequest, request).mechanism
        names = list(self._services.mechanisms)
        offered = self._services.mechanisms.get(chosen)
        if offered is None:
            self._authentication.on(_E.MECHANISM_REFUSED)
            refusal = SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, names)
            raise LoginRefused("asked for a SASL mechanism that is not enabled", _encoded(request, refusal))
        is_again = self._authentication.state in (_S.AUTHENTICATED, _S.EXPIRED)
        self._authentication.on(_E.MECHANISM_CHOSEN)
        if is_again and chosen != self._mechanism:
            self._exchange = _OtherMechanism(chosen, self._mechanism)
        else:
            self._exchange, self._offered, self._mechanism = offered.begin(), offered, chosen
        self._connection.takes_raw_tokens = request.header.api_version == 0
        return _encoded(request, SaslHandshakeResponse(ErrorCode.NONE, names))

    # SaslAuthenticate, and raw tokens

    def _authenticate(self, request: Request) -> EncodedResponse | Awaitable[EncodedResponse]:
        exchange = self._exchange
        assert exchange is not None
        is_raw = request.header.api_version == RAW_TOKEN_VERSION
        token = bytes(request.body) if is_raw else bytes(_decoded(SaslAuthenticateRequest, request).auth_bytes)
        try:
            outcome = exchange.respond(token)
            if isinstance(outcome, Challenge | Accepted):
                return self._answer(request, outcome)
        except AuthenticationFailed as failure:
            return self._fail(request, failure)
        return self._answer_later(request, outcome)

    async def _answer_later(self, request: Request, pending: Awaitable[Challenge | Accepted]) -> EncodedResponse:
        try:
            return self._answer(request, await pending)
        except AuthenticationFailed as failure:
            return await self._fail(request, failure)

    def _answer(self, request: Request, outcome: Challenge | Accepted) -> EncodedResponse:
        lifetime_ms = self._accept(outcome) if isinstance(outcome, Accepted) else 0
        if request.header.api_version == RAW_TOKEN_VERSION:
            return [len(outcome.token).to_bytes(SIZE_BYTES, "big"), outcome.token]
        response = SaslAuthenticateResponse(ErrorCode.NONE, None, outcome.token, lifetime_ms)
        return _encoded(request, response)

    def _accept(self, accepted: Accepted) -> int:
        """Begin or continue a session. Return its lifetime in ms; 0 for any. Raise AuthenticationFailed."""
        connection, offered = self._connection, self._offered
        assert offered is not None
        is_again = self._authentication.state is _S.REAUTHENTICATING
        if is_again and accepted.principal != connection.principal:
            raise AuthenticationFailed(
                f"Cannot change principals during re-authentication from {connection.principal} to {accepted.principal}"
            )
        now_ms = self._services.clock.monotonic_ms()
        lifetimes = [offered.max_reauth_ms] if offered.max_reauth_ms > 0 else []
        if accepted.lifetime_ms is not None:
            lifetimes.append(max(0, accepted.lifetime_ms - self._services.clock.now_ms()))
        self._expires_ms = now_ms + min(lifetimes) if lifetimes else None
        self._began_ms, self._exchange = now_ms, None
        self._authentication.on(_E.CREDENTIALS_ACCEPTED)
        connection.takes_raw_tokens = False
        connection.is_token_authenticated = accepted.is_token
        connection.principal = accepted.principal
        connection.authenticated()
        return min(lifetimes, default=0)

    async def _fail(self, request: Request, failure: AuthenticationFailed) -> EncodedResponse:
        """Answer after the delay, and end the connection."""
        self._authentication.on(_E.CREDENTIALS_REFUSED)
        self._exchange = None
        text = str(failure)
        if self._services.audit is not None:
            self._services.audit.login_failed(self._connection, self._mechanism, failure.user, text)
        await self._services.sleep(self._services.failure_delay_ms / 1000)
        last: EncodedResponse = None
        if request.header.api_version != RAW_TOKEN_VERSION:
            response = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, text)
            last = _encoded(request, response)
        raise LoginRefused(f"failed to authenticate with {self._mechanism}", last)


def _decoded(cls: type[M], request: Request) -> M:
    """Decode a request. Raise CloseConnection for a version that does not exist."""
    version = request.header.api_version
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        raise CloseConnection(f"sent {ApiKey(cls.API_KEY).name} version {version}, which does not exist")
    message, _end = decoder(cls, version)(request.body, 0)
    return message


def _encoded(request: Request, response: Message) -> EncodedResponse:
    header = request.header
    return encode_response(header.api_key, header.api_version, header.correlation_id, response)
