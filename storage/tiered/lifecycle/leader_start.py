"""How a leader begins whose disk is empty while remote storage is not: behind what is remote, never at 0 again.

So it is for a topic that was recovered from the bucket, and for one whose last replica lost its disk and was elected
all the same. A log that began at 0 would write offsets a second time that consumers have read, and all that remote
storage has of them would be out of its lineage, to be deleted.

Whether a leader must ask: its log is empty and ends where it begins, and its leader epoch is above 0 (nobody wrote
under an epoch before the first). It must know what metadata say, and may not append before.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from storage.tier_start import TierStart
from storage.tiered.bucket.inventory import IndexReader, LatestHistory, latest_history
from storage.tiered.catalog.lineage import Lineage
from storage.tiered.errors import RemoteStorageError
from storage.tiered.format.log_start_object import LogStart
from storage.tiered.remote_metadata import KnownSegments
from storage.tiered.segment_metadata import RemoteSegment, TopicIdPartition


class EmptyStart(NamedTuple):
    """Nothing remote can be read any more, and the log goes on at this offset."""

    offset: int


LeaderStart: TypeAlias = TierStart | EmptyStart | None


def history_of(partition: TopicIdPartition, newest: Sequence[RemoteSegment], indexes: IndexReader) -> LatestHistory:
    """What the newest segments tell, one as good as the other; the history of nothing without any. Blocks.

    Raises RetriableRemoteStorageError, and RemoteStorageError where none of them tells: then nobody may write.
    """
    latest = latest_history(newest, indexes)
    if newest and not latest.lineage.end_offset:
        raise RemoteStorageError(f"{partition} cannot go on: {'; '.join(latest.faults)}")
    return latest


def leader_start(known: KnownSegments, latest: LatestHistory, log_start: LogStart | None) -> LeaderStart:
    """None where the log may begin at 0. `latest` is what the newest of `known` tell, `log_start` what was kept beside
    them. Takes time in proportion to the number of epochs.

    Where remote storage lacks something in between, the log has a hole: to begin above it would delete what lies below,
    and that is for an operator to say.
    """
    end = latest.lineage.end_offset
    first = first_offset(known, latest.lineage)
    begins = max(end if first is None else first, 0 if log_start is None else log_start.log_start_offset)
    next_offset = max(end, begins)
    if next_offset == 0:
        return None
    if begins >= end:
        return EmptyStart(next_offset)
    return TierStart(
        next_offset=next_offset,
        log_start_offset=begins,
        epochs=latest.lineage.entries,
        producers=latest.producers,
    )


def first_offset(known: KnownSegments, lineage: Lineage) -> int | None:
    """Where the first segment begins that is part of a history; None if none is. A history that is not known from the
    beginning on may have one that begins earlier than it.

    What agrees with it at one offset agrees with it from its own beginning on. So the first is among those with records
    of the first epoch of which there are any.
    """
    ends = [*(after.start_offset for _, after in pairwise(lineage.entries)), lineage.end_offset]
    for (epoch, start), end in zip(lineage.entries, ends, strict=False):
        found = known.first_within(epoch, start, end - 1)
        if found is not None:
            return found
    return None


def is_ahead(start: TierStart | EmptyStart, log_end_offset: int, latest_epoch: int) -> bool:
    """Whether remote storage knows more of a history than an empty log that ends at `log_end_offset`.

    An empty log need not have lost anything: all may have been deleted, and what is still remote is on its way out, or
    was written by a leader that the log's own (`latest_epoch`, -1 if it knows none) made void.
    """
    if isinstance(start, EmptyStart):
        return start.offset > log_end_offset
    return start.next_offset > log_end_offset and start.epochs[-1].epoch >= latest_epoch
