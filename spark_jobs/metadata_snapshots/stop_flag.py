"""The stop flag of a job: set by a signal handler, checked between steps."""

import time
from collections.abc import Callable
from typing import Final

GLANCE_S: Final = 0.2
"""Maximum seconds between checks of the flag."""


class StopFlag:
    """A flag without a lock, unlike `threading.Event`: a signal handler may interrupt the thread that holds the
    lock.
    """

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, nap: Callable[[float], None] = time.sleep
    ) -> None:
        self._is_set = False
        self._monotonic = monotonic
        self._nap = nap

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, seconds: float) -> None:
        """Wait for `seconds`, or until the flag is set."""
        deadline = self._monotonic() + seconds
        while not self._is_set and (left := deadline - self._monotonic()) > 0:
            self._nap(min(left, GLANCE_S))
