"""The services of a node's process, over a real event loop."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from broker.net.peer import Connect
from broker.node.security.logins import NodeLogins
from broker.node.tls import NodeTls
from broker.runtime.loop.runtime import Runtime


@dataclass(frozen=True, slots=True)
class NodeRuntime(Runtime):
    """A Runtime whose loop opens connections and runs tasks."""

    loop: asyncio.AbstractEventLoop
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    tls: NodeTls
    logins: NodeLogins

    def connect_to(self, listener: str) -> Connect:
        """Return the function that opens connections to a listener of other nodes. Raise ConfigError."""
        return self.logins.connect(listener, self.tls.connect(self.loop, listener))

    def connect_for_remote_metadata(self, listener: str) -> Connect:
        """Return the function that opens connections of the remote metadata's clients. Raise ConfigError."""
        connect = self.tls.connect_for_remote_metadata(self.loop, listener)
        return self.logins.connect_for_remote_metadata(listener, connect)
