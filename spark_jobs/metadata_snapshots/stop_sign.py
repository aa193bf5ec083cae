"""That a job is to end: put up by a signal's handler, looked at between steps."""

import time
from collections.abc import Callable
from typing import Final

GLANCE_S: Final = 0.2
"""How long it may go unseen."""


class StopSign:
    """There is no lock in it, as there is in `threading.Event`: a handler may interrupt the very one who holds that."""

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
        """So long, or until it is up."""
        deadline = self._monotonic() + seconds
        while not self._is_up and (left := deadline - self._monotonic()) > 0:
            self._nap(min(left, GLANCE_S))
