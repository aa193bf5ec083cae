"""Sends spans through OpenTelemetry's OTLP/HTTP exporter, on a thread."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from broker.metrics.otel.exporter_messages import ExporterMessages
from broker.metrics.otel.points import SCOPE
from broker.metrics.otel.sender import Threads
from broker.metrics.otel.settings import SpanSettings
from broker.metrics.otel.span_buffer import RequestSpan

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter


class OtlpSpanSender:
    """One receiver. Creating it imports OpenTelemetry, which blocks; raise ImportError without the packages."""

    def __init__(self, settings: SpanSettings, threads: Threads) -> None:
        from opentelemetry.exporter.otlp.proto.http import Compression
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        self._attributes = settings.attributes
        self._threads = threads
        self._exporter: SpanExporter = OTLPSpanExporter(
            endpoint=settings.endpoint,
            headers=dict(settings.headers),
            timeout=settings.timeout_s,
            compression=Compression.Gzip,
        )
        self._messages = ExporterMessages(self._exporter)

    async def send(self, spans: Sequence[RequestSpan]) -> str | None:
        """Encode and send. Return the reason of a failure; None after success."""
        return await self._threads.submit(lambda: self._send(spans))

    def close(self) -> None:
        """End the retries of a running export."""
        self._exporter.shutdown()

    def _send(self, spans: Sequence[RequestSpan]) -> str | None:
        from opentelemetry.sdk.trace.export import SpanExportResult

        self._messages.begin()
        try:
            result = self._exporter.export(readable_spans(spans, self._attributes))
        except Exception as error:  # noqa: BLE001  whatever fails in the exporter must not stop the node
            return f"{type(error).__name__}: {error}"
        return None if result is SpanExportResult.SUCCESS else self._messages.text


def readable_spans(spans: Sequence[RequestSpan], attributes: Mapping[str, str]) -> "list[ReadableSpan]":
    """Return OpenTelemetry's form of spans, of a resource with these attributes. Runs off the event loop."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

    resource, scope, flags = Resource(dict(attributes)), InstrumentationScope(SCOPE), TraceFlags(TraceFlags.SAMPLED)
    return [
        ReadableSpan(
            name=span.name,
            context=SpanContext(span.trace_id, span.span_id, is_remote=False, trace_flags=flags),
            resource=resource,
            attributes=span.attributes,
            kind=SpanKind.SERVER,
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=scope,
        )
        for span in spans
    ]
