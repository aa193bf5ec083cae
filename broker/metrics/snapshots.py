"""Metrics of metadata snapshots: KIP-630's four metrics, and those of Kafka's SnapshotEmitter and MetadataLoader."""

from collections.abc import Callable, Iterable

from broker.metrics.family import Family, Sample, counter, gauge
from broker.metrics.histogram import Histogram
from broker.metrics.requests import QUANTILES

_CONTROLLER = "kafka_controller_kafkacontroller_"
_EMITTER = "kafka_server_snapshotemitter_"
_LOADER = "kafka_server_metadataloader_"


class SnapshotMetrics:
    """Plain numbers, updated when a snapshot was generated or loaded. Sizes in bytes, times monotonic in ms.

    `size_bytes` and `end_offset` are those of the latest snapshot of any origin; 0 before the first one.
    """

    __slots__ = (
        "end_offset",
        "failures",
        "generated_at_ms",
        "generated_bytes",
        "generation_ms",
        "load_count",
        "load_ms",
        "size_bytes",
    )

    def __init__(self, now_ms: float) -> None:
        self.generation_ms = Histogram()
        self.load_ms = Histogram()
        self.size_bytes = 0
        self.end_offset = 0
        self.load_count = 0
        self.generated_bytes = 0
        self.generated_at_ms = now_ms  # the node's start before the first snapshot, as in Kafka
        self.failures = 0

    def on_generated(self, end_offset: int, size: int, elapsed_ms: float, now_ms: float) -> None:
        """Record a snapshot that this node generated."""
        self.generation_ms.record(round(elapsed_ms))
        self.generated_bytes, self.generated_at_ms = size, now_ms
        self._note(end_offset, size)

    def on_loaded(self, end_offset: int, size: int, elapsed_ms: float) -> None:
        """Record a snapshot that replaced the state in memory."""
        self.load_ms.record(round(elapsed_ms))
        self.load_count += 1
        self._note(end_offset, size)

    def on_failed(self) -> None:
        """Count a snapshot that could not be written."""
        self.failures += 1

    def _note(self, end_offset: int, size: int) -> None:
        if end_offset >= self.end_offset:
            self.end_offset, self.size_bytes = end_offset, size


def snapshot_families(
    metrics: SnapshotMetrics,
    *,
    high_watermark: Callable[[], int | None],
    metadata_version: Callable[[], int],
    controller_id: Callable[[], int],
    monotonic_ms: Callable[[], float],
) -> list[Family]:
    """Return the families. `metadata_version` is the finalized level, `controller_id` -1 while there is none."""
    return [
        _histogram("gensnapshotlatencyms", "Milliseconds to generate a metadata snapshot", metrics.generation_ms),
        _histogram("loadsnapshotlatencyms", "Milliseconds to load a metadata snapshot", metrics.load_ms),
        gauge(f"{_CONTROLLER}snapshotsizebytes", "Size of the latest metadata snapshot", lambda: metrics.size_bytes),
        gauge(
            f"{_CONTROLLER}snapshotlag",
            "Offsets between the latest metadata snapshot and the high watermark",
            lambda: max(0, (high_watermark() or 0) - metrics.end_offset),
        ),
        gauge(
            f"{_EMITTER}latestsnapshotgeneratedbytes",
            "Size of the latest metadata snapshot generated here since the start",
            lambda: metrics.generated_bytes,
        ),
        gauge(
            f"{_EMITTER}latestsnapshotgeneratedagems",
            "Milliseconds since a metadata snapshot was generated here, or since the start",
            lambda: monotonic_ms() - metrics.generated_at_ms,
        ),
        counter(
            "ottla_metadata_snapshot_failures_total", "Snapshots that could not be written", lambda: metrics.failures
        ),
        gauge(
            f"{_LOADER}handleloadsnapshotcount",
            "Metadata snapshots loaded since the start",
            lambda: metrics.load_count,
        ),
        gauge(f"{_LOADER}currentmetadataversion", "Finalized metadata.version", metadata_version),
        gauge(f"{_LOADER}currentcontrollerid", "Id of the active controller, or -1", controller_id),
    ]


def _histogram(name: str, text: str, histogram: Histogram) -> Family:
    def read() -> Iterable[Sample]:
        for quantile, value in zip(QUANTILES, histogram.quantiles(QUANTILES), strict=True):
            yield Sample(value, {"quantile": str(quantile)})
        yield Sample(histogram.count, suffix="_count")
        yield Sample(histogram.total, suffix="_sum")

    return Family(f"{_CONTROLLER}{name}", text, "summary", read)
