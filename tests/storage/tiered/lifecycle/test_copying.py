"""Choice and description of the next segment to copy."""

from dataclasses import replace
from random import Random

import pytest

from broker.build_form import COMPILED, build_form
from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Uuid
from protocol.records.builder import Record, build_batch
from protocol.records.control import ControlType, end_transaction_marker
from storage.config import LogConfig
from storage.log import Log
from storage.producer_state import Origin
from storage.segment import LogSegment
from storage.tiered.lifecycle.copying import (
    ClosedSegment,
    CopyBacklog,
    CopyLag,
    closed,
    describe,
    files_of,
    may_be_copied,
)
from storage.tiered.segment_metadata import RemoteSegmentId, SegmentEpoch, SegmentState, TopicIdPartition
from tests.support.fakes.memory_files import MemoryFileSystem

NOW_MS = 1_700_000_000_000
AT_ONCE = CopyLag(0, -1)
PARTITION = TopicIdPartition(Uuid(bytes(15) + b"\x01"), "t", 0)
ID = RemoteSegmentId(PARTITION, Uuid(bytes(15) + b"\x07"))


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


@pytest.fixture
def log(fs: MemoryFileSystem) -> Log:
    """Closed segments 0-4, 5-9 and 10-14 of epochs 0 and 2, and three records in the active one."""
    log = Log.open(fs, "t-0", LogConfig(remote_storage_enable=True), now_ms=NOW_MS, clean_shutdown=True)
    for number in range(3):
        log.append_as_leader(batch(5, NOW_MS + number), LeaderEpoch(0 if number == 0 else 2), now_ms=NOW_MS)
        log.roll(NOW_MS)
    log.append_as_leader(batch(3, NOW_MS), LeaderEpoch(2), now_ms=NOW_MS)
    log.advance_high_watermark(18)
    return log


def batch(records: int, timestamp: int) -> bytearray:
    return bytearray(build_batch([Record(timestamp, b"k", b"v")] * records))


def bases(log: Log, copied: int) -> list[int]:
    return [segment.base_offset for segment in CopyBacklog(log).at(copied).segments]


def test_backlog_begins_with_the_segment_of_the_next_offset(log: Log) -> None:
    assert bases(log, -1) == [0, 5, 10]
    assert bases(log, 6) == [5, 10]
    assert bases(log, 9) == [10]
    assert bases(log, 14) == []
    assert bases(log, 17) == []


def test_deleted_local_segments_leave_the_backlog_although_the_copied_offset_falls(log: Log) -> None:
    tracked = CopyBacklog(log)
    assert [each.base_offset for each in tracked.at(-1).segments] == [0, 5, 10]
    log.detach_segments(list(log.segments)[:2])
    assert [each.base_offset for each in tracked.at(4).segments] == [10]


def test_segments_below_the_log_start_are_not_copied(log: Log) -> None:
    log.maybe_increment_log_start_offset(7)
    assert bases(log, -1) == [5, 10]
    log.maybe_increment_log_start_offset(10)
    assert bases(log, -1) == [10]


def facts(log: Log, number: int = 0) -> ClosedSegment:
    backlog = CopyBacklog(log).at(5 * number - 1)
    return closed(log, backlog.segments[0], backlog)


@pytest.mark.parametrize(("last_stable_offset", "expected"), [(4, False), (5, True), (6, True)])
def test_segment_is_copied_once_wholly_below_the_last_stable_offset(
    log: Log, last_stable_offset: int, expected: bool
) -> None:
    assert may_be_copied(facts(log), last_stable_offset, AT_ONCE, NOW_MS) is expected


class TestLag:
    """KIP-1241."""

    SEGMENT = ClosedSegment(0, 9, 100, NOW_MS - 1000, following_bytes=500)

    @pytest.mark.parametrize(
        ("lag", "expected"),
        [
            (CopyLag(0, -1), True),
            (CopyLag(-1, 0), True),
            (CopyLag(1000, -1), True),
            (CopyLag(1001, -1), False),
            (CopyLag(1001, 500), True),
            (CopyLag(1001, 501), False),
            (CopyLag(-1, 500), True),
            (CopyLag(-1, -1), False),
        ],
    )
    def test_lag_in_time_or_in_bytes_permits_the_copy(self, lag: CopyLag, expected: bool) -> None:
        assert may_be_copied(self.SEGMENT, 10, lag, NOW_MS) is expected

    def test_future_timestamps_do_not_delay_the_copy(self) -> None:
        segment = self.SEGMENT._replace(largest_timestamp_ms=NOW_MS + 1)
        assert may_be_copied(segment, 10, CopyLag(60_000, -1), NOW_MS)

    def test_copy_lag_of_minus_one_is_local_retention(self) -> None:
        config = LogConfig(local_retention_ms=5000, retention_bytes=900)
        assert CopyLag.of(config) == CopyLag(0, 900)
        assert CopyLag.of(replace(config, remote_copy_lag_ms=-1)) == CopyLag(5000, 900)
        assert CopyLag.of(replace(config, remote_copy_lag_bytes=7)) == CopyLag(0, 7)


