"""`__cluster_metadata` as clients see it: a read-only topic of one partition, served by one broker at a time.

The module owns the choice of that broker, and reads of the metadata log for consumers. Replication of the log belongs
to the quorum. Clients see only committed records, from a log that this node holds as a voter or as an observer.

The topic has the form of any other topic image (`topic`), so that handlers describe it as usual. Its leader is the
active controller if that is a broker, too, otherwise the live broker with the lowest id; its leader epoch is the
quorum's. Every broker has the whole log, but only one serves it, so that offsets and epochs have one source.
"""

from collections.abc import Callable
from typing import Final, Protocol

from immutables import Map

from broker.metadata.image.cluster_image import ClusterImage
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.partition import NO_LEADER, PartitionRegistration
from broker.metadata.image.topic_image import TopicImage
from broker.metadata.image.topic_names import CLUSTER_METADATA_TOPIC
from broker.metrics.topics import TopicMeters
from broker.quorum.identity import LeaderAndEpoch
from broker.replication.epochs import UNKNOWN_EPOCH, EpochEnd, check_leader_epoch, has_diverged
from broker.runtime.loop.waiters import Watches
from broker.runtime.partitions.offset_lookup import NOT_FOUND, FoundOffset, OffsetQuery, look_up
from broker.runtime.partitions.partition_reads import FetchLimits, FetchParams
from broker.runtime.partitions.reads import UNKNOWN, FetchIsolation, FetchTarget, LogReadResult
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import METADATA_TOPIC_ID, ZERO_UUID, Uuid
from storage.errors import CorruptBatch, LogDirFailure, OffsetOutOfRange
from storage.log import Log
from storage.log_snapshots import CheckpointId

METADATA_PARTITION: Final = 0
LATEST: Final = -1
_EARLIEST: Final = (-2, -4)


class QuorumState(Protocol):
    """The quorum's state that reads depend on, such as `broker.runtime.quorum.quorum.Quorum`."""

    @property
    def leader(self) -> LeaderAndEpoch: ...

    @property
    def high_watermark(self) -> int | None: ...

    @property
    def is_truncating(self) -> bool:
        """Whether another thread truncates the log, so that it must not be read."""
        ...


class Snapshots(Protocol):
    """The snapshots beside the log, as files. `read` blocks."""

    def ids(self) -> list[CheckpointId]:
        """Return the ids in order, including the bootstrap snapshot (0, 0)."""

    def size(self, id: CheckpointId) -> int:
        """Return the size in bytes. Raises FileNotFoundError."""

    def read(self, id: CheckpointId, position: int, max_bytes: int) -> bytes:
        """Return a page of a snapshot. Raises FileNotFoundError."""


