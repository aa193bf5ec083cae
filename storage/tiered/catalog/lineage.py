"""Lineage: the offsets of a remote segment that belong to a leader-epoch history, and how far a history is copied.

Two logs with a record of the same epoch at the same offset hold the same records below it (KIP-101). So a segment
agrees with a history up to some offset; a segment of a log that was truncated later diverges from there on. Below that
offset it is as good as any other copy. Source: KIP-405, "Follower to leader transition", scenarios 3 to 5; Kafka's
RemoteLogManager.isRemoteSegmentWithinLeaderEpochs.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

from protocol.ids import LeaderEpoch
from storage.directories.checkpoints import LeaderEpochEntry
from storage.errors import CorruptCheckpoint
from storage.tiered.segment_metadata import RemoteSegment, SegmentEpoch

NO_OFFSET = -1


class Lineage:
    """The leader-epoch history of one log up to its end: `entries` ascend, as in a leader-epoch checkpoint.

    Epochs without records are left out.
    """

    def __init__(self, entries: Iterable[tuple[LeaderEpoch, int]], log_end_offset: int) -> None:
        self.entries = without_empty_epochs(entries, log_end_offset)
        self.end_offset = log_end_offset
        self._starts = [entry.start_offset for entry in self.entries]

    @property
    def start_offset(self) -> int | None:
        """The lowest offset with a known epoch, None if no epoch is known."""
        return self._starts[0] if self._starts else None

    def epoch_for(self, offset: int) -> LeaderEpoch | None:
        """Return the leader epoch of `offset`, None outside of the known offsets."""
        index = bisect_right(self._starts, offset)
        return self.entries[index - 1].epoch if index and offset < self.end_offset else None

    def agreed_end(self, segment: RemoteSegment) -> int:
        """Return the last offset up to which `segment` agrees with this history, starting at the later of both starts;
        -1 if they already disagree there or do not overlap.
        """
        first = max(segment.start_offset, self.start_offset or 0)
        last = min(segment.end_offset, self.end_offset - 1)
        if first > last or self.start_offset is None:
            return NO_OFFSET
        if len(segment.leader_epochs) == 1 and self._has_range(segment.leader_epochs[0].epoch, first, last):
            return last
        theirs = without_empty_epochs(segment.leader_epochs, segment.end_offset + 1)
        starts = [epoch.start_offset for epoch in theirs]
        for offset in sorted({first, *(start for start in (*starts, *self._starts) if first < start <= last)}):
            index = bisect_right(starts, offset)
            if not index or theirs[index - 1].epoch != self.epoch_for(offset):
                return offset - 1 if offset > first else NO_OFFSET
        return last

    def _has_range(self, epoch: LeaderEpoch, first: int, last: int) -> bool:
        """Whether all known offsets from `first` to `last` are of one epoch."""
        index = bisect_right(self._starts, first)
        is_of_epoch = index > 0 and self.entries[index - 1].epoch == epoch
        return is_of_epoch and (index == len(self._starts) or self._starts[index] > last)

    def holds(self, segment: RemoteSegment) -> bool:
        """Whether the whole `segment` belongs to this history, as far down as the history is known."""
        return self.agreed_end(segment) == segment.end_offset


def without_empty_epochs(entries: Iterable[tuple[LeaderEpoch, int]], end_offset: int) -> tuple[LeaderEpochEntry, ...]:
    """Return the epochs with records below `end_offset`: of several with one start offset, the last."""
    kept: list[LeaderEpochEntry] = []
    last_start = NO_OFFSET
    for entry in entries:
        start_offset = entry[1]
        if start_offset >= end_offset:
            break
        if start_offset == last_start:
            kept.pop()
        kept.append(entry if type(entry) is LeaderEpochEntry else LeaderEpochEntry(*entry))
        last_start = start_offset
    return tuple(kept)


def epochs_of(
    entries: Sequence[tuple[LeaderEpoch, int]], start_offset: int, end_offset: int
) -> tuple[SegmentEpoch, ...]:
    """Return the epochs of the offsets `start_offset` to `end_offset`, both included, the first clipped to the start.

    Offsets below the known history count to its first epoch: no batch has them. Empty if no epoch is known.
    """
    known = without_empty_epochs(entries, end_offset + 1)
    if not known:
        return ()
    first = max(bisect_right([entry.start_offset for entry in known], start_offset) - 1, 0)
    return (
        SegmentEpoch(known[first].epoch, start_offset),
        *(SegmentEpoch(*entry) for entry in known[first + 1 :]),
    )


def epoch_ranges(segment: RemoteSegment) -> Iterator[tuple[LeaderEpoch, int, int]]:
    """Yield (epoch, first offset, last offset) for the epochs with records in a segment."""
    entries = without_empty_epochs(segment.leader_epochs, segment.end_offset + 1)
    ends = [*(entry.start_offset - 1 for entry in entries[1:]), segment.end_offset]
    for (epoch, first), last in zip(entries, ends, strict=True):
        yield epoch, first, last


def claimed_remote_offset(lineage: Lineage, highest_of_epoch: Callable[[LeaderEpoch], int | None]) -> int:
    """Return the highest offset of this history that remote storage claims to hold; -1 if there is none.

    Walk the epochs from the latest down to the first with a segment (KIP-405). Offsets beyond the end of that epoch
    were copied from a log that was truncated later.
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
    segment_for: Callable[[LeaderEpoch, int], RemoteSegment | None],
) -> int:
    """Return the highest offset, at most `claimed`, up to which remote storage lacks no offset from `from_offset` on.

    `segment_for(epoch, offset)` returns the finished segment that holds an offset. Offsets below `from_offset` are
    ignored: they are no longer local and cannot be copied again.
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


def encode_epochs(entries: Iterable[tuple[LeaderEpoch, int]]) -> bytes:
    """Encode a leader-epoch checkpoint, as stored with a segment."""
    lines = [f"{epoch} {start_offset}" for epoch, start_offset in entries]
    return "".join(f"{line}\n" for line in ("0", str(len(lines)), *lines)).encode()


def decode_epochs(text: bytes) -> list[LeaderEpochEntry]:
    """Decode a leader-epoch checkpoint of Ottla or Apache Kafka. Raises CorruptCheckpoint."""
    try:
        version, count, *lines = text.decode().splitlines()
        fields = ((int(field) for field in line.split()) for line in lines if line.strip())
        entries = [LeaderEpochEntry(LeaderEpoch(epoch), start_offset) for epoch, start_offset in fields]
        is_whole = int(version) == 0 and int(count) == len(entries)
    except (ValueError, TypeError) as error:
        raise CorruptCheckpoint("the leader epochs of a segment", str(error)) from error
    if not is_whole:
        raise CorruptCheckpoint("the leader epochs of a segment", "the lines are not those announced")
    return entries
