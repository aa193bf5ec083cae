"""The progress of a tailing job as its HTTP listener shows it: metrics, and the reason why the job is not ready.

The job writes, a watch of the high watermark writes, and HTTP requests read, each in a thread of its own. No field
has two writers at a time. Ages and the lag are computed when they are read: nothing freezes them during an outage.
"""

import time
from collections.abc import Callable, Iterable
from typing import Final

from broker.metrics.family import Family, Sample, counter, gauge

AWAY_AFTER_S: Final = 10.0
"""Seconds without a response about the high watermark after which the brokers count as away."""
STALLED_AFTER_S: Final = 120.0
"""Default of the seconds for which the lag may stay above 0 without a completed step."""
_PREFIX: Final = "ottla_metadata_job_"


class JobProgress:
    """The facts of one run. Times are those of `monotonic`, in seconds."""

    def __init__(
        self, stalled_after_s: float = STALLED_AFTER_S, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.snapshots_written = 0
        self.retries = 0
        self.last_error: str | None = None
        """The reason of the last retry, until a step succeeds."""
        self._stalled_after_s = stalled_after_s
        self._monotonic = monotonic
        self._folded: tuple[int, float] | None = None  # end offset, and when it last advanced
        self._step_s: float | None = None
        self._watermark: tuple[int, float] | None = None  # high watermark, and when it was read
        self._behind_since_s: float | None = None  # since when the lag is above 0 in looks without a long pause
        self._began_s = monotonic()
        self._watch_error: str | None = None

    # ---- the job

    def begins(self, end: int) -> None:
        """Record the offset from which the job folds."""
        self._folded = end, self._monotonic()

    def stepped(self, end: int) -> None:
        """Record a completed step."""
        self._step_s = self._monotonic()
        self.last_error = None
        if self._folded is None or end != self._folded[0]:
            self._folded = end, self._step_s

    def retried(self, why: str) -> None:
        """Record a failure after which the job tries again."""
        self.retries += 1
        self.last_error = why

    def wrote_snapshot(self) -> None:
        self.snapshots_written += 1

    # ---- the watch of the high watermark

    def saw_high_watermark(self, offset: int) -> None:
        """Record a response of the brokers."""
        now_s = self._monotonic()
        was_away = self._watermark is not None and now_s - self._watermark[1] > AWAY_AFTER_S
        self._watermark, self._watch_error = (offset, now_s), None
        if not self.lag:
            self._behind_since_s = None
        elif self._behind_since_s is None or was_away:
            self._behind_since_s = now_s

    def missed_high_watermark(self, why: str) -> None:
        """Record a failed look at the high watermark."""
        self._watch_error = why

    # ---- readers

    @property
    def folded_end(self) -> int | None:
        """The offset after the last folded record; None before the job folds."""
        return None if self._folded is None else self._folded[0]

    @property
    def high_watermark(self) -> int | None:
        """The high watermark at the last look; None before the first."""
        return None if self._watermark is None else self._watermark[0]

    @property
    def lag(self) -> int | None:
        """Committed records that are not folded yet; None while an offset is unknown."""
        end, high_watermark = self.folded_end, self.high_watermark
        return None if end is None or high_watermark is None else max(0, high_watermark - end)

    def not_ready_because(self) -> str | None:
        """Return the reason why the state of the job is not current, or None."""
        now_s = self._monotonic()
        seen_s = self._began_s if self._watermark is None else self._watermark[1]
        if self._folded is None:
            return "the job is starting"
        if now_s - seen_s > AWAY_AFTER_S:
            cause = "" if self._watch_error is None else f": {self._watch_error}"
            return f"the brokers have not told the high watermark for {now_s - seen_s:.0f} s{cause}"
        if self.lag is None:
            return "the high watermark is not known yet"
        behind_since_s = self._behind_since_s
        stuck_s = 0.0 if behind_since_s is None else now_s - max(behind_since_s, self._folded[1])
        if self.lag and stuck_s > self._stalled_after_s:
            return f"the fold has stayed {self.lag} records behind the high watermark for {stuck_s:.0f} s"
        return None

    def to_json(self) -> dict[str, object]:
        """Return the facts that health responses add to the status."""
        return {
            "folded_end_offset": self.folded_end,
            "high_watermark": self.high_watermark,
            "lag": self.lag,
            "last_error": self.last_error,
        }

    def families(self) -> list[Family]:
        """Return the metric families. An unknown value has no sample."""

        def known(name: str, text: str, value: Callable[[], float | None]) -> Family:
            def read() -> Iterable[Sample]:
                found = value()
                return [] if found is None else [Sample(found)]

            return Family(f"{_PREFIX}{name}", text, "gauge", read)

        def error() -> Iterable[Sample]:
            found = self.last_error
            return [] if found is None else [Sample(1, {"error": found})]

        return [
            known("folded_end_offset", "Offset after the last folded record", lambda: self.folded_end),
            known("high_watermark", "High watermark of the metadata log at the last look", lambda: self.high_watermark),
            known("lag_records", "Committed records that are not folded yet", lambda: self.lag),
            known("seconds_since_step", "Seconds since the last completed step", lambda: self._age_s(self._step_s)),
            known(
                "seconds_since_high_watermark",
                "Seconds since the brokers last told the high watermark",
                lambda: self._age_s(None if self._watermark is None else self._watermark[1]),
            ),
            counter(f"{_PREFIX}snapshots_written_total", "Snapshots written", lambda: self.snapshots_written),
            counter(f"{_PREFIX}retries_total", "Failures after which the job tried again", lambda: self.retries),
            Family(f"{_PREFIX}last_error_info", "Reason of the last retry, until a step succeeds", "gauge", error),
            gauge(f"{_PREFIX}ready", "1 if /health/ready answers 200", lambda: self.not_ready_because() is None),
        ]

    def _age_s(self, then_s: float | None) -> float | None:
        return None if then_s is None else self._monotonic() - then_s
