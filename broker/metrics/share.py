"""Metrics of share partitions, share sessions and share groups on partition leaders, under Kafka's names (KIP-932)."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Final, NamedTuple

from broker.metrics.family import Family, Sample, counter, gauge
from protocol.lazy_dataclass import lazy_dataclass

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
    acquired_batches: int = 0
    acquired_records: int = 0


@lazy_dataclass(slots=True)
class ShareGroupFetches:
    """Share fetches of one group: the ms until records were acquired, and the percentage of partitions that had any."""

    acquisitions: int = 0
    acquisition_ms: float = 0.0
    requests: int = 0
    acquired_percent: float = 0.0


@lazy_dataclass(slots=True)
class ShareFigures:
    """Counts of acknowledged records by type, of loads of share partitions with their total time in ms, and of fetches.

    `expired_fetches` were answered because their time was over. `fetches` has the groups with sessions here.
    """

    acknowledged: Counter[str] = field(default_factory=Counter)
    loads: int = 0
    load_ms: float = 0.0
    expired_fetches: int = 0
    fetches: dict[str, ShareGroupFetches] = field(default_factory=dict)

    def note_fetch(self, group_id: str, partitions: int, acquired: int, elapsed_ms: float) -> None:
        """Count a share fetch of `partitions`, `acquired` of which had records for the member."""
        group = self.fetches.setdefault(group_id, ShareGroupFetches())
        group.requests += 1
        group.acquired_percent += 100 * acquired / partitions
        if acquired:
            group.acquisitions += 1
            group.acquisition_ms += elapsed_ms

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
            Family(
                f"{_GROUP}topicpartitionsacquiretimems",
                "Milliseconds from a share fetch until it had acquired records",
                "summary",
                lambda: self._group_samples(lambda group: (group.acquisitions, group.acquisition_ms)),
            ),
            Family(
                f"{_GROUP}requesttopicpartitionsfetchratio",
                "Percentage of the partitions of a share fetch that had records for the member",
                "summary",
                lambda: self._group_samples(lambda group: (group.requests, group.acquired_percent)),
            ),
            counter(
                "kafka_server_delayedsharefetchmetrics_expires_total",
                "Share fetches that were answered because their time was over",
                lambda: self.expired_fetches,
            ),
            *_partition_families(partitions),
        ]

    def _group_samples(self, value_of: Callable[[ShareGroupFetches], tuple[int, float]]) -> Iterable[Sample]:
        for group_id, group in list(self.fetches.items()):
            count, total = value_of(group)
            yield Sample(count, {"group": group_id}, "_count")
            yield Sample(total, {"group": group_id}, "_sum")


def _partition_families(partitions: Callable[[], Iterable[SharePartitionFigures]]) -> list[Family]:
    def samples(value_of: Callable[[SharePartitionFigures], int]) -> Callable[[], Iterable[Sample]]:
        return lambda: (Sample(value_of(each), _labels(each)) for each in list(partitions()))

    def batch_sizes() -> Iterable[Sample]:
        for each in list(partitions()):
            yield Sample(each.acquired_batches, _labels(each), "_count")
            yield Sample(each.acquired_records, _labels(each), "_sum")

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
            f"{_PARTITION}inflightbatchmessagecount",
            "Records of a batch that a member has acquired",
            "summary",
            batch_sizes,
        ),
        Family(
            f"{_PARTITION}acquisitionlocktimeout_total",
            "Records that were released because their lock elapsed",
            "counter",
            samples(lambda each: each.expired_locks),
        ),
    ]


def _labels(figures: SharePartitionFigures) -> dict[str, str]:
    return {"group": figures.group_id, "topic": figures.topic, "partition": str(figures.partition)}


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
