"""An HTTP server on one address. A failing health check must mean that the node has a problem, so the server is simple,
small and bounded. It shares the event loop with the Kafka listeners on purpose, and so shows when the loop is blocked.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.http.access import HttpAccess
from broker.http.messages import Routes
from broker.net.listening import ListenAddress, host_and_port, listen
from broker.net.pending_protocol import PendingProtocol

if TYPE_CHECKING:
    from broker.http.connection import HttpConnection
    from broker.http.tls_port import TlsPort

CONNECTIONS_MAX = 100  # a few scrapers, probes, and browsers with the console; a further one replaces an idle one
LISTENER_NAME = "HTTP"


class HttpServer:
    """Serves `routes`: `open` takes the port, `start` serves, `close` ends."""

    def __init__(self, routes: Routes, host: str, port: int, access: HttpAccess | None = None) -> None:
        """Without `access`, the server has plain HTTP and everybody may ask."""
        self._routes = routes
        self._access = HttpAccess() if access is None else access
        self._listener = ListenAddress(LISTENER_NAME, host, port)
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._tls_port: TlsPort | None = None
        self._connections: dict[asyncio.Transport, HttpConnection] = {}

    @property
    def address(self) -> tuple[str, int]:
        """Host and port, with the actual port in place of 0. Only valid after `open`."""
        assert self._socket is not None
        return host_and_port(self._socket.getsockname())

    @property
    def url(self) -> str:
        """The address as a URL. Only valid after `open`."""
        host, port = self.address
        return f"{'http' if self._access.tls is None else 'https'}://{host}:{port}"

    def open(self) -> None:
        """Take the port. Raise `broker.net.listening.ListenError`."""
        self._socket = listen(self._listener, backlog=CONNECTIONS_MAX)

    async def start(self) -> None:
        """Serve on the running event loop."""
        assert self._socket is not None
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._protocols(loop), sock=self._socket)

    def close(self) -> None:
        """Close the port, and every connection once its written data is sent."""
        if self._server is not None:
            self._server.close()
        elif self._socket is not None:
            self._socket.close()
        if self._tls_port is not None:
            self._tls_port.abort()
        for transport in list(self._connections):
            transport.close()

    def _protocols(self, loop: asyncio.AbstractEventLoop) -> Callable[[], asyncio.BaseProtocol]:
        """Return the function that makes the protocol of an accepted socket."""
        if self._access.tls is None:
            return lambda: PendingProtocol(self._connect)
        from broker.http.tls_port import TlsPort  # local import: a node without HTTPS does not need it

        self._tls_port = TlsPort(self._context, self._connect, loop, pending_max=CONNECTIONS_MAX)
        return self._tls_port.accept

    def _context(self) -> ssl.SSLContext:
        assert self._access.tls is not None, "a server that starts with TLS keeps it"
        return self._access.tls

    def _connect(self, transport: asyncio.Transport) -> "HttpConnection":
        from broker.http.connection import HttpConnection

        connection = HttpConnection(transport, self._routes, asyncio.get_running_loop(), self._forget, self._access)
        if len(self._connections) >= CONNECTIONS_MAX:
            self._make_room(transport)
        self._connections[transport] = connection
        return connection

    def _forget(self, transport: asyncio.Transport) -> None:
        self._connections.pop(transport, None)

    def _make_room(self, newest: asyncio.Transport) -> None:
        """Close the oldest idle connection, or the newest one without any.

        Browsers keep idle connections open. They must not keep out a health check.
        """
        idle = next((each for each, known in self._connections.items() if known.is_idle), newest)
        self._connections.pop(idle, None)
        idle.abort()
