"""Choice of the segments to copy to remote storage, and their metadata (KIP-405, "Copy log segments").

A segment is copied after it is closed, all its records are committed and no open transaction reaches into it: the next
segment begins at or below the last stable offset. Segments are copied one after another, the oldest first. Offsets that
another leader copied up to the middle of a local segment are copied again with it; overlaps are normal.

A topic may delay copies (KIP-1241) until the newest record of a segment is old enough, or enough bytes follow it. Such
segments stay on the disk anyway, and recent records are not read from remote storage.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from protocol.ids import BrokerId
from storage.config import LogConfig
from storage.files import FileSystem
from storage.log import Log
from storage.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, LogSegment
from storage.tiered.catalog.lineage import Lineage, encode_epochs, epochs_of
from storage.tiered.lifecycle.deleted_epochs import with_deleted_epochs
from storage.tiered.remote_storage import SegmentFiles
from storage.tiered.segment_metadata import RemoteSegment, RemoteSegmentId

SAME_AS_LOCAL_RETENTION = -1
"""Lag that means: as long as segments stay on the disk."""


class CopyLag(NamedTuple):
    """`remote.copy.lag.ms` and `.bytes`; -1 disables a limit."""

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
    """A closed segment: `end_offset` is its last offset, `following_bytes` the size of the log after it."""

    base_offset: int
    end_offset: int
    size_bytes: int
    largest_timestamp_ms: int
    following_bytes: int


class Backlog(NamedTuple):
    """Closed segments that are not copied yet, the oldest first."""

    segments: Sequence[LogSegment]
    size_bytes: int


class CopyBacklog:
    """The backlog of one log, kept up to date.

    `at` costs time in proportion to the segments that were closed or copied since the last call, not to the backlog: an
    outage of hours leaves thousands of segments. Segments of a backlog do not change: compaction ends at the last
    copied offset. After a truncation or a deletion, or if the copied offset has fallen, the segments are listed anew.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self._segments: deque[LogSegment] = deque()
        self._sizes: deque[int] = deque()
        self._size_bytes = 0
        self._wanted = 0

    def at(self, copied_offset: int) -> Backlog:
        """Return the closed segments with offsets above `copied_offset` and the log start, until the next call."""
        wanted = max(copied_offset + 1, self.log.log_start_offset)
        if wanted < self._wanted or not self._is_current():
            self._segments.clear()
            self._sizes.clear()
            self._size_bytes = 0
        self._wanted = wanted
        while self._segments and self._first_end() <= wanted:
            self._segments.popleft()
            self._size_bytes -= self._sizes.popleft()
        self._add_closed()
        return Backlog(self._segments, self._size_bytes)

    def _is_current(self) -> bool:
        """Whether the log still has the first and the last segment, the last one closed.

        Retention deletes segments from the front that another leader has copied.
        """
        if not self._segments:
            return True
        segments, first, last = self.log.segments, self._segments[0], self._segments[-1]
        is_closed = last is not self.log.active_segment
        return is_closed and segments.floor(first.base_offset) is first and segments.floor(last.base_offset) is last

    def _first_end(self) -> int:
        if len(self._segments) > 1:
            return self._segments[1].base_offset
        return self.log.segments.end_of(self._segments[0], self.log.log_end_offset)

    def _add_closed(self) -> None:
        """Add the closed segments behind the last one."""
        segments = self.log.segments
        found = segments.based_above(self._segments[-1].base_offset) if self._segments else self._from_wanted()
        for segment in found:
            if segment is not self.log.active_segment:
                self._segments.append(segment)
                self._sizes.append(segment.size)
                self._size_bytes += segment.size

    def _from_wanted(self) -> list[LogSegment]:
        found = self.log.segments.from_offset(self._wanted)
        is_first_done = self.log.segments.end_of(found[0], self.log.log_end_offset) <= self._wanted
        return found[1:] if is_first_done else found


def closed(log: Log, segment: LogSegment, backlog: Backlog) -> ClosedSegment:
    """Return the facts of the first segment of a backlog. May raise OSError."""
    return ClosedSegment(
        segment.base_offset,
        log.segments.end_of(segment, log.log_end_offset) - 1,
        segment.size,
        segment.largest_timestamp,
        backlog.size_bytes - segment.size + log.active_segment.size,
    )


def may_be_copied(segment: ClosedSegment, last_stable_offset: int, lag: CopyLag, now_ms: int) -> bool:
    """Whether the first segment of a backlog may be copied now. Later segments wait for it."""
    if segment.end_offset >= last_stable_offset:
        return False
    if 0 in lag:
        return True
    age_ms = now_ms - segment.largest_timestamp_ms
    is_old = lag.ms > 0 and (age_ms >= lag.ms or age_ms < 0)
    return is_old or 0 < lag.bytes <= segment.following_bytes


def describe(
    log: Log,
    segment: LogSegment,
    facts: ClosedSegment,
    segment_id: RemoteSegmentId,
    *,
    broker_id: BrokerId,
    now_ms: int,
) -> RemoteSegment:
    """Return the metadata of a segment at the start of its copy. Raises OSError, and ValueError without a known leader
    epoch.
    """
    return RemoteSegment(
        id=segment_id,
        start_offset=facts.base_offset,
        end_offset=facts.end_offset,
        max_timestamp_ms=facts.largest_timestamp_ms,
        broker_id=broker_id,
        event_timestamp_ms=now_ms,
        size_bytes=facts.size_bytes,
        leader_epochs=epochs_of(with_deleted_epochs(log.epochs.entries, segment), facts.base_offset, facts.end_offset),
        txn_index_empty=not segment.txn_index.entries,
    )


def files_of(fs: FileSystem, log: Log, segment: LogSegment, facts: ClosedSegment) -> SegmentFiles:
    """Return the files to copy, with the leader-epoch history of the log up to the segment's end. Raises OSError."""
    end = facts.end_offset + 1
    history = [entry for entry in with_deleted_epochs(log.epochs.entries, segment) if entry.start_offset < end]
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
    """Return the history of a log up to its end."""
    return Lineage(log.epochs.entries, log.log_end_offset)
