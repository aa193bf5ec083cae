"""Which segments of a log have outlived their use, and their removal.

Three passes, each over a prefix of the segments: below the log's start (always), over the size limit and over the
time limit (only with the policy `delete`). Nothing at or above the high watermark goes, and an empty active segment
stays. Source: Kafka's ``UnifiedLog.deleteOldSegments``.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple

from storage.log import Log
from storage.segment import LogSegment


class Reason(Enum):
    """Why segments go, in the words of a log line."""

    BELOW_LOG_START = "below the log start offset"
    SIZE = "over retention.bytes"
    TIME = "older than retention.ms"


class Expired(NamedTuple):
    reason: Reason
    segments: list[LogSegment]


def delete_old_segments(log: Log, now_ms: int) -> list[Expired]:
    """Takes expired segments out of `log`, which raises its start; returns them by reason, in the order of passes.

    The files, renamed `.deleted`, are the caller's to remove after `file.delete.delay.ms`. Not while the log is being
    compacted. Raises LogDirFailure.
    """
    passes: list[tuple[Reason, list[LogSegment]]] = [(Reason.BELOW_LOG_START, below_log_start(log))]
    removed = [_remove(log, now_ms, reason, segments) for reason, segments in passes if segments]
    if log.config.is_deleting:
        for reason, find in ((Reason.SIZE, over_size), (Reason.TIME, lambda log: over_age(log, now_ms))):
            segments = find(log)
            if segments:
                removed.append(_remove(log, now_ms, reason, segments))
    return removed


def below_log_start(log: Log) -> list[LogSegment]:
    """Segments wholly below the log's start."""
    return _prefix(log, lambda segment, end: end <= log.log_start_offset)


def over_size(log: Log) -> list[LogSegment]:
    """The oldest segments without which the log still holds `retention.bytes`."""
    limit = log.config.retention_bytes
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
    """The oldest segments whose youngest record is older than `retention.ms`."""
    limit_ms = log.config.retention_ms
    if limit_ms < 0:
        return []
    return _prefix(log, lambda segment, end: now_ms - segment.largest_timestamp > limit_ms)


def _prefix(log: Log, goes: Callable[[LogSegment, int], bool]) -> list[LogSegment]:
    """The first segments for which `goes(segment, end)` holds and that lie below the high watermark."""
    return list(_take(log, goes))


def _take(log: Log, goes: Callable[[LogSegment, int], bool]) -> Iterator[LogSegment]:
    for segment in log.segments:
        end = log.segments.end_of(segment, log.log_end_offset)
        is_empty_and_active = segment is log.active_segment and segment.size == 0
        if is_empty_and_active or log.high_watermark < end or not goes(segment, end):
            return
        yield segment


def _remove(log: Log, now_ms: int, reason: Reason, segments: list[LogSegment]) -> Expired:
    if segments[-1] is log.active_segment:
        log.roll(now_ms)
    log.maybe_increment_log_start_offset(log.segments.end_of(segments[-1], log.log_end_offset))
    return Expired(reason, log.detach_segments(segments))
