"""The seam between handlers and this node's controller."""

from collections.abc import Awaitable
from typing import Protocol, TypeVar

from broker.runtime.controller.driver import Command

R = TypeVar("R")


class ControllerGateway(Protocol):
    """Runs commands on this node's controller, active or not."""

    def submit(self, command: Command[R]) -> Awaitable[R]:
        """Run a command; the response is there once its records are committed.

        Raises KafkaError, at once or from the awaitable, NOT_CONTROLLER among others.
        """
        ...
