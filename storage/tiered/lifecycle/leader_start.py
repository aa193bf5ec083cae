"""Start of a leader whose disk is empty while remote storage is not: after the remote offsets, never at 0.

This happens to a topic that was recovered from the bucket, and to one whose last replica lost its disk and was elected
anyway. A log that restarted at 0 would write offsets again that consumers have read, and all its remote segments would
leave the lineage and be deleted.

The check applies to an empty log that ends where it begins, with a leader epoch above 0 (nothing was written under an
epoch before the first). The leader must know the remote metadata, and may not append before.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from protocol.ids import LeaderEpoch
from storage.remote_log_start import RemoteLogStart
from storage.tiered.bucket.inventory import IndexReader, LatestHistory, latest_history
from storage.tiered.catalog.lineage import Lineage
from storage.tiered.errors import RemoteStorageError
from storage.tiered.format.log_start_object import LogStart
from storage.tiered.remote_metadata import KnownSegments
from storage.tiered.segment_metadata import RemoteSegment, TopicIdPartition


class EmptyStart(NamedTuple):
    """No remote segment is readable, and the log resumes at this offset."""

    offset: int


LeaderStart: TypeAlias = RemoteLogStart | EmptyStart | None


def history_of(partition: TopicIdPartition, newest: Sequence[RemoteSegment], indexes: IndexReader) -> LatestHistory:
    """Return the history in the newest segments, which are equivalent; an empty history without segments. Blocks.

    Raises RetriableRemoteStorageError, and RemoteStorageError if none is readable; then the leader must not append.
    """
    latest = latest_history(newest, indexes)
    if newest and not latest.lineage.end_offset:
        raise RemoteStorageError(f"partition {partition} cannot resume: {'; '.join(latest.faults)}")
    return latest


def leader_start(known: KnownSegments, latest: LatestHistory, log_start: LogStart | None) -> LeaderStart:
    """Return the start, None if the log may begin at 0. `latest` is read from the newest of `known`, `log_start` was
    stored beside them. Takes time in proportion to the number of epochs.

    If remote storage lacks offsets in between, the log has a hole: starting above it would delete the offsets below,
    which only an operator may decide.
    """
    end = latest.lineage.end_offset
    first = first_offset(known, latest.lineage)
    begins = max(end if first is None else first, 0 if log_start is None else log_start.log_start_offset)
    next_offset = max(end, begins)
    if next_offset == 0:
        return None
    if begins >= end:
        return EmptyStart(next_offset)
    return RemoteLogStart(
        next_offset=next_offset,
        log_start_offset=begins,
        epochs=latest.lineage.entries,
        producers=latest.producers,
    )


def first_offset(known: KnownSegments, lineage: Lineage) -> int | None:
    """Return the start of the first segment that belongs to a history; None if there is none. If the beginning of the
    history is unknown, the segment may begin before it.

    A segment that agrees with the history at one offset agrees from its own start on. So the first one has records of
    the first epoch with any remote records.
    """
    ends = [*(after.start_offset for _, after in pairwise(lineage.entries)), lineage.end_offset]
    for (epoch, start), end in zip(lineage.entries, ends, strict=False):
        found = known.first_within(epoch, start, end - 1)
        if found is not None:
            return found
    return None


def is_ahead(start: RemoteLogStart | EmptyStart, log_end_offset: int, latest_epoch: LeaderEpoch) -> bool:
    """Whether remote storage knows more of a history than an empty log that ends at `log_end_offset`.

    An empty log need not have lost records: they may all be deleted, and remaining remote segments are about to be
    deleted, or belong to a leader that the log's own `latest_epoch` (-1 if unknown) superseded.
    """
    if isinstance(start, EmptyStart):
        return start.offset > log_end_offset
    return start.next_offset > log_end_offset and start.epochs[-1].epoch >= latest_epoch
