"""One replica with remote storage, as long as this node hosts it: in which role, and what its tasks know."""

from collections import deque
from enum import Enum, auto
from typing import Protocol

from broker.metrics.remote_storage import NO_GAUGES, PartitionRemoteGauges, RemoteStorageMetrics
from protocol.primitives import Uuid
from storage.local_log import NO_REMOTE_OFFSET
from storage.log import Log
from storage.tiered.catalog.lineage import claimed_remote_offset, covered_remote_offset
from storage.tiered.lifecycle.copying import lineage_of
from storage.tiered.lifecycle.expiration import SegmentDeletion
from storage.tiered.remote_metadata import RemoteLogMetadataManager
from storage.tiered.segment_metadata import TopicIdPartition


class TieredReplica(Protocol):
    """What of a `Partition` matters here."""

    @property
    def topic(self) -> str: ...

    @property
    def topic_id(self) -> Uuid: ...

    @property
    def index(self) -> int: ...

    @property
    def log(self) -> Log: ...

    @property
    def is_leader(self) -> bool: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def is_truncating(self) -> bool: ...

    def on_log_start_moved(self) -> None: ...

    def low_watermark(self) -> int:
        """Where the logs of all live replicas begin, or later. KafkaError if another broker leads."""
        ...


class RemoteLogRole(Enum):
    LEADER = auto()
    FOLLOWER = auto()
    DISABLED = auto()
    """It leads, and tiering was turned off: all that is remote has to go (KIP-950)."""


class LeadershipTerm:
    """A role under one leader epoch. Tasks belong to one and end with it; a new one begins with nothing known."""

    __slots__ = (
        "_figures",
        "_is_over",
        "_metrics",
        "epoch",
        "has_gap",
        "id",
        "is_blocked",
        "outside_since_ms",
        "partition",
        "pending",
        "role",
    )

    def __init__(
        self, id: TopicIdPartition, partition: TieredReplica, role: RemoteLogRole, metrics: RemoteStorageMetrics
    ) -> None:
        partition.log.highest_remote_offset = NO_REMOTE_OFFSET
        self.id = id
        self.partition = partition
        self.role = role
        self.epoch = partition.leader_epoch
        self._is_over = False
        self.is_blocked = False
        """Whether copying has met something that only an operator can mend."""
        self.pending: deque[SegmentDeletion] = deque()
        self.outside_since_ms: dict[Uuid, int] = {}
        self.has_gap = False
        """Whether it was told that the log begins with offsets that nobody has."""
        self._metrics = metrics
        self._figures = NO_GAUGES

    def __str__(self) -> str:
        return str(self.id)

    def is_of(self, partition: TieredReplica, role: RemoteLogRole | None) -> bool:
        """Whether this is the term that a replica is in."""
        return self.partition is partition and self.role is role and self.epoch == partition.leader_epoch

    def is_over(self) -> bool:
        """Whether another role has followed, or none; it may happen during any await."""
        return self._is_over

    def may_touch_log(self) -> bool:
        """Whether the role still holds and nobody else has the log."""
        return not self._is_over and not self.partition.is_truncating

    @property
    def figures(self) -> PartitionRemoteGauges:
        return self._figures

    @figures.setter
    def figures(self, now: PartitionRemoteGauges) -> None:
        if not self._is_over:
            self._metrics.topic(self.id.topic).move(self._figures, now)
            self._figures = now

    def end(self) -> None:
        """Another role follows, or none."""
        self.figures = NO_GAUGES
        self._is_over = True


def learn_remote_end(term: LeadershipTerm, metadata: RemoteLogMetadataManager) -> None:
    """Finds how far remote storage has the log's history (KIP-405, "Follower to leader transition"), and that nothing
    is missing of what is here. Raises RemoteMetadataNotReady.
    """
    log, id = term.partition.log, term.id
    lineage = lineage_of(log)
    claimed = claimed_remote_offset(lineage, lambda epoch: metadata.highest_offset(id, epoch))
    if claimed == NO_REMOTE_OFFSET:
        log.highest_remote_offset = NO_REMOTE_OFFSET
        return
    log.highest_remote_offset = covered_remote_offset(
        lineage,
        log.local_log_start_offset,
        claimed,
        lambda epoch, offset: metadata.segment_for(id, epoch, offset),
    )
