"""Retention: the segments that are deleted, the log start offset, and the segments that are kept."""

from dataclasses import replace

import pytest

from protocol.ids import LeaderEpoch
from protocol.records.builder import Record, build_batch
from storage.config import CleanupPolicy, LogConfig
from storage.directories.removals import PendingRemovals
from storage.files import join, write_file
from storage.log import Log
from storage.retention import SegmentDeletionReason, delete_old_segments, over_size
from tests.support.fakes.memory_files import MemoryFileSystem

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
KEEP = LogConfig(retention_ms=-1, retention_bytes=-1)


def log_of(config: LogConfig, ages_ms: list[int], *, roll_last: bool = True) -> Log:
    """Return a log with one segment of one record per age (before NOW_MS), and an empty active segment."""
    fs = MemoryFileSystem()
    fs.make_directory("logs")
    log = Log.open(fs, "logs/t-0", config, now_ms=NOW_MS, clean_shutdown=True, jitter=lambda bound: 0)
    for number, age_ms in enumerate(ages_ms):
        batch = bytearray(build_batch([Record(NOW_MS - age_ms, b"k", b"v" * 100)]))
        log.append_as_leader(batch, LeaderEpoch(0), now_ms=NOW_MS - age_ms)
        if roll_last or number < len(ages_ms) - 1:
            log.roll(NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    return log


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_retention_without_limits_deletes_nothing() -> None:
    log = log_of(KEEP, [HOUR_MS * 1000, 0])
    assert delete_old_segments(log, NOW_MS) == []
    assert bases(log) == [0, 1, 2]


def test_segments_are_deleted_when_their_newest_record_expires() -> None:
    log = log_of(replace(KEEP, retention_ms=HOUR_MS), [HOUR_MS * 3, HOUR_MS * 2, HOUR_MS, 0])
    (expired,) = delete_old_segments(log, NOW_MS)
    assert expired.reason is SegmentDeletionReason.TIME
    assert [segment.base_offset for segment in expired.segments] == [0, 1]
    assert bases(log) == [2, 3, 4]
    assert log.log_start_offset == 2


def test_unexpired_segment_protects_the_segments_after_it() -> None:
    log = log_of(replace(KEEP, retention_ms=HOUR_MS), [HOUR_MS * 3, 0, HOUR_MS * 3])
    delete_old_segments(log, NOW_MS)
    assert bases(log) == [1, 2, 3]


def test_expired_active_segment_is_rolled_and_deleted() -> None:
    log = log_of(replace(KEEP, retention_ms=HOUR_MS), [HOUR_MS * 3, HOUR_MS * 2], roll_last=False)
    delete_old_segments(log, NOW_MS)
    assert bases(log) == [2]
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)


def test_empty_active_segment_stays() -> None:
    log = log_of(replace(KEEP, retention_ms=0), [])
    assert delete_old_segments(log, NOW_MS + 1) == []
    assert bases(log) == [0]


def test_segments_are_deleted_while_the_rest_reaches_the_size_limit() -> None:
    log = log_of(KEEP, [0] * 5)
    size = log.segments.first.size
    log.config = replace(KEEP, retention_bytes=size * 3)
    assert [segment.base_offset for segment in over_size(log)] == [0, 1]
    log.config = replace(KEEP, retention_bytes=size * 3 - 1)
    assert [segment.base_offset for segment in over_size(log)] == [0, 1]
    log.config = replace(KEEP, retention_bytes=size * 3 + 1)
    assert [segment.base_offset for segment in over_size(log)] == [0]


def test_retention_bytes_of_0_empties_the_log() -> None:
    log = log_of(replace(KEEP, retention_bytes=0), [0] * 3)
    (expired,) = delete_old_segments(log, NOW_MS)
    assert expired.reason is SegmentDeletionReason.SIZE
    assert bases(log) == [3]


def test_segments_at_or_above_the_high_watermark_are_kept() -> None:
    log = log_of(replace(KEEP, retention_bytes=0), [0, 0])
    log.append_as_leader(bytearray(build_batch([Record(NOW_MS, None, b"v")])), LeaderEpoch(0), now_ms=NOW_MS)
    log.roll(NOW_MS)
    delete_old_segments(log, NOW_MS)
    assert bases(log) == [2, 3]
    assert log.log_start_offset == 2


