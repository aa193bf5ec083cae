"""The periodic export: reads the families on the event loop in slices, encodes and sends on a thread.

One export runs at a time, so nothing queues while the receiver is away. A failure is logged and counted, and the next
attempt comes later. The export never stops the node.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, Protocol

from broker.clock import Clock
from broker.logs import EventLog
from broker.metrics.family import Family, Sample, counter
from broker.metrics.otel.points import Points
from broker.metrics.otel.settings import OtelSettings

BACK_OFF_MAX_S: Final = 300.0
"""Longest pause after failures, unless the interval itself is longer."""
_NS_PER_MS: Final = 1_000_000

_log = EventLog("ottla.otel")


class PointsSender(Protocol):
    """Sends one export to the receiver."""

    async def send(self, points: Points) -> str | None:
        """Return the reason of a failure; None after success."""
        ...


class OtelExport:
    """Exports what `read` yields, until cancelled."""

    def __init__(
        self,
        settings: OtelSettings,
        clock: Clock,
        read: Callable[[], AsyncIterator[tuple[Family, Sequence[Sample]]]],
        sender: PointsSender,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._read = read
        self._sender = sender
        self._start_ns = clock.now_ms() * _NS_PER_MS
        self._failed_in_row = 0
        self.exports = 0
        self.failures = 0
        self.dropped_series = 0

    async def run(self) -> None:
        """Export once per interval, more rarely after failures."""
        while True:
            await asyncio.sleep(pause_s(self._settings.interval_s, self._failed_in_row))
            await self.export()

    async def export(self) -> None:
        """Export all metrics once."""
        points = Points(self._start_ns, self._clock.now_ms() * _NS_PER_MS, self._settings.max_series)
        async for family, samples in self._read():
            points.add(family, samples)
        self.dropped_series += points.dropped
        reason = await self._sender.send(points)
        if reason is None:
            self._succeeded()
        else:
            self._failed(reason)

    def families(self) -> list[Family]:
        """Return the metrics of the export itself."""
        return [
            counter("ottla_otel_exports_total", "Exports that the receiver accepted", lambda: self.exports),
            counter("ottla_otel_failures_total", "Exports that failed", lambda: self.failures),
            counter(
                "ottla_otel_dropped_series_total",
                "Series left out of exports because of ottla.otel.max.series",
                lambda: self.dropped_series,
            ),
        ]

    def _succeeded(self) -> None:
        self.exports += 1
        if self._failed_in_row:
            _log.info("Metrics are exported again", endpoint=self._settings.endpoint, failures=self._failed_in_row)
        self._failed_in_row = 0

    def _failed(self, reason: str) -> None:
        self.failures += 1
        self._failed_in_row += 1
        next_s = pause_s(self._settings.interval_s, self._failed_in_row)
        _log.warning(
            "Export of metrics failed", endpoint=self._settings.endpoint, reason=reason, next_attempt_in_s=round(next_s)
        )


def pause_s(interval_s: float, failures: int) -> float:
    """Return the seconds until the next export: the interval, doubled with each failure in a row up to five minutes."""
    return min(interval_s * 2.0 ** min(failures, 16), max(interval_s, BACK_OFF_MAX_S))
