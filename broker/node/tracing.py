"""The settings of slow requests and traces, which may change while the node runs."""

from collections.abc import Callable
from math import inf

from broker.api.pipeline.tracing import RequestTracing, TraceSettings
from broker.config.broker_config import BrokerConfig
from broker.metadata.image.config_image import ResourceType
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from protocol.api_keys import API_BY_KEY


class TracingConfig:
    """A metadata publisher that hands changed settings to `tracing`. Install after the dynamic configuration."""

    def __init__(self, tracing: RequestTracing, config: Callable[[], BrokerConfig]) -> None:
        self._tracing = tracing
        self._config = config
        tracing.change(trace_settings(config()))

    def on_metadata(self, delta: MetadataDelta, _image: MetadataImage) -> None:
        """Apply changed configs."""
        if delta.configs is not None and any(
            resource.type == ResourceType.BROKER for resource in delta.configs.changed_resources
        ):
            self._tracing.change(trace_settings(self._config()))


def trace_settings(config: BrokerConfig) -> TraceSettings:
    """Return the settings of a configuration. Names of unknown APIs match no request."""
    slow_ms, names = config.value("ottla.slow.request.ms"), config.value("ottla.trace.apis")
    correlation_id, lines = config.value("ottla.trace.correlation.id"), config.value("ottla.trace.max.lines.per.second")
    assert isinstance(slow_ms, int)
    assert isinstance(names, tuple | list)
    assert isinstance(correlation_id, int)
    assert isinstance(lines, int)
    wanted = {str(name).strip().lower() for name in names} - {""}
    keys = {int(key) for key, api in API_BY_KEY.items() if api.name.lower() in wanted}
    return TraceSettings(
        slow_ms if slow_ms > 0 else inf,
        str(config.value("ottla.trace.client.id") or ""),
        correlation_id,
        frozenset(keys or ({-1} if wanted else ())),
        lines,
    )
