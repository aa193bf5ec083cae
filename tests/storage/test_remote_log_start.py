"""A log that begins at the end of remote storage (`storage.remote_log_start`), and crashes on the way there."""

import errno
from functools import partial
from random import Random

import pytest

from protocol.ids import LeaderEpoch
from protocol.records.batch import parse_header
from protocol.records.builder import Record, build_batch
from storage.config import LogConfig
from storage.directories.checkpoints import LeaderEpochEntry, TopicPartition, read_offsets, write_offsets
from storage.errors import LogDirFailure
from storage.log import Log
from storage.producer_state import ProducerState
from storage.remote_log_start import RemoteLogStart
from tests.support.fakes.memory_files import MemoryFileSystem
from tests.support.fakes.power_loss import FailingPower, lose_power_in

DIRECTORY = "logs/t-0"
LOG_STARTS = "logs/log-start-offset-checkpoint"
RECOVERY_POINTS = "logs/recovery-point-offset-checkpoint"
PARTITION = TopicPartition("t", 0)
NOW_MS = 1_700_000_000_000
SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100, remote_storage_enable=True)
"""Five records per segment."""

OLD_PRODUCER, NEW_PRODUCER = 1, 2
EPOCHS = (
    LeaderEpochEntry(LeaderEpoch(2), 3),
    LeaderEpochEntry(LeaderEpoch(5), 20),
    LeaderEpochEntry(LeaderEpoch(7), 30),
)


def checkpoint_start(log: Log) -> None:
    write_offsets(log._fs, LOG_STARTS, {PARTITION: log.log_start_offset})


def checkpoint_recovery_point(log: Log) -> None:
    write_offsets(log._fs, RECOVERY_POINTS, {PARTITION: log.recovery_point})


def opened(fs: MemoryFileSystem, *, clean: bool = False) -> Log:
    return Log.open(
        fs,
        DIRECTORY,
        SMALL,
        now_ms=NOW_MS,
        clean_shutdown=clean,
        recovery_point=read_offsets(fs, RECOVERY_POINTS).get(PARTITION, 0),
        log_start_offset=read_offsets(fs, LOG_STARTS).get(PARTITION),
        before_truncation=checkpoint_recovery_point,
    )


def batch(offset: int, epoch: int, producer_id: int = OLD_PRODUCER) -> bytes:
    return build_batch(
        [Record(NOW_MS, b"k", b"v")],
        base_offset=offset,
        leader_epoch=LeaderEpoch(epoch),
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=offset,
    )


