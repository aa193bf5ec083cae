"""Warnings about peers, limited so that a hostile peer cannot fill a disk with log lines."""

from broker.logs import EventLog

BURST = 10
REFILL_MS = 1_000.0  # one more line per second after the burst


class RateLimitedLog:
    """At most `BURST` lines at once, then one per second; the next line reports how many were suppressed."""

    __slots__ = ("_allowed", "_log", "_refilled_ms", "_suppressed")

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._allowed = float(BURST)
        self._refilled_ms = 0.0
        self._suppressed = 0

    def report(self, event: str, now_ms: float, **fields: object) -> None:
        """Log `event` as a warning, or count it as suppressed."""
        self._allowed = min(float(BURST), self._allowed + (now_ms - self._refilled_ms) / REFILL_MS)
        self._refilled_ms = now_ms
        if self._allowed < 1.0:
            self._suppressed += 1
            return
        self._allowed -= 1.0
        if self._suppressed:
            fields["suppressed"] = self._suppressed
            self._suppressed = 0
        self._log.warning(event, **fields)
