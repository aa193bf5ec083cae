"""The log of a partition."""

import errno
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from protocol.ids import LeaderEpoch
from protocol.primitives import Uuid
from protocol.records.batch import parse_header
from protocol.records.builder import Record, build_batch, empty_batch
from protocol.records.control import ControlType, end_transaction_marker
from storage.config import LogConfig, MessageTimestampType
from storage.errors import (
    CorruptBatch,
    InconsistentTopicId,
    InvalidRecords,
    LogDirFailure,
    OffsetMovedToTier,
    OffsetOutOfRange,
    Rejection,
    UnexpectedOffset,
)
from storage.files import FileSystem, OsFileSystem, read_file
from storage.log import Log
from storage.open_segments import MAX_OPEN_SEGMENTS
from storage.producer_state import Origin
from tests.support.fakes.batches import iter_all_records
from tests.support.fakes.memory_files import MemoryFileSystem

NOW = 1_700_000_000_000


def opened(
    fs: FileSystem,
    config: LogConfig | None = None,
    *,
    clean: bool = True,
    path: str = "t-0",
    log_start_offset: int = 0,
) -> Log:
    return Log.open(
        fs,
        path,
        config or LogConfig(),
        now_ms=NOW,
        clean_shutdown=clean,
        log_start_offset=log_start_offset,
        jitter=lambda bound: bound - 1,
    )


def batch(records: int = 1, *, timestamp: int = NOW, size: int = 1, **fields: int) -> bytes:
    return build_batch([Record(timestamp, b"k", b"v" * size)] * records, **fields)  # type: ignore[arg-type]


def append(
    log: Log, records: int = 1, *, epoch: int = 0, timestamp: int = NOW, size: int = 1, now_ms: int = NOW
) -> int:
    """Append a batch; return its first offset."""
    data = batch(records, timestamp=timestamp, size=size)
    return log.append_as_leader(data, LeaderEpoch(epoch), now_ms=now_ms).first_offset


def replicated(base: int, records: int = 1, epoch: int = 0, timestamp: int = NOW) -> bytes:
    return batch(records, timestamp=timestamp, base_offset=base, leader_epoch=epoch)


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


@pytest.fixture
def log(fs: MemoryFileSystem) -> Log:
    return opened(fs)


# -- append --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_appends_assign_offsets_and_the_leader_epoch(log: Log, kind: type) -> None:
    append(log, 3)
    info = log.append_as_leader(kind(bytearray(batch(2))), LeaderEpoch(7), now_ms=NOW)
    assert (info.first_offset, info.last_offset, info.duplicate, info.log_append_time_ms) == (3, 4, False, -1)
    stored = log.read(3, 1000, 5)
    header = parse_header(stored.data)
    assert (header.base_offset, header.leader_epoch) == (3, 7)
    assert [record.offset for _, record in iter_all_records(stored.data)] == [3, 4]
    assert log.epochs.entries == [(0, 0), (7, 3)]
    assert log.log_end_offset == 5


def test_writable_buffer_is_patched_in_place_and_any_other_unchanged(log: Log) -> None:
    append(log, 5)
    mine = bytearray(b"frame" + batch())
    log.append_as_leader(memoryview(mine)[5:], LeaderEpoch(2), now_ms=NOW)
    assert parse_header(mine, 5).base_offset == 5
    data = batch()
    log.append_as_leader(data, LeaderEpoch(2), now_ms=NOW)
    assert parse_header(data).base_offset == 0


def test_log_append_time_is_returned(fs: MemoryFileSystem) -> None:
    log = opened(fs, LogConfig(message_timestamp_type=MessageTimestampType.LOG_APPEND_TIME))
    info = log.append_as_leader(batch(timestamp=5), LeaderEpoch(0), now_ms=NOW + 3)
    assert info.log_append_time_ms == NOW + 3
    found = log.offset_of_max_timestamp()
    assert found is not None
    assert found.timestamp == NOW + 3


def test_retried_batch_returns_its_first_offsets(log: Log) -> None:
    append(log, 4)
    sent = batch(3, producer_id=9, producer_epoch=0, base_sequence=0)
    first = log.append_as_leader(sent, LeaderEpoch(0), now_ms=NOW)
    append(log)
    again = log.append_as_leader(sent, LeaderEpoch(0), now_ms=NOW)
    assert (again.first_offset, again.last_offset, again.duplicate) == (first.first_offset, first.last_offset, True)
    assert log.log_end_offset == 8


