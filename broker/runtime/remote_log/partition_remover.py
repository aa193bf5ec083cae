"""Removal of the remote data of deleted topics (KIP-405, "Topic deletion lifecycle").

The leader of a partition of the metadata topic removes the user partitions listed there, whether or not it ever had a
replica of them: no leader of the deleted topic need be alive, and the metadata are the only state. Each partition goes
through

    DELETE_PARTITION_MARKED -> _STARTED -> deletion of every segment, with its events -> _FINISHED

and every failure is retried for ever, with growing pauses, here or by the next leader.

A topic counts as deleted if this broker saw the deletion in the cluster metadata, or if the partition is marked. Every
broker with a replica marks its partitions when it sees the deletion, leader or not: from then on the removal survives
all of them. A topic that is merely unknown may be in recovery, or the cluster metadata may be lost or restored from an
older backup. Its remote data may be the only copy, so they are kept for
`ottla.remote.log.unknown.topic.retention.ms`, and the log says so. If the metadata have an event of the partition since
it became unknown, the topic has a leader: then this broker lacks cluster metadata, and removes nothing.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Protocol

from broker.clock import Clock
from broker.logs import EventLog
from broker.runtime.loop.round_robin import RoundRobinScheduler
from broker.runtime.loop.thread_pool import WorkPool
from broker.runtime.remote_log.log_starts import LogStarts, forget_log_start
from broker.runtime.remote_log.segments import PASSING_ERRORS, RemoteSegments, SegmentRounds
from broker.runtime.remote_log.settings import RemoteLogSettings
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid, uuid_to_text
from storage.tiered.errors import InvalidSegmentTransition, RemoteMetadataNotReady
from storage.tiered.segment_metadata import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    SegmentState,
    TopicIdPartition,
)
from storage.tiered.stores.backoff import Failures

DELETIONS_A_TURN = 10
UNKNOWN_TOPIC_RETENTION = "ottla.remote.log.unknown.topic.retention.ms"

_log = EventLog("broker.remote")


class RemoteCatalog(Protocol):
    """The remote metadata in the metadata partitions that this broker leads and has read to their ends."""

    def held(self) -> Iterable[tuple[TopicIdPartition, PartitionDeleteState | None]]:
        """Return every partition with segments or a pending removal, with the state of the removal."""
        ...


@lazy_dataclass(frozen=True, slots=True)
class RemoverTools:
    """The collaborators of the removals.

    `is_known` returns whether a topic exists, `is_hosted` whether this node has a replica of a partition; `copying`
    returns the segments of this node's unfinished attempts.
    """

    segments: RemoteSegments
    log_starts: LogStarts
    pool: WorkPool
    catalog: RemoteCatalog
    copying: Callable[[], Iterable[Uuid]]
    is_known: Callable[[Uuid], bool]
    is_hosted: Callable[[TopicIdPartition], bool]
    clock: Clock
    settings: Callable[[], RemoteLogSettings]
    random: Callable[[], float]


class PartitionRemover:
    """Periodic search for partitions to remove; each partition then has a task of its own in `scheduler`."""

    def __init__(self, tools: RemoverTools, scheduler: RoundRobinScheduler) -> None:
        self._tools = tools
        self._scheduler = scheduler
        self._removals: dict[TopicIdPartition, PartitionRemoval] = {}
        self._markings: dict[TopicIdPartition, DeletionMarking] = {}
        self._seen_deleted_ms: dict[Uuid, int] = {}
        self._unknown_since_ms: dict[Uuid, int] = {}

    @property
    def under_way(self) -> int:
        """The number of partitions that are being removed here."""
        return len(self._removals)

    def is_removing(self, partition: TopicIdPartition) -> bool:
        """Whether this broker needs the metadata of a partition although it may not host it."""
        return partition in self._removals or partition in self._markings

    def on_deleted(self, topic_ids: Iterable[Uuid], hosted: Iterable[TopicIdPartition]) -> None:
        """Note deleted topics; `hosted` are their tiered partitions with a replica on this broker."""
        self._seen_deleted_ms |= dict.fromkeys(topic_ids, self._tools.clock.now_ms())
        for partition in hosted:
            if not self.is_removing(partition):
                marking = self._markings[partition] = DeletionMarking(partition, self._tools, self._end_marking)
                self._scheduler.schedule(marking)
        self._scheduler.schedule(self)

    async def run_once(self) -> float | None:
        """See RecurringTask: begin the removals that are due."""
        now_ms, held = self._tools.clock.now_ms(), dict(self._tools.catalog.held())
        for partition in [partition for partition in self._removals if partition not in held]:
            self._end(partition)  # removed, or another broker leads the metadata partition now
        self._note_unknown({partition for partition, state in held.items() if state is None}, now_ms)
        for partition, state in held.items():
            if partition not in self._removals and self._is_due(partition, state, now_ms):
                self._begin(partition, state)
        settings = self._tools.settings()
        self._seen_deleted_ms = {
            topic_id: seen_ms
            for topic_id, seen_ms in self._seen_deleted_ms.items()
            if now_ms - seen_ms < settings.grace_ms
        }
        # The metadata of recently deleted topics may have to be read first, or their leader be elected.
        interval_ms = settings.task_interval_ms if self._seen_deleted_ms else settings.remover_interval_ms
        return float(min(interval_ms, settings.remover_interval_ms))

    def _note_unknown(self, unmarked: Iterable[TopicIdPartition], now_ms: int) -> None:
        """Note since when unmarked topics have been unknown; log a warning when a topic becomes unknown."""
        names = {partition.topic_id: partition.topic for partition in unmarked}
        unknown = [each for each in names if not self._tools.is_known(each) and each not in self._seen_deleted_ms]
        for topic_id in unknown:
            if topic_id not in self._unknown_since_ms:
                self._warn(names[topic_id], topic_id, now_ms)
        self._unknown_since_ms = {each: self._unknown_since_ms.get(each, now_ms) for each in unknown}

    def _warn(self, topic: str, topic_id: Uuid, now_ms: int) -> None:
        retention_ms = self._tools.settings().unknown_topic_retention_ms
        goes = "never" if retention_ms < 0 else datetime.fromtimestamp((now_ms + retention_ms) / 1000, UTC).isoformat()
        _log.warning(
            "remote storage has data of a topic that the cluster does not know; `ottla remote recover` brings it back, "
            f"{UNKNOWN_TOPIC_RETENTION}=-1 keeps it, `ottla remote collect --gone-topic` removes it now",
            topic=topic,
            topic_id=uuid_to_text(topic_id),
            will_be_removed=goes,
        )

    def _is_due(self, partition: TopicIdPartition, state: PartitionDeleteState | None, now_ms: int) -> bool:
        if self._tools.is_known(partition.topic_id):
            return False
        if state is not None or partition.topic_id in self._seen_deleted_ms:
            return True
        retention_ms = self._tools.settings().unknown_topic_retention_ms
        return 0 <= retention_ms <= now_ms - self._unknown_since_ms[partition.topic_id]

    def _begin(self, partition: TopicIdPartition, state: PartitionDeleteState | None) -> None:
        since_ms = self._unknown_since_ms.get(partition.topic_id) if state is None else None
        removal = PartitionRemoval(partition, state, self._tools, self._end, since_ms, self._refute)
        self._removals[partition] = removal
        self._tools.segments.metadata.assign((), [partition])
        self._scheduler.schedule(removal)

    def _end(self, partition: TopicIdPartition) -> None:
        removal = self._removals.pop(partition, None)
        if removal is not None:
            removal.is_over = True
            self._scheduler.cancel(removal)
            self._unassign_unless_needed(partition)

    def _refute(self, partition: TopicIdPartition) -> None:
        """End the removal of a partition that has a leader after all; its topic counts as unknown from now on."""
        _log.error(
            "the topic of remote segments has a leader, and the metadata of this broker do not contain the topic: "
            "its data are kept; check the connection of this broker to the controllers",
            partition=partition,
        )
        self._unknown_since_ms[partition.topic_id] = self._tools.clock.now_ms()
        self._end(partition)

    def _end_marking(self, partition: TopicIdPartition) -> None:
        del self._markings[partition]
        self._unassign_unless_needed(partition)
        self._scheduler.schedule(self)  # this broker may lead the metadata partition

    def _unassign_unless_needed(self, partition: TopicIdPartition) -> None:
        if not self._tools.is_hosted(partition) and not self.is_removing(partition):
            self._tools.segments.metadata.unassign([partition])


class DeletionMarking:
    """The task that marks one partition as deleted, so that any broker can remove it later.

    The partition's metadata stay assigned to this broker until then.
    """

    def __init__(
        self, partition: TopicIdPartition, tools: RemoverTools, on_end: Callable[[TopicIdPartition], None]
    ) -> None:
        self._partition = partition
        self._tools = tools
        self._on_end = on_end
        self._failures = Failures()

    async def run_once(self) -> float | None:
        """See RecurringTask: publish the mark."""
        tools = self._tools
        event = PartitionDelete(
            self._partition, PartitionDeleteState.MARKED, tools.clock.now_ms(), tools.segments.broker_id
        )
        try:
            await tools.segments.metadata.delete_partition(event)
        except InvalidSegmentTransition:
            pass  # marked already
        except PASSING_ERRORS as error:
            if not isinstance(error, RemoteMetadataNotReady):
                _log.warning("could not mark a partition as deleted", partition=self._partition, reason=error)
            return self._failures.next_delay_ms(tools.settings().backoff, tools.random)
        self._on_end(self._partition)
        return None


class PartitionRemoval:
    """The task that removes the remote data of one partition.

    `unknown_since_ms`: the topic is not known to be deleted, but has been unknown since then; the task calls
    `on_refuted` and ends if the metadata have a later event.
    """

    def __init__(
        self,
        partition: TopicIdPartition,
        state: PartitionDeleteState | None,
        tools: RemoverTools,
        on_end: Callable[[TopicIdPartition], None],
        unknown_since_ms: int | None,
        on_refuted: Callable[[TopicIdPartition], None],
    ) -> None:
        self._partition = partition
        self._state = state
        self._tools = tools
        self._on_end = on_end
        self._unknown_since_ms = unknown_since_ms
        self._on_refuted = on_refuted
        self._failures = Failures()
        self._rounds = SegmentRounds()
        self.is_over = False

    async def run_once(self) -> float | None:
        """See RecurringTask: delete some segments, or finish the removal if none are left."""
        if self.is_over:
            return None
        settings = self._tools.settings()
        try:
            wait_ms = await self._step()
        except PASSING_ERRORS as error:
            if not isinstance(error, RemoteMetadataNotReady):
                _log.warning("could not remove a deleted partition", partition=self._partition, reason=error)
            return self._failures.next_delay_ms(settings.backoff, self._tools.random)
        self._failures.clear()
        return wait_ms

    async def _step(self) -> float | None:
        metadata = self._tools.segments.metadata
        if self._state is None:
            known = metadata.known(self._partition)  # raises RemoteMetadataNotReady
            if self._unknown_since_ms is not None:
                recent, is_round = self._rounds.next(known, 1, self._is_recent)
                if recent:
                    self._on_refuted(self._partition)
                    return None
                if not is_round:
                    return 0.0
                self._unknown_since_ms = None
            await self._publish(PartitionDeleteState.MARKED)
        if self._state is PartitionDeleteState.MARKED:
            await self._publish(PartitionDeleteState.STARTED)
        known = metadata.known(self._partition)
        segments, is_round = self._rounds.next(known, DELETIONS_A_TURN, lambda one: not self._may_still_be_copied(one))
        for segment in segments:
            await self._tools.segments.delete(segment)
        if len(metadata.known(self._partition)):
            return 0.0 if segments or not is_round else float(self._tools.settings().task_interval_ms)
        await forget_log_start(self._tools.log_starts, self._tools.pool, self._partition)
        await self._publish(PartitionDeleteState.FINISHED)
        _log.info("removed a deleted partition", partition=self._partition)
        self._on_end(self._partition)
        return None

    def _is_recent(self, segment: RemoteSegment) -> bool:
        """Whether a broker has published an event of the segment since the topic became unknown here.

        The grace time covers work in progress at the deletion of a topic, and differences between clocks.
        """
        assert self._unknown_since_ms is not None, "the topic was seen to be deleted"
        return segment.event_timestamp_ms > self._unknown_since_ms + self._tools.settings().grace_ms

    def _may_still_be_copied(self, segment: RemoteSegment) -> bool:
        """Whether a former leader may still be uploading; objects uploaded after a deletion would stay for ever."""
        if segment.state is not SegmentState.COPY_STARTED:
            return False
        if segment.broker_id == self._tools.segments.broker_id:
            return segment.id.id in self._tools.copying()
        return self._tools.clock.now_ms() - segment.event_timestamp_ms < self._tools.settings().grace_ms

    async def _publish(self, state: PartitionDeleteState) -> None:
        tools = self._tools
        event = PartitionDelete(self._partition, state, tools.clock.now_ms(), tools.segments.broker_id)
        await tools.segments.metadata.delete_partition(event)
        self._state = state
