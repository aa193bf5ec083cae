"""Facts about a cluster at one or two moments. Pure data; the survey fills it, the rules read it.

Times are ms since 1970 on the clock of this machine unless a name says otherwise. A fact that the cluster does not tell
(Apache Kafka has no DescribeNode) is None, and no rule judges it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from protocol.lazy_dataclass import lazy_dataclass

REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})
"""States of a group between two stable assignments, of the classic and the consumer protocol."""


class PartitionFacts(NamedTuple):
    """A partition as Metadata describes it; `leader` is negative without one."""

    topic: str
    number: int
    leader: int
    replicas: Sequence[int]
    isr: Sequence[int]

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.number}"

    @property
    def missing(self) -> Sequence[int]:
        """The replicas that are not in sync."""
        return [replica for replica in self.replicas if replica not in self.isr]


class LogDirFacts(NamedTuple):
    """A log directory. `total_bytes` and `usable_bytes` of its volume are -1 if unknown."""

    path: str
    failure: str | None
    total_bytes: int
    usable_bytes: int
    size_bytes: int


class CertificateFacts(NamedTuple):
    """The certificate that a listener presents."""

    listener: str
    subject: str
    not_after_ms: int


class TrafficFacts(NamedTuple):
    """The traffic of a topic on one node since the start of the node."""

    topic: str
    bytes_in: int
    bytes_out: int
    messages_in: int


@lazy_dataclass(frozen=True, slots=True)
class NodeFacts:
    """DescribeNode of one node. Counters begin at the start of its process; -1 for a counter that it lacks.

    `clock_ahead_ms` is the wall clock of the node minus that of this machine, uncertain by `round_trip_ms`.
    """

    release: str = ""
    uptime_ms: int = 0
    clock_ahead_ms: int = 0
    round_trip_ms: int = 0
    cpu_ms: int = 0
    memory_bytes: int = 0
    connections: int = 0
    loop_lag_micros: int = 0
    requests: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    messages_in: int = 0
    isr_shrinks: int = -1
    isr_expands: int = -1
    unclean_elections: int = -1
    has_remote_storage: bool = False
    remote_copy_bytes: int = 0
    remote_copy_errors: int = 0
    remote_fetch_errors: int = 0
    remote_copy_lag_bytes: int = 0
    remote_copy_lag_segments: int = 0
    log_dirs: Sequence[LogDirFacts] = ()
    certificates: Sequence[CertificateFacts] = ()
    config_warnings: Sequence[str] = ()
    traffic: Sequence[TrafficFacts] = ()


@lazy_dataclass(frozen=True, slots=True)
class BrokerFacts:
    """A registered broker. `failure` is the reason why it does not answer, None if it does or is fenced.

    `node` is None for a broker that does not serve DescribeNode; `log_dirs` then come from DescribeLogDirs.
    `metadata_level` is the highest metadata.version that the broker supports. `configs` are its values by key.
    """

    id: int
    address: str
    is_fenced: bool = False
    failure: str | None = None
    node: NodeFacts | None = None
    log_dirs: Sequence[LogDirFacts] = ()
    metadata_level: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)
    rack: str | None = None


class VoterFacts(NamedTuple):
    """A voter or observer of the quorum; times are -1 if unknown, on the clock of the quorum's leader."""

    id: int
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@lazy_dataclass(frozen=True, slots=True)
class MetadataQuorumFacts:
    """The metadata quorum by its leader; `leader_id` is negative without an active controller."""

    leader_id: int
    leader_epoch: int = 0
    high_watermark: int = 0
    voters: Sequence[VoterFacts] = ()
    observers: Sequence[VoterFacts] = ()
    failure: str = ""

    @property
    def end_offset(self) -> int:
        """The greatest log end offset of a voter."""
        return max((voter.log_end_offset for voter in self.voters), default=self.high_watermark)


class HangingFacts(NamedTuple):
    """An open transaction in a partition that no coordinator will end (KIP-664)."""

    partition: str
    start_offset: int
    producer_id: int
    last_timestamp_ms: int


class GroupFacts(NamedTuple):
    """A group as its coordinator lists it."""

    id: str
    type: str
    state: str
    coordinator: int


class UncheckedFact(NamedTuple):
    """A part of the cluster that could not be examined."""

    subject: str
    reason: str


@lazy_dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The cluster at one moment.

    `brokers` are all registered ones if `knows_fenced`, otherwise the live ones. `min_isr` has min.insync.replicas by
    topic.
    """

    time_ms: int
    brokers: Sequence[BrokerFacts] = ()
    quorum: MetadataQuorumFacts | None = None
    partitions: Sequence[PartitionFacts] = ()
    min_isr: Mapping[str, int] = field(default_factory=dict)
    groups: Sequence[GroupFacts] = ()
    hanging: Sequence[HangingFacts] = ()
    unchecked: Sequence[UncheckedFact] = ()
    metadata_level: int | None = None
    knows_fenced: bool = True
    cluster_id: str = ""

    @property
    def live(self) -> Sequence[BrokerFacts]:
        return [broker for broker in self.brokers if not broker.is_fenced]

    @property
    def topics(self) -> Mapping[str, Sequence[PartitionFacts]]:
        """The partitions by topic."""
        found: dict[str, list[PartitionFacts]] = {}
        for partition in self.partitions:
            found.setdefault(partition.topic, []).append(partition)
        return found