def test_rejected_batch_changes_nothing(log: Log, fs: MemoryFileSystem) -> None:
    log.append_as_leader(batch(producer_id=9, producer_epoch=0, base_sequence=0), LeaderEpoch(0), now_ms=NOW)
    size = log.size_bytes
    with pytest.raises(InvalidRecords) as caught:
        log.append_as_leader(batch(producer_id=9, producer_epoch=0, base_sequence=7), LeaderEpoch(5), now_ms=NOW)
    assert caught.value.kind is Rejection.OUT_OF_ORDER_SEQUENCE_NUMBER
    with pytest.raises(CorruptBatch):
        log.append_as_leader(batch()[:-1] + b"?", LeaderEpoch(5), now_ms=NOW)
    with pytest.raises(InvalidRecords):
        log.append_as_leader(b"", LeaderEpoch(5), now_ms=NOW, origin=Origin.COORDINATOR)
    assert (log.log_end_offset, log.size_bytes, log.epochs.latest_epoch) == (1, size, 0)


def test_follower_appends_batches_with_gaps_unchanged(log: Log) -> None:
    data = replicated(0, 2, 1) + replicated(10, 3, 1) + replicated(13, 1, 4)
    info = log.append_as_follower(data + replicated(14)[:-1], now_ms=NOW)
    assert info is not None
    assert (info.first_offset, info.last_offset) == (0, 13)
    assert log.epochs.entries == [(1, 0), (4, 13)]
    assert bytes(log.read(0, 10_000, 14).data) == data
    assert bytes(log.read(5, 10_000, 14).data) == data[len(replicated(0, 2)) :]
    assert log.append_as_follower(b"", now_ms=NOW) is None


def test_follower_refuses_batches_below_its_log_end(log: Log) -> None:
    append(log, 5)
    with pytest.raises(UnexpectedOffset) as caught:
        log.append_as_follower(replicated(4, 3), now_ms=NOW)
    assert (caught.value.expected, caught.value.found) == (5, 4)


def test_empty_follower_restarts_at_a_batch_that_straddles_its_end(fs: MemoryFileSystem) -> None:
    log = opened(fs, log_start_offset=105)
    log.append_as_follower(replicated(100, 10), now_ms=NOW)
    assert (log.log_start_offset, log.log_end_offset) == (100, 110)


def test_follower_appends_no_batch_above_the_max_epoch(log: Log) -> None:
    info = log.append_as_follower(
        replicated(0, epoch=1) + replicated(1, epoch=3) + replicated(2), now_ms=NOW, max_epoch=LeaderEpoch(2)
    )
    assert info is not None
    assert (info.last_offset, log.log_end_offset) == (0, 1)
    assert log.append_as_follower(replicated(1, epoch=3), now_ms=NOW, max_epoch=LeaderEpoch(2)) is None


def test_follower_adopts_the_leaders_high_watermark_within_its_log(log: Log) -> None:
    append(log, 10)
    assert log.follow_high_watermark(12)
    assert log.high_watermark == 10
    assert not log.follow_high_watermark(11)
    log.maybe_increment_log_start_offset(4)
    assert log.follow_high_watermark(7)
    assert log.high_watermark == 7
    assert log.follow_high_watermark(1)
    assert log.high_watermark == 4


