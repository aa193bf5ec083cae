"""Which segments of a log have outlived their use, and their removal.

Three passes, each over a prefix of the segments: below the log's start (always), over the size limit and over the
time limit (with the policy `delete`, or where remote storage has a copy). Nothing at or above the high watermark goes,
and an empty active segment stays. Source: Kafka's ``UnifiedLog.deleteOldSegments``.

Where segments are copied to remote storage, the limits are those for this disk (`local.retention.*`), and what goes
goes from this disk only: the log's start stays (KIP-405). What remote storage does not have yet stays too, whatever the
limits say; and an active segment that is over them is closed, so that it can be copied. That holds for logs that are
only compacted, too: they have no limits but those for this disk.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from itertools import takewhile
from typing import NamedTuple

from storage.log import Log
from storage.segment import LogSegment


class Reason(Enum):
    """Why segments go, in the words of a log line."""

    BELOW_LOG_START = "below the log start offset"
    SIZE = "over retention.bytes"
    TIME = "older than retention.ms"
    LOCAL_SIZE = "over local.retention.bytes, and in remote storage"
    LOCAL_TIME = "older than local.retention.ms, and in remote storage"


Find = Callable[[Log], list[LogSegment]]


class Expired(NamedTuple):
    reason: Reason
    segments: list[LogSegment]


def delete_old_segments(log: Log, now_ms: int) -> list[Expired]:
    """Takes expired segments out of `log`, which raises its start, that on this disk or that of all; returns them by
    reason, in the order of passes.

    Before this is called for a tiered log, a restart must know its start (`LogCheckpoints.covers_log_start`).
    The caller removes the files, renamed `.deleted`, after `file.delete.delay.ms`. Not for a log under compaction.
    Raises LogDirFailure.
    """
    passes: list[tuple[Reason, Find]] = [(Reason.BELOW_LOG_START, below_log_start)]
    if log.config.is_deleting or log.is_copied_to_tier:
        size, time = (Reason.LOCAL_SIZE, Reason.LOCAL_TIME) if log.is_copied_to_tier else (Reason.SIZE, Reason.TIME)
        passes += [(size, over_size), (time, lambda log: over_age(log, now_ms))]
    found = ((reason, _remove(log, now_ms, reason, find(log))) for reason, find in passes)
    return [Expired(reason, segments) for reason, segments in found if segments]


def below_log_start(log: Log) -> list[LogSegment]:
    """Segments wholly below the log's start."""
    return _prefix(log, lambda segment, end: end <= log.log_start_offset)


def over_size(log: Log) -> list[LogSegment]:
    """The oldest segments without which this disk still holds as much as it should."""
    config = log.config
    limit = config.effective_local_retention_bytes if log.is_copied_to_tier else config.retention_bytes
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
    """The oldest segments whose youngest record is older than what this disk should hold."""
    config = log.config
    limit_ms = config.effective_local_retention_ms if log.is_copied_to_tier else config.retention_ms
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


def _remove(log: Log, now_ms: int, reason: Reason, segments: list[LogSegment]) -> list[LogSegment]:
    """Some or all of `segments`, and the end of the log among them, which goes on in a new one then."""
    if segments and segments[-1] is log.active_segment:
        log.roll(now_ms)
    if reason is not Reason.BELOW_LOG_START and log.is_copied_to_tier:
        segments = list(takewhile(lambda segment: _is_remote(log, segment), segments))
    elif segments:
        log.maybe_increment_log_start_offset(log.segments.end_of(segments[-1], log.log_end_offset))
    return log.detach_segments(segments) if segments else []


def _is_remote(log: Log, segment: LogSegment) -> bool:
    return log.segments.end_of(segment, log.log_end_offset) - 1 <= log.highest_remote_offset
