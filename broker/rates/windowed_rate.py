"""Recent rates over samples (Kafka: `Rate` over `SampledStat`), and the throttle time of a rate above its quota.

A rate is a sum over samples of one window each. The elapsed time counts as `count - 1` full windows at least, so a
client that was idle may send that many windows' worth at once. A sample counts in full until it has had no event for
`count` windows; the elapsed time may thus exceed `count` windows.

Kafka adds the missing full windows to an elapsed time below `count - 1` windows, so the elapsed time falls by a window
at the end of each of the first windows. A client at its quota then alternates between bursts and pauses.
"""

from collections import deque

from protocol.lazy_dataclass import lazy_dataclass


@lazy_dataclass(frozen=True, slots=True)
class QuotaWindows:
    """`count` samples of `size_ms` each (`quota.window.num`, `quota.window.size.seconds`)."""

    count: int = 11
    size_ms: int = 1000

    @property
    def burst_s(self) -> float:
        """The seconds of a quota that an idle client may use at once."""
        return (self.count - 1) * self.size_ms / 1000


class _WindowSample:
    __slots__ = ("began_ms", "last_event_ms", "value")

    def __init__(self, began_ms: float) -> None:
        self.began_ms = began_ms
        self.last_event_ms = began_ms
        self.value = 0.0


class WindowedRate:
    """A rate per second. Times are milliseconds of one monotonic clock. All operations take amortized constant time."""

    __slots__ = ("_fewest_ms", "_samples", "_total", "_windows")

    def __init__(self, windows: QuotaWindows) -> None:
        self._windows = windows
        self._fewest_ms = max(1.0, (windows.count - 1) * windows.size_ms)
        self._samples: deque[_WindowSample] = deque()  # the oldest first
        self._total = 0.0

    def record(self, value: float, now_ms: float, waiting_since_ms: float | None = None) -> None:
        """Add a value; a negative one takes back what was recorded before.

        A sample begins with its first value, or with the wait for it: at `waiting_since_ms`, if nothing was recorded
        since then. A wait longer than a window does not count.
        """
        self._expire(now_ms)
        samples, size_ms = self._samples, self._windows.size_ms
        if not samples or now_ms - samples[-1].began_ms >= size_ms:
            began_ms = now_ms
            if waiting_since_ms is not None and now_ms - waiting_since_ms < size_ms:
                began_ms = waiting_since_ms
            samples.append(_WindowSample(began_ms))
            if len(samples) > self._windows.count + 1:  # one more than the windows, for the sample that overlaps them
                self._total -= samples.popleft().value
        sample = samples[-1]
        sample.value += value
        sample.last_event_ms = now_ms
        self._total += value

    def is_empty(self, now_ms: float) -> bool:
        """Whether no value counts any more."""
        self._expire(now_ms)
        return self._total <= 0

    def per_second(self, now_ms: float) -> float:
        """Return the rate."""
        self._expire(now_ms)
        return self._total * 1000 / self._elapsed_ms(now_ms)

    def throttle_ms(self, bound: float, now_ms: float) -> int:
        """Return the pause by which the elapsed time must grow for the rate to fall to `bound`; 0 within the bound.

        While fewer windows have passed than count as elapsed, the pause does not lengthen the elapsed time, and another
        pause may follow.
        """
        rate = self.per_second(now_ms)
        if rate <= bound:
            return 0
        return round((rate - bound) / bound * self._elapsed_ms(now_ms))

    def _elapsed_ms(self, now_ms: float) -> float:
        elapsed_ms = now_ms - self._samples[0].began_ms if self._samples else 0.0
        return max(elapsed_ms, self._fewest_ms)

    def _expire(self, now_ms: float) -> None:
        samples, age_ms = self._samples, self._windows.count * self._windows.size_ms
        while samples and now_ms - samples[0].last_event_ms >= age_ms:
            self._total -= samples.popleft().value
        if not samples:
            self._total = 0.0
