"""Reference model of a metadata cache: all segments in a dict, every query a scan."""

from storage.tiered.errors import InvalidSegmentTransition
from storage.tiered.segment_metadata import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
)

ALLOWED = {(None, 0), (0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2), (2, 3)}


def reach(segment: RemoteSegment, epoch: int, offset: int) -> int | None:
    """Return the last offset of `epoch` in a segment that holds `offset` of it."""
    bounds = [*(start for _, start in segment.leader_epochs[1:]), segment.end_offset + 1]
    for (number, start), bound in zip(segment.leader_epochs, bounds, strict=True):
        if number == epoch and start <= offset < bound:
            return bound - 1
    return None


class ReferenceMetadata:
    def __init__(self) -> None:
        self.known: dict[bytes, RemoteSegment] = {}
        self.deletion: PartitionDelete | None = None

    def apply(self, event: RemoteSegment | SegmentUpdate | PartitionDelete) -> bool:
        """Apply an event; return whether it was valid."""
        if isinstance(event, PartitionDelete):
            if self.deletion is not None and event.state < self.deletion.state:
                return False
            self.deletion = event
            if event.state is PartitionDeleteState.FINISHED:
                self.known, self.deletion = {}, None
            return True
        present = self.known.get(event.id.id)
        if (None if present is None else int(present.state), int(event.state)) not in ALLOWED:
            return False
        if isinstance(event, RemoteSegment):
            self.known[event.id.id] = event
        elif present is None:
            return False
        elif event.state is SegmentState.DELETE_FINISHED:
            del self.known[event.id.id]
        else:
            self.known[event.id.id] = present.updated(event)
        return True

    def finished(self) -> list[RemoteSegment]:
        return [segment for segment in self.known.values() if segment.state is SegmentState.COPY_FINISHED]

    def furthest(self, epoch: int, offset: int) -> tuple[bool, int] | None:
        """Return whether a segment with `offset` of `epoch` is compacted, and the last offset of such ones."""
        ends = ((one.is_compacted, end) for one in self.finished() if (end := reach(one, epoch, offset)) is not None)
        return max(ends, default=None)

    def highest(self, epoch: int) -> int | None:
        """Return the last offset of `epoch`."""
        ends = (reach(one, epoch, at) for one in self.finished() for at in range(one.end_offset + 1))
        return max((end for end in ends if end is not None), default=None)

    def first_within(self, epoch: int, first: int, last: int) -> int | None:
        """Return the first offset of `epoch` in the segments with offsets of it in the range."""
        parts = (
            [at for at in range(one.start_offset, one.end_offset + 1) if reach(one, epoch, at) is not None]
            for one in self.finished()
        )
        return min((part[0] for part in parts if any(first <= at <= last for at in part)), default=None)

    def newest(self) -> set[bytes]:
        """Return the segments that end with the last one of the highest epoch."""
        ends = {
            one.id.id: (epoch, one.end_offset)
            for one in self.finished()
            for epoch, _ in one.leader_epochs
            if reach(one, epoch, one.end_offset) is not None
        }
        return {id for id, end in ends.items() if end == max(ends.values())}

    def ids(self, epoch: int) -> set[bytes]:
        """Return the segments in any state with records of `epoch`."""
        return {
            segment.id.id
            for segment in self.known.values()
            if any(reach(segment, epoch, at) is not None for at in range(segment.start_offset, segment.end_offset + 1))
        }

    def next_aborted_offset(self, epoch: int, offset: int, bound: int) -> int | None:
        """Return the first offset, from `offset` on, of an aborted transaction in a finished segment."""
        for at in range(offset, bound):
            if is_aborted(epoch, at) and any(reach(one, epoch, at) is not None for one in self.finished()):
                return at
        return None


def is_aborted(epoch: int, offset: int) -> bool:
    """Whether the record at an offset of an epoch ends an aborted transaction, in any segment."""
    return (offset * 7 + epoch) % 31 == 0


def has_aborted(segment: RemoteSegment) -> bool:
    offsets = range(segment.start_offset, segment.end_offset + 1)
    epochs = [epoch for epoch, _ in segment.leader_epochs]
    return any(is_aborted(epoch, at) and reach(segment, epoch, at) is not None for at in offsets for epoch in epochs)


def refused(apply: object, *arguments: object) -> bool:
    """Whether a call raises InvalidSegmentTransition."""
    assert callable(apply)
    try:
        apply(*arguments)
    except InvalidSegmentTransition:
        return True
    return False