def test_followers_roll_within_one_append(fs: MemoryFileSystem) -> None:
    one = replicated(0)
    log = opened(fs, LogConfig(segment_bytes=3 * len(one)))
    log.append_as_follower(b"".join(replicated(n, epoch=n // 4) for n in range(10)), now_ms=NOW)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 9]
    assert log.epochs.entries == [(0, 0), (1, 4), (2, 8)]


# -- roll ----------------------------------------------------------------------------------------------------------


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_preallocated_segment_has_its_full_size_until_it_rolls(fs: MemoryFileSystem) -> None:
    size = len(batch())
    log = opened(fs, LogConfig(segment_bytes=2 * size + 5, preallocate=True))
    files = [f"t-0/{base:020d}.log" for base in (0, 2)]
    assert fs.size(files[0]) == 0
    append(log)
    assert (fs.size(files[0]), log.size_bytes) == (2 * size + 5, size)
    append(log)
    append(log)
    assert [fs.size(file) for file in files] == [2 * size, 2 * size + 5]
    log.close()
    assert fs.size(files[1]) == size
    again = opened(fs, LogConfig(segment_bytes=2 * size + 5, preallocate=True))
    assert (again.log_end_offset, again.recovery.scanned_bytes) == (3, 0)


def test_segment_rolls_if_the_next_batch_exceeds_segment_bytes(fs: MemoryFileSystem) -> None:
    size = len(batch())
    log = opened(fs, LogConfig(segment_bytes=2 * size))
    for _ in range(5):
        append(log)
    assert bases(log) == [0, 2, 4]
    assert fs.list("t-0") == sorted(
        [f"{base:020d}{suffix}" for base in (0, 2, 4) for suffix in (".index", ".log", ".timeindex")]
        + [f"{base:020d}.snapshot" for base in (2, 4)]
    )


def test_segment_rolls_by_the_time_of_records_with_jitter(fs: MemoryFileSystem) -> None:
    log = opened(fs, LogConfig(segment_ms=1000, segment_jitter_ms=101, message_timestamp_after_max_ms=10**9))
    append(log, timestamp=NOW)
    append(log, timestamp=NOW + 900)
    append(log, timestamp=NOW, now_ms=NOW + 10**6)
    assert bases(log) == [0]
    append(log, timestamp=NOW + 901)
    assert bases(log) == [0, 3]


def test_segment_without_timestamps_rolls_by_the_clock(fs: MemoryFileSystem) -> None:
    log = opened(fs, LogConfig(segment_ms=1000))
    append(log, timestamp=-1)
    append(log, timestamp=-1, now_ms=NOW + 1000)
    append(log, timestamp=-1, now_ms=NOW + 1001)
    assert bases(log) == [0, 2]


def test_segment_rolls_when_its_index_is_full(fs: MemoryFileSystem) -> None:
    log = opened(fs, LogConfig(index_interval_bytes=0, segment_index_bytes=8 * 6))
    for _ in range(12):
        append(log)
    assert bases(log) == [0, 7]


def test_segment_rolls_if_relative_offsets_overflow(log: Log) -> None:
    append(log)
    log.append_as_follower(replicated(2**31 - 1), now_ms=NOW)
    assert bases(log) == [0]
    log.append_as_follower(replicated(2**31), now_ms=NOW)
    assert bases(log) == [0, 2**31]


def test_rolling_an_empty_segment_does_nothing(log: Log) -> None:
    log.roll(NOW)
    append(log)
    log.roll(NOW)
    log.roll(NOW)
    assert bases(log) == [0, 1]


# -- read ----------------------------------------------------------------------------------------------------------


def offsets(log: Log, offset: int, max_bytes: int, upper: int, *, min_one: bool = True) -> list[int]:
    return [r.offset for _, r in iter_all_records(log.read(offset, max_bytes, upper, min_one).data)]


def test_reads_return_whole_batches_within_limits(log: Log) -> None:
    for _ in range(4):
        append(log, 2)
    size = len(batch(2))
    assert offsets(log, 0, 10_000, 8) == list(range(8))
    assert offsets(log, 3, 10_000, 8) == list(range(2, 8))
    assert offsets(log, 2, 2 * size, 8) == [2, 3, 4, 5]
    assert offsets(log, 2, 2 * size - 1, 8) == [2, 3]
    assert offsets(log, 2, size - 1, 8) == [2, 3]
    assert offsets(log, 2, 0, 8) == [2, 3]
    assert offsets(log, 2, size - 1, 8, min_one=False) == []
    assert offsets(log, 2, size, 8, min_one=False) == [2, 3]
    assert offsets(log, 0, 10_000, 5) == [0, 1, 2, 3]
    assert offsets(log, 4, 10_000, 5) == []
    assert offsets(log, 0, size - 1, 1) == []


def test_reads_return_the_next_offset(log: Log) -> None:
    for _ in range(4):
        append(log, 2)
    size = len(batch(2))
    assert [log.read(o, size, 8).next_offset for o in (0, 1, 4, 7)] == [2, 2, 6, 8]
    assert log.read(0, 3 * size, 8).next_offset == 6
    assert log.read(0, 10_000, 5).next_offset == 5
    assert log.read(8, 1, 8).next_offset == 8


def test_reads_outside_the_log_raise_offset_out_of_range(log: Log) -> None:
    append(log, 5)
    log.advance_high_watermark(5)
    log.maybe_increment_log_start_offset(2)
    assert log.read(5, 1000, 5).data == b""
    assert log.read(3, 1000, 3).data == b""
    assert offsets(log, 2, 1000, 5) == [0, 1, 2, 3, 4]
    for offset in (1, 6, -1):
        with pytest.raises(OffsetOutOfRange) as caught:
            log.read(offset, 1000, 5)
        assert (caught.value.offset, caught.value.start, caught.value.end) == (offset, 2, 5)


def test_reads_below_the_first_segment_are_sent_to_remote_storage(log: Log) -> None:
    append(log)
    log.truncate_fully_and_start_at(10, now_ms=NOW, log_start_offset=4)
    append(log)
    for offset in (4, 9):
        with pytest.raises(OffsetMovedToTier) as raised:
            log.read(offset, 1000, 11)
        assert (raised.value.offset, raised.value.log_start, raised.value.local_start) == (offset, 4, 10)
    with pytest.raises(OffsetOutOfRange) as out:
        log.read(3, 1000, 11)
    assert not isinstance(out.value, OffsetMovedToTier)
    assert log.read(10, 1000, 11).next_offset == 11


def test_reads_continue_in_the_next_segment_after_a_gap(log: Log) -> None:
    append(log, 2)
    log.roll(NOW)
    log.append_as_follower(replicated(10), now_ms=NOW)
    assert offsets(log, 1, 10_000, 11) == [0, 1]
    assert offsets(log, 2, 10_000, 11) == [10]
    assert offsets(log, 5, 10_000, 7) == []


@pytest.mark.parametrize("size", [10, 3000, 70_000])
def test_sequential_reader_reads_every_batch_once(tmp_path: Path, size: int) -> None:
    log = opened(OsFileSystem(), LogConfig(segment_bytes=1_000_000), path=str(tmp_path / "t-0"))
    for _ in range(60):
        append(log, 1, size=size)
    for max_bytes in (1, 5000, 150_000, 10**9):
        offset, found = 0, []
        while offset < 60:
            part = log.read(offset, max_bytes, 60)
            found += [record.offset for _, record in iter_all_records(part.data)]
            assert part.next_offset > offset
            offset = part.next_offset
        assert found == list(range(60))
    log.close()


def test_large_reads_are_views_that_outlive_the_segment(tmp_path: Path) -> None:
    log = opened(OsFileSystem(), path=str(tmp_path / "t-0"))
    append(log, 1, size=200_000)
    found = log.read(0, 10**6, 1)
    assert isinstance(found.data, memoryview)
    content = bytes(found.data)
    log.warm(found)
    log.truncate_to(0, now_ms=NOW)
    append(log, 1, size=300_000)
    assert bytes(found.data) == content
    log.truncate_fully_and_start_at(50, now_ms=NOW)
    log.close()
    assert bytes(found.data) == content


def test_cold_reads_are_marked(log: Log, fs: MemoryFileSystem) -> None:
    append(log, 1, size=100)
    append(log, 1, size=100_000)
    assert not log.read(0, 10, 2).cold
    fs.is_cold = True
    small, large = log.read(0, 10, 2), log.read(1, 10, 2)
    assert small.cold
    assert large.cold
    log.warm(small)
    assert [r.offset for _, r in iter_all_records(small.data)] == [0]


def test_few_files_stay_open_however_many_are_written_and_read(tmp_path: Path) -> None:
    log = opened(OsFileSystem(), LogConfig(segment_bytes=200), path=str(tmp_path / "t-0"))
    for _ in range(40):
        append(log)
    for offset in range(40):
        assert offsets(log, offset, 1, 40) == [offset]
    open_files = [path.resolve() for path in Path("/proc/self/fd").iterdir() if path.exists()]
    assert len([path for path in open_files if tmp_path in path.parents]) <= MAX_OPEN_SEGMENTS + 1
    log.close()
    open_files = [path.resolve() for path in Path("/proc/self/fd").iterdir() if path.exists()]
    assert not [path for path in open_files if tmp_path in path.parents]


# -- lookups -------------------------------------------------------------------------------------------------------


def test_timestamps_find_the_first_record_at_or_after_them(fs: MemoryFileSystem) -> None:
    log = opened(fs, LogConfig(segment_bytes=400, index_interval_bytes=100))
    for n in range(30):
        log.append_as_leader(
            build_batch([Record(NOW + 10 * n, None, b"a"), Record(NOW + 10 * n + 5, None, b"b")]),
            LeaderEpoch(n // 10),
            now_ms=NOW,
        )
    assert len(log.segments) > 5
    for wanted in (0, 1, 5, 6, 10, 155, 156, 295):
        found = log.offset_for_timestamp(NOW + wanted)
        assert found is not None
        assert (found.timestamp - NOW, found.offset) == (-(-wanted // 5) * 5, -(-wanted // 5))
        assert found.leader_epoch == found.offset // 20
    assert log.offset_for_timestamp(NOW + 296) is None
    log.advance_high_watermark(60)
    log.maybe_increment_log_start_offset(33)
    found = log.offset_for_timestamp(NOW)
    assert found is not None
    assert found.offset == 33


def test_largest_timestamp_is_found_at_its_first_record(fs: MemoryFileSystem) -> None:
    log = opened(fs, LogConfig(segment_bytes=400))
    assert log.offset_of_max_timestamp() is None
    for n in (1, 9, 3, 9, 2, 4, 1, 1, 1):
        append(log, timestamp=NOW + n)
    found = log.offset_of_max_timestamp()
    assert found is not None
    assert (found.timestamp, found.offset) == (NOW + 9, 1)


def test_end_offset_for_epoch_is_found(log: Log) -> None:
    append(log, 3, epoch=1)
    append(log, 2, epoch=4)
    assert log.end_offset_for_epoch(LeaderEpoch(1)) == (1, 3)
    assert log.end_offset_for_epoch(LeaderEpoch(3)) == (1, 3)
    assert log.end_offset_for_epoch(LeaderEpoch(4)) == (4, 5)
    assert log.end_offset_for_epoch(LeaderEpoch(5)) == (-1, -1)
    log.assign_epoch(LeaderEpoch(6))
    assert log.end_offset_for_epoch(LeaderEpoch(4)) == (4, 5)
    assert log.end_offset_for_epoch(LeaderEpoch(6)) == (6, 5)


# -- transactions --------------------------------------------------------------------------------------------------


def transactional(log: Log, producer_id: int, sequence: int) -> int:
    sent = build_batch(
        [Record(NOW, b"k", b"v")],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    return log.append_as_leader(sent, LeaderEpoch(0), now_ms=NOW).first_offset


def end(log: Log, producer_id: int, type: ControlType) -> int:
    sent = end_transaction_marker(type, producer_id, 0, 0, NOW)
    return log.append_as_leader(sent, LeaderEpoch(0), now_ms=NOW, origin=Origin.COORDINATOR).first_offset


def test_last_stable_offset_waits_for_replicated_markers(log: Log) -> None:
    append(log, 2)
    transactional(log, 1, 0)
    transactional(log, 2, 0)
    append(log)
    log.advance_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 2
    end(log, 1, ControlType.COMMIT)
    assert log.last_stable_offset == 2
    log.advance_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 3
    end(log, 2, ControlType.ABORT)
    log.advance_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.high_watermark == 7


def test_read_lists_aborted_transactions_of_its_range(fs: MemoryFileSystem) -> None:
    log = opened(fs)
    transactional(log, 1, 0)
    transactional(log, 2, 0)
    end(log, 1, ControlType.ABORT)
    log.roll(NOW)
    end(log, 2, ControlType.ABORT)
    transactional(log, 1, 1)
    end(log, 1, ControlType.COMMIT)
    first, second = (1, 0, 2, 1), (2, 1, 3, 4)
    assert log.aborted_transactions(0, 6) == [first, second]
    assert log.aborted_transactions(0, 1) == [first]
    assert log.aborted_transactions(3, 6) == [second]
    assert log.aborted_transactions(4, 6) == []
    log.close()
    assert opened(fs).aborted_transactions(0, 6) == [first, second]


def test_transaction_starts_only_with_its_verification_guard(fs: MemoryFileSystem) -> None:
    """Guards are not shared, and the end of the transaction invalidates them (KIP-890)."""
    log = opened(fs, LogConfig(verify_transactions=True))
    first = batch(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    second = batch(producer_id=1, producer_epoch=0, base_sequence=1, transactional=True)
    with pytest.raises(InvalidRecords) as unasked:
        log.append_as_leader(first, LeaderEpoch(0), now_ms=NOW)
    assert unasked.value.kind is Rejection.INVALID_TXN_STATE
    guard = log.start_verification(1, 0, 1, NOW)
    assert log.start_verification(1, 0, 0, NOW) == guard
    with pytest.raises(InvalidRecords) as reordered:
        log.append_as_leader(second, LeaderEpoch(0), now_ms=NOW, guard=guard)
    assert reordered.value.kind is Rejection.OUT_OF_ORDER_SEQUENCE_NUMBER
    end(log, 1, ControlType.ABORT)
    with pytest.raises(InvalidRecords) as late:
        log.append_as_leader(first, LeaderEpoch(0), now_ms=NOW, guard=guard)
    assert late.value.kind is Rejection.INVALID_TXN_STATE
    guard = log.start_verification(1, 0, 0, NOW)
    log.append_as_leader(first, LeaderEpoch(0), now_ms=NOW, guard=guard)
    assert log.start_verification(1, 0, 1, NOW) is None
    log.append_as_leader(second, LeaderEpoch(0), now_ms=NOW)
    log.append_as_leader(batch(producer_id=2, producer_epoch=0, base_sequence=0), LeaderEpoch(0), now_ms=NOW)


def test_verification_of_an_outdated_epoch_is_refused(fs: MemoryFileSystem) -> None:
    log = opened(fs, LogConfig(verify_transactions=True))
    guard = log.start_verification(1, 2, 0, NOW)
    with pytest.raises(InvalidRecords) as waiting:
        log.start_verification(1, 1, 0, NOW)
    assert waiting.value.kind is Rejection.INVALID_PRODUCER_EPOCH
    started = batch(producer_id=1, producer_epoch=2, base_sequence=0, transactional=True)
    log.append_as_leader(started, LeaderEpoch(0), now_ms=NOW, guard=guard)
    with pytest.raises(InvalidRecords) as written:
        log.start_verification(1, 1, 0, NOW)
    assert written.value.kind is Rejection.INVALID_PRODUCER_EPOCH
    assert log.start_verification(1, 3, 0, NOW) is not None, "a later epoch begins another transaction"


def test_guard_of_a_batch_that_never_came_expires(fs: MemoryFileSystem) -> None:
    log = opened(fs, LogConfig(verify_transactions=True))
    guard = log.start_verification(1, 0, 0, NOW)
    log.expire_producers(NOW + 999, 1000)
    assert log.start_verification(1, 0, 0, NOW) == guard
    log.expire_producers(NOW + 1000, 1000)
    assert log.start_verification(1, 0, 0, NOW) != guard


def test_next_transaction_is_verified_although_the_marker_of_the_former_one_is_late(fs: MemoryFileSystem) -> None:
    """The next transaction of version 2 has a higher epoch, and may begin before that marker."""
    log = opened(fs, LogConfig(verify_transactions=True))
    former = batch(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    following = batch(producer_id=1, producer_epoch=1, base_sequence=0, transactional=True)
    guard = log.start_verification(1, 0, 0, NOW)
    log.append_as_leader(former, LeaderEpoch(0), now_ms=NOW, guard=guard)
    assert log.start_verification(1, 1, 0, NOW) is not None
    with pytest.raises(InvalidRecords) as unasked:
        log.append_as_leader(following, LeaderEpoch(0), now_ms=NOW)
    assert unasked.value.kind is Rejection.INVALID_TXN_STATE


# -- high watermark and log start ----------------------------------------------------------------------------------


def test_high_watermark_only_rises_up_to_the_log_end(log: Log) -> None:
    append(log, 5)
    assert log.advance_high_watermark(3)
    assert not log.advance_high_watermark(2)
    assert log.advance_high_watermark(99)
    assert log.high_watermark == 5
    assert not log.advance_high_watermark(99)


def test_log_start_rises_up_to_the_high_watermark(log: Log) -> None:
    append(log, 5, epoch=2)
    log.advance_high_watermark(4)
    with pytest.raises(OffsetOutOfRange):
        log.maybe_increment_log_start_offset(5)
    assert log.maybe_increment_log_start_offset(3)
    assert not log.maybe_increment_log_start_offset(3)
    assert log.epochs.entries == [(2, 3)]


# -- truncation ----------------------------------------------------------------------------------------------------


def test_truncation_cuts_data_epochs_producers_and_the_high_watermark(fs: MemoryFileSystem) -> None:
    log = opened(fs, LogConfig(segment_bytes=300))
    for n in range(10):
        sent = batch(producer_id=1, producer_epoch=0, base_sequence=n)
        log.append_as_leader(sent, LeaderEpoch(n // 4), now_ms=NOW)
    log.advance_high_watermark(9)
    assert log.truncate_to(5, now_ms=NOW)
    assert (log.log_end_offset, log.high_watermark) == (5, 5)
    assert log.epochs.entries == [(0, 0), (1, 4)]
    assert log.producers.entries[1].last_sequence == 4
    assert offsets(log, 4, 1000, 5) == [4]
    info = log.append_as_leader(batch(producer_id=1, producer_epoch=0, base_sequence=5), LeaderEpoch(9), now_ms=NOW)
    assert info.first_offset == 5
    assert not log.truncate_to(6, now_ms=NOW)
    with pytest.raises(ValueError):
        log.truncate_to(-1, now_ms=NOW)


def test_log_ends_before_the_batch_that_spans_the_truncation_offset(log: Log) -> None:
    """The batch is removed whole, so a log that ended at the offset would lack records below it."""
    append(log, 2)
    append(log, 5)
    log.truncate_to(4, now_ms=NOW)
    assert log.log_end_offset == 2
    assert offsets(log, 0, 1000, 2) == [0, 1]
    assert append(log) == 2
    assert offsets(log, 2, 1000, 3) == [2]


def test_truncation_below_the_first_segment_empties_the_log_there(fs: MemoryFileSystem) -> None:
    log = opened(fs, log_start_offset=100)
    append(log, 5)
    log.truncate_to(40, now_ms=NOW)
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (40, 40, [40])


@pytest.mark.parametrize(
    ("start", "cut", "first", "was_any"),
    [(3, 3, 3, True), (4, 3, 3, True), (5, 5, 5, False), (2, 3, 0, True), (4, 5, 0, False), (0, 0, 0, True)],
)
def test_truncation_that_leaves_only_deleted_records_empties_the_log(
    log: Log, start: int, cut: int, first: int, was_any: bool
) -> None:
    for _ in range(5):
        append(log)
    log.advance_high_watermark(5)
    log.maybe_increment_log_start_offset(start)
    assert log.truncate_to(cut, now_ms=NOW) == was_any
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (min(start, cut), cut, [first])
    assert log.high_watermark == cut
    assert append(log) == cut
    assert not log.truncate_to(cut + 1, now_ms=NOW)


def test_full_truncation_removes_all_files(fs: MemoryFileSystem) -> None:
    log = opened(fs, LogConfig(segment_bytes=200))
    for n in range(6):
        log.append_as_leader(batch(producer_id=1, producer_epoch=0, base_sequence=n), LeaderEpoch(3), now_ms=NOW)
    log.truncate_fully_and_start_at(1000, now_ms=NOW, log_start_offset=990)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (990, 1000, 1000)
    assert (log.epochs.entries, log.producers.entries, log.size_bytes) == ([], {}, 0)
    assert [name for name in fs.list("t-0") if name.endswith((".log", ".snapshot"))] == ["00000000000000001000.log"]


def test_truncation_writes_the_lower_recovery_point_first(fs: MemoryFileSystem) -> None:
    seen: list[tuple[int, int]] = []
    log = Log.open(
        fs,
        "t-0",
        LogConfig(),
        now_ms=NOW,
        clean_shutdown=True,
        before_truncation=lambda log: seen.append((log.recovery_point, log.size_bytes)),
    )
    append(log, 2)
    append(log, 2)
    size = log.size_bytes
    log.truncate_to(3, now_ms=NOW)
    assert seen == []
    append(log, 2)
    log.flush()
    log.truncate_to(2, now_ms=NOW)
    assert seen == [(2, size)]
    assert log.recovery_point == 2


# -- flush, close, failures ----------------------------------------------------------------------------------------


def test_flush_raises_the_recovery_point_after_syncing_all_files_below_it(fs: MemoryFileSystem) -> None:
    log = opened(fs)
    append(log, 3, epoch=1)
    log.roll(NOW)
    append(log, 2, epoch=2)
    fs.log.clear()
    assert log.flush(NOW + 5) == log.recovery_point == 5
    assert log.last_flush_ms == NOW + 5
    synced = {path.rpartition("/")[2] for operation, path in fs.log if operation == "sync"}
    assert synced == {
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "00000000000000000003.log",
        "00000000000000000003.snapshot",
        "leader-epoch-checkpoint.tmp",
    }
    assert fs.log[-2:] == [("sync_directory", "t-0"), ("sync_directory", ".")]
    fs.log.clear()
    log.flush()
    assert fs.log == []


def test_indexes_finished_after_the_last_flush_are_synced_by_the_next(fs: MemoryFileSystem) -> None:
    log = opened(fs)
    append(log, 3)
    log.flush()
    log.roll(NOW)
    append(log)
    fs.log.clear()
    log.flush()
    assert ("sync", "t-0/00000000000000000000.index") in fs.log


def test_flush_messages_makes_a_flush_due(fs: MemoryFileSystem) -> None:
    log = opened(fs, LogConfig(flush_messages=3))
    assert not log.append_as_leader(batch(2), LeaderEpoch(0), now_ms=NOW).flush_due
    assert log.append_as_leader(batch(1), LeaderEpoch(0), now_ms=NOW).flush_due
    log.flush()
    assert not log.flush_due


def test_batch_that_compaction_has_emptied_makes_a_flush_due(fs: MemoryFileSystem) -> None:
    """A follower acknowledges the offsets of such a batch like all others, so `flush.messages` counts offsets."""
    log = opened(fs, LogConfig(flush_messages=1))
    info = log.append_as_follower(empty_batch(parse_header(replicated(0))), now_ms=NOW)
    assert info is not None
    assert info.flush_due


def test_offsets_that_compaction_has_removed_count_for_flush_messages(fs: MemoryFileSystem) -> None:
    log = opened(fs, LogConfig(flush_messages=10))
    log.append_as_follower(replicated(0), now_ms=NOW)
    info = log.append_as_follower(replicated(9), now_ms=NOW)
    assert info is not None
    assert info.flush_due


def test_failed_write_keeps_the_offsets_and_fails_the_log_permanently(log: Log, fs: MemoryFileSystem) -> None:
    append(log, 2)
    size = fs.size("t-0/00000000000000000000.log")
    fs.fail("write", errno.ENOSPC)
    with pytest.raises(LogDirFailure) as caught:
        append(log, 3, epoch=5)
    assert caught.value.cause.errno == errno.ENOSPC
    assert caught.value.path == "t-0"
    assert (log.log_end_offset, log.epochs.latest_epoch) == (2, 0)
    assert fs.size("t-0/00000000000000000000.log") == size
    for attempt in (lambda: append(log), lambda: log.read(0, 10, 2), log.flush, lambda: log.roll(NOW)):
        with pytest.raises(LogDirFailure):
            attempt()
    log.close()
    again = opened(fs, clean=False)
    assert again.log_end_offset == 2


def test_batch_without_index_entry_is_truncated_after_a_failure(fs: MemoryFileSystem) -> None:
    log = opened(fs)
    append(log)
    log.close()
    log = opened(fs)
    size = log.size_bytes
    fs.fail("open", path_part=".timeindex")
    with pytest.raises(LogDirFailure):
        append(log)
    assert log.log_end_offset == 1
    assert fs.size("t-0/00000000000000000000.log") == size
    fs.crash(Random(1))
    assert opened(fs, clean=False).log_end_offset == 1


def test_failed_sync_does_not_move_the_recovery_point(log: Log, fs: MemoryFileSystem) -> None:
    append(log, 2)
    fs.fail("sync")
    with pytest.raises(LogDirFailure):
        log.flush()
    assert log.recovery_point == 0
    with pytest.raises(LogDirFailure):
        log.flush()


def test_disk_failure_at_opening_fails_the_directory(fs: MemoryFileSystem) -> None:
    opened(fs).close()
    fs.fail("list")
    with pytest.raises(LogDirFailure):
        opened(fs)


def test_clean_close_writes_indexes_and_a_snapshot_and_needs_no_recovery(fs: MemoryFileSystem) -> None:
    log = opened(fs, LogConfig(index_interval_bytes=0))
    for n in range(5):
        log.append_as_leader(batch(producer_id=1, producer_epoch=0, base_sequence=n), LeaderEpoch(0), now_ms=NOW)
    log.close()
    assert fs.size("t-0/00000000000000000000.index") == 4 * 8
    assert fs.size("t-0/00000000000000000000.timeindex") == 12
    assert fs.exists("t-0/00000000000000000005.snapshot")
    again = opened(fs)
    assert again.recovery.scanned_bytes == 0
    assert again.recovery_point == 5
    assert again.producers.entries[1].last_sequence == 4


# -- identity ------------------------------------------------------------------------------------------------------


def test_log_keeps_its_topic_id_and_refuses_another(fs: MemoryFileSystem) -> None:
    one, two = Uuid(b"1" * 16), Uuid(b"2" * 16)
    log = Log.open(fs, "t-0", LogConfig(), now_ms=NOW, clean_shutdown=True, topic_id=one)
    assert log.topic_id == one
    assert b"topic_id: MTEx" in read_file(fs, "t-0/partition.metadata")
    log.close()
    assert opened(fs).topic_id == one
    with pytest.raises(InconsistentTopicId):
        Log.open(fs, "t-0", LogConfig(), now_ms=NOW, clean_shutdown=True, topic_id=two)


def test_configuration_can_be_replaced_while_the_log_is_open(log: Log) -> None:
    log.config = replace(log.config, max_message_bytes=10)
    with pytest.raises(InvalidRecords):
        append(log)


# -- segments removed by retention and compaction -------------------------------------------------------------------


def test_detached_segments_are_renamed_and_removed_from_the_log(fs: MemoryFileSystem) -> None:
    log = opened(fs, LogConfig(segment_bytes=200))
    for _ in range(6):
        append(log)
    log.advance_high_watermark(6)
    first = list(log.segments)[:2]
    log.maybe_increment_log_start_offset(log.segments.end_of(first[1], log.log_end_offset))
    detached = log.detach_segments(first)
    assert log.segments.first.base_offset == log.log_start_offset == 4
    assert [name for name in fs.list("t-0") if name.endswith(".deleted")]
    for segment in detached:
        segment.remove_files()
    assert not [name for name in fs.list("t-0") if name.endswith(".deleted")]
    assert offsets(log, 4, 1000, 6) == [4, 5]
    with pytest.raises(AssertionError):
        log.detach_segments([log.active_segment])
