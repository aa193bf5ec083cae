"""Gauges of a node's components under Kafka's names. Arguments say where each value is read."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from broker.metrics.family import Family, Sample, gauge

Number: TypeAlias = Callable[[], float]

_CONTROLLER = "kafka_controller_kafkacontroller_"


class LogFigures(NamedTuple):
    """The log of one partition on this node. `retention_bytes` limits its size; 0 or less if nothing does."""

    topic: str
    partition: int
    size_bytes: int
    segment_count: int
    log_start_offset: int
    log_end_offset: int
    retention_bytes: int = -1

    @property
    def retention_percent(self) -> int:
        """The size in percent of the limit; 0 without a limit (KIP-1257)."""
        return 100 * self.size_bytes // self.retention_bytes if self.retention_bytes > 0 else 0


def broker_families(*, broker_state: Number) -> list[Family]:
    """Return the node's own gauge; `broker_state` as in KIP-631: 1 starting, 2 recovery, 3 running, 6 shutting down."""
    return [gauge("kafka_server_kafkaserver_brokerstate", "State of the broker by KIP-631", broker_state)]


def controller_families(
    *,
    active_controller_count: Number,
    active_broker_count: Number,
    fenced_broker_count: Number,
    global_topic_count: Number,
    global_partition_count: Number,
    offline_partitions_count: Number,
    preferred_replica_imbalance_count: Number,
    last_committed_record_offset: Number,
) -> list[Family]:
    """Return KafkaController's gauges: the cluster as this node's metadata shows it."""
    return [
        gauge(f"{_CONTROLLER}activecontrollercount", "1 on the active controller, else 0", active_controller_count),
        gauge(f"{_CONTROLLER}activebrokercount", "Registered brokers that are not fenced", active_broker_count),
        gauge(f"{_CONTROLLER}fencedbrokercount", "Registered brokers that are fenced", fenced_broker_count),
        gauge(f"{_CONTROLLER}globaltopiccount", "Topics of the cluster", global_topic_count),
        gauge(f"{_CONTROLLER}globalpartitioncount", "Partitions of the cluster", global_partition_count),
        gauge(f"{_CONTROLLER}offlinepartitionscount", "Partitions without leader", offline_partitions_count),
        gauge(
            f"{_CONTROLLER}preferredreplicaimbalancecount",
            "Partitions whose leader is not the preferred replica",
            preferred_replica_imbalance_count,
        ),
        gauge(
            f"{_CONTROLLER}lastcommittedrecordoffset",
            "Offset of the last committed metadata record; -1 before the first",
            last_committed_record_offset,
        ),
    ]


def log_families(
    *, logs: Callable[[], Iterable[LogFigures]], offline_log_directory_count: Number, damaged_log_count: Number
) -> list[Family]:
    """Return the gauges of Log and LogManager. The series of a partition end with its log.

    `logs` iterates over a snapshot of its own, like `Family.read`; prefer a generator.
    """
    return [
        _log_gauge(logs, "size", "Bytes of a partition's log", lambda log: log.size_bytes),
        _log_gauge(
            logs,
            "retentionsizeinpercent",
            "Size of a partition's log in percent of retention.bytes; 0 without a limit and for tiered topics",
            lambda log: log.retention_percent,
        ),
        _log_gauge(logs, "numlogsegments", "Segments of a partition's log", lambda log: log.segment_count),
        _log_gauge(logs, "logstartoffset", "First offset of a partition's log", lambda log: log.log_start_offset),
        _log_gauge(logs, "logendoffset", "Offset of the next record of a partition", lambda log: log.log_end_offset),
        gauge(
            "kafka_log_logmanager_offlinelogdirectorycount",
            "Log directories that failed and are offline",
            offline_log_directory_count,
        ),
        gauge(
            "ottla_log_damaged_logs",
            "Logs that had lost flushed records when this node started; their names and offsets are in its log",
            damaged_log_count,
        ),
    ]


def group_families(
    *,
    groups_by_protocol: Callable[[], Mapping[str, int]],
    consumer_groups_by_state: Callable[[], Mapping[str, int]],
    consumer_group_rebalance_count: Number,
    streams_groups_by_state: Callable[[], Mapping[str, int]],
    streams_group_rebalance_count: Number,
    share_groups_by_state: Callable[[], Mapping[str, int]],
    share_group_rebalance_count: Number,
    offset_count: Number,
) -> list[Family]:
    """Return the metrics of the groups that this node coordinates (GroupMetadataManager, group-coordinator-metrics)."""
    manager, coordinator = "kafka_coordinator_group_groupmetadatamanager_", "kafka_server_group_coordinator_metrics_"
    rebalances = "Group epochs of consumer groups since their partitions were loaded"
    return [
        gauge(f"{manager}numgroups", "Classic groups of this broker", lambda: groups_by_protocol().get("classic", 0)),
        gauge(f"{manager}numoffsets", "Committed offsets that this broker stores", offset_count),
        _labelled(f"{coordinator}group_count", "Groups of this broker by protocol", "protocol", groups_by_protocol),
        _labelled(
            f"{coordinator}consumer_group_count",
            "Consumer groups of this broker by state",
            "state",
            consumer_groups_by_state,
        ),
        # Kafka's names for these counts lack the `_total` that Prometheus expects of a counter.
        gauge(f"{coordinator}consumer_group_rebalance_count", rebalances, consumer_group_rebalance_count),
        _labelled(
            f"{coordinator}streams_group_count",
            "Streams groups of this broker by state",
            "state",
            streams_groups_by_state,
        ),
        gauge(
            f"{coordinator}streams_group_rebalance_count",
            "Group epochs of streams groups since their partitions were loaded",
            streams_group_rebalance_count,
        ),
        _labelled(
            f"{coordinator}share_group_count",
            "Share groups of this broker by state",
            "state",
            share_groups_by_state,
        ),
        gauge(
            f"{coordinator}share_group_rebalance_count",
            "Group epochs of share groups since their partitions were loaded",
            share_group_rebalance_count,
        ),
    ]


def _labelled(name: str, text: str, label: str, read: Callable[[], Mapping[str, int]]) -> Family:
    return Family(name, text, "gauge", lambda: [Sample(value, {label: key}) for key, value in read().items()])


def _log_gauge(
    logs: Callable[[], Iterable[LogFigures]], name: str, text: str, value: Callable[[LogFigures], int]
) -> Family:
    def read() -> Iterable[Sample]:
        for log in logs():
            yield Sample(value(log), {"topic": log.topic, "partition": str(log.partition)})

    return Family(f"kafka_log_log_{name}", text, "gauge", read)
