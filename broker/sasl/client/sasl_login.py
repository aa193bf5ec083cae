"""The requests of a login: SaslHandshake, then SaslAuthenticate until both sides agree (KIP-43, KIP-152, KIP-368).

`LoginSequence` neither sends nor waits: a connection passes it each response and sends what it returns. A login that
fails raises AuthenticationFailed with one sentence part: the mechanism, and the server's message.
"""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, Protocol

from broker.sasl.client.oauthbearer import OAuthToken
from broker.sasl.mechanism import AuthenticationFailed, ClientExchange
from protocol.errors import ErrorCode
from protocol.messages import Message
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

RENEWAL_WINDOW: Final = (0.85, 0.95)
"""Share of a session's lifetime after which the client logs in again, chosen at random (KIP-368)."""


class TokenSupply(Protocol):
    """Access tokens that are fetched elsewhere. Methods do not block and may be called from all threads."""

    def token(self) -> OAuthToken:
        """Return the newest token. Raise AuthenticationFailed if there was none yet."""
        ...

    def request(self) -> Future[None] | None:
        """Return None if there is a usable token; else a future of an attempt to fetch one.

        The future's exception is AuthenticationFailed; its message names the mechanism.
        """
        ...


class SaslLogin:
    """A mechanism and the credentials for it. `begin` starts an exchange; secrets are not shown."""

    def __init__(
        self,
        mechanism: str,
        begin: Callable[[], ClientExchange],
        explain: Callable[[str], str] = str,
        supply: TokenSupply | None = None,
    ) -> None:
        self.mechanism = mechanism
        self.explain = explain
        """Function that puts an error message of the server into words."""
        self._begin = begin
        self._supply = supply

    def __repr__(self) -> str:
        return f"SaslLogin({self.mechanism})"

    def prepare(self) -> Future[None] | None:
        """Return what a login has to wait for before it begins; None if it can begin. See `TokenSupply.request`."""
        return None if self._supply is None else self._supply.request()

    def begin(self) -> ClientExchange:
        """Start an exchange. Raise AuthenticationFailed if there is no credential at present."""
        return self._begin()


class LoginSequence:
    """One login on one connection: `first`, then `respond` with each response."""

    def __init__(self, login: SaslLogin) -> None:
        self._login = login
        self._exchange: ClientExchange | None = None
        self.lifetime_ms = 0
        """The lifetime of the session after the login; 0 for no limit."""

    def first(self) -> Message:
        """Return the first request."""
        return SaslHandshakeRequest(self._login.mechanism)

    def respond(self, response: Message) -> Message | None:
        """Return the next request; None once logged in. Raise AuthenticationFailed."""
        if isinstance(response, SaslHandshakeResponse):
            return self._begin(response)
        assert isinstance(response, SaslAuthenticateResponse)
        return self._continue(response)

    def _begin(self, response: SaslHandshakeResponse) -> Message:
        if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            enabled = ", ".join(sorted(response.mechanisms)) or "none"
            raise self._failure(f"the server has not enabled the mechanism; its mechanisms are {enabled}")
        if response.error_code:
            raise self._failure(f"SaslHandshake was refused with {_name_of(response.error_code)}")
        try:
            self._exchange = self._login.begin()
            return SaslAuthenticateRequest(self._exchange.first())
        except AuthenticationFailed as error:
            raise self._failure(str(error)) from error

    def _continue(self, response: SaslAuthenticateResponse) -> Message | None:
        assert self._exchange is not None
        if response.error_code:
            message = self._login.explain(response.error_message or f"error {_name_of(response.error_code)}")
            raise self._failure(message)
        try:
            token = self._exchange.respond(response.auth_bytes)
        except AuthenticationFailed as error:
            raise self._failure(str(error)) from error
        if token is not None:
            return SaslAuthenticateRequest(token)
        self.lifetime_ms = response.session_lifetime_ms
        return None

    def _failure(self, reason: str) -> AuthenticationFailed:
        return AuthenticationFailed(f"{self._login.mechanism}: {reason.strip().rstrip('.')}")


def renewal_delay_s(lifetime_ms: int, spread: float) -> float | None:
    """Return the seconds until the next login; None for a session without limit. `spread` is from 0 to 1."""
    if lifetime_ms <= 0:
        return None
    low, high = RENEWAL_WINDOW
    return lifetime_ms / 1000 * (low + (high - low) * spread)


def _name_of(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)
