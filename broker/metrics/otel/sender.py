"""Sends metrics through OpenTelemetry's OTLP/HTTP exporter, on a thread."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from broker.metrics.otel.exporter_messages import ExporterMessages
from broker.metrics.otel.points import Points
from broker.metrics.otel.settings import OtelSettings

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class Threads(Protocol):
    """Runs work off the event loop."""

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Return the future of the work's result."""
        ...


class OtlpSender:
    """One receiver. Creating it imports OpenTelemetry, which blocks; raise ImportError without the packages."""

    def __init__(self, settings: OtelSettings, threads: Threads) -> None:
        from opentelemetry.exporter.otlp.proto.http import Compression
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        self._attributes = settings.attributes
        self._threads = threads
        self._exporter = OTLPMetricExporter(
            endpoint=settings.endpoint,
            headers=dict(settings.headers),
            timeout=settings.timeout_s,
            compression=Compression.Gzip,
        )
        self._messages = ExporterMessages(self._exporter)

    async def send(self, points: Points) -> str | None:
        """Encode and send. Return the reason of a failure; None after success."""
        return await self._threads.submit(lambda: self._send(points))

    def close(self) -> None:
        """End the retries of a running export."""
        self._exporter.shutdown()

    def _send(self, points: Points) -> str | None:
        from opentelemetry.sdk.metrics.export import MetricExportResult

        self._messages.begin()
        try:
            result = self._exporter.export(points.data(self._attributes))
        except Exception as error:  # noqa: BLE001  whatever fails in the exporter must not stop the node
            return f"{type(error).__name__}: {error}"
        return None if result is MetricExportResult.SUCCESS else self._messages.text
