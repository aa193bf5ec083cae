"""How far a node has applied the metadata: Kafka's broker-metadata-metrics."""

from collections.abc import Callable

from broker.metrics.family import Family, gauge

_APPLIED = "kafka_server_brokermetadatametrics_"


def applied_families(
    *, last_offset: Callable[[], int], last_timestamp_ms: Callable[[], int], now_ms: Callable[[], int]
) -> list[Family]:
    """Return the families. Before the first applied record, `last_offset` is -1 and the lag has no meaning."""
    return [
        gauge(f"{_APPLIED}last_applied_record_offset", "Offset of the last metadata record applied", last_offset),
        gauge(
            f"{_APPLIED}last_applied_record_timestamp",
            "Timestamp of the last metadata record applied, in ms",
            last_timestamp_ms,
        ),
        gauge(
            f"{_APPLIED}last_applied_record_lag_ms",
            "Milliseconds since that timestamp",
            lambda: max(0, now_ms() - last_timestamp_ms()),
        ),
    ]
