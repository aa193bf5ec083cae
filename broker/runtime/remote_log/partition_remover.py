"""Removes from remote storage what is left of deleted topics (KIP-405, "Topic deletion lifecycle").

Whoever leads a partition of the metadata topic sees to the user partitions that are told of in it, whether or not it
ever had them: no leader need be alive when a topic is deleted, and nothing need be remembered but the metadata. Each
partition goes through

    DELETE_PARTITION_MARKED -> _STARTED -> every segment, with its own events -> _FINISHED

and whatever fails is done again, for ever and with longer and longer waits, here or by the next leader.

That a topic is gone is believed where it was seen to go, or where it was marked by somebody. Every broker that had a
replica and sees it go marks it at once, whoever led: from then on the removal outlives all of them. A topic that is
merely unknown may be one that is being recovered, or the cluster's metadata were lost or come from an older backup.
What is remote of it may be all there is, so it is kept for `ottla.remote.log.unknown.topic.retention.ms`, and the log
says so.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from broker.clock import Clock
from broker.logs import EventLog
from broker.runtime.loop.round_robin import RoundRobinScheduler
from broker.runtime.loop.thread_pool import WorkPool
from broker.runtime.remote_log.log_starts import LogStarts, forget_log_start
from broker.runtime.remote_log.segments import PASSING_ERRORS, RemoteSegments, SegmentRounds
from broker.runtime.remote_log.settings import RemoteLogSettings
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
    """What the metadata partitions that this broker leads, and has read to their ends, know of."""

    def held(self) -> Iterable[tuple[TopicIdPartition, PartitionDeleteState | None]]:
        """Every partition with anything left, and how far its removal is."""
        ...


@dataclass(frozen=True, slots=True)
class RemoverTools:
    """`is_known` says whether a topic exists, `is_hosted` whether this node has a replica of a partition; `copying` are
    attempts of this node that are not over.
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
    """Looks now and then for what is to be removed; each partition then has a task of its own in `scheduler`."""

    def __init__(self, tools: RemoverTools, scheduler: RoundRobinScheduler) -> None:
        self._tools = tools
        self._scheduler = scheduler
        self._removals: dict[TopicIdPartition, PartitionRemoval] = {}
        self._markings: dict[TopicIdPartition, DeletionMarking] = {}
        self._seen_deleted_ms: dict[Uuid, int] = {}
        self._unknown_since_ms: dict[Uuid, int] = {}

    @property
    def under_way(self) -> int:
        """Partitions that are being removed here."""
        return len(self._removals)

    def is_removing(self, partition: TopicIdPartition) -> bool:
        """Whether the metadata of a partition is needed here although it is not hosted."""
        return partition in self._removals or partition in self._markings

    def on_deleted(self, topic_ids: Iterable[Uuid], hosted: Iterable[TopicIdPartition]) -> None:
        """Topics were seen to be deleted; `hosted` of their partitions had a replica here, and remote storage."""
        self._seen_deleted_ms |= dict.fromkeys(topic_ids, self._tools.clock.now_ms())
        for partition in hosted:
            if not self.is_removing(partition):
                marking = self._markings[partition] = DeletionMarking(partition, self._tools, self._end_marking)
                self._scheduler.schedule(marking)
        self._scheduler.schedule(self)

    async def run_once(self) -> float | None:
        """See RecurringTask: begins the removals that are due."""
        now_ms, held = self._tools.clock.now_ms(), dict(self._tools.catalog.held())
        for partition in [partition for partition in self._removals if partition not in held]:
            self._end(partition)  # done, or another broker's now
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
        # The metadata of what was deleted of late may have to be read first, or their leader be elected.
        interval_ms = settings.task_interval_ms if self._seen_deleted_ms else settings.remover_interval_ms
        return float(min(interval_ms, settings.remover_interval_ms))

    def _note_unknown(self, unmarked: Iterable[TopicIdPartition], now_ms: int) -> None:
        """Since when each topic is unknown of which nobody says that it was deleted, and a line when that begins."""
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
        removal = self._removals[partition] = PartitionRemoval(partition, state, self._tools, self._end)
        self._tools.segments.metadata.assign((), [partition])
        self._scheduler.schedule(removal)

    def _end(self, partition: TopicIdPartition) -> None:
        removal = self._removals.pop(partition, None)
        if removal is not None:
            removal.is_over = True
            self._scheduler.cancel(removal)
            self._unassign_unless_needed(partition)

    def _end_marking(self, partition: TopicIdPartition) -> None:
        del self._markings[partition]
        self._unassign_unless_needed(partition)
        self._scheduler.schedule(self)  # it may be for this broker to go on

    def _unassign_unless_needed(self, partition: TopicIdPartition) -> None:
        if not self._tools.is_hosted(partition) and not self.is_removing(partition):
            self._tools.segments.metadata.unassign([partition])


