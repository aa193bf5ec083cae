"""The OpenTelemetry export of a node, off without `ottla.otel.endpoint`."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from broker.clock import Clock
from broker.config.broker_config import BrokerConfig
from broker.config.errors import ConfigError
from broker.metrics.family import Family, Sample
from broker.metrics.otel.export import OtelExport
from broker.metrics.otel.sender import OtlpSender
from broker.metrics.otel.settings import OtelSettings, metrics_url, parse_headers, resource_attributes
from broker.runtime.loop.thread_pool import ThreadPool

T = TypeVar("T")

Read = Callable[[], AsyncIterator[tuple[Family, Sequence[Sample]]]]

_ENDPOINT: Final = "ottla.otel.endpoint"
_ATTRIBUTES: Final = "ottla.otel.resource.attributes"
_HEADERS: Final = "ottla.otel.headers.location"
_QUEUED_MAX: Final = 1  # one export runs at a time
_STOP_S: Final = 2.0
_SENDERS: Final = {"http/protobuf": OtlpSender}
"""The sender of each value of ottla.otel.protocol."""


class OtelPart:
    """The periodic export and its thread. `open` builds it; `run` never ends by itself."""

    def __init__(self, config: BrokerConfig, clock: Clock, read: Read) -> None:
        self._config = config
        self._clock = clock
        self._read = read
        self._threads = ThreadPool(1, _QUEUED_MAX, "ottla-otel")
        self._sender: OtlpSender | None = None
        self._export: OtelExport | None = None

    def open(self) -> None:
        """Build the export. Blocks for imports and a small file. Raise ConfigError."""
        if not self._config.ottla_otel_endpoint:
            return
        settings = _settings(self._config)
        try:
            self._sender = _SENDERS[str(self._config.value("ottla.otel.protocol"))](settings, self._threads)
        except ImportError:
            sentence = f"{_ENDPOINT} needs the OpenTelemetry packages; install them with: pip install 'ottla[otel]'."
            raise ConfigError(_ENDPOINT, sentence) from None
        self._export = OtelExport(settings, self._clock, self._read, self._sender)

    async def run(self) -> None:
        """Export periodically, until cancelled."""
        if self._export is not None:
            await self._export.run()

    async def stop(self) -> None:
        """Give up a running export."""
        if self._sender is not None:
            self._sender.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._threads.stop(drop_waiting=True), _STOP_S)

    def families(self) -> list[Family]:
        """Return the metrics of the export; none where it is off."""
        return [] if self._export is None else self._export.families()


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
