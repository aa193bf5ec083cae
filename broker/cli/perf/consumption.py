"""Throughput of a consumer, in the lines and by the formulas of Kafka's kafka-consumer-perf-test."""

import re
import time
from typing import NamedTuple

BYTES_PER_MB = 1024 * 1024
TOTALS = "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec"
DETAILS = "time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec"
FETCH_COLUMNS = ", rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
THREAD_ID = 0

_TOKEN = re.compile(r"'(?P<quoted>[^']*)'|(?P<letters>([a-zA-Z])\3*)|(?P<text>[^a-zA-Z']+)")
_DIRECTIVES = {"yyyy": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_MILLISECONDS = "SSS"


class Consumed(NamedTuple):
    """The state of a consumer at a wall-clock time in ms; `rebalance_ms` is the time that its rebalances took."""

    time_ms: int
    records: int
    size: int
    rebalance_ms: int


class TimeFormat:
    """A pattern of java.text.SimpleDateFormat with yyyy, yy, MM, dd, HH, mm, ss, SSS and literal text.

    Raises ValueError for other letters.
    """

    def __init__(self, pattern: str) -> None:
        self._parts: list[str] = []
        for found in _TOKEN.finditer(pattern):
            letters = found["letters"]
            if letters is None:
                self._parts.append((found["quoted"] or found["text"] or "").replace("%", "%%"))
            elif letters in _DIRECTIVES or letters == _MILLISECONDS:
                self._parts.append(_DIRECTIVES.get(letters, letters))
            else:
                raise ValueError(f"{letters!r} in {pattern!r} is not supported")

    def format(self, time_ms: int) -> str:
        """Return a wall-clock time in ms as text, in the local time zone."""
        parts = (f"{time_ms % 1000:03}" if part == _MILLISECONDS else part for part in self._parts)
        return time.strftime("".join(parts), time.localtime(time_ms // 1000))


def total_line(begun: Consumed, ended: Consumed, times: TimeFormat) -> str:
    """Return the line of the whole run."""
    times_text = f"{times.format(begun.time_ms)}, {times.format(ended.time_ms)}"
    return f"{times_text}, {_rates(begun, ended, ended.time_ms - begun.time_ms)}, {_fetch(begun, ended)}"


def interval_line(former: Consumed, now: Consumed, times: TimeFormat) -> str:
    """Return the line of an interval: totals until now, and rates since `former`."""
    rates = _rates(former, now, now.time_ms - former.time_ms)
    return f"{times.format(now.time_ms)}, {THREAD_ID}, {rates}, {_fetch(former, now)}"


def _rates(former: Consumed, now: Consumed, elapsed_ms: int) -> str:
    megabytes = (now.size - former.size) / BYTES_PER_MB
    records = now.records - former.records
    per_s = 1000 / max(1, elapsed_ms)
    return f"{now.size / BYTES_PER_MB:.4f}, {megabytes * per_s:.4f}, {now.records}, {records * per_s:.4f}"


def _fetch(former: Consumed, now: Consumed) -> str:
    rebalance_ms = now.rebalance_ms - former.rebalance_ms
    fetch_ms = now.time_ms - former.time_ms - rebalance_ms
    per_s = 1000 / fetch_ms if fetch_ms > 0 else 0.0
    megabytes = (now.size - former.size) / BYTES_PER_MB
    return f"{rebalance_ms}, {fetch_ms}, {megabytes * per_s:.4f}, {(now.records - former.records) * per_s:.4f}"
