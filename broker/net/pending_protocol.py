"""The protocol of a connection between its being accepted and its transport's being there."""

import asyncio
from collections.abc import Callable
from typing import cast


class PendingProtocol(asyncio.Protocol):
    """Puts in its own place the protocol that `make` builds around the transport, so that none is ever half built.

    This happens before the transport reads anything.
    """

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[asyncio.Transport], asyncio.BaseProtocol]) -> None:
        self._make = make

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand over."""
        stream = cast(asyncio.Transport, transport)
        stream.set_protocol(self._make(stream))
