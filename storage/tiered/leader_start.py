"""How a leader begins whose disk is empty while remote storage is not: behind what is remote, never at 0 again.

So it is for a topic that was recovered from the bucket, and for one whose last replica lost its disk and was elected
all the same. A log that began at 0 would write offsets a second time that consumers have read, and all that remote
storage has of them would be out of its lineage, to be deleted.

Whether a leader must ask: its log is empty and ends where it begins, and its leader epoch is above 0 (nobody wrote
under an epoch before the first). It must know what metadata say, and may not append before.
"""

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from storage.tier_start import TierStart
from storage.tiered.bucket_inventory import IndexReader, inventory_of, latest_history, recency
from storage.tiered.errors import RemoteStorageError
from storage.tiered.log_start_object import LogStart
from storage.tiered.segment_metadata import RemoteSegment, SegmentState, TopicIdPartition


class EmptyStart(NamedTuple):
    """Nothing remote can be read any more, and the log goes on at this offset."""

    offset: int


LeaderStart: TypeAlias = TierStart | EmptyStart | None


def leader_start(
    partition: TopicIdPartition, segments: Iterable[RemoteSegment], indexes: IndexReader, log_start: LogStart | None
) -> LeaderStart:
    """None where the log may begin at 0. `segments` are all that metadata know, `log_start` what was kept beside them.

    Where remote storage lacks something in between, the log has a hole: to begin above it would delete what lies below,
    and that is for an operator to say. Blocks. Raises RetriableRemoteStorageError, and RemoteStorageError where the
    latest segment does not tell the history: then nobody may write.
    """
    finished = [segment for segment in segments if segment.state is SegmentState.COPY_FINISHED]
    latest = latest_history(finished, indexes)
    if finished and max(finished, key=recency).end_offset + 1 != latest.lineage.end_offset:
        raise RemoteStorageError(f"{partition} cannot go on: {'; '.join(latest.faults)}")
    found = inventory_of(partition, finished, latest, log_start)
    if found.next_offset == 0:
        return None
    if found.log_start_offset >= latest.lineage.end_offset:
        return EmptyStart(found.next_offset)
    return TierStart(
        next_offset=found.next_offset,
        log_start_offset=found.log_start_offset,
        epochs=latest.lineage.entries,
        producers=latest.producers,
    )


def is_ahead(start: TierStart | EmptyStart, log_end_offset: int, latest_epoch: int) -> bool:
    """Whether remote storage knows more of a history than an empty log that ends at `log_end_offset`.

    An empty log need not have lost anything: all may have been deleted, and what is still remote is on its way out, or
    was written by a leader that the log's own (`latest_epoch`, -1 if it knows none) made void.
    """
    if isinstance(start, EmptyStart):
        return start.offset > log_end_offset
    return start.next_offset > log_end_offset and start.epochs[-1].epoch >= latest_epoch
