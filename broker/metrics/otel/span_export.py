"""The periodic export of spans, in batches that a thread encodes and sends.

One batch is on its way at a time. A batch that fails waits again, until newer spans displace it; a batch that the
receiver refuses for good is dropped. The export never stops the node.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from broker.metrics.family import Family, counter
from broker.metrics.otel.attempts import ExportAttempts
from broker.metrics.otel.settings import SpanSettings
from broker.metrics.otel.span_buffer import RequestSpan, SpanBuffer

BATCH_SPANS_MAX: Final = 512
"""Spans in one request to the receiver."""


class ExportFailure(NamedTuple):
    """The reason why a batch was not accepted. `is_final`: the same batch would fail again."""

    reason: str
    is_final: bool = False


class SpansSender(Protocol):
    """Sends one batch to the receiver."""

    async def send(self, spans: Sequence[RequestSpan]) -> ExportFailure | None:
        """Return the failure; None after success."""
        ...


class SpanExport:
    """Exports the spans of `buffer`, until cancelled."""

    def __init__(self, settings: SpanSettings, buffer: SpanBuffer, sender: SpansSender) -> None:
        self._buffer = buffer
        self._sender = sender
        self._attempts = ExportAttempts("spans", settings.endpoint, settings.interval_s)
        self.exported = 0
        self.refused = 0

    async def run(self) -> None:
        """Export once per interval, more rarely after failures."""
        while True:
            await asyncio.sleep(self._attempts.pause_s)
            await self.export()

    async def export(self) -> None:
        """Export as many spans as wait now. Stop at the first failure."""
        left = len(self._buffer)
        while batch := self._buffer.take(min(left, BATCH_SPANS_MAX)):
            failure = await self._sender.send(batch)
            if failure is not None:
                self._failed(batch, failure)
                return
            left -= len(batch)
            self.exported += len(batch)
            self._attempts.succeeded()

    def _failed(self, batch: Sequence[RequestSpan], failure: ExportFailure) -> None:
        if failure.is_final:
            self.refused += len(batch)
        else:
            self._buffer.put_back(batch)
        self._attempts.failed(failure.reason)

    def families(self) -> list[Family]:
        """Return the metrics of the export."""
        return [
            counter("ottla_otel_spans_exported_total", "Spans that the receiver accepted", lambda: self.exported),
            counter("ottla_otel_span_failures_total", "Exports of spans that failed", lambda: self._attempts.failures),
            counter("ottla_otel_refused_spans_total", "Spans that the receiver refused for good", lambda: self.refused),
            counter(
                "ottla_otel_dropped_spans_total",
                "Spans dropped before their export because of ottla.otel.traces.max.spans",
                lambda: self._buffer.dropped,
            ),
        ]
