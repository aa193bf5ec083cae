"""Deletion of the segments of a log that are below the log start offset or over a retention limit.

Three passes, each over a prefix of the segments: below the log start offset (always), over the size limit and over the
time limit (with the policy `delete`, or where remote storage has a copy). Segments at or above the high watermark stay,
and so does an empty active segment. Source: Kafka's ``UnifiedLog.deleteOldSegments``.

For a log that is copied to remote storage, the limits are the local ones (`local.retention.*`), and segments leave the
local disk only: the log start offset stays (KIP-405). Segments not yet in remote storage stay, whatever the limits say;
an active segment over the limits is rolled, so that it can be copied. Compacted logs have local limits only.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from itertools import takewhile
from typing import NamedTuple

from storage.log import Log
from storage.segment import LogSegment


class SegmentDeletionReason(Enum):
    """The reason for deleting segments, as logged."""

    BELOW_LOG_START = "below the log start offset"
    SIZE = "over retention.bytes"
    TIME = "older than retention.ms"
    LOCAL_SIZE = "over local.retention.bytes, and in remote storage"
    LOCAL_TIME = "older than local.retention.ms, and in remote storage"


Find = Callable[[Log], list[LogSegment]]


class Expired(NamedTuple):
    reason: SegmentDeletionReason
    segments: list[LogSegment]


def delete_old_segments(log: Log, now_ms: int) -> list[Expired]:
    """Remove expired segments from `log`, raising its log start offset or its local one; return them by reason in pass
    order.

    Before a call for a tiered log, a restart must know its log start offset (`LogCheckpoints.covers_log_start`). The
    caller removes the files, renamed `.deleted`, after `file.delete.delay.ms`. Not for a log under compaction. Raises
    LogDirFailure.
    """
    passes: list[tuple[SegmentDeletionReason, Find]] = [(SegmentDeletionReason.BELOW_LOG_START, below_log_start)]
    if log.config.is_deleting or log.is_copied_to_remote:
        if log.is_copied_to_remote:
            size, time = SegmentDeletionReason.LOCAL_SIZE, SegmentDeletionReason.LOCAL_TIME
        else:
            size, time = SegmentDeletionReason.SIZE, SegmentDeletionReason.TIME
        passes += [(size, over_size), (time, lambda log: over_age(log, now_ms))]
    found = ((reason, _remove(log, now_ms, reason, find(log))) for reason, find in passes)
    return [Expired(reason, segments) for reason, segments in found if segments]


def below_log_start(log: Log) -> list[LogSegment]:
    """Return the segments wholly below the log start offset."""
    return _prefix(log, lambda segment, end: end <= log.log_start_offset)


def over_size(log: Log) -> list[LogSegment]:
    """Return the oldest segments without which the local disk still holds the configured size."""
    config = log.config
    limit = config.effective_local_retention_bytes if log.is_copied_to_remote else config.retention_bytes
    if limit < 0:
        return []
    excess = log.size_bytes - limit

    def goes(segment: LogSegment, _: int) -> bool:
        nonlocal excess
        if excess < segment.size:
            return False
        excess -= segment.size
        return True

    return _prefix(log, goes)


def over_age(log: Log, now_ms: int) -> list[LogSegment]:
    """Return the oldest segments whose newest record is older than the local limit."""
    config = log.config
    limit_ms = config.effective_local_retention_ms if log.is_copied_to_remote else config.retention_ms
    if limit_ms < 0:
        return []
    return _prefix(log, lambda segment, end: now_ms - segment.largest_timestamp > limit_ms)


def _prefix(log: Log, goes: Callable[[LogSegment, int], bool]) -> list[LogSegment]:
    """Return the first segments for which `goes(segment, end)` holds and that lie below the high watermark."""
    return list(_take(log, goes))


def _take(log: Log, goes: Callable[[LogSegment, int], bool]) -> Iterator[LogSegment]:
    for segment in log.segments:
        end = log.segments.end_of(segment, log.log_end_offset)
        is_empty_and_active = segment is log.active_segment and segment.size == 0
        if is_empty_and_active or log.high_watermark < end or not goes(segment, end):
            return
        yield segment


def _remove(log: Log, now_ms: int, reason: SegmentDeletionReason, segments: list[LogSegment]) -> list[LogSegment]:
    """Remove some or all of `segments`; roll first if the active segment is among them."""
    if segments and segments[-1] is log.active_segment:
        log.roll(now_ms)
    if reason is not SegmentDeletionReason.BELOW_LOG_START and log.is_copied_to_remote:
        segments = list(takewhile(lambda segment: _is_remote(log, segment), segments))
    elif segments:
        log.maybe_increment_log_start_offset(log.segments.end_of(segments[-1], log.log_end_offset))
    return log.detach_segments(segments) if segments else []


def _is_remote(log: Log, segment: LogSegment) -> bool:
    return log.segments.end_of(segment, log.log_end_offset) - 1 <= log.highest_remote_offset
