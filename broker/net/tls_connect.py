"""Outgoing connections with TLS, for `NetworkClient`."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Protocol, cast

from broker.net.peer_connection import Ending
from broker.net.receiver import ReceiveArena
from broker.net.tls_stream import TlsFailed, TlsStream, TlsTransport
from broker.quorum.identity import SocketAddress


class TlsCalling(Protocol):
    """The TLS side of connections to a listener of other nodes. The context is that of the next connection."""

    @property
    def client_context(self) -> ssl.SSLContext: ...


class _Attempt:
    """A connection that is being opened."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.stream: TlsStream | None = None

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()
        if self.stream is not None:
            self.stream.abort()


class TlsConnect:
    """TCP with TLS. A connection costs one task while it is being opened."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tls: TlsCalling, *, timeout_ms: int) -> None:
        self._loop = loop
        self._tls = tls
        self._timeout_s = timeout_ms / 1000
        self._arena = ReceiveArena()

    def __call__(
        self, endpoint: SocketAddress, protocol: asyncio.BaseProtocol, on_failure: Callable[[Ending], None]
    ) -> _Attempt:
        attempt = _Attempt()
        attempt.task = self._loop.create_task(self._open(attempt, endpoint, protocol, on_failure))
        return attempt

    async def _open(
        self,
        attempt: _Attempt,
        endpoint: SocketAddress,
        protocol: asyncio.BaseProtocol,
        on_failure: Callable[[Ending], None],
    ) -> None:
        def on_open(transport: TlsTransport) -> asyncio.BufferedProtocol:
            protocol.connection_made(transport)
            return cast(asyncio.BufferedProtocol, protocol)

        def on_failed(failure: TlsFailed) -> None:
            on_failure(Ending(str(failure)))

        try:
            attempt.stream = stream = TlsStream(
                self._tls.client_context,
                endpoint.host,
                on_open,
                on_failed,
                arena=self._arena,
                timers=self._loop,
                timeout_s=self._timeout_s,
            )
            await self._loop.create_connection(lambda: stream, endpoint.host, endpoint.port)
        except (OSError, ValueError, OverflowError) as error:  # the latter two for invalid hosts and ports
            on_failure(Ending(f"cannot be reached ({error})", is_refusal=isinstance(error, ConnectionRefusedError)))
