"""The OpenTelemetry exports of a node, off without `ottla.otel.endpoint`.

Metrics and spans share one thread, so that one export runs at a time.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from broker.api.pipeline.tracing import OnTrace
from broker.clock import Clock
from broker.config.broker_config import BrokerConfig
from broker.config.errors import ConfigError
from broker.metrics.family import Family, Sample
from broker.metrics.otel.export import OtelExport
from broker.metrics.otel.request_spans import SpanRecorder
from broker.metrics.otel.sender import OtlpSender
from broker.metrics.otel.settings import (
    OtelSettings,
    SpanSettings,
    metrics_url,
    parse_headers,
    resource_attributes,
    traces_url,
)
from broker.metrics.otel.span_buffer import SpanBuffer
from broker.metrics.otel.span_export import SpanExport
from broker.metrics.otel.span_sender import OtlpSpanSender
from broker.runtime.loop.thread_pool import ThreadPool

T = TypeVar("T")

Read = Callable[[], AsyncIterator[tuple[Family, Sequence[Sample]]]]

_ENDPOINT: Final = "ottla.otel.endpoint"
_ATTRIBUTES: Final = "ottla.otel.resource.attributes"
_HEADERS: Final = "ottla.otel.headers.location"
_TRACES: Final = "ottla.otel.traces.enable"
_QUEUED_MAX: Final = 1  # an export of spans behind one of metrics, or the reverse
_STOP_S: Final = 2.0
_SENDERS: Final = {"http/protobuf": (OtlpSender, OtlpSpanSender)}
"""The senders, of metrics and of spans, of each value of ottla.otel.protocol."""


class OtelPart:
    """The periodic exports and their thread. `open` builds them, `start` begins them.

    `on_trace` takes the requests that become spans; None where spans are off.
    """

    def __init__(self, config: BrokerConfig, clock: Clock, read: Read) -> None:
        self._config = config
        self._clock = clock
        self._read = read
        self._threads = ThreadPool(1, _QUEUED_MAX, "ottla-otel")
        self._senders: list[OtlpSender | OtlpSpanSender] = []
        self._exports: list[OtelExport | SpanExport] = []
        self._spans = SpanBuffer(config.ottla_otel_traces_max_spans)
        self.on_trace: OnTrace | None = None
        if config.ottla_otel_traces_enable:
            self.on_trace = SpanRecorder(self._spans, clock, random.Random()).record

    def open(self) -> None:
        """Build the exports. Blocks for imports and a small file. Raise ConfigError."""
        config = self._config
        if not config.ottla_otel_endpoint:
            if config.ottla_otel_traces_enable:
                raise ConfigError(_TRACES, f"{_TRACES} needs {_ENDPOINT}, the URL of the receiver.")
            return
        settings = _settings(config)
        span_settings = _span_settings(config, settings) if config.ottla_otel_traces_enable else None
        create, create_for_spans = _SENDERS[str(config.value("ottla.otel.protocol"))]
        try:
            sender = create(settings, self._threads)
            self._senders.append(sender)
            self._exports.append(OtelExport(settings, self._clock, self._read, sender))
            if span_settings is not None:
                span_sender = create_for_spans(span_settings, self._threads)
                self._senders.append(span_sender)
                self._exports.append(SpanExport(span_settings, self._spans, span_sender))
        except ImportError:
            sentence = f"{_ENDPOINT} needs the OpenTelemetry packages; install them with: pip install 'ottla[otel]'."
            raise ConfigError(_ENDPOINT, sentence) from None

    def start(self, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        """Begin to export periodically; `spawn` runs a task until the node stops."""
        for export in self._exports:
            spawn(export.run())

    async def stop(self) -> None:
        """Give up a running export, and the spans that wait."""
        for sender in self._senders:
            sender.close()
        if self._senders:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._threads.stop(drop_waiting=True), _STOP_S)

    def families(self) -> list[Family]:
        """Return the metrics of the exports; none where they are off."""
        return [family for export in self._exports for family in export.families()]


def _settings(config: BrokerConfig) -> OtelSettings:
    defaults = {"service.name": "ottla", "service.instance.id": str(config.node_id)}
    given = _parsed(_ATTRIBUTES, lambda: resource_attributes(config.ottla_otel_resource_attributes))
    return OtelSettings(
        endpoint=_parsed(_ENDPOINT, lambda: metrics_url(config.ottla_otel_endpoint)),
        interval_s=config.ottla_otel_interval_ms / 1000,
        timeout_s=config.ottla_otel_timeout_ms / 1000,
        max_series=config.ottla_otel_max_series,
        attributes=defaults | given,
        headers=_headers(config.ottla_otel_headers_location),
    )


def _span_settings(config: BrokerConfig, settings: OtelSettings) -> SpanSettings:
    """Return the settings of spans, which share receiver, headers and resource with those of metrics."""
    return SpanSettings(
        endpoint=_parsed(_ENDPOINT, lambda: traces_url(settings.endpoint)),
        interval_s=config.ottla_otel_traces_interval_ms / 1000,
        timeout_s=settings.timeout_s,
        attributes=settings.attributes,
        headers=settings.headers,
    )


def _headers(location: str) -> dict[str, str]:
    if not location:
        return {}
    try:
        lines = Path(location).read_text().splitlines()
    except OSError as error:
        raise ConfigError(_HEADERS, f"{_HEADERS}: {location} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError:
        raise ConfigError(_HEADERS, f"{_HEADERS}: {location} is not a text in UTF-8.") from None
    try:
        return parse_headers(lines)
    except ValueError as error:
        raise ConfigError(_HEADERS, f"{_HEADERS}: {location} {error}.") from None


def _parsed(key: str, parse: Callable[[], T]) -> T:
    try:
        return parse()
    except ValueError as error:
        raise ConfigError(key, f"{key} {error}.") from None
