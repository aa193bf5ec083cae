"""Sends spans through OpenTelemetry's OTLP/HTTP exporter, on a thread."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from broker.metrics.otel.exporter_messages import ExporterMessages
from broker.metrics.otel.points import SCOPE
from broker.metrics.otel.sender import Threads
from broker.metrics.otel.settings import SpanSettings
from broker.metrics.otel.span_buffer import RequestSpan
from broker.metrics.otel.span_export import ExportFailure

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter
    from requests import PreparedRequest, Response

_RETRYABLE: Final = frozenset({429, 502, 503, 504})
"""HTTP statuses after which a receiver may accept the same data (OTLP, "Retryable Response Codes")."""


class OtlpSpanSender:
    """One receiver. Creating it imports OpenTelemetry, which blocks; raise ImportError without the packages."""

    def __init__(self, settings: SpanSettings, threads: Threads) -> None:
        from opentelemetry.exporter.otlp.proto.http import Compression
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from requests import Session

        session = Session()
        session.auth = self._note_request  # called with each request before it is sent
        session.hooks["response"].append(self._note_status)
        self._is_requested = False
        self._status: int | None = None
        self._attributes = settings.attributes
        self._threads = threads
        self._exporter: SpanExporter = OTLPSpanExporter(
            endpoint=settings.endpoint,
            headers=dict(settings.headers),
            timeout=settings.timeout_s,
            compression=Compression.Gzip,
            session=session,
        )
        self._messages = ExporterMessages(self._exporter)

    async def send(self, spans: Sequence[RequestSpan]) -> ExportFailure | None:
        """Encode and send. Return the failure; None after success."""
        return await self._threads.submit(lambda: self._send(spans))

    def close(self) -> None:
        """End the retries of a running export."""
        self._exporter.shutdown()

    def _note_request(self, request: "PreparedRequest") -> "PreparedRequest":
        self._is_requested = True
        return request

    def _note_status(self, response: "Response", **_: object) -> None:
        self._status = response.status_code

    def _send(self, spans: Sequence[RequestSpan]) -> ExportFailure | None:
        from opentelemetry.sdk.trace.export import SpanExportResult

        self._messages.begin()
        self._is_requested, self._status = False, None
        try:
            result = self._exporter.export(readable_spans(spans, self._attributes))
        except Exception as error:  # noqa: BLE001  whatever fails in the exporter must not stop the node
            return ExportFailure(f"{type(error).__name__}: {error}", is_final=self._is_refused_for_good())
        if result is SpanExportResult.SUCCESS:
            return None
        return ExportFailure(self._messages.text, is_final=self._is_refused_for_good())

    def _is_refused_for_good(self) -> bool:
        """Whether the same batch would fail again; one without any request could not be encoded."""
        if not self._is_requested:
            return True
        return self._status is not None and self._status not in _RETRYABLE


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