def test_segment_metadata_end_below_the_next_segment(log: Log) -> None:
    log.append_as_leader(batch(1, NOW_MS), LeaderEpoch(4), now_ms=NOW_MS)
    backlog = CopyBacklog(log).at(2)
    described = describe(log, backlog.segments[0], facts(log), ID, broker_id=BrokerId(3), now_ms=NOW_MS + 5)
    assert (described.start_offset, described.end_offset, described.state) == (0, 4, SegmentState.COPY_STARTED)
    assert described.leader_epochs == (SegmentEpoch(LeaderEpoch(0), 0),)
    assert described.max_timestamp_ms == NOW_MS
    assert (described.broker_id, described.event_timestamp_ms) == (3, NOW_MS + 5)
    assert described.size_bytes == backlog.segments[0].size
    assert described.txn_index_empty


def test_files_include_the_snapshot_and_epochs_of_the_segment_end(log: Log, fs: MemoryFileSystem) -> None:
    log.append_as_leader(batch(1, NOW_MS), LeaderEpoch(4), now_ms=NOW_MS)
    segment = CopyBacklog(log).at(6).segments[0]
    files = files_of(fs, log, segment, facts(log, 1))
    assert files.log == "t-0/00000000000000000005.log"
    assert files.transaction_index is None
    assert files.producer_snapshot == "t-0/00000000000000000010.snapshot"
    assert files.leader_epochs == b"0\n2\n0 0\n2 5\n"
    for path in (files.log, files.offset_index, files.time_index, files.producer_snapshot):
        assert fs.exists(path), path


@pytest.mark.parametrize("start", range(1, 12))
def test_deleted_records_keep_their_epochs(fs: MemoryFileSystem, start: int) -> None:
    log = Log.open(fs, "t-2", LogConfig(remote_storage_enable=True), now_ms=NOW_MS, clean_shutdown=True)
    for epoch in (1, 1, 3, 3, 4, 7):
        log.append_as_leader(batch(2, NOW_MS), LeaderEpoch(epoch), now_ms=NOW_MS)
    log.roll(NOW_MS)
    log.advance_high_watermark(12)
    whole = facts(log)
    segment = CopyBacklog(log).at(-1).segments[0]
    expected = tuple(SegmentEpoch(LeaderEpoch(epoch), at) for epoch, at in ((1, 0), (3, 4), (4, 8), (7, 10)))
    log.maybe_increment_log_start_offset(start)
    assert log.epochs.entries[0].start_offset == start
    described = describe(log, segment, whole, ID, broker_id=BrokerId(1), now_ms=NOW_MS)
    assert described.leader_epochs == expected
    assert files_of(fs, log, segment, whole).leader_epochs == b"0\n4\n1 0\n3 4\n4 8\n7 10\n"


def test_rotten_epoch_of_a_deleted_batch_is_not_copied(fs: MemoryFileSystem) -> None:
    log = Log.open(fs, "t-3", LogConfig(remote_storage_enable=True), now_ms=NOW_MS, clean_shutdown=True)
    for epoch in (1, 2):
        log.append_as_leader(batch(2, NOW_MS), LeaderEpoch(epoch), now_ms=NOW_MS)
    log.roll(NOW_MS)
    log.advance_high_watermark(4)
    whole = facts(log)
    segment = CopyBacklog(log).at(-1).segments[0]
    log.maybe_increment_log_start_offset(2)
    fs.open_existing(segment.path(".log")).write(12, b"\x7f")
    described = describe(log, segment, whole, ID, broker_id=BrokerId(1), now_ms=NOW_MS)
    assert described.leader_epochs == (SegmentEpoch(LeaderEpoch(2), 0),)


def test_missing_producer_snapshot_is_none(log: Log, fs: MemoryFileSystem) -> None:
    """KIP-952: topics older than 2.8 lack producer snapshots."""
    log.snapshots.remove(10)
    assert files_of(fs, log, CopyBacklog(log).at(6).segments[0], facts(log, 1)).producer_snapshot is None