class DeletionMarking:
    """The task in which one partition is said to be deleted, so that whoever sees to its removal need not have seen
    that. Its metadata stays assigned until then."""

    def __init__(
        self, partition: TopicIdPartition, tools: RemoverTools, on_end: Callable[[TopicIdPartition], None]
    ) -> None:
        self._partition = partition
        self._tools = tools
        self._on_end = on_end
        self._failures = Failures()

    async def run_once(self) -> float | None:
        """See RecurringTask."""
        tools = self._tools
        event = PartitionDelete(
            self._partition, PartitionDeleteState.MARKED, tools.clock.now_ms(), tools.segments.broker_id
        )
        try:
            await tools.segments.metadata.delete_partition(event)
        except InvalidSegmentTransition:
            pass  # somebody has marked it, and the removal is on its way
        except PASSING_ERRORS as error:
            if not isinstance(error, RemoteMetadataNotReady):
                _log.warning("could not mark a partition as deleted", partition=self._partition, reason=error)
            return self._failures.next_delay_ms(tools.settings().backoff, tools.random)
        self._on_end(self._partition)
        return None


class PartitionRemoval:
    """The task in which one partition goes."""

    def __init__(
        self,
        partition: TopicIdPartition,
        state: PartitionDeleteState | None,
        tools: RemoverTools,
        on_end: Callable[[TopicIdPartition], None],
    ) -> None:
        self._partition = partition
        self._state = state
        self._tools = tools
        self._on_end = on_end
        self._failures = Failures()
        self._rounds = SegmentRounds()
        self.is_over = False

    async def run_once(self) -> float | None:
        """See RecurringTask: deletes some segments; without any left, the partition."""
        if self.is_over:
            return None
        settings = self._tools.settings()
        try:
            wait_ms = await self._step()
        except PASSING_ERRORS as error:
            if not isinstance(error, RemoteMetadataNotReady):
                _log.warning("could not remove what is left of a partition", partition=self._partition, reason=error)
            return self._failures.next_delay_ms(settings.backoff, self._tools.random)
        self._failures.clear()
        return wait_ms

    async def _step(self) -> float | None:
        metadata = self._tools.segments.metadata
        if self._state is None:
            metadata.known(self._partition)  # to be told whether it is ready
            await self._tell(PartitionDeleteState.MARKED)
        if self._state is PartitionDeleteState.MARKED:
            await self._tell(PartitionDeleteState.STARTED)
        known = metadata.known(self._partition)
        segments, is_round = self._rounds.next(known, DELETIONS_A_TURN, lambda one: not self._may_be_copied_still(one))
        for segment in segments:
            await self._tools.segments.delete(segment)
        if len(metadata.known(self._partition)):
            return 0.0 if segments or not is_round else float(self._tools.settings().task_interval_ms)
        await forget_log_start(self._tools.log_starts, self._tools.pool, self._partition)
        await self._tell(PartitionDeleteState.FINISHED)
        _log.info("removed what was left of a partition", partition=self._partition)
        self._on_end(self._partition)
        return None

    def _may_be_copied_still(self, segment: RemoteSegment) -> bool:
        """A former leader may be in the middle of it, and what it uploads after a deletion would stay for ever."""
        if segment.state is not SegmentState.COPY_STARTED:
            return False
        if segment.broker_id == self._tools.segments.broker_id:
            return segment.id.id in self._tools.copying()
        return self._tools.clock.now_ms() - segment.event_timestamp_ms < self._tools.settings().grace_ms

    async def _tell(self, state: PartitionDeleteState) -> None:
        tools = self._tools
        event = PartitionDelete(self._partition, state, tools.clock.now_ms(), tools.segments.broker_id)
        await tools.segments.metadata.delete_partition(event)
        self._state = state
