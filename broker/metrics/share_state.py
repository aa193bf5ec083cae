"""share-coordinator-metrics: writes of share partitions' states, and the pruning of their log."""

from collections.abc import Iterator
from dataclasses import field

from broker.metrics.family import Family, Sample, counter
from protocol.lazy_dataclass import lazy_dataclass

_PREFIX = "kafka_server_share_coordinator_metrics_"


@lazy_dataclass(slots=True)
class ShareStateFigures:
    """Counts of writes, those that were committed and their total time in ms, and the offset each log begins at."""

    writes: int = 0
    committed_writes: int = 0
    elapsed_ms: float = 0.0
    pruned_offsets: dict[int, int] = field(default_factory=dict)

    def committed(self, elapsed_ms: float) -> None:
        """Count a write that is committed."""
        self.committed_writes += 1
        self.elapsed_ms += elapsed_ms

    def families(self) -> list[Family]:
        """Return the metrics under Kafka's names."""
        return [
            counter(f"{_PREFIX}write_total", "Writes of share partitions' states", lambda: self.writes),
            Family(
                f"{_PREFIX}write_latency",
                "Milliseconds until a write of a share partition's state was committed",
                "summary",
                lambda: [Sample(self.committed_writes, suffix="_count"), Sample(self.elapsed_ms, suffix="_sum")],
            ),
            Family(
                f"{_PREFIX}last_pruned_offset",
                "Offset before which records of the share state topic were deleted, by partition",
                "gauge",
                self._pruned,
            ),
        ]

    def _pruned(self) -> Iterator[Sample]:
        for partition, offset in list(self.pruned_offsets.items()):
            yield Sample(offset, {"topic": "__share_group_state", "partition": str(partition)})
