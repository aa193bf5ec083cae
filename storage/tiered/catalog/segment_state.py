"""State transitions of remote segments and of the removal of partitions (KIP-405).

Two tables, and the check of an event against them. An event that repeats the present state is always valid: its
publisher may not have known the state.

The order in the log decides between a copier that finishes and a leader that judges the copy abandoned; every reader
decides alike. COPY_FINISHED after DELETE_STARTED has no effect: the copier copies again under a new id. DELETE_STARTED
with `only_unfinished` after COPY_FINISHED has none either: the leader deletes nothing.
"""

from collections.abc import Mapping
from typing import Final

from storage.tiered.errors import InvalidSegmentTransition
from storage.tiered.segment_metadata import PartitionDeleteState, SegmentState, SegmentUpdate

SEGMENT_TRANSITIONS: Final[Mapping[SegmentState | None, frozenset[SegmentState]]] = {
    None: frozenset({SegmentState.COPY_STARTED}),
    SegmentState.COPY_STARTED: frozenset({SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED}),
    SegmentState.COPY_FINISHED: frozenset({SegmentState.DELETE_STARTED}),
    SegmentState.DELETE_STARTED: frozenset({SegmentState.DELETE_FINISHED}),
    SegmentState.DELETE_FINISHED: frozenset(),
}
"""Transitions of Kafka. None: the segment is unknown."""

DELETE_TRANSITIONS: Final[Mapping[PartitionDeleteState | None, frozenset[PartitionDeleteState]]] = {
    None: frozenset(PartitionDeleteState),
    PartitionDeleteState.MARKED: frozenset({PartitionDeleteState.STARTED, PartitionDeleteState.FINISHED}),
    PartitionDeleteState.STARTED: frozenset({PartitionDeleteState.FINISHED}),
    PartitionDeleteState.FINISHED: frozenset(),
}
"""Transitions only forward. These events are self-contained, so any of them may be read first."""


class UnknownSegment(InvalidSegmentTransition):
    """An event of a segment that was never added or is already deleted."""


class PastState(InvalidSegmentTransition):
    """An event for an earlier state: usually a late duplicate."""


class CopyWasFinished(InvalidSegmentTransition):
    """A deletion for unfinished copies alone, after COPY_FINISHED: the later of the two events has no effect."""


def check_update(present: SegmentState | None, update: SegmentUpdate) -> None:
    """Check that an update may follow. Raises InvalidSegmentTransition or a subclass above."""
    check_segment(update.id, present, update.state)
    if update.only_unfinished and present is SegmentState.COPY_FINISHED and update.state is not present:
        raise CopyWasFinished(f"{update.id} was finished before {update.state.name}")


def check_segment(name: object, present: SegmentState | None, event: SegmentState) -> None:
    """Check that an event may follow. Raises InvalidSegmentTransition or a subclass above."""
    if event is present or event in SEGMENT_TRANSITIONS[present]:
        return
    if present is None:
        raise UnknownSegment(f"{name} is not known and cannot become {event.name}")
    _refuse(name, present, event)


def check_deletion(name: object, present: PartitionDeleteState | None, event: PartitionDeleteState) -> None:
    """Check an event in the removal of a partition. Raises as `check_segment`."""
    if present is not None and event is not present and event not in DELETE_TRANSITIONS[present]:
        _refuse(name, present, event)


def _refuse(
    name: object, present: SegmentState | PartitionDeleteState, event: SegmentState | PartitionDeleteState
) -> None:
    kind = PastState if event < present else InvalidSegmentTransition
    raise kind(f"{name} is {present.name} and cannot become {event.name}")
