"""Who asks, and under which circumstances: what a handler may know about a request besides its message.

Handlers get one of these per request. It carries no socket and nothing to write to: answers are return values.
"""

from collections.abc import Callable
from dataclasses import dataclass

from broker.net.request import ConnectionInfo, Request


@dataclass(slots=True, eq=False)
class RequestContext:
    """The circumstances of one request.

    `connection` is the live record of the connection: ApiVersions writes the client's software name and version into
    it, quotas its mute time. `request` is the frame itself; handlers need it only for what the methods here do with it.
    """

    api_version: int
    client_id: str
    connection: ConnectionInfo
    request: Request

    @property
    def received_ms(self) -> int:
        """The wall clock when the frame was complete, in milliseconds since 1970."""
        return self.request.received_ms

    @property
    def listener(self) -> str:
        """The name of the listener that the request came in on; it decides which endpoints the answer names."""
        return self.connection.listener

    @property
    def principal(self) -> str:
        """Who was authenticated, as `Type:name`; `User:ANONYMOUS` on a listener without authentication."""
        return self.connection.principal

    @property
    def peer_host(self) -> str:
        """The peer's address as text, without port."""
        return self.connection.peer_host

    def effects_applied(self) -> None:
        """Say that this request has done all it does and only awaits confirmation; see `Request.effects_applied`."""
        self.request.effects_applied()

    def when_input_ended(self, callback: Callable[[], None]) -> None:
        """Call back once if nothing more will come from the peer; see `Request.when_input_ended`."""
        self.request.when_input_ended(callback)
