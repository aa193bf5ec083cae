"""The meters of tiering (`broker.metrics.remote_storage`)."""

from broker.metrics.remote_storage import NOTHING, PartitionTier, RemoteStorageMetrics


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
    first, second = PartitionTier(copy_lag_bytes=70, copy_lag_segments=7), PartitionTier(copy_lag_bytes=5)
    metrics.topic("a").move(NOTHING, first)
    metrics.topic("a").move(NOTHING, second)
    metrics.topic("b").move(NOTHING, second)
    assert values(metrics, "remotecopylagbytes") == {None: 80, "a": 75, "b": 5}
    assert values(metrics, "remotecopylagsegments") == {None: 7, "a": 7, "b": 0}
    metrics.topic("a").move(first, NOTHING)
    assert values(metrics, "remotecopylagbytes") == {None: 10, "a": 5, "b": 5}


def test_the_names_are_kafkas() -> None:
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
