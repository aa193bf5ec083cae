"""Metrics of single partitions: `kafka.cluster:type=Partition`."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from broker.metrics.family import Family, Sample

_PREFIX = "kafka_cluster_partition_"


class PartitionFigures(NamedTuple):
    """A hosted partition at one moment. Only the leader knows the replicas; a follower has zeros, as in Kafka."""

    topic: str
    partition: int
    last_stable_offset_lag: int
    replicas: int = 0
    in_sync_replicas: int = 0
    is_under_replicated: bool = False
    is_under_min_isr: bool = False
    is_at_min_isr: bool = False


def partition_families(partitions: Callable[[], Iterable[PartitionFigures]]) -> list[Family]:
    """Return the gauges. `partitions` iterates over a snapshot of its own, like `Family.read`; prefer a generator."""

    def of_each(name: str, text: str, value: Callable[[PartitionFigures], float]) -> Family:
        def read() -> Iterable[Sample]:
            for each in partitions():
                yield Sample(value(each), {"topic": each.topic, "partition": str(each.partition)})

        return Family(f"{_PREFIX}{name}", text, "gauge", read)

    return [
        of_each("underreplicated", "1 if a replica is missing in the ISR", lambda each: each.is_under_replicated),
        of_each("insyncreplicascount", "In-sync replicas", lambda each: each.in_sync_replicas),
        of_each("replicascount", "Assigned replicas", lambda each: each.replicas),
        of_each("underminisr", "1 if the ISR is below min.insync.replicas", lambda each: each.is_under_min_isr),
        of_each("atminisr", "1 if the ISR has exactly min.insync.replicas", lambda each: each.is_at_min_isr),
        of_each(
            "laststableoffsetlag",
            "Offsets between the last stable offset and the high watermark: records of open transactions",
            lambda each: each.last_stable_offset_lag,
        ),
    ]
