"""The outcomes of periodic exports: one log line per failure, and longer pauses after failures in a row."""

from typing import Final

from broker.logs import EventLog

BACK_OFF_MAX_S: Final = 300.0
"""Longest pause after failures, unless the interval itself is longer."""

_log = EventLog("ottla.otel")


class ExportAttempts:
    """Counts and logs the failures of one kind of export. `what` names the exported things in log lines."""

    def __init__(self, what: str, endpoint: str, interval_s: float) -> None:
        self._what = what
        self._endpoint = endpoint
        self._interval_s = interval_s
        self._failed_in_row = 0
        self.failures = 0

    @property
    def pause_s(self) -> float:
        """The seconds until the next export."""
        return pause_s(self._interval_s, self._failed_in_row)

    def succeeded(self) -> None:
        """Note that the receiver accepted an export."""
        if self._failed_in_row:
            event = f"{self._what.capitalize()} are exported again"
            _log.info(event, endpoint=self._endpoint, failures=self._failed_in_row)
        self._failed_in_row = 0

    def failed(self, reason: str) -> None:
        """Note a failure."""
        self.failures += 1
        self._failed_in_row += 1
        event, next_s = f"Export of {self._what} failed", round(self.pause_s)
        _log.warning(event, endpoint=self._endpoint, reason=reason, next_attempt_in_s=next_s)


def pause_s(interval_s: float, failures: int) -> float:
    """Return the seconds until the next export: the interval, doubled with each failure in a row up to five minutes."""
    return min(interval_s * 2.0 ** min(failures, 16), max(interval_s, BACK_OFF_MAX_S))