@pytest.mark.parametrize("policy", list(CleanupPolicy))
def test_segments_below_the_log_start_are_deleted_under_every_policy(policy: CleanupPolicy) -> None:
    log = log_of(replace(KEEP, cleanup_policy=frozenset({policy})), [0] * 4)
    log.maybe_increment_log_start_offset(2)
    (expired,) = delete_old_segments(log, NOW_MS)
    assert expired.reason is SegmentDeletionReason.BELOW_LOG_START
    assert bases(log) == [2, 3, 4]


def test_compacted_log_ignores_retention_limits() -> None:
    config = LogConfig(retention_ms=1, retention_bytes=1, cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
    log = log_of(replace(KEEP), [HOUR_MS] * 3)
    log.config = config
    assert delete_old_segments(log, NOW_MS) == []


def test_empty_policy_keeps_everything_at_or_above_the_log_start() -> None:
    log = log_of(LogConfig(retention_ms=1, cleanup_policy=frozenset()), [HOUR_MS] * 3)
    assert delete_old_segments(log, NOW_MS) == []


def test_record_without_timestamp_expires_by_file_time() -> None:
    fs = MemoryFileSystem()
    fs.now_ms = NOW_MS - 2 * HOUR_MS
    fs.make_directory("logs")
    log = Log.open(fs, "logs/t-0", replace(KEEP, retention_ms=HOUR_MS), now_ms=NOW_MS, clean_shutdown=True)
    log.append_as_leader(bytearray(build_batch([Record(-1, None, b"v")])), LeaderEpoch(0), now_ms=NOW_MS)
    log.advance_high_watermark(1)
    assert delete_old_segments(log, NOW_MS - HOUR_MS) == []
    assert len(delete_old_segments(log, NOW_MS)) == 1


def test_zero_filled_time_index_does_not_expire_a_segment() -> None:
    fs = MemoryFileSystem()
    fs.make_directory("logs")
    config = replace(KEEP, retention_ms=HOUR_MS, index_interval_bytes=1)

    def opened() -> Log:
        return Log.open(fs, "logs/t-0", config, now_ms=NOW_MS, clean_shutdown=True, jitter=lambda bound: 0)

    log = opened()
    for age_ms in (30, 20, 10):
        log.append_as_leader(
            bytearray(build_batch([Record(NOW_MS - age_ms, b"k", b"v")])), LeaderEpoch(0), now_ms=NOW_MS
        )
    log.roll(NOW_MS)
    log.close()
    path = join("logs/t-0", f"{0:020d}.timeindex")
    write_file(fs, path, bytes(fs.size(path)), sync=True)
    log = opened()
    log.advance_high_watermark(log.log_end_offset)
    assert delete_old_segments(log, NOW_MS) == []
    (expired,) = delete_old_segments(log, NOW_MS + HOUR_MS)
    assert [segment.base_offset for segment in expired.segments] == [0]


def test_files_are_removed_after_their_delay() -> None:
    log = log_of(replace(KEEP, retention_ms=HOUR_MS), [HOUR_MS * 3, 0])
    fs = log._fs
    removals = PendingRemovals(fs)
    for expired in delete_old_segments(log, NOW_MS):
        removals.add_segments(expired.segments, NOW_MS + log.config.file_delete_delay_ms)
    deleted = "00000000000000000000.log.deleted"
    assert deleted in fs.list("logs/t-0")
    assert removals.next_due_ms == NOW_MS + 60_000
    assert removals.run_due(NOW_MS + 59_999) == 0
    assert removals.run_due(NOW_MS + 60_000) == 1
    assert not [name for name in fs.list("logs/t-0") if name.startswith("0" * 20)]
    assert len(removals) == 0


def test_directories_are_removed_in_order_of_due_time() -> None:
    fs = MemoryFileSystem()
    for name in ("a", "b"):
        fs.make_directory(join("logs", name))
    removals = PendingRemovals(fs)
    removals.add_directory("logs/a", 20)
    removals.add_directory("logs/b", 10)
    removals.run_due(10)
    assert fs.list("logs") == ["a"]
    removals.run_due(20)
    assert fs.list("logs") == []
