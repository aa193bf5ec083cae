"""How long to wait before a node that exited is started again."""

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0
LONG_LIFE_S = 10.0
"""A node that has lived this long did not die of its start."""


class RestartPauses:
    """Doubles with every short life, so that a node that cannot live does not spin; a long life begins anew."""

    def __init__(self) -> None:
        self._next_s = FIRST_PAUSE_S

    def after(self, lifetime_s: float) -> float:
        """Seconds to wait after a life of this length."""
        if lifetime_s >= LONG_LIFE_S:
            self._next_s = FIRST_PAUSE_S
        pause_s = self._next_s
        self._next_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return pause_s
