"""Metrics of remote storage (`broker.metrics.remote_storage`)."""

from collections import Counter

from broker.metrics.family import Family
from broker.metrics.quota_use import QuotaUse
from broker.metrics.remote_storage import (
    NO_GAUGES,
    CopyLagFigures,
    DeleteLagFigures,
    PartitionRemoteGauges,
    RemoteStorageMetrics,
    remote_families,
    under_first_names,
)
from broker.metrics.topics import BrokerTopicMetrics
from tests.support.fakes.clock import ManualClock


def values(metrics: RemoteStorageMetrics, name: str) -> dict[str | None, float]:
    family = next(family for family in metrics.families() if family.name == f"kafka_server_brokertopicmetrics_{name}")
    return {sample.labels.get("topic"): sample.value for sample in family.read()}


def test_counters_by_topic_and_in_total() -> None:
    metrics = RemoteStorageMetrics()
    metrics.topic("a").copy_bytes += 100
    metrics.topic("b").copy_bytes += 20
    assert values(metrics, "remotecopybytes_total") == {None: 120, "a": 100, "b": 20}
    metrics.remove("a")
    assert values(metrics, "remotecopybytes_total") == {None: 120, "b": 20}


def test_gauges_are_sums_over_partitions() -> None:
    metrics = RemoteStorageMetrics()
    first, second = (
        PartitionRemoteGauges(log_size_bytes=70, log_metadata_count=7),
        PartitionRemoteGauges(log_size_bytes=5),
    )
    metrics.topic("a").move(NO_GAUGES, first)
    metrics.topic("a").move(NO_GAUGES, second)
    metrics.topic("b").move(NO_GAUGES, second)
    assert values(metrics, "remotelogsizebytes") == {None: 80, "a": 75, "b": 5}
    assert values(metrics, "remotelogmetadatacount") == {None: 7, "a": 7, "b": 0}
    metrics.topic("a").move(first, NO_GAUGES)
    assert values(metrics, "remotelogsizebytes") == {None: 10, "a": 5, "b": 5}


def test_copy_lag_is_computed_when_it_is_read() -> None:
    metrics, lag = RemoteStorageMetrics(), [1, 2]
    metrics.topic("a").copy_lags[0] = lambda: CopyLagFigures(100 * lag[0], lag[0])
    metrics.topic("a").copy_lags[1] = lambda: CopyLagFigures(100 * lag[1], lag[1])
    metrics.topic("b").copy_lags[0] = lambda: CopyLagFigures(5, 1)
    assert values(metrics, "remotecopylagbytes") == {None: 305, "a": 300, "b": 5}
    lag[0] = 4
    assert values(metrics, "remotecopylagsegments") == {None: 7, "a": 6, "b": 1}
    del metrics.topic("a").copy_lags[1]
    assert values(metrics, "remotecopylagsegments") == {None: 5, "a": 4, "b": 1}


def test_delete_lag_is_computed_when_it_is_read() -> None:
    metrics, lag = RemoteStorageMetrics(), [1]
    metrics.topic("a").delete_lags[0] = lambda: DeleteLagFigures(100 * lag[0], lag[0])
    metrics.topic("b").delete_lags[0] = lambda: DeleteLagFigures(5, 1)
    lag[0] = 4
    assert values(metrics, "remotedeletelagbytes") == {None: 405, "a": 400, "b": 5}
    assert values(metrics, "remotedeletelagsegments") == {None: 5, "a": 4, "b": 1}


def test_families_have_kafkas_names() -> None:
    names = {
        family.name.removeprefix("kafka_server_brokertopicmetrics_") for family in RemoteStorageMetrics().families()
    }
    assert names >= {
        "remotecopybytes_total",
        "remotecopyrequests_total",
        "remotecopyerrors_total",
        "remotedeleterequests_total",
        "remotedeleteerrors_total",
        "remotecopylagbytes",
        "remotecopylagsegments",
        "remotedeletelagbytes",
        "remotedeletelagsegments",
        "remotelogmetadatacount",
        "remotelogsizebytes",
        "remotelogsizecomputationtime",
    }


def test_renamed_meters_have_both_names() -> None:
    metrics, traffic = RemoteStorageMetrics(), BrokerTopicMetrics()
    metrics.topic("a").copy_bytes += 7
    metrics.topic("a").copy_errors += 6
    traffic.topic("a").remote_fetch_requests += 5
    traffic.topic("a").remote_fetch_bytes += 4
    traffic.topic("a").remote_fetch_errors += 3
    families = under_first_names([*metrics.families(), *traffic.families()])
    assert {
        family.name.removeprefix("kafka_server_brokertopicmetrics_"): read(family)["a", ""] for family in families
    } == {
        "remotereadrequests_total": 5,
        "remotebytesin_total": 4,
        "remotereaderror_total": 3,
        "remotebytesout_total": 7,
        "remotewriteerror_total": 6,
    }


def read(family: Family) -> dict[tuple[str, str], float]:
    """Return values by topic and partition, or by operation; an empty key stands for no labels."""
    return {
        (sample.labels.get("topic", sample.labels.get("delayedOperation", "")), sample.labels.get("partition", "")): (
            sample.value
        )
        for sample in family.read()
    }


class Figures:
    """Counts of remote reads."""

    requests, expired, read_ms = 3, 2, 1.5


class LookUps:
    def __init__(self) -> None:
        self.expired = Counter({("a", 1): 4, ("b", 0): 5})
        self.waiting = 6


def test_remote_work_metrics_have_kafkas_names() -> None:
    clock = ManualClock()
    use = QuotaUse(clock)
    use.waited(8)
    families = {
        family.name: read(family)
        for family in remote_families(
            Figures(),
            open_reads=lambda: 9,
            fetch_quota=use,
            copies=RemoteStorageMetrics(clock),
            look_ups=LookUps(),
            copier_idle=lambda: 0.5,
            reader_idle=lambda: 0.25,
            reader_queue=lambda: 10,
            index_cache_bytes=lambda: 11,
        )
    }
    nothing = ("", "")
    pools = ("kafka_log_remote", "org_apache_kafka_storage_internals_log")
    for pool in pools:
        assert families[f"{pool}_remotestoragethreadpool_remotelogreadertaskqueuesize"] == {nothing: 10}
        assert families[f"{pool}_remotestoragethreadpool_remotelogreaderavgidlepercent"] == {nothing: 0.25}
    assert families["kafka_log_remote_remotelogmanager_remotelogmanagertasksavgidlepercent"] == {nothing: 0.5}
    assert families["kafka_server_delayedremotefetchmetrics_expires_total"] == {nothing: 2}
    assert families["kafka_server_delayedremotelistoffsetsmetrics_expires_total"] == {
        nothing: 9,
        ("a", "1"): 4,
        ("b", "0"): 5,
    }
    for name in ("purgatorysize", "numdelayedoperations"):
        assert families[f"kafka_server_delayedoperationpurgatory_{name}"] == {
            ("RemoteFetch", ""): 9,
            ("RemoteListOffsets", ""): 6,
        }
    assert families["kafka_server_remotelogmanager_remote_fetch_throttle_time_max"] == {nothing: 8}
    assert families["kafka_server_remotelogmanager_remote_copy_throttle_time_avg"] == {nothing: 0}
    assert families["kafka_server_rlmcopy_byte_rate"] == families["kafka_server_rlmfetch_byte_rate"] == {nothing: 0}
