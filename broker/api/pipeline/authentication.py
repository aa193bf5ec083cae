"""The authentication of one connection: its states, the transitions between them, and the requests each state allows.

Theory of operation
-------------------
PLAINTEXT and SSL connections begin AUTHENTICATED. A SASL connection begins with HANDSHAKE_OR_VERSIONS: the client may
send ApiVersions once, then SaslHandshake names a mechanism (KIP-43), then SaslAuthenticate carries the mechanism's
tokens until it succeeds or fails (KIP-152). A session with a limited lifetime expires, and so does its permission to
send anything but a new handshake; a client that re-authenticates in time loses nothing (KIP-368).

An illegal event is a missing key of `TRANSITIONS`. This file knows no mechanism and no credentials: the SASL stage of
the connection (`sasl.py`) reports events.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from broker.net.request import CloseConnection
from protocol.api_keys import ApiKey


class AuthenticationState(Enum):
    """States of a connection."""

    HANDSHAKE_OR_VERSIONS = auto()
    """A SASL connection before its first request."""
    HANDSHAKE = auto()
    """ApiVersions was answered; the client must name a mechanism."""
    TOKENS = auto()
    """A mechanism was chosen; the client and the server exchange tokens."""
    AUTHENTICATED = auto()
    """The principal is known, or the listener needs none."""
    REAUTHENTICATING = auto()
    """An authenticated client began another handshake; the former principal remains until the exchange succeeds."""
    EXPIRED = auto()
    """The session's lifetime is over; the client must begin another handshake."""
    FAILED = auto()
    """The credentials were refused; the connection is about to be closed."""


class AuthenticationEvent(Enum):
    """Outcomes that move a connection to another state."""

    VERSIONS_ANSWERED = auto()
    MECHANISM_CHOSEN = auto()
    MECHANISM_REFUSED = auto()
    CREDENTIALS_ACCEPTED = auto()
    CREDENTIALS_REFUSED = auto()
    SESSION_EXPIRED = auto()


_S, _E = AuthenticationState, AuthenticationEvent

TRANSITIONS: Final[Mapping[tuple[AuthenticationState, AuthenticationEvent], AuthenticationState]] = {
    (_S.HANDSHAKE_OR_VERSIONS, _E.VERSIONS_ANSWERED): _S.HANDSHAKE,
    (_S.HANDSHAKE_OR_VERSIONS, _E.MECHANISM_CHOSEN): _S.TOKENS,
    (_S.HANDSHAKE_OR_VERSIONS, _E.MECHANISM_REFUSED): _S.FAILED,
    (_S.HANDSHAKE, _E.MECHANISM_CHOSEN): _S.TOKENS,
    (_S.HANDSHAKE, _E.MECHANISM_REFUSED): _S.FAILED,
    (_S.TOKENS, _E.CREDENTIALS_ACCEPTED): _S.AUTHENTICATED,
    (_S.TOKENS, _E.CREDENTIALS_REFUSED): _S.FAILED,
    (_S.AUTHENTICATED, _E.MECHANISM_CHOSEN): _S.REAUTHENTICATING,
    (_S.AUTHENTICATED, _E.MECHANISM_REFUSED): _S.FAILED,
    (_S.AUTHENTICATED, _E.SESSION_EXPIRED): _S.EXPIRED,
    (_S.EXPIRED, _E.MECHANISM_CHOSEN): _S.REAUTHENTICATING,
    (_S.EXPIRED, _E.MECHANISM_REFUSED): _S.FAILED,
    (_S.REAUTHENTICATING, _E.CREDENTIALS_ACCEPTED): _S.AUTHENTICATED,
    (_S.REAUTHENTICATING, _E.CREDENTIALS_REFUSED): _S.FAILED,
}

ALLOWED_REQUESTS: Final[Mapping[AuthenticationState, frozenset[ApiKey]]] = {
    _S.HANDSHAKE_OR_VERSIONS: frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}),
    _S.HANDSHAKE: frozenset({ApiKey.SASL_HANDSHAKE}),
    _S.TOKENS: frozenset({ApiKey.SASL_AUTHENTICATE}),
    _S.REAUTHENTICATING: frozenset({ApiKey.SASL_AUTHENTICATE}),
    _S.EXPIRED: frozenset({ApiKey.SASL_HANDSHAKE}),
    _S.FAILED: frozenset(),
}
"""The requests that each state allows; AUTHENTICATED allows all."""

INITIAL_STATES: Final[Mapping[str, AuthenticationState]] = {
    "PLAINTEXT": _S.AUTHENTICATED,
    "SSL": _S.AUTHENTICATED,
    "SASL_PLAINTEXT": _S.HANDSHAKE_OR_VERSIONS,
    "SASL_SSL": _S.HANDSHAKE_OR_VERSIONS,
}
"""The first state of a connection, by the security protocol of its listener."""


class ConnectionAuthentication:
    """The authentication state of one connection."""

    __slots__ = ("state",)

    def __init__(self, state: AuthenticationState) -> None:
        self.state = state

    def on(self, event: AuthenticationEvent) -> None:
        """Change the state. Raises CloseConnection for an event that the state does not allow."""
        following = TRANSITIONS.get((self.state, event))
        if following is None:
            raise CloseConnection(f"{event.name} is not possible in authentication state {self.state.name}")
        self.state = following

    def check(self, api_key: int) -> None:
        """Raise CloseConnection if the state does not allow a request of this API."""
        allowed = ALLOWED_REQUESTS.get(self.state)
        if allowed is not None and api_key not in allowed:
            raise CloseConnection(f"sent API key {api_key} in authentication state {self.state.name}")
