"""The figures of one frame: rates between two samples of a cluster, sorted. Pure."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from broker.cli.diagnosis.facts import BrokerFacts, ClusterFacts, NodeFacts
from broker.cli.diagnosis.partition_rules import effective_min_isr
from protocol.lazy_dataclass import lazy_dataclass

ORDERS: Final = ("id", "in", "out", "requests", "lag")
"""Orders of brokers; topics follow by traffic in or out."""


class BrokerRow(NamedTuple):
    """A broker. Rates are per second, None without two samples of the same process."""

    id: int
    state: str
    leaders: int
    bytes_in: float | None = None
    bytes_out: float | None = None
    requests: float | None = None
    cpu: float | None = None
    loop_lag_ms: float | None = None
    memory_bytes: int | None = None
    connections: int | None = None
    disk_used: float | None = None


class TopicRow(NamedTuple):
    """The traffic of a topic on all brokers, per second."""

    name: str
    bytes_in: float
    bytes_out: float
    messages_in: float


class GroupRow(NamedTuple):
    """A group. `lag` is None if its offsets are not known."""

    id: str
    type: str
    state: str
    lag: int | None


class ReplicaRow(NamedTuple):
    """A replica of the metadata log. `silent_ms` is the time since its last fetch, None for the leader."""

    id: int
    role: str
    lag: int
    silent_ms: int | None


@lazy_dataclass(frozen=True, slots=True)
class Figures:
    """One frame. Remote figures are None without remote storage."""

    time_ms: int
    cluster_id: str
    leader_id: int | None
    brokers: Sequence[BrokerRow] = ()
    quorum: Sequence[ReplicaRow] = ()
    topics: Sequence[TopicRow] = ()
    groups: Sequence[GroupRow] = ()
    topic_count: int = 0
    partition_count: int = 0
    offline: int = 0
    under_min_isr: int = 0
    under_replicated: int = 0
    remote_lag_bytes: int | None = None
    remote_lag_segments: int | None = None
    remote_errors: int | None = None
    order: str = "in"

    def document(self) -> dict[str, object]:
        """Return the frame for JSON."""
        return {
            "timeMs": self.time_ms,
            "clusterId": self.cluster_id,
            "leaderId": self.leader_id,
            "topics": self.topic_count,
            "partitions": self.partition_count,
            "offline": self.offline,
            "underMinIsr": self.under_min_isr,
            "underReplicated": self.under_replicated,
            "remoteCopyLagBytes": self.remote_lag_bytes,
            "remoteCopyLagSegments": self.remote_lag_segments,
            "remoteErrors": self.remote_errors,
            "brokers": [_camel(row) for row in self.brokers],
            "quorum": [_camel(row) for row in self.quorum],
            "busiestTopics": [_camel(row) for row in self.topics],
            "groups": [_camel(row) for row in self.groups],
        }


def figures_of(
    now: ClusterFacts, before: ClusterFacts | None, lags: Mapping[str, int | None], order: str = "in"
) -> Figures:
    """Return the figures of a sample; `before` is the former one, `lags` are the lags of groups by id."""
    led = Counter(each.leader for each in now.partitions)
    earlier = {} if before is None else {each.id: each.node for each in before.brokers}
    rows = [_broker(each, earlier.get(each.id), led[each.id]) for each in now.brokers]
    remote = [each.node for each in now.brokers if each.node is not None and each.node.has_remote_storage]
    quorum = now.quorum
    return Figures(
        now.time_ms,
        now.cluster_id,
        quorum.leader_id if quorum is not None and quorum.leader_id >= 0 else None,
        sorted(rows, key=_broker_order(order)),
        _quorum(now),
        _topics(now, earlier, order),
        sorted(
            (GroupRow(each.id, each.type, each.state, lags.get(each.id)) for each in now.groups),
            key=lambda row: (-1 if row.lag is None else row.lag, row.id),
            reverse=True,
        ),
        topic_count=len(now.topics),
        partition_count=len(now.partitions),
        offline=sum(each.leader < 0 for each in now.partitions),
        under_min_isr=sum(each.leader >= 0 and len(each.isr) < effective_min_isr(now, each) for each in now.partitions),
        under_replicated=sum(bool(each.missing) for each in now.partitions),
        remote_lag_bytes=sum(each.remote_copy_lag_bytes for each in remote) if remote else None,
        remote_lag_segments=sum(each.remote_copy_lag_segments for each in remote) if remote else None,
        remote_errors=sum(each.remote_copy_errors + each.remote_fetch_errors for each in remote) if remote else None,
        order=order,
    )


def _broker(broker: BrokerFacts, before: NodeFacts | None, leaders: int) -> BrokerRow:
    node = broker.node
    state = "fenced" if broker.is_fenced else "no answer" if broker.failure is not None else "running"
    used = [1 - each.usable_bytes / each.total_bytes for each in broker.log_dirs if each.total_bytes > 0]
    disk = max(used, default=None)
    if any(each.failure is not None for each in broker.log_dirs):
        state = "disk offline"
    if node is None:
        return BrokerRow(broker.id, state, leaders, disk_used=disk)

    def rate(name: str, scale: float = 1.0) -> float | None:
        if before is None or node.uptime_ms <= before.uptime_ms:  # the first sample, or another process
            return None
        passed = (node.uptime_ms - before.uptime_ms) / 1000
        return scale * max(0.0, float(getattr(node, name) - getattr(before, name)) / passed)

    return BrokerRow(
        broker.id,
        state,
        leaders,
        rate("bytes_in"),
        rate("bytes_out"),
        rate("requests"),
        rate("cpu_ms", 0.001),
        node.loop_lag_micros / 1000,
        node.memory_bytes,
        node.connections,
        disk,
    )


def _broker_order(order: str) -> Callable[[BrokerRow], tuple[float, int]]:
    name = {"in": "bytes_in", "out": "bytes_out", "requests": "requests", "lag": "loop_lag_ms"}.get(order)

    def key(row: BrokerRow) -> tuple[float, int]:
        return (0.0 if name is None else -(getattr(row, name) or 0.0), row.id)

    return key


def _topics(now: ClusterFacts, earlier: Mapping[int, NodeFacts | None], order: str) -> Sequence[TopicRow]:
    totals: dict[str, list[float]] = {}
    for broker in now.brokers:
        node, before = broker.node, earlier.get(broker.id)
        if node is None or before is None or node.uptime_ms <= before.uptime_ms:
            continue
        passed = (node.uptime_ms - before.uptime_ms) / 1000
        known = {each.topic: each for each in before.traffic}
        for each in node.traffic:
            was = known.get(each.topic)
            if was is not None:
                sums = totals.setdefault(each.topic, [0.0, 0.0, 0.0])
                sums[0] += max(0, each.bytes_in - was.bytes_in) / passed
                sums[1] += max(0, each.bytes_out - was.bytes_out) / passed
                sums[2] += max(0, each.messages_in - was.messages_in) / passed
    rows = [TopicRow(name, *sums) for name, sums in totals.items()]
    first = attrgetter("bytes_out" if order == "out" else "bytes_in")
    return sorted(rows, key=lambda row: (-first(row), -row.bytes_in - row.bytes_out, row.name))


def _quorum(now: ClusterFacts) -> Sequence[ReplicaRow]:
    quorum = now.quorum
    if quorum is None:
        return ()
    latest_ms = max((each.last_fetch_ms for each in (*quorum.voters, *quorum.observers)), default=-1)
    rows = []
    for role, replicas in (("voter", quorum.voters), ("observer", quorum.observers)):
        for each in sorted(replicas):
            is_leader = each.id == quorum.leader_id
            silent = None if is_leader or each.last_fetch_ms < 0 else latest_ms - each.last_fetch_ms
            lag = max(0, quorum.end_offset - each.log_end_offset)
            rows.append(ReplicaRow(each.id, "leader" if is_leader else role, lag, silent))
    return rows


def _camel(row: BrokerRow | TopicRow | GroupRow | ReplicaRow) -> dict[str, object]:
    def name(text: str) -> str:
        first, *rest = text.split("_")
        return first + "".join(word.capitalize() for word in rest)

    return {name(key): value for key, value in row._asdict().items()}
