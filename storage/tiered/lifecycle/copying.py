"""What is to be copied to remote storage next, and what is said of it there (KIP-405, "Copy log segments").

A segment is copied once it is closed, everything in it is committed and no open transaction reaches into it: the next
segment begins at or below the last stable offset. One after another, the oldest first. What was copied by another
leader up to the middle of a segment of ours is copied again with it: overlaps are normal.

A topic may ask for segments to wait (KIP-1241): until their newest record is so old, or so many bytes follow them. They
stay on the disk for as long anyway, and what is read soon is not read from far away.
"""

from collections.abc import Sequence
from typing import NamedTuple

from storage.config import LogConfig
from storage.files import FileSystem
from storage.log import Log
from storage.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, LogSegment
from storage.tiered.catalog.lineage import Lineage, encode_epochs, epochs_of
from storage.tiered.remote_storage import SegmentFiles
from storage.tiered.segment_metadata import RemoteSegment, RemoteSegmentId

SAME_AS_LOCAL_RETENTION = -1
"""A lag that says: for as long as segments stay on the disk."""


class CopyLag(NamedTuple):
    """`remote.copy.lag.ms` and `.bytes`, -1 where neither age nor size ever is enough."""

    ms: int
    bytes: int

    @classmethod
    def of(cls, config: LogConfig) -> "CopyLag":
        ms, size = config.remote_copy_lag_ms, config.remote_copy_lag_bytes
        return cls(
            config.effective_local_retention_ms if ms == SAME_AS_LOCAL_RETENTION else ms,
            config.effective_local_retention_bytes if size == SAME_AS_LOCAL_RETENTION else size,
        )


class ClosedSegment(NamedTuple):
    """`end_offset` is the last that the segment stands for; `following_bytes` is what the log has after it."""

    base_offset: int
    end_offset: int
    size_bytes: int
    largest_timestamp_ms: int
    following_bytes: int


class Backlog(NamedTuple):
    """What is closed and not yet copied."""

    segments: Sequence[LogSegment]
    size_bytes: int


def backlog_of(log: Log, copied_offset: int) -> Backlog:
    """The closed segments of `log` with anything above `copied_offset` that is part of the log, the oldest first."""
    wanted = max(copied_offset + 1, log.log_start_offset)
    segments = [
        segment
        for segment in log.segments.from_offset(wanted)
        if segment is not log.active_segment and log.segments.end_of(segment, log.log_end_offset) > wanted
    ]
    return Backlog(segments, sum(segment.size for segment in segments))


def closed(log: Log, segment: LogSegment, backlog: Backlog) -> ClosedSegment:
    """The facts of the first segment of a backlog. OSError where its files have to be asked."""
    return ClosedSegment(
        segment.base_offset,
        log.segments.end_of(segment, log.log_end_offset) - 1,
        segment.size,
        segment.largest_timestamp,
        backlog.size_bytes - segment.size + log.active_segment.size,
    )


def may_be_copied(segment: ClosedSegment, last_stable_offset: int, lag: CopyLag, now_ms: int) -> bool:
    """Whether it is time for the first segment of a backlog. Those after it wait for it."""
    if segment.end_offset >= last_stable_offset:
        return False
    if 0 in lag:
        return True
    age_ms = now_ms - segment.largest_timestamp_ms
    is_old = lag.ms > 0 and (age_ms >= lag.ms or age_ms < 0)
    return is_old or 0 < lag.bytes <= segment.following_bytes


def describe(
    log: Log, segment: LogSegment, facts: ClosedSegment, segment_id: RemoteSegmentId, *, broker_id: int, now_ms: int
) -> RemoteSegment:
    """What is said of a segment when its copy begins. ValueError if the log knows no leader epoch for it."""
    return RemoteSegment(
        id=segment_id,
        start_offset=facts.base_offset,
        end_offset=facts.end_offset,
        max_timestamp_ms=facts.largest_timestamp_ms,
        broker_id=broker_id,
        event_timestamp_ms=now_ms,
        size_bytes=facts.size_bytes,
        leader_epochs=epochs_of(log.epochs.entries, facts.base_offset, facts.end_offset),
        txn_index_empty=not segment.txn_index.entries,
    )


def files_of(fs: FileSystem, log: Log, segment: LogSegment, facts: ClosedSegment) -> SegmentFiles:
    """What goes with it. The history is that of the whole log up to the segment's end."""
    end = facts.end_offset + 1
    history = [entry for entry in log.epochs.entries if entry.start_offset < end]
    return SegmentFiles(
        fs=fs,
        log=segment.path(LOG_SUFFIX),
        offset_index=segment.path(INDEX_SUFFIX),
        time_index=segment.path(TIME_INDEX_SUFFIX),
        transaction_index=segment.path(TXN_INDEX_SUFFIX) if segment.txn_index.entries else None,
        producer_snapshot=log.snapshots.path(end) if end in log.snapshots.offsets else None,
        leader_epochs=encode_epochs(history),
    )


def lineage_of(log: Log) -> Lineage:
    """The history of a log up to its end."""
    return Lineage(log.epochs.entries, log.log_end_offset)
