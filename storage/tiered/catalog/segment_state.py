"""Which state may follow which, for a segment in remote storage and for the removal of a partition (KIP-405).

Two tables, and the question whether an event fits them. An event that repeats the present state is always taken:
whoever published it may not have known that it was there already.
"""

from collections.abc import Mapping
from typing import Final

from storage.tiered.errors import InvalidSegmentTransition
from storage.tiered.segment_metadata import PartitionDeleteState, SegmentState

SEGMENT_TRANSITIONS: Final[Mapping[SegmentState | None, frozenset[SegmentState]]] = {
    None: frozenset({SegmentState.COPY_STARTED}),
    SegmentState.COPY_STARTED: frozenset({SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED}),
    SegmentState.COPY_FINISHED: frozenset({SegmentState.DELETE_STARTED}),
    SegmentState.DELETE_STARTED: frozenset({SegmentState.DELETE_FINISHED}),
    SegmentState.DELETE_FINISHED: frozenset(),
}
"""As Kafka has it. None: nothing is known of the segment."""

DELETE_TRANSITIONS: Final[Mapping[PartitionDeleteState | None, frozenset[PartitionDeleteState]]] = {
    None: frozenset(PartitionDeleteState),
    PartitionDeleteState.MARKED: frozenset({PartitionDeleteState.STARTED, PartitionDeleteState.FINISHED}),
    PartitionDeleteState.STARTED: frozenset({PartitionDeleteState.FINISHED}),
    PartitionDeleteState.FINISHED: frozenset(),
}
"""Only forward. Unlike a segment's, these events say everything by themselves, so any may be the first that is read."""


class UnknownSegment(InvalidSegmentTransition):
    """An event of a segment that nobody has added, or that is deleted already."""


class PastState(InvalidSegmentTransition):
    """An event that lies behind: as a rule, the late twin of one that was taken long ago."""


def check_segment(name: object, present: SegmentState | None, event: SegmentState) -> None:
    """Whether an event may follow. Raises InvalidSegmentTransition, or one of its kinds above."""
    if event is present or event in SEGMENT_TRANSITIONS[present]:
        return
    if present is None:
        raise UnknownSegment(f"{name} is not known and cannot become {event.name}")
    _refuse(name, present, event)


def check_deletion(name: object, present: PartitionDeleteState | None, event: PartitionDeleteState) -> None:
    """The same for the removal of a partition."""
    if present is not None and event is not present and event not in DELETE_TRANSITIONS[present]:
        _refuse(name, present, event)


def _refuse(
    name: object, present: SegmentState | PartitionDeleteState, event: SegmentState | PartitionDeleteState
) -> None:
    kind = PastState if event < present else InvalidSegmentTransition
    raise kind(f"{name} is {present.name} and cannot become {event.name}")
