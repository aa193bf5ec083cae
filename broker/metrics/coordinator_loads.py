"""Load times of coordinators: group-coordinator-metrics, transaction-coordinator-metrics, share-coordinator-metrics."""

from broker.metrics.family import Family, counter, gauge
from protocol.lazy_dataclass import lazy_dataclass


@lazy_dataclass(slots=True)
class LoadFigures:
    """Partitions that a coordinator has loaded, their records, and the time it took in ms."""

    partitions: int = 0
    records: int = 0
    elapsed_ms: float = 0.0
    longest_ms: float = 0.0

    def loaded(self, records: int, elapsed_ms: float) -> None:
        """Count a partition that is loaded."""
        self.partitions += 1
        self.records += records
        self.elapsed_ms += elapsed_ms
        self.longest_ms = max(self.longest_ms, elapsed_ms)

    @property
    def average_ms(self) -> float:
        return self.elapsed_ms / self.partitions if self.partitions else 0.0

    def families(self, coordinator: str) -> list[Family]:
        """Return the metrics of a `group`, `transaction` or `share` coordinator. The times have Kafka's names."""
        prefix = f"kafka_server_{coordinator}_coordinator_metrics_partition_load"
        return [
            gauge(f"{prefix}_time_max", "Longest load of a partition since the start, in ms", lambda: self.longest_ms),
            gauge(f"{prefix}_time_avg", "Mean load time of partitions since the start, in ms", lambda: self.average_ms),
            counter(f"{prefix}_records_total", "Records replayed by loads of partitions", lambda: self.records),
        ]


@lazy_dataclass(slots=True)
class CoordinatorSnapshotFigures:
    """Snapshots of coordinators' partitions that this node has made, and the time from begin to end of each in ms."""

    made: int = 0
    failed: int = 0
    elapsed_ms: float = 0.0
    bytes_written: int = 0

    def on_made(self, elapsed_ms: float, size: int) -> None:
        """Count a snapshot of `size` bytes."""
        self.made += 1
        self.elapsed_ms += elapsed_ms
        self.bytes_written += size

    def families(self) -> list[Family]:
        """Return the metrics, under names of Ottla's own."""
        prefix = "ottla_coordinator_snapshot"
        return [
            counter(f"{prefix}s_total", "Snapshots of coordinators that are made", lambda: self.made),
            counter(f"{prefix}s_failed_total", "Snapshots of coordinators that could not be made", lambda: self.failed),
            counter(
                f"{prefix}_time_ms_total", "Time in which these snapshots were made, in ms", lambda: self.elapsed_ms
            ),
            counter(f"{prefix}_bytes_total", "Bytes of these snapshots", lambda: self.bytes_written),
        ]
