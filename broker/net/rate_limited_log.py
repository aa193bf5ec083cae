"""Log lines about peers, limited so that a hostile peer cannot fill a disk."""

from collections.abc import Callable

from broker.logs import EventLog

BURST = 10
REFILL_MS = 1_000.0  # one more line per second after the burst


class RateLimitedLog:
    """At most `burst` lines at once, then one per `refill_ms`; the next line reports how many were suppressed.

    `write` logs a line, by default as a warning.
    """

    __slots__ = ("_allowed", "_burst", "_refill_ms", "_refilled_ms", "_suppressed", "_write")

    def __init__(
        self,
        log: EventLog,
        *,
        burst: float = BURST,
        refill_ms: float = REFILL_MS,
        write: Callable[..., None] | None = None,
    ) -> None:
        self._write = log.warning if write is None else write
        self._burst = float(burst)
        self._refill_ms = refill_ms
        self._allowed = float(burst)
        self._refilled_ms = 0.0
        self._suppressed = 0

    def report(self, event: str, now_ms: float, **fields: object) -> None:
        """Log `event`, or count it as suppressed."""
        self._allowed = min(self._burst, self._allowed + (now_ms - self._refilled_ms) / self._refill_ms)
        self._refilled_ms = now_ms
        if self._allowed < 1.0:
            self._suppressed += 1
            return
        self._allowed -= 1.0
        if self._suppressed:
            fields["suppressed"] = self._suppressed
            self._suppressed = 0
        self._write(event, **fields)
