"""Which offsets of a remote segment are part of a history of leader epochs, and how far a history is copied.

Two logs that hold a record of the same epoch at the same offset hold the same records before it (KIP-101). So a segment
agrees with a history up to some offset and, where it was copied from a log that was later cut, parts from it there for
good. What it holds below that point is as good as any other copy. Source: KIP-405, "Follower to leader transition",
scenarios 3 to 5; Kafka's RemoteLogManager.isRemoteSegmentWithinLeaderEpochs.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

from storage.directories.checkpoints import EpochEntry
from storage.errors import CorruptCheckpoint
from storage.tiered.segment_metadata import RemoteSegment, SegmentEpoch

NO_OFFSET = -1


class Lineage:
    """The history of one log up to its end: `entries` ascend, as a leader-epoch checkpoint has them.

    Epochs without a record, which end where they begin, are left out.
    """

    def __init__(self, entries: Iterable[tuple[int, int]], log_end_offset: int) -> None:
        self.entries = without_empty_epochs(entries, log_end_offset)
        self.end_offset = log_end_offset
        self._starts = [entry.start_offset for entry in self.entries]

    @property
    def start_offset(self) -> int | None:
        """What lies below is not known; None if nothing is."""
        return self._starts[0] if self._starts else None

    def epoch_for(self, offset: int) -> int | None:
        """The epoch that wrote `offset`; None outside of what is known."""
        index = bisect_right(self._starts, offset)
        return self.entries[index - 1].epoch if index and offset < self.end_offset else None

    def agreed_end(self, segment: RemoteSegment) -> int:
        """The last offset up to which `segment` is part of this history, from its start or from the history's, which
        ever is later; -1 if there it is of another history already, or lies outside of this one.
        """
        first = max(segment.start_offset, self.start_offset or 0)
        last = min(segment.end_offset, self.end_offset - 1)
        if first > last or self.start_offset is None:
            return NO_OFFSET
        theirs = without_empty_epochs(segment.leader_epochs, segment.end_offset + 1)
        starts = [epoch.start_offset for epoch in theirs]
        for offset in sorted({first, *(start for start in (*starts, *self._starts) if first < start <= last)}):
            index = bisect_right(starts, offset)
            if not index or theirs[index - 1].epoch != self.epoch_for(offset):
                return offset - 1 if offset > first else NO_OFFSET
        return last

    def holds(self, segment: RemoteSegment) -> bool:
        """Whether all of `segment`, as far down as this history is known, is part of it."""
        return self.agreed_end(segment) == segment.end_offset


def without_empty_epochs(entries: Iterable[tuple[int, int]], end_offset: int) -> tuple[EpochEntry, ...]:
    """The epochs that wrote something below `end_offset`: of several that begin at one offset, the last."""
    kept: list[EpochEntry] = []
    for epoch, start_offset in entries:
        if start_offset >= end_offset:
            break
        if kept and kept[-1].start_offset == start_offset:
            kept.pop()
        kept.append(EpochEntry(epoch, start_offset))
    return tuple(kept)


def epochs_of(entries: Sequence[tuple[int, int]], start_offset: int, end_offset: int) -> tuple[SegmentEpoch, ...]:
    """The epochs of the offsets from `start_offset` to `end_offset`, both included, the first clipped to the start.

    An offset below all that is known counts to the first epoch: no batch has it. Empty if no epoch is known.
    """
    known = without_empty_epochs(entries, end_offset + 1)
    if not known:
        return ()
    first = max(bisect_right([entry.start_offset for entry in known], start_offset) - 1, 0)
    return (
        SegmentEpoch(known[first].epoch, start_offset),
        *(SegmentEpoch(*entry) for entry in known[first + 1 :]),
    )


def claimed_remote_offset(lineage: Lineage, highest_of_epoch: Callable[[int], int | None]) -> int:
    """The highest offset of this history that remote storage claims to have; -1 if it has nothing of it.

    Walks the epochs from the latest down to one of which there is something (KIP-405); what goes beyond that epoch's
    end was copied from a log that was cut later.
    """
    following_start = lineage.end_offset
    for epoch, start_offset in reversed(lineage.entries):
        highest = highest_of_epoch(epoch)
        if highest is not None:
            return min(highest, following_start - 1)
        following_start = start_offset
    return NO_OFFSET


def covered_remote_offset(
    lineage: Lineage,
    from_offset: int,
    claimed: int,
    segment_for: Callable[[int, int], RemoteSegment | None],
) -> int:
    """The highest offset up to which no offset from `from_offset` on is missing in remote storage, at most `claimed`.

    `segment_for(epoch, offset)` gives the finished segment that holds an offset. Nothing below `from_offset` is looked
    at: what is not local any more cannot be copied again.
    """
    offset = max(from_offset, lineage.start_offset or 0)
    while offset <= claimed:
        epoch = lineage.epoch_for(offset)
        segment = None if epoch is None else segment_for(epoch, offset)
        reached = NO_OFFSET if segment is None else lineage.agreed_end(segment)
        if reached < offset:
            return offset - 1
        offset = reached + 1
    return claimed


def encode_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    """The text of a leader-epoch checkpoint, as it goes with a segment."""
    lines = [f"{epoch} {start_offset}" for epoch, start_offset in entries]
    return "".join(f"{line}\n" for line in ("0", str(len(lines)), *lines)).encode()


def decode_epochs(text: bytes) -> list[EpochEntry]:
    """What `encode_epochs` wrote, here or in Apache Kafka. Raises CorruptCheckpoint."""
    try:
        version, count, *lines = text.decode().splitlines()
        entries = [EpochEntry(*(int(field) for field in line.split())) for line in lines if line.strip()]
        is_whole = int(version) == 0 and int(count) == len(entries)
    except (ValueError, TypeError) as error:
        raise CorruptCheckpoint("the leader epochs of a segment", str(error)) from error
    if not is_whole:
        raise CorruptCheckpoint("the leader epochs of a segment", "the lines are not those announced")
    return entries
