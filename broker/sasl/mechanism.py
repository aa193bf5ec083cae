"""The seam between SASL mechanisms and the connections that carry their messages."""

from collections.abc import Awaitable
from dataclasses import field
from typing import Protocol

from protocol.lazy_dataclass import lazy_dataclass


class AuthenticationFailed(Exception):
    """The exchange failed; the text is for the other side and for logs, without secrets and final stop.

    `user` is the name that the client claimed, if the server knows it.
    """

    def __init__(self, text: str, user: str | None = None) -> None:
        super().__init__(text)
        self.user = user


@lazy_dataclass(frozen=True, slots=True)
class Challenge:
    """A message to which the client must respond."""

    token: bytes = field(repr=False)


@lazy_dataclass(frozen=True, slots=True)
class Accepted:
    """The end of a successful exchange, with the last message.

    `principal` is "User:name". `lifetime_ms` is the end of the credential, as wall-clock time in ms, or None.
    """

    token: bytes = field(repr=False)
    principal: str
    lifetime_ms: int | None
    is_token: bool = False


class ServerExchange(Protocol):
    """The server's side of one exchange."""

    def respond(self, token: bytes) -> "Challenge | Accepted | Awaitable[Challenge | Accepted]":
        """Take the client's next message. Raise AuthenticationFailed with the message for the client."""
        ...


class ClientExchange(Protocol):
    """The client's side of one exchange."""

    def first(self) -> bytes:
        """Return the first message."""
        ...

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the next message; None once the exchange is complete. Raise AuthenticationFailed."""
        ...
