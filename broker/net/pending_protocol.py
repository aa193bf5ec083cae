"""The protocol of an accepted socket until its transport exists."""

import asyncio
from collections.abc import Callable
from typing import cast


class PendingProtocol(asyncio.Protocol):
    """Replaces itself by the protocol that `make` builds around the transport, so that no protocol is half built.

    The replacement happens before the transport reads.
    """

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[asyncio.Transport], asyncio.BaseProtocol]) -> None:
        self._make = make

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Install the protocol that serves the connection."""
        stream = cast(asyncio.Transport, transport)
        stream.set_protocol(self._make(stream))
