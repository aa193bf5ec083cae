"""The stop flag of a job: set by a signal handler, checked between steps."""

import time
from collections.abc import Callable
from typing import Final

GLANCE_S: Final = 0.2
"""Maximum seconds between checks of the flag."""


class StopSign:
    """A flag without a lock, unlike `threading.Event`: a signal handler may interrupt the thread that holds the
    lock.
    """

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, nap: Callable[[float], None] = time.sleep
    ) -> None:
        self._is_up = False
        self._monotonic = monotonic
        self._nap = nap

    def put_up(self) -> None:
        self._is_up = True

    def is_up(self) -> bool:
        return self._is_up

    def wait(self, seconds: float) -> None:
        """Wait for `seconds`, or until the flag is set."""
        deadline = self._monotonic() + seconds
        while not self._is_up and (left := deadline - self._monotonic()) > 0:
            self._nap(min(left, GLANCE_S))
