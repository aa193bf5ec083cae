"""Objects that the store loses for good, and the operator who gives up their segments (`ottla remote give-up`).

Until then consumers read the records from another segment or from a replica, or get an error. The losses have a random
source of their own: histories without them stay as they are.
"""

from collections.abc import Sequence
from random import Random
from typing import Final
from unittest.mock import patch

from broker.cli.tiering import give_up as giving_up
from broker.cli.tiering.give_up import LostSegment, give_up
from protocol.primitives import Uuid
from storage.tiered.catalog.metadata_journal import Event, KnownPartition
from storage.tiered.segment_metadata import RemoteSegment, SegmentState, TopicIdPartition
from tests.simulation.cluster.fault_source import FaultSource, ScheduleState
from tests.simulation.cluster.tier import TIERED, Tier

_EVERY_MS: Final = 600.0
_NOTICED_MS: Final = (300.0, 1_000.0, 4_000.0)
_AGAIN_MS: Final = 300.0


class OperatorJournal:
    """A MetadataJournal over the shared metadata. Implements MetadataJournal."""

    def __init__(self, tier: Tier) -> None:
        self._tier = tier

    def catch_up(self, partition: TopicIdPartition) -> KnownPartition:
        known = KnownPartition(partition)
        known.segments = self._tier.metadata.cache(partition)
        known.has_events = bool(self._tier.metadata.events)
        return known

    def catch_up_all(self) -> list[KnownPartition]:
        return [self.catch_up(partition) for partition in self._tier.metadata.caches]

    def publish(self, partition: TopicIdPartition, events: Sequence[Event]) -> None:
        for event in events:
            self._tier.publish_at_once(event)


class LostObjects(FaultSource):
    """The losses of one history."""

    def __init__(self, state: ScheduleState) -> None:
        super().__init__(state)
        self._random = Random(f"lost objects {self._simulation.seed}")

    def begin(self, *, share: float) -> None:
        """Lose objects from time to time, in a share of the histories."""
        if self._simulation.tier is not None and self._random.random() < share:
            self._plan()

    def end(self) -> None:
        """Give up every lost segment."""
        self._give_up()
        if not self.is_settled:
            self._after(_AGAIN_MS, self.end)

    @property
    def is_settled(self) -> bool:
        """Whether no segment that lost an object counts as finished."""
        return not self._lost()

    def _plan(self) -> None:
        self._after(self._random.expovariate(1.0 / _EVERY_MS), self._lose)

    def _lose(self) -> None:
        """Lose an object of a finished segment."""
        tier = self._simulation.tier
        if self._is_over or tier is None:
            return
        self._plan()
        whole = [each for each in self._finished() if tier.weather.has(each) and not tier.weather.has_lost(each)]
        if whole:
            segment = self._random.choice(whole)
            tier.weather.lose_for_good(segment)
            self._note(f"an object of {segment.start_offset}..{segment.end_offset} is lost for good")
            self._count("objects lost for good")
            if self._random.random() < 0.7:
                self._after(self._random.choice(_NOTICED_MS), self._give_up)

    def _give_up(self) -> None:
        tier, lost = self._simulation.tier, self._lost()
        if tier is None or not lost:
            return
        now_ms = int(1_700_000_000_000 + self._world.now_ms)
        with patch.object(giving_up, "random_id", lambda: Uuid(self._random.randbytes(16))):
            given_up = give_up(OperatorJournal(tier), [LostSegment(each, "missing") for each in lost], lambda: now_ms)
        for each in given_up:
            self._note(f"an operator gives up {each.segment.start_offset}..{each.segment.end_offset}")
            self._count("segments given up")

    def _lost(self) -> list[RemoteSegment]:
        tier = self._simulation.tier
        return [] if tier is None else [each for each in self._finished() if tier.weather.is_gone(each)]

    def _finished(self) -> list[RemoteSegment]:
        tier = self._simulation.tier
        if tier is None:
            return []
        caches = [cache for partition, cache in tier.metadata.caches.items() if partition.topic == TIERED]
        return [each for cache in caches for each in cache.segments() if each.state is SegmentState.COPY_FINISHED]
