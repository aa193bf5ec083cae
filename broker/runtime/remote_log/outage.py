"""Whether remote storage is away, as readers see it, so that the log has a line when that begins and one when it ends.

Many reads fail in an outage, each several times, and meanwhile others succeed out of caches. So an outage is over when
something succeeds and nothing has failed for a while, and one that begins soon after another is not told again.
"""

from dataclasses import dataclass
from typing import Final

QUIET_MS: Final = 5_000
"""Longer than any pause between attempts of a read that somebody waits for."""
TOLD_EVERY_MS: Final = 60_000


@dataclass(slots=True)
class RemoteOutage:
    """Times are in milliseconds of a monotonic clock."""

    failures: int = 0
    """Of the present outage; 0: there is none."""
    began_ms: float = 0.0
    _failed_ms: float = 0.0
    _told_ms: float = float("-inf")
    _is_told: bool = False

    def failed(self, now_ms: float) -> bool:
        """Something failed that may succeed later; whether to tell of it."""
        if not self.failures:
            self.began_ms, self._is_told = now_ms, False
        self.failures += 1
        self._failed_ms = now_ms
        if now_ms - self._told_ms < TOLD_EVERY_MS:
            return False
        self._told_ms, self._is_told = now_ms, True
        return True

    def succeeded(self, now_ms: float) -> int:
        """Something was read. Of an outage that was told of, and is over by that: how many failures it had; else 0."""
        if not self.failures or now_ms - self._failed_ms < QUIET_MS:
            return 0
        ended, self.failures = self.failures, 0
        return ended if self._is_told else 0
