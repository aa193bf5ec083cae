"""The periodic export: reads the families on the event loop in slices, encodes and sends on a thread.

One export runs at a time, so nothing queues while the receiver is away. A failure is logged and counted, and the next
attempt comes later. The export never stops the node.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, Protocol

from broker.clock import Clock
from broker.metrics.family import Family, Sample, counter
from broker.metrics.otel.attempts import ExportAttempts
from broker.metrics.otel.points import Points
from broker.metrics.otel.settings import OtelSettings

_NS_PER_MS: Final = 1_000_000


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
        self._attempts = ExportAttempts("metrics", settings.endpoint, settings.interval_s)
        self.exports = 0
        self.dropped_series = 0

    @property
    def failures(self) -> int:
        """The number of exports that failed."""
        return self._attempts.failures

    async def run(self) -> None:
        """Export once per interval, more rarely after failures."""
        while True:
            await asyncio.sleep(self._attempts.pause_s)
            await self.export()

    async def export(self) -> None:
        """Export all metrics once."""
        points = Points(self._start_ns, self._clock.now_ms() * _NS_PER_MS, self._settings.max_series)
        async for family, samples in self._read():
            points.add(family, samples)
        self.dropped_series += points.dropped
        reason = await self._sender.send(points)
        if reason is None:
            self.exports += 1
            self._attempts.succeeded()
        else:
            self._attempts.failed(reason)

    def families(self) -> list[Family]:
        """Return the metrics of the export itself."""
        return [
            counter("ottla_otel_exports_total", "Exports of metrics that the receiver accepted", lambda: self.exports),
            counter("ottla_otel_failures_total", "Exports of metrics that failed", lambda: self.failures),
            counter(
                "ottla_otel_dropped_series_total",
                "Series left out of exports because of ottla.otel.max.series",
                lambda: self.dropped_series,
            ),
        ]
