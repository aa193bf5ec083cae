"""The back-off before a node that exited is restarted."""

FIRST_DELAY_S = 0.1
MAX_DELAY_S = 10.0
LONG_RUN_S = 10.0
"""Uptime after which an exit does not count as a failed start."""


class RestartBackoff:
    """Doubles after every short run, so that a failing node does not restart in a tight loop; a long run resets it."""

    def __init__(self) -> None:
        self._next_s = FIRST_DELAY_S

    def after(self, duration_s: float) -> float:
        """Return the seconds to wait after a run of this length."""
        if duration_s >= LONG_RUN_S:
            self._next_s = FIRST_DELAY_S
        delay_s = self._next_s
        self._next_s = min(2 * delay_s, MAX_DELAY_S)
        return delay_s
