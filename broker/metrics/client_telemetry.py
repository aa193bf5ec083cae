"""Client telemetry (KIP-714): the broker's own counts under Kafka's names, and the metrics that clients pushed.

Pushed metrics become families `kafka_client_…`, the client's name for the metric without `org.apache.kafka`, with the
client's instance id, id and software as labels.
"""

from collections.abc import Callable, Iterable, Iterator

from broker.metrics.family import Family, Sample, counter, gauge
from broker.telemetry.client_metrics import ClientMetrics
from broker.telemetry.received_metrics import ClientSeries

_GROUP = "kafka_server_client_metrics_"


def client_telemetry_families(metrics: ClientMetrics) -> list[Family]:
    """Return the families of the broker's own counts."""
    counts = metrics.counts
    return [
        gauge(f"{_GROUP}instance_count", "Client instances with a subscription", lambda: metrics.instance_count),
        counter(
            f"{_GROUP}unknown_subscription_request_total",
            "Pushes with the id of an earlier subscription",
            lambda: counts.unknown_subscriptions,
        ),
        counter(f"{_GROUP}throttle_total", "Requests before the end of the push interval", lambda: counts.throttled),
        counter(f"{_GROUP}plugin_export_total", "Pushes whose metrics were taken", lambda: counts.pushes),
        counter(f"{_GROUP}plugin_error_total", "Pushes that could not be decoded", lambda: counts.errors),
        gauge("ottla_client_metrics_series", "Series pushed by clients", lambda: metrics.received.count),
        counter(
            "ottla_client_metrics_dropped_points_total",
            "Points of clients above ottla.client.metrics.max.series, or above the limit of one client",
            lambda: metrics.received.dropped,
        ),
    ]


def pushed_families(metrics: ClientMetrics, monotonic_ms: Callable[[], float]) -> Iterator[Family]:
    """Yield a family for each metric that connected clients have pushed."""
    metrics.sweep(monotonic_ms())
    by_name: dict[str, list[ClientSeries]] = {}
    for series in metrics.received.series():
        by_name.setdefault(series.name, []).append(series)
    for name, group in by_name.items():
        yield _family(name, group)


def _family(name: str, group: list[ClientSeries]) -> Family:
    def read() -> Iterable[Sample]:
        return (Sample(series.value, series.labels) for series in group)

    return Family(name, "Pushed by clients (KIP-714)", "counter" if group[0].is_counter else "gauge", read)
