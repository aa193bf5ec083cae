"""How handlers reach the active controller."""

from collections.abc import Awaitable
from typing import Protocol, TypeVar

from broker.runtime.controller.driver import Command

R = TypeVar("R")


class ControllerGateway(Protocol):
    """Runs commands on the active controller."""

    def submit(self, command: Command[R]) -> Awaitable[R]:
        """Run a command; the answer comes once what it wrote is committed.

        Raises KafkaError, at once or from the awaitable, NOT_CONTROLLER among others.
        """
        ...
