"""Removes from remote storage what is left of deleted topics (KIP-405, "Topic deletion lifecycle").

Whoever leads a partition of the metadata topic sees to the user partitions that are told of in it, whether or not it
ever had them: no leader need be alive when a topic is deleted, and nothing need be remembered but the metadata. Each
partition goes through

    DELETE_PARTITION_MARKED -> _STARTED -> every segment, with its own events -> _FINISHED

and whatever fails is done again, for ever and with longer and longer waits, here or by the next leader.

That a topic is gone is believed where it was seen to go, or where it was marked by somebody. Metadata that knows a
topic which this node does not may also be ahead of this node: then it must have been so for a while.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from broker.clock import Clock
from broker.logs import EventLog
from broker.runtime.log_starts import LogStarts, forget_log_start
from broker.runtime.remote_segments import PASSING_ERRORS, RemoteSegments
from broker.runtime.remote_settings import RemoteLogSettings
from broker.runtime.thread_pool import WorkPool
from broker.runtime.turns import Turns
from protocol.primitives import Uuid
from storage.tiered.backoff import Failures
from storage.tiered.errors import RemoteMetadataNotReady
from storage.tiered.segment_metadata import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    SegmentState,
    TopicIdPartition,
)

DELETIONS_A_TURN = 10

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
    """Looks now and then for what is to be removed; each partition then gets turns of its own among `turns`."""

    def __init__(self, tools: RemoverTools, turns: Turns) -> None:
        self._tools = tools
        self._turns = turns
        self._removals: dict[TopicIdPartition, Removal] = {}
        self._seen_deleted: set[Uuid] = set()
        self._unknown_since_ms: dict[TopicIdPartition, int] = {}

    @property
    def under_way(self) -> int:
        """Partitions that are being removed here."""
        return len(self._removals)

    def is_removing(self, partition: TopicIdPartition) -> bool:
        """Whether the metadata of a partition is needed here although it is not hosted."""
        return partition in self._removals

    def on_deleted(self, topic_ids: Iterable[Uuid]) -> None:
        """Topics were seen to be deleted."""
        self._seen_deleted.update(topic_ids)
        self._turns.call(self)

    async def take(self) -> float | None:
        """See Turn: begins the removals that are due."""
        now_ms, held = self._tools.clock.now_ms(), dict(self._tools.catalog.held())
        for partition in [partition for partition in self._removals if partition not in held]:
            self._end(partition)  # done, or another broker's now
        self._unknown_since_ms = {
            partition: self._unknown_since_ms.get(partition, now_ms)
            for partition in held
            if not self._tools.is_known(partition.topic_id)
        }
        for partition, state in held.items():
            if partition not in self._removals and self._is_due(partition, state, now_ms):
                self._begin(partition, state)
        self._seen_deleted &= {partition.topic_id for partition in held}
        return float(self._tools.settings().remover_interval_ms)

    def _is_due(self, partition: TopicIdPartition, state: PartitionDeleteState | None, now_ms: int) -> bool:
        if self._tools.is_known(partition.topic_id):
            return False
        if state is not None or partition.topic_id in self._seen_deleted:
            return True
        return now_ms - self._unknown_since_ms[partition] >= self._tools.settings().grace_ms

    def _begin(self, partition: TopicIdPartition, state: PartitionDeleteState | None) -> None:
        removal = self._removals[partition] = Removal(partition, state, self._tools, self._end)
        self._tools.segments.metadata.assign((), [partition])
        self._turns.call(removal)

    def _end(self, partition: TopicIdPartition) -> None:
        removal = self._removals.pop(partition, None)
        if removal is not None:
            removal.is_over = True
            self._turns.forget(removal)
            if not self._tools.is_hosted(partition):
                self._tools.segments.metadata.unassign([partition])


class Removal:
    """The turns in which one partition goes."""

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
        self.is_over = False

    async def take(self) -> float | None:
        """See Turn: deletes some segments; without any left, the partition."""
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
            metadata.segments(self._partition)  # to be told whether it is ready
            await self._tell(PartitionDeleteState.MARKED)
        if self._state is PartitionDeleteState.MARKED:
            await self._tell(PartitionDeleteState.STARTED)
        segments = metadata.segments(self._partition)
        deletable = [segment for segment in segments if not self._may_be_copied_still(segment)]
        for segment in deletable[:DELETIONS_A_TURN]:
            await self._tools.segments.delete(segment)
        if len(segments) > len(deletable[:DELETIONS_A_TURN]):
            return 0.0 if len(deletable) > DELETIONS_A_TURN else float(self._tools.settings().task_interval_ms)
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