class MetadataPartition:
    """The committed part of the metadata log, for consumers. Used on the event loop only.

    The quorum owns and writes `log`; `on_failure` handles failures of its disk. `marks` fires when there may be more
    records, or another broker serves the topic.
    """

    def __init__(
        self, log: Log, snapshots: Snapshots, quorum: QuorumState, on_failure: Callable[[LogDirFailure], None]
    ) -> None:
        self.log = log
        self.snapshots = snapshots
        self.traffic = TopicMeters()
        self.marks = Watches()
        self.consumer_bounds: tuple[Watches, ...] = (self.marks,)
        self._quorum = quorum
        self._on_failure = on_failure

    @property
    def end_offset(self) -> int:
        """The high watermark, to be read before any access to the log.

        Raises KafkaError OFFSET_NOT_AVAILABLE while it is unknown, or while the log is truncated.
        """
        high_watermark = self._quorum.high_watermark
        if high_watermark is None or self._quorum.is_truncating:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return min(high_watermark, self.log.log_end_offset)

    def read(self, target: FetchTarget, reader: FetchParams, limits: FetchLimits) -> LogReadResult:
        """Read from the offset of `target`. Never raises; the result contains the error."""
        try:
            return self._read(target, reader, limits)
        except KafkaError as error:
            return LogReadResult(error=error.code)
        except OffsetOutOfRange:
            return LogReadResult(error=ErrorCode.OFFSET_OUT_OF_RANGE, snapshot_id=self.newest_snapshot())
        except LogDirFailure as failure:
            return LogReadResult(error=self.offline(failure).code)

    def _read(self, target: FetchTarget, reader: FetchParams, limits: FetchLimits) -> LogReadResult:
        if reader.is_follower:  # replicas fetch from the controller listener
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.check_epoch(target.current_leader_epoch)
        end_offset, log = self.end_offset, self.log
        result = LogReadResult(ErrorCode.NONE, end_offset, end_offset, log.log_start_offset)
        if reader.isolation is FetchIsolation.LAST_STABLE:
            result.aborted = ()
        if target.last_fetched_epoch != UNKNOWN_EPOCH:
            result.diverging = self._divergence(target)
        if result.diverging is None:
            self._add_records(result, target.fetch_offset, end_offset, limits)
        return result

    def _add_records(self, result: LogReadResult, offset: int, end_offset: int, limits: FetchLimits) -> None:
        """Add records up to the end offset. A higher offset waits: another broker, with a later end, returned it."""
        if offset >= end_offset:
            result.is_idle = True
            return
        found = self.log.read(offset, max(0, limits.max_bytes), end_offset, limits.min_one)
        result.records = found.data
        result.size_bytes = len(found.data)
        if found.cold:
            result.cold = found
        result.is_cut_by_segment = bool(result.size_bytes) and found.next_offset < end_offset

    def _divergence(self, target: FetchTarget) -> EpochEnd | None:
        """Return where a reader with uncommitted records must truncate, if it has any. Raises OffsetOutOfRange."""
        log = self.log
        end = EpochEnd(*log.end_offset_for_epoch(target.last_fetched_epoch))
        if not end.is_known or target.fetch_offset < log.log_start_offset:
            raise OffsetOutOfRange(target.fetch_offset, log.log_start_offset, log.log_end_offset)
        return end if has_diverged(target.last_fetched_epoch, target.fetch_offset, end) else None

    def check_epoch(self, current_leader_epoch: LeaderEpoch) -> None:
        """Fence a reader by its leader epoch. Raises KafkaError."""
        error = check_leader_epoch(current_leader_epoch, self._quorum.leader.epoch)
        if error is not ErrorCode.NONE:
            raise KafkaError(error)

    def list_offset(self, query: OffsetQuery) -> FoundOffset:
        """Return the offset for a timestamp, special or real, below the end offset. Raises KafkaError."""
        self.check_epoch(query.current_leader_epoch)
        end_offset = self.end_offset
        if query.timestamp == LATEST:
            return FoundOffset(UNKNOWN, end_offset, self._quorum.leader.epoch)
        try:
            found = look_up(self.log, query.timestamp)
        except LogDirFailure as failure:
            raise self.offline(failure) from failure
        except CorruptBatch as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        return found if query.timestamp in _EARLIEST or UNKNOWN < found.offset < end_offset else NOT_FOUND

    def epoch_end(self, current_leader_epoch: LeaderEpoch, epoch: LeaderEpoch) -> EpochEnd:
        """Return the end offset of an epoch, as far as it is committed. Raises KafkaError.

        The broker that served the topic before may have returned committed records beyond this node's high watermark.
        A lower end offset would look like a truncation: the current leader epoch must have begun here, above them all.
        """
        self.check_epoch(current_leader_epoch)
        end_offset = self.end_offset
        if not self._has_current_epoch(end_offset):
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        end = EpochEnd(*self.log.end_offset_for_epoch(epoch))
        return EpochEnd(end.epoch, min(end.end_offset, end_offset))

    def _has_current_epoch(self, end_offset: int) -> bool:
        entries = self.log.epochs.entries
        return (
            bool(entries) and entries[-1].epoch == self._quorum.leader.epoch and entries[-1].start_offset <= end_offset
        )

    def newest_snapshot(self) -> CheckpointId | None:
        """Return the latest snapshot, for a reader whose offset has been deleted."""
        ids = [id for id in self.snapshots.ids() if id.end_offset > 0]
        return ids[-1] if ids else None

    def offline(self, failure: LogDirFailure) -> KafkaError:
        """Report a disk failure; return the error for the client."""
        self._on_failure(failure)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)


class ClusterMetadataTopic:
    """The topic of the partition. Add it as the last metadata publisher, so that commits wake readers.

    Call `on_quorum_changed` for changes without a commit: another leader, or an epoch without one.
    """

    def __init__(self, node_id: int, partition: MetadataPartition, quorum: QuorumState) -> None:
        self._node_id = node_id
        self._partition = partition
        self._quorum = quorum
        self._known: tuple[ClusterImage, LeaderAndEpoch, TopicImage] | None = None

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Wake readers after a commit."""
        self._partition.marks.fire()

    def on_quorum_changed(self) -> None:
        """Wake readers: another broker may serve them now, or more may be committed."""
        self._partition.marks.fire()

    def matches(self, name: str | None, topic_id: Uuid = ZERO_UUID) -> bool:
        """Whether a name or an id denotes this topic."""
        return topic_id == METADATA_TOPIC_ID or name == CLUSTER_METADATA_TOPIC

    def topic(self, image: MetadataImage) -> TopicImage:
        """Return the topic image for a cluster image; rebuilt only when a broker or the leader changes."""
        brokers, leader = image.brokers, self._quorum.leader
        if self._known is None or self._known[0] is not brokers or self._known[1] != leader:
            self._known = brokers, leader, _topic(_serving_broker(brokers, leader.leader_id), leader.epoch)
        return self._known[2]

    def partition(self, image: MetadataImage, index: int) -> MetadataPartition | None:
        """Return the partition if this node serves it."""
        registration = self.topic(image).partition(index)
        return self._partition if registration is not None and registration.leader == self._node_id else None

    def serving(self, image: MetadataImage, index: int) -> MetadataPartition:
        """Return the partition if this node serves it. Raises KafkaError otherwise."""
        partition = self.partition(image, index)
        if partition is None:
            unknown = self.topic(image).partition(index) is None
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if unknown else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return partition


def _serving_broker(brokers: ClusterImage, controller_id: int | None) -> int:
    controller = None if controller_id is None else brokers.get(controller_id)
    if controller is not None and not controller.fenced:
        return controller.id
    alive = brokers.alive()
    return alive[0].id if alive else NO_LEADER


def _topic(leader: int, epoch: LeaderEpoch) -> TopicImage:
    replicas = () if leader == NO_LEADER else (leader,)
    registration = PartitionRegistration(
        replicas, replicas, BrokerId(leader), LeaderEpoch(epoch), partition_epoch=epoch
    )
    return TopicImage(CLUSTER_METADATA_TOPIC, METADATA_TOPIC_ID, Map({METADATA_PARTITION: registration}))
