"""The login of a connection to another node, and its renewal before the session ends (KIP-368)."""

from collections.abc import Callable

from broker.sasl.client.sasl_login import LoginSequence, SaslLogin, renewal_delay_s
from protocol.messages import Message


class PeerLogin:
    """The login under way, and the time of the next. `now` is in seconds; `spread` returns numbers from 0 to 1."""

    __slots__ = ("_login", "_now", "_renew_at", "_sequence", "_spread")

    def __init__(self, login: SaslLogin, now: Callable[[], float], spread: Callable[[], float]) -> None:
        self._login = login
        self._now = now
        self._spread = spread
        self._sequence: LoginSequence | None = None
        self._renew_at: float | None = None

    @property
    def is_due(self) -> bool:
        """Whether the session ends soon and no login is under way."""
        return self._sequence is None and self._renew_at is not None and self._now() >= self._renew_at

    @property
    def is_under_way(self) -> bool:
        return self._sequence is not None

    def begin(self) -> Message:
        """Start a login; return its first request."""
        self._sequence = LoginSequence(self._login)
        return self._sequence.first()

    def respond(self, response: Message) -> Message | None:
        """Return the next request; None once logged in. Raise AuthenticationFailed."""
        assert self._sequence is not None
        request = self._sequence.respond(response)
        if request is None:
            delay = renewal_delay_s(self._sequence.lifetime_ms, self._spread())
            self._renew_at = None if delay is None else self._now() + delay
            self._sequence = None
        return request
