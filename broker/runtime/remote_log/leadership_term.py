"""A leadership term of a tiered replica: its role, its leader epoch, and the state that its tasks share."""

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Protocol

from broker.metrics.remote_storage import (
    NO_GAUGES,
    CopyLagFigures,
    DeleteLagFigures,
    PartitionRemoteGauges,
    RemoteStorageMetrics,
    RetentionUse,
)
from protocol.ids import LeaderEpoch
from protocol.primitives import Uuid
from storage.errors import LogDirFailure
from storage.local_log import NO_REMOTE_OFFSET
from storage.log import Log
from storage.tiered.catalog.lineage import claimed_remote_offset, covered_remote_offset
from storage.tiered.lifecycle.copying import lineage_of
from storage.tiered.lifecycle.expiration import SeenCopy, SegmentDeletion
from storage.tiered.remote_metadata import RemoteLogMetadataManager
from storage.tiered.segment_metadata import TopicIdPartition


class TieredReplica(Protocol):
    """The part of `Partition` that remote log tasks use."""

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

    def offline(self, failure: LogDirFailure) -> object:
        """Take the log directory offline. Idempotent."""
        ...

    def low_watermark(self) -> int:
        """Return the lowest log start offset of all live replicas, or more. Raises KafkaError on followers."""
        ...


class RemoteLogRole(Enum):
    """The role of a replica in the remote log."""

    LEADER = auto()
    FOLLOWER = auto()
    DISABLED = auto()
    """A leader of a topic for which tiering was disabled: the remote log must be deleted (KIP-950)."""


class LeadershipTerm:
    """A role of a replica under one leader epoch. Tasks belong to one term and end with it."""

    __slots__ = (
        "_figures",
        "_is_over",
        "_metrics",
        "copies_seen",
        "epoch",
        "has_gap",
        "id",
        "is_blocked",
        "is_deposed",
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
        self.epoch = LeaderEpoch(partition.leader_epoch)
        self._is_over = False
        self.is_blocked = False
        """Whether copying has met an error that only an operator can resolve."""
        self.is_deposed = False
        """Whether a later leader is known although the cluster metadata do not say so: delete nothing."""
        self.pending: deque[SegmentDeletion] = deque()
        self.outside_since_ms: dict[Uuid, int] = {}
        self.copies_seen: Mapping[Uuid, SeenCopy] = {}
        self.has_gap = False
        """Whether the log has reported that its first offsets are in no known segment."""
        self._metrics = metrics
        self._figures = NO_GAUGES

    def __str__(self) -> str:
        return str(self.id)

    def is_of(self, partition: TieredReplica, role: RemoteLogRole | None) -> bool:
        """Whether this is the present term of a replica."""
        return self.partition is partition and self.role is role and self.epoch == partition.leader_epoch

    def is_over(self) -> bool:
        """Whether another term has followed or the replica was removed; may change during any await."""
        return self._is_over

    def may_touch_log(self) -> bool:
        """Whether tasks may read and change the log: the term lasts and no truncation is in progress."""
        return not self._is_over and not self.partition.is_truncating

    @property
    def figures(self) -> PartitionRemoteGauges:
        return self._figures

    @figures.setter
    def figures(self, now: PartitionRemoteGauges) -> None:
        if not self._is_over:
            self._metrics.topic(self.id.topic).move(self._figures, now)
            self._figures = now

    def report_copy_lag(self, read: Callable[[], CopyLagFigures]) -> None:
        """Let the metrics read the copy lag of the partition until the term ends."""
        self._metrics.topic(self.id.topic).copy_lags[self.id.partition] = read

    def report_delete_lag(self, read: Callable[[], DeleteLagFigures]) -> None:
        """Let the metrics read the delete lag of the partition until the term ends."""
        self._metrics.topic(self.id.topic).delete_lags[self.id.partition] = read

    def report_retention(self, read: Callable[[], RetentionUse]) -> None:
        """Let the metrics read the use of the partition's retention limits until the term ends."""
        self._metrics.topic(self.id.topic).retention[self.id.partition] = read

    def note_refused_deletion(self) -> None:
        """Count destructive work that was refused because a later leader is known."""
        self._metrics.refused_deletions += 1

    def end(self) -> None:
        """End the term, and take its figures out of the metrics."""
        self.figures = NO_GAUGES
        meters = self._metrics.topic(self.id.topic)
        meters.copy_lags.pop(self.id.partition, None)
        meters.delete_lags.pop(self.id.partition, None)
        meters.retention.pop(self.id.partition, None)
        self._is_over = True


def learn_remote_end(term: LeadershipTerm, metadata: RemoteLogMetadataManager) -> None:
    """Set the highest remote offset of the log (KIP-405, "Follower to leader transition").

    The offset is lower than the claimed one if a segment is missing among those that are still local. Raises
    RemoteMetadataNotReady.
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
