"""The fetchers of a broker under Kafka's names: ReplicaFetcherManager, FetcherLagMetrics, FetcherStats."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from broker.metrics.family import Family, Sample, gauge
from broker.replication.replication_quota import ReplicationQuota

_MANAGER = "kafka_server_replicafetchermanager_"
_LAG = "kafka_server_fetcherlagmetrics_consumerlag"
_STATS = "kafka_server_fetcherstats_"
_REPLICA = {"clientid": "Replica"}


class ReplicaLag(NamedTuple):
    """A replica, and its lag in records behind its leader's high watermark."""

    topic: str
    partition: int
    records: int


class FetcherFigures(NamedTuple):
    """A fetcher at one moment. Counts are since its start; `request_rate` is per second; `lags` is iterated once."""

    leader_id: int
    fetcher: int
    host: str
    port: int
    requests: int
    bytes: int
    request_rate: float
    failed_partitions: int
    max_lag: int
    lags: Iterable[ReplicaLag]

    @property
    def labels(self) -> dict[str, str]:
        """Return labels with Kafka's thread names."""
        return {"clientid": f"ReplicaFetcherThread-{self.fetcher}-{self.leader_id}"}


def fetcher_families(fetchers: Callable[[], list[FetcherFigures]]) -> list[Family]:
    """Return the families of the fetchers. Dead threads are always 0: no fetcher runs on a thread of its own."""
    return [
        _total("maxlag", "Records that the replica furthest behind lacks", lambda: _max_lag(fetchers())),
        _total("minfetchrate", "Requests per second of the slowest fetcher", lambda: _min_rate(fetchers())),
        _total(
            "failedpartitionscount",
            "Replicas that are not fetched until their next leader",
            lambda: sum(each.failed_partitions for each in fetchers()),
        ),
        _total("deadthreadcount", "Fetchers that ended by an error", lambda: 0),
        Family(_LAG, "Records that a replica lacks", "gauge", lambda: _lags(fetchers())),
        Family(
            f"{_STATS}requests_total",
            "Fetch requests to a leader",
            "counter",
            lambda: _stats(fetchers(), lambda each: each.requests),
        ),
        Family(
            f"{_STATS}bytes_total",
            "Bytes of record batches fetched from a leader",
            "counter",
            lambda: _stats(fetchers(), lambda each: each.bytes),
        ),
    ]


def replication_quota_families(
    leader: ReplicationQuota, follower: ReplicationQuota, monotonic_ms: Callable[[], float]
) -> list[Family]:
    """Return the recent traffic of throttled replicas, as LeaderReplication and FollowerReplication (KIP-73)."""

    def family(side: str, quota: ReplicationQuota) -> Family:
        return gauge(
            f"kafka_server_{side}replication_byte_rate",
            f"Bytes per second of the replicas in {side}.replication.throttled.replicas",
            lambda: quota.observed(monotonic_ms()),
        )

    return [family("leader", leader), family("follower", follower)]


def _total(name: str, text: str, read: Callable[[], float]) -> Family:
    return Family(f"{_MANAGER}{name}", text, "gauge", lambda: [Sample(read(), _REPLICA)])


def _max_lag(fetchers: list[FetcherFigures]) -> int:
    return max((each.max_lag for each in fetchers), default=0)


def _min_rate(fetchers: list[FetcherFigures]) -> float:
    return min((each.request_rate for each in fetchers), default=0.0)


def _lags(fetchers: list[FetcherFigures]) -> Iterable[Sample]:
    for fetcher in fetchers:
        labels = fetcher.labels
        for topic, partition, records in fetcher.lags:
            yield Sample(records, {**labels, "topic": topic, "partition": str(partition)})


def _stats(fetchers: list[FetcherFigures], value: Callable[[FetcherFigures], int]) -> Iterable[Sample]:
    for fetcher in fetchers:
        yield Sample(value(fetcher), {**fetcher.labels, "brokerhost": fetcher.host, "brokerport": str(fetcher.port)})
