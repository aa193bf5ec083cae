"""`__cluster_metadata` as ordinary clients see it: a topic of one partition, read-only, served by one broker at a time.

Owns who that broker is and how the metadata log is read for a consumer. Replication of the log is the quorum's affair
and knows nothing of this; here only what is committed is shown, on a log that this node holds as voter or as observer.

The topic looks like any other in the image (`topic`), so that handlers describe it with the words they have: its
leader is the active controller where that is a broker too, otherwise the live broker with the lowest id, and its
leader epoch is the quorum's. Every broker has the whole log, but one alone answers, so that positions and epochs never
come from two.
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
from broker.runtime.partitions.partition_reads import FetchParams, ReadLimits
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
    """What the quorum knows; `broker.runtime.quorum.quorum.Quorum` has it."""

    @property
    def leader(self) -> LeaderAndEpoch: ...

    @property
    def high_watermark(self) -> int | None: ...

    @property
    def is_truncating(self) -> bool:
        """Whether another thread is cutting the log at the moment, so that nobody may read it here."""
        ...


class Snapshots(Protocol):
    """The snapshots beside the log, as files. Pages block."""

    def ids(self) -> list[CheckpointId]:
        """In their order, the one of formatting, (0, 0), among them."""

    def size(self, id: CheckpointId) -> int:
        """Raises FileNotFoundError."""

    def read(self, id: CheckpointId, position: int, max_bytes: int) -> bytes:
        """Raises FileNotFoundError."""


class MetadataPartition:
    """The committed part of the metadata log, for consumers. On the event loop alone.

    `log` belongs to the quorum, which writes it; `on_failure` is told of its disk's. `marks` fires when there may be
    more to read, or another broker to ask.
    """

    def __init__(
        self, log: Log, snapshots: Snapshots, quorum: QuorumState, on_failure: Callable[[LogDirFailure], None]
    ) -> None:
        self.log = log
        self.snapshots = snapshots
        self.traffic = TopicMeters()
        self.marks = Watches()
        self.consumer_bounds = (self.marks,)
        self._quorum = quorum
        self._on_failure = on_failure

    @property
    def end_offset(self) -> int:
        """The high watermark. Raises KafkaError OFFSET_NOT_AVAILABLE while this node has not heard of one, or cuts its
        log; everything that reads the log asks here first.
        """
        high_watermark = self._quorum.high_watermark
        if high_watermark is None or self._quorum.is_truncating:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return min(high_watermark, self.log.log_end_offset)

    def read(self, target: FetchTarget, reader: FetchParams, limits: ReadLimits) -> LogReadResult:
        """Read from where `target` stands. Never raises: what is wrong is in the result."""
        try:
            return self._read(target, reader, limits)
        except KafkaError as error:
            return LogReadResult(error=error.code)
        except OffsetOutOfRange:
            return LogReadResult(error=ErrorCode.OFFSET_OUT_OF_RANGE, snapshot_id=self.newest_snapshot())
        except LogDirFailure as failure:
            return LogReadResult(error=self.offline(failure).code)

    def _read(self, target: FetchTarget, reader: FetchParams, limits: ReadLimits) -> LogReadResult:
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

    def _add_records(self, result: LogReadResult, offset: int, end_offset: int, limits: ReadLimits) -> None:
        """A position past the end is one that another broker, which knew of more, has given out: it waits."""
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
        """Where a reader must cut that holds records which were never committed here. Raises OffsetOutOfRange."""
        log = self.log
        end = EpochEnd(*log.end_offset_for_epoch(target.last_fetched_epoch))
        if not end.is_known or target.fetch_offset < log.log_start_offset:
            raise OffsetOutOfRange(target.fetch_offset, log.log_start_offset, log.log_end_offset)
        return end if has_diverged(target.last_fetched_epoch, target.fetch_offset, end) else None

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Fence a reader by the epoch that it believes in. Raises KafkaError."""
        error = check_leader_epoch(current_leader_epoch, self._quorum.leader.epoch)
        if error is not ErrorCode.NONE:
            raise KafkaError(error)

    def list_offset(self, query: OffsetQuery) -> FoundOffset:
        """The offset for a timestamp, special or real, below the end. Raises KafkaError."""
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

    def epoch_end(self, current_leader_epoch: int, epoch: int) -> EpochEnd:
        """Where an epoch ended, as far as it is committed. Raises KafkaError.

        A reader may have been told of more than this node knows to be committed, by whoever served before; it would
        take less for a truncation. So nobody is told before the present reign has begun here too, above all of that.
        """
        self.check_epoch(current_leader_epoch)
        end_offset = self.end_offset
        if not self._has_begun_reign(end_offset):
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        end = EpochEnd(*self.log.end_offset_for_epoch(epoch))
        return EpochEnd(end.epoch, min(end.end_offset, end_offset))

    def _has_begun_reign(self, end_offset: int) -> bool:
        entries = self.log.epochs.entries
        return (
            bool(entries) and entries[-1].epoch == self._quorum.leader.epoch and entries[-1].start_offset <= end_offset
        )

    def newest_snapshot(self) -> CheckpointId | None:
        """What a reader whose records are gone can take instead."""
        ids = [id for id in self.snapshots.ids() if id.end_offset > 0]
        return ids[-1] if ids else None

    def offline(self, failure: LogDirFailure) -> KafkaError:
        """Hand a failure on; returns what the client is told."""
        self._on_failure(failure)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)


class ClusterMetadataTopic:
    """The topic around the partition. Install as the last metadata publisher, so that readers are woken by commits.

    `on_quorum_changed` is for changes that no commit tells of: another leader, an epoch without one.
    """

    def __init__(self, node_id: int, partition: MetadataPartition, quorum: QuorumState) -> None:
        self._node_id = node_id
        self._partition = partition
        self._quorum = quorum
        self._known: tuple[ClusterImage, LeaderAndEpoch, TopicImage] | None = None

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Something was committed."""
        self._partition.marks.fire()

    def on_quorum_changed(self) -> None:
        """Readers look again, and find that another broker serves them now, or that more is committed."""
        self._partition.marks.fire()

    def is_meant(self, name: str | None, topic_id: Uuid = ZERO_UUID) -> bool:
        """Whether a client speaks of this topic, by its name or by its id."""
        return topic_id == METADATA_TOPIC_ID or name == CLUSTER_METADATA_TOPIC

    def topic(self, image: MetadataImage) -> TopicImage:
        """The topic as it is by an image of the cluster. Made anew only when a broker or the leader changes."""
        brokers, leader = image.brokers, self._quorum.leader
        if self._known is None or self._known[0] is not brokers or self._known[1] != leader:
            self._known = brokers, leader, _topic(_serving_broker(brokers, leader.leader_id), leader.epoch)
        return self._known[2]

    def partition(self, image: MetadataImage, index: int) -> MetadataPartition | None:
        """The partition, if it is this node that serves it."""
        registration = self.topic(image).partition(index)
        return self._partition if registration is not None and registration.leader == self._node_id else None

    def serving(self, image: MetadataImage, index: int) -> MetadataPartition:
        """The same. Raises KafkaError with the reason if it is not served here."""
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


def _topic(leader: int, epoch: int) -> TopicImage:
    replicas = () if leader == NO_LEADER else (leader,)
    registration = PartitionRegistration(
        replicas, replicas, BrokerId(leader), LeaderEpoch(epoch), partition_epoch=epoch
    )
    return TopicImage(CLUSTER_METADATA_TOPIC, METADATA_TOPIC_ID, Map({METADATA_PARTITION: registration}))
