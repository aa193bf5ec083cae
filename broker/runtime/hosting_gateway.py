"""Creation that is told when it can be used: answers of the controller, held until their partitions are hosted here.

The controller's answer says that a topic is committed; this broker still has to make the logs. A client that was told
"created" asks for the topic right away, and would meet NOT_LEADER_OR_FOLLOWER. Waiting is bounded, since creation can
also fail for good (a disk that went offline), and what the client was promised is the commit alone.
"""

import asyncio
import contextlib
from typing import TypeVar

from broker.runtime.controller_driver import Command, ControllerDriver
from broker.runtime.partitions import Partitions

R = TypeVar("R")


class HostingGateway:
    """The controller, for commands that create partitions."""

    def __init__(self, controller: ControllerDriver, partitions: Partitions, *, wait_max_ms: int) -> None:
        self._controller = controller
        self._partitions = partitions
        self._wait_max_s = wait_max_ms / 1000

    async def submit(self, command: Command[R]) -> R:
        """As `ControllerDriver.submit`, and then until no log is being created, for `wait_max_ms` at most."""
        response = await self._controller.submit(command)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._wait_max_s):
                await self._partitions.wait_created()
        return response
