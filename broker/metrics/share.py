"""Metrics of share partitions, share sessions and share groups on partition leaders, under Kafka's names (KIP-932)."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.metrics.family import Family, Sample, counter, gauge

_GROUP: Final = "kafka_server_sharegroupmetrics_"
_PARTITION: Final = "kafka_server_sharepartitionmetrics_"
_SESSIONS: Final = "kafka_server_sharesessioncache_"


class SharePartitionFigures(NamedTuple):
    """The state of one share partition at a scrape."""

    group_id: str
    topic: str
    partition: int
    in_flight_records: int
    in_flight_batches: int
    expired_locks: int


@dataclass(slots=True)
class ShareFigures:
    """Counts of acknowledged records by type, and of loads of share partitions with their total time in ms."""

    acknowledged: Counter[str] = field(default_factory=Counter)
    loads: int = 0
    load_ms: float = 0.0

    def families(self, partitions: Callable[[], Iterable[SharePartitionFigures]]) -> list[Family]:
        """Return the metrics of groups and partitions."""
        return [
            Family(
                f"{_GROUP}recordacknowledgements_total",
                "Records that members of share groups acknowledged, by type",
                "counter",
                lambda: [Sample(count, {"acktype": kind}) for kind, count in self.acknowledged.items()],
            ),
            Family(
                f"{_GROUP}partitionloadtimems",
                "Milliseconds until the state of a share partition was read",
                "summary",
                lambda: [Sample(self.loads, suffix="_count"), Sample(self.load_ms, suffix="_sum")],
            ),
            *_partition_families(partitions),
        ]


def _partition_families(partitions: Callable[[], Iterable[SharePartitionFigures]]) -> list[Family]:
    def samples(value_of: Callable[[SharePartitionFigures], int]) -> Callable[[], Iterable[Sample]]:
        return lambda: (
            Sample(value_of(each), {"group": each.group_id, "topic": each.topic, "partition": str(each.partition)})
            for each in list(partitions())
        )

    return [
        Family(
            f"{_PARTITION}inflightmessagecount",
            "Offsets between start and end of a share partition's window",
            "gauge",
            samples(lambda each: each.in_flight_records),
        ),
        Family(
            f"{_PARTITION}inflightbatchcount",
            "Runs of records in one state in a share partition's window",
            "gauge",
            samples(lambda each: each.in_flight_batches),
        ),
        Family(
            f"{_PARTITION}acquisitionlocktimeout_total",
            "Records that were released because their lock elapsed",
            "counter",
            samples(lambda each: each.expired_locks),
        ),
    ]


def share_session_families(
    sessions: Callable[[], int], partitions: Callable[[], int], evictions: Callable[[], int]
) -> list[Family]:
    """Return the metrics of ShareSessionCache."""
    return [
        gauge(f"{_SESSIONS}sharesessionscount", "Share sessions", sessions),
        gauge(f"{_SESSIONS}sharepartitionscount", "Partitions of all share sessions", partitions),
        counter(
            f"{_SESSIONS}sharesessionevictions_total", "Share sessions that ended with their connection", evictions
        ),
    ]
