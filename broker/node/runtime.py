"""The services of a node's process, over a real event loop."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from broker.net.peer import TcpConnect
from broker.runtime.loop.runtime import Runtime


@dataclass(frozen=True, slots=True)
class NodeRuntime(Runtime):
    """A Runtime whose loop opens connections and runs tasks."""

    loop: asyncio.AbstractEventLoop
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]

    @property
    def connect(self) -> TcpConnect:
        return TcpConnect(self.loop)