def test_aborted_transactions_are_copied_and_open_ones_delay_the_copy(fs: MemoryFileSystem) -> None:
    log = Log.open(fs, "t-1", LogConfig(remote_storage_enable=True), now_ms=NOW_MS, clean_shutdown=True)
    for producer in (1, 2):
        records = [Record(NOW_MS, b"k", b"v")]
        data = build_batch(records, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)
        log.append_as_leader(bytearray(data), LeaderEpoch(0), now_ms=NOW_MS)
    log.roll(NOW_MS)
    for producer in (1, 2):
        marker = end_transaction_marker(ControlType.ABORT, producer, 0, 0, NOW_MS)
        log.append_as_leader(bytearray(marker), LeaderEpoch(0), now_ms=NOW_MS, origin=Origin.COORDINATOR)
        log.advance_high_watermark(log.log_end_offset)
        backlog = CopyBacklog(log).at(-1)
        first = closed(log, backlog.segments[0], backlog)
        assert may_be_copied(first, log.last_stable_offset, AT_ONCE, NOW_MS) is (producer == 2)
    log.roll(NOW_MS)
    second = CopyBacklog(log).at(1).segments[0]
    described = describe(log, second, facts_of(log, second), ID, broker_id=BrokerId(1), now_ms=NOW_MS)
    assert not described.txn_index_empty
    path = files_of(fs, log, second, facts_of(log, second)).transaction_index
    assert path is not None
    assert fs.exists(path)


def facts_of(log: Log, segment: object) -> ClosedSegment:
    backlog = CopyBacklog(log).at(1)
    assert backlog.segments[0] is segment
    return closed(log, backlog.segments[0], backlog)


def listed(log: Log, copied: int) -> list[LogSegment]:
    """Return the backlog by a full listing."""
    wanted = max(copied + 1, log.log_start_offset)
    ends = [(each, log.segments.end_of(each, log.log_end_offset)) for each in log.segments]
    return [each for each, end in ends if each is not log.active_segment and end > wanted]


def test_tracked_backlog_equals_a_full_listing(fs: MemoryFileSystem) -> None:
    """Appends, rolls, copies, truncations, deletions of records and of local segments, a copied offset that falls."""
    random = Random(1)
    log = Log.open(fs, "t-0", LogConfig(remote_storage_enable=True), now_ms=NOW_MS, clean_shutdown=True)
    tracked, copied = CopyBacklog(log), -1
    for _ in range(2_000):
        match random.randrange(12):
            case 0 | 1 | 2 | 3:
                log.append_as_leader(batch(random.randint(1, 3), NOW_MS), LeaderEpoch(0), now_ms=NOW_MS)
                log.roll(NOW_MS)
            case 4:
                log.append_as_leader(batch(1, NOW_MS), LeaderEpoch(0), now_ms=NOW_MS)
            case 5 | 6 if copied < log.log_end_offset - 1:
                copied = random.randint(copied, log.log_end_offset - 1)
            case 7 if random.random() < 0.2:
                log.truncate_to(random.randint(log.log_start_offset, log.log_end_offset), now_ms=NOW_MS)
                copied = min(copied, log.log_end_offset - 1)
            case 8 if random.random() < 0.3:
                log.advance_high_watermark(log.log_end_offset)
                log.maybe_increment_log_start_offset(random.randint(log.log_start_offset, log.log_end_offset))
            case 9 if random.random() < 0.2:
                copied = random.randint(-1, max(copied, -1))
            case 10:
                copied_ones = [each for each in log.segments if log.segments.end_of(each, log.log_end_offset) <= copied]
                if log.active_segment not in copied_ones:
                    log.detach_segments(copied_ones)
        backlog = tracked.at(copied)
        assert list(backlog.segments) == listed(log, copied)
        assert backlog.size_bytes == sum(segment.size for segment in backlog.segments)


@pytest.mark.skipif(build_form() == COMPILED, reason="objects of compiled classes take no patch")
def test_long_backlog_is_listed_once(log: Log) -> None:
    tracked = CopyBacklog(log)
    assert len(tracked.at(-1).segments) == 3
    log.segments.from_offset = None  # type: ignore[assignment, method-assign]
    log.roll(NOW_MS)
    assert len(tracked.at(-1).segments) == 4
    assert len(tracked.at(6).segments) == 3
