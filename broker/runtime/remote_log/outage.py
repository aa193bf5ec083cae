"""Detection of remote storage outages, so that the log has one line when an outage begins and one when it ends.

Many reads fail during an outage, each several times, while others succeed from caches. An outage is over when a read
succeeds and none has failed for `QUIET_MS`. An outage that begins less than `LOG_INTERVAL_MS` after the last log line
is not logged.
"""

from typing import Final

from protocol.lazy_dataclass import lazy_dataclass

QUIET_MS: Final = 5_000
"""Longer than any pause between attempts of a read that a request waits for."""
LOG_INTERVAL_MS: Final = 60_000


@lazy_dataclass(slots=True)
class RemoteOutage:
    """The present outage, if there is one. Times are in milliseconds of a monotonic clock."""

    failures: int = 0
    """Failures of the present outage; 0: no outage."""
    began_ms: float = 0.0
    _failed_ms: float = 0.0
    _logged_ms: float = float("-inf")
    _is_logged: bool = False

    def failed(self, now_ms: float) -> bool:
        """Note a retriable failure; return whether to log it."""
        if not self.failures:
            self.began_ms, self._is_logged = now_ms, False
        self.failures += 1
        self._failed_ms = now_ms
        if now_ms - self._logged_ms < LOG_INTERVAL_MS:
            return False
        self._logged_ms, self._is_logged = now_ms, True
        return True

    def succeeded(self, now_ms: float) -> int:
        """Note a success; return the number of failures if it ends an outage that was logged, else 0."""
        if not self.failures or now_ms - self._failed_ms < QUIET_MS:
            return 0
        ended, self.failures = self.failures, 0
        return ended if self._is_logged else 0
