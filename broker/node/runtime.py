"""The services of a node's process, over a real event loop."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from broker.net.peer import Connect
from broker.node.tls import NodeTls
from broker.runtime.loop.runtime import Runtime


@dataclass(frozen=True, slots=True)
class NodeRuntime(Runtime):
    """A Runtime whose loop opens connections and runs tasks."""

    loop: asyncio.AbstractEventLoop
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    tls: NodeTls

    def connect_to(self, listener: str) -> Connect:
        """Return the function that opens connections to a listener of other nodes."""
        return self.tls.connect(self.loop, listener)