def old_log(fs: MemoryFileSystem, count: int = 12) -> Log:
    """Return a flushed log with segments from 0, 5 and 10, of epochs 0 and 1."""
    fs.make_directory("logs")
    fs.sync_directory(".")
    log = opened(fs)
    for offset in range(count):
        log.append_as_follower(batch(offset, offset // 6), now_ms=NOW_MS)
    log.flush()
    checkpoint_recovery_point(log)
    log.advance_high_watermark(count)
    return log


def producers(offset: int) -> ProducerState:
    """Return the state of one producer, as in a leader's snapshot at this offset."""
    state = ProducerState()
    state.apply(parse_header(batch(offset - 1, 0, NEW_PRODUCER)))
    return ProducerState.decode("a snapshot", state.encode(), offset)


def remote_log_start(next_offset: int = 40, log_start_offset: int = 3) -> RemoteLogStart:
    epochs = tuple(entry for entry in EPOCHS if entry.start_offset < next_offset)
    return RemoteLogStart(
        next_offset=next_offset,
        log_start_offset=log_start_offset,
        epochs=epochs,
        producers=producers(next_offset),
    )


def begin(log: Log, start: RemoteLogStart) -> None:
    log.start_behind_remote_log(start, now_ms=NOW_MS, checkpoint=checkpoint_start)


def assert_started(log: Log, start: RemoteLogStart) -> None:
    assert (log.log_start_offset, log.log_end_offset) == (start.log_start_offset, start.next_offset)
    assert log.segments.first.base_offset == start.next_offset
    assert tuple(log.epochs.entries) == start.epochs
    assert list(log.producers.entries) == [NEW_PRODUCER]
    assert log.producers.end_offset == start.next_offset
    assert log.high_watermark == start.next_offset


@pytest.fixture
def fs() -> FailingPower:
    return FailingPower()


@pytest.mark.parametrize("next_offset", [40, 12, 10, 7])
def test_log_continues_at_the_end_of_remote_storage_with_its_state(fs: FailingPower, next_offset: int) -> None:
    """The earlier log may have more or fewer records, or a segment of the same name."""
    log, start = old_log(fs), remote_log_start(next_offset)
    begin(log, start)
    assert_started(log, start)
    assert log.recovery_point == next_offset
    assert read_offsets(fs, RECOVERY_POINTS)[PARTITION] <= next_offset
    assert [name for name in fs.list(DIRECTORY) if name.endswith(".snapshot")] == [f"{next_offset:020d}.snapshot"]


def test_log_started_from_tier_is_appended_to_and_read(fs: FailingPower) -> None:
    log = old_log(fs)
    begin(log, remote_log_start())
    log.append_as_follower(batch(40, 7, NEW_PRODUCER), now_ms=NOW_MS)
    assert log.read(40, 1000, 41).next_offset == 41
    assert log.epochs.epoch_for_offset(40) == 7
    assert log.end_offset_for_epoch(LeaderEpoch(2)) == (2, 20)


@pytest.mark.parametrize("clean", [True, False])
def test_log_started_from_tier_survives_a_restart(fs: FailingPower, clean: bool) -> None:
    log, start = old_log(fs), remote_log_start()
    begin(log, start)
    log.close(clean=clean)
    if not clean:
        fs.crash(Random(1))
    assert_started(opened(fs, clean=clean), start)


def test_appends_after_a_tier_start_survive_a_crash(fs: FailingPower) -> None:
    """The checkpointed recovery point may still be far below the start; the initial state of the new log is trusted all
    the same.
    """
    log = old_log(fs)
    begin(log, remote_log_start())
    log.append_as_follower(batch(40, 7) + batch(41, 9), now_ms=NOW_MS)
    for segment in log.segments:
        segment.sync(indexes=True)
    fs.crash(Random(1))
    found = opened(fs)
    assert found.log_end_offset == 42
    assert tuple(found.epochs.entries) == (*EPOCHS, LeaderEpochEntry(LeaderEpoch(9), 41))
    assert set(found.producers.entries) == {OLD_PRODUCER, NEW_PRODUCER}


@pytest.mark.parametrize("next_offset", [40, 7])
@pytest.mark.parametrize("seed", range(3))
def test_power_loss_leaves_the_old_log_an_empty_log_or_the_new_log(next_offset: int, seed: int) -> None:
    """No crash leaves a log with the new start and an incomplete state."""
    seen = set()
    for after in range(1000):
        fs, start = FailingPower(), remote_log_start(next_offset)
        failed = lose_power_in(fs, after, Random(seed * 1000 + after), partial(begin, old_log(fs), start))
        found = opened(fs)
        assert found.recovery.lost is None
        seen.add(remaining_log(found, start))
        if not failed:
            break
    assert seen == {"old", "empty", "new"}


@pytest.mark.parametrize("seed", range(3))
def test_log_that_starts_anew_at_its_start_offset_survives_a_power_loss(seed: int) -> None:
    """The start offset was checkpointed, and the records before it were not flushed. The next checkpoint leaves it out,
    because the first segment has it.
    """
    fs = FailingPower()
    old_log(fs)
    write_offsets(fs, LOG_STARTS, {PARTITION: 40})
    fs.crash(Random(seed))
    assert opened(fs).log_end_offset == 40
    write_offsets(fs, LOG_STARTS, {})
    fs.crash(Random(seed))
    found = opened(fs)
    assert (found.log_start_offset, found.log_end_offset, found.recovery.lost) == (40, 40, None)


@pytest.mark.parametrize("offset", [40, 12, 7])
@pytest.mark.parametrize("seed", range(3))
def test_power_loss_while_a_log_starts_anew_is_no_loss_of_flushed_records(offset: int, seed: int) -> None:
    """A follower whose log ends below the leader's log start offset removes records on purpose."""
    for after in range(1000):
        fs = FailingPower()
        log = old_log(fs)
        start_anew = partial(log.truncate_fully_and_start_at, offset, now_ms=NOW_MS)
        failed = lose_power_in(fs, after, Random(seed * 1000 + after), start_anew)
        assert opened(fs).recovery.lost is None
        if not failed:
            break


def remaining_log(log: Log, start: RemoteLogStart) -> str:
    if log.segments.first.base_offset == start.next_offset:
        assert_started(log, start)
        return "new"
    if log.log_start_offset == log.log_end_offset:
        assert log.epochs.entries == []
        assert log.producers.entries == {}
        return "empty"
    assert log.segments.first.base_offset == 0
    assert log.epochs.latest_epoch == (log.log_end_offset - 1) // 6
    assert log.producers.entries[OLD_PRODUCER].last_data_offset == log.log_end_offset - 1
    return "old"


def test_disk_failure_during_a_tier_start_fails_the_log(fs: FailingPower) -> None:
    log = old_log(fs)
    fs.fail("sync", errno.EIO, path_part=".snapshot")
    with pytest.raises(LogDirFailure):
        begin(log, remote_log_start())
    with pytest.raises(LogDirFailure):
        log.read(0, 1000, 1)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"log_start_offset": 40}, "no offset is remote"),
        ({"epochs": ()}, "leader epochs"),
        ({"epochs": (LeaderEpochEntry(LeaderEpoch(1), 0), LeaderEpochEntry(LeaderEpoch(2), 40))}, "leader epochs"),
        ({"producers": ProducerState()}, "producer state ends at offset 0"),
    ],
)
def test_contradicting_tier_start_is_refused(changes: dict[str, object], complaint: str) -> None:
    good = remote_log_start()
    fields = {name: getattr(good, name) for name in ("next_offset", "log_start_offset", "epochs", "producers")}
    with pytest.raises(ValueError, match=complaint):
        RemoteLogStart(**{**fields, **changes})
