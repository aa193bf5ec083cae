"""The effects of a crash, one by one, and their repair at the next start (LogLoader)."""

import contextlib
import struct
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from protocol.ids import LeaderEpoch
from protocol.records.batch import parse_header
from protocol.records.builder import Record, build_batch
from protocol.records.control import ControlType, end_transaction_marker
from storage.config import CleanupPolicy, LogConfig
from storage.errors import LogDirFailure
from storage.files import join, read_file, write_file
from storage.log import Log
from storage.producer_state import Origin
from storage.recovery import LostRecords
from storage.segment import CLEANED_SUFFIX, LogSegment
from tests.support.fakes.memory_files import MemoryFileSystem, Operation

NOW = 1_700_000_000_000
SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)
COMPACTED = LogConfig(segment_bytes=400, index_interval_bytes=100, cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
DIRECTORY = "t-0"


def opened(
    fs: MemoryFileSystem,
    *,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    config: LogConfig = SMALL,
) -> Log:
    return Log.open(
        fs,
        DIRECTORY,
        config,
        now_ms=NOW,
        clean_shutdown=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
    )


def filled(fs: MemoryFileSystem, batches: int = 10, *, clean: bool = True, config: LogConfig = SMALL) -> list[bytes]:
    """Write a closed log of one-record batches with a producer, 5 per segment; return the batches."""
    log = opened(fs, clean=True, config=config)
    written = []
    for n in range(batches):
        data = bytearray(build_batch([Record(NOW + n, b"k", b"v")], producer_id=1, producer_epoch=0, base_sequence=n))
        log.append_as_leader(data, LeaderEpoch(n // 4), now_ms=NOW)
        written.append(bytes(data))
    log.close(clean=clean)
    return written


def name(base: int, suffix: str = ".log") -> str:
    return join(DIRECTORY, f"{base:020d}{suffix}")


def content(log: Log) -> bytes:
    return b"".join(segment.file.read(0, segment.size) for segment in log.segments)


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


# -- the tail ------------------------------------------------------------------------------------------------------


def cut_short(data: bytes) -> bytes:
    return data[:-1]


def flipped(data: bytes) -> bytes:
    return data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]


def header_only(data: bytes) -> bytes:
    return data + data[:61]


def zeros(data: bytes) -> bytes:
    return data + bytes(1000)


def garbage(data: bytes) -> bytes:
    return data + b"\xff" * 100


@pytest.mark.parametrize(("damage", "lost"), [(cut_short, 1), (flipped, 1), (header_only, 0), (zeros, 0), (garbage, 0)])
def test_corrupt_tail_is_truncated_to_a_batch_boundary(
    fs: MemoryFileSystem, damage: Callable[[bytes], bytes], lost: int
) -> None:
    written = filled(fs, 7)
    last = 5
    write_file(fs, name(last), damage(read_file(fs, name(last))), sync=False)
    log = opened(fs)
    assert content(log) == b"".join(written[: 7 - lost])
    assert log.log_end_offset == 7 - lost
    assert log.recovery.cut_bytes + log.recovery.preallocated_bytes > 0
    assert bool(log.recovery.preallocated_bytes) == (damage is zeros)
    assert fs.size(name(last)) == log.active_segment.size
    assert log.producers.entries[1].last_sequence == 6 - lost


def test_rest_of_a_preallocated_file_is_no_damage(fs: MemoryFileSystem) -> None:
    written = filled(fs, 7, clean=False, config=replace(SMALL, preallocate=True))
    assert fs.size(name(5)) == SMALL.segment_bytes
    log = opened(fs, config=replace(SMALL, preallocate=True))
    assert content(log) == b"".join(written)
    assert (log.recovery.cut_bytes, log.recovery.damaged) == (0, [])
    assert fs.size(name(5)) == log.active_segment.size


def test_undone_cut_of_a_preallocated_file_loses_no_segment(fs: MemoryFileSystem) -> None:
    written = filled(fs, 12)
    for base in (0, 5):
        write_file(fs, name(base), zeros(read_file(fs, name(base))), sync=False)
    log = opened(fs)
    assert content(log) == b"".join(written)
    assert bases(log) == [0, 5, 10]
    assert log.recovery.preallocated_bytes == 2_000


def test_missing_batches_in_a_preallocated_file_truncate_the_log(fs: MemoryFileSystem) -> None:
    written = filled(fs, 12)
    data = read_file(fs, name(5))
    write_file(fs, name(5), data[: -len(written[9])] + bytes(1_000), sync=False)
    log = opened(fs)
    assert content(log) == b"".join(written[:9])
    assert bases(log) == [0, 5]


def test_corruption_within_a_segment_truncates_the_log(fs: MemoryFileSystem) -> None:
    written = filled(fs, 20)
    size = len(written[0])
    data = bytearray(read_file(fs, name(5)))
    data[2 * size + 65] ^= 1
    write_file(fs, name(5), data, sync=False)
    log = opened(fs)
    assert content(log) == b"".join(written[:7])
    assert bases(log) == [0, 5]
    assert log.recovery.removed_segments == [15, 10]
    assert log.epochs.entries == [(0, 0), (1, 4)]
    assert not [entry for entry in fs.list(DIRECTORY) if entry > f"{10:020d}" and entry[0] == "0"]


def test_recovery_skips_segments_below_the_recovery_point(fs: MemoryFileSystem) -> None:
    written = filled(fs, 20)
    size = len(written[0])
    log = opened(fs, recovery_point=16)
    assert log.recovery.scanned_bytes == 5 * size
    assert log.recovery_point == 16
    log.close()
    log = opened(fs, recovery_point=15)
    assert log.recovery.scanned_bytes == 10 * size


def test_missing_end_of_a_closed_segment_truncates_the_log(fs: MemoryFileSystem) -> None:
    """The file of the next segment exists without the end of this one; recovery leaves no hole."""
    written = filled(fs, 12)
    size = len(written[0])
    fs.open(name(5)).truncate(3 * size)
    log = opened(fs, recovery_point=5)
    assert content(log) == b"".join(written[:8])
    assert bases(log) == [0, 5]


def test_gap_left_by_compaction_does_not_truncate_the_log(fs: MemoryFileSystem) -> None:
    written = filled(fs, 12, config=COMPACTED)
    size = len(written[0])
    data = read_file(fs, name(5))
    write_file(fs, name(5), data[: 2 * size] + data[3 * size : 4 * size], sync=False)
    log = opened(fs, recovery_point=5, config=COMPACTED)
    assert bases(log) == [0, 5, 10]
    assert log.log_end_offset == 12


def test_descending_offsets_are_corruption(fs: MemoryFileSystem) -> None:
    written = filled(fs, 7)
    write_file(fs, name(5), written[5] + written[4], sync=False)
    assert opened(fs).log_end_offset == 6


# -- indexes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("base", [0, 5, 10])
def test_lost_indexes_are_rebuilt(fs: MemoryFileSystem, clean: bool, suffix: str, base: int) -> None:
    written = filled(fs, 12)
    entries = read_file(fs, name(base, suffix))
    fs.remove(name(base, suffix))
    log = opened(fs, clean=clean, recovery_point=12)
    assert content(log) == b"".join(written)
    log.close()
    if suffix == ".index":
        assert entries == read_file(fs, name(base, suffix))
    assert log.producers.entries[1].last_sequence == 11
    found = log.segments.floor(base)
    assert found is not None
    assert found.find(base + 1) == len(written[0])


@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        (".index", b""),
        (".index", struct.pack(">ii", 3, 10**6)),
        (".index", struct.pack(">ii", -4, 0)),
        (".index", struct.pack(">ii", 5, 0)),
        (".index", struct.pack(">ii", 3, 0) + b"x"),
        (".timeindex", struct.pack(">qi", 1, 5)),
        (".timeindex", struct.pack(">qi", 1, -1)),
        (".timeindex", struct.pack(">qi", 1, 3) + b"x"),
        (".timeindex", bytes(24)),
    ],
)
def test_implausible_index_is_rebuilt(fs: MemoryFileSystem, suffix: str, content: bytes) -> None:
    filled(fs, 12)
    entries = read_file(fs, name(0, suffix))
    write_file(fs, name(0, suffix), content, sync=False)
    log = opened(fs, recovery_point=12)
    assert log.recovery.damaged == [0]
    assert read_file(fs, name(0, suffix)) == entries


def test_kafkas_preallocated_index_is_trimmed(fs: MemoryFileSystem) -> None:
    filled(fs, 12, clean=False)
    for suffix in (".index", ".timeindex"):
        data = read_file(fs, name(10, suffix))
        write_file(fs, name(10, suffix), data + bytes(1200), sync=False)
    log = opened(fs)
    log.close()
    assert [offset for offset, _ in log.active_segment.offset_index] == []
    assert fs.size(name(10, ".index")) == 0
    assert fs.size(name(10, ".timeindex")) == 12


def test_unsynced_indexes_of_a_segment_that_ends_at_the_recovery_point_are_rebuilt(fs: MemoryFileSystem) -> None:
    """The segment was flushed while active, and finished afterwards."""
    filled(fs, 12)
    entries = read_file(fs, name(5, ".index"))
    write_file(fs, name(5, ".index"), bytes(len(entries)), sync=False)
    log = opened(fs, recovery_point=10)
    assert bases(log) == [0, 5, 10]
    assert read_file(fs, name(5, ".index")) == entries


def test_index_rebuilt_below_the_recovery_point_is_synced(fs: MemoryFileSystem) -> None:
    filled(fs, 12)
    fs.remove(name(0, ".index"))
    fs.log.clear()
    opened(fs, clean=True)
    assert ("sync", name(0, ".index")) in fs.log


def test_empty_index_is_rebuilt_even_after_a_clean_shutdown(fs: MemoryFileSystem) -> None:
    filled(fs, 12)
    entries = read_file(fs, name(0, ".index"))
    write_file(fs, name(0, ".index"), b"", sync=False)
    assert opened(fs, clean=True).recovery.damaged == [0]
    assert read_file(fs, name(0, ".index")) == entries


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_indexes_of_an_empty_segment_are_emptied_after_a_clean_shutdown(fs: MemoryFileSystem, suffix: str) -> None:
    """A truncation leaves its cut of the indexes unsynced, and so does the close of a log without records."""
    filled(fs, 3)
    stale = struct.pack(">hqqqq", 0, 1, 0, 0, 0) if suffix == ".txnindex" else read_file(fs, name(0, ".timeindex"))
    log = opened(fs, clean=True)
    log.truncate_to(0, now_ms=NOW)
    log.close()
    write_file(fs, name(0, suffix), stale[: 8 if suffix == ".index" else None], sync=True)
    (segment,) = opened(fs, clean=True).segments
    assert (list(segment.offset_index), list(segment.time_index), segment.txn_index.entries) == ([], [], [])


def test_index_without_a_segment_is_removed(fs: MemoryFileSystem) -> None:
    filled(fs, 3)
    for suffix in (".index", ".timeindex", ".txnindex"):
        write_file(fs, name(77, suffix), b"", sync=False)
    opened(fs, clean=True)
    assert not [entry for entry in fs.list(DIRECTORY) if entry.startswith(f"{77:020d}")]


def test_transaction_index_is_rebuilt_for_transactions_that_span_segments(fs: MemoryFileSystem) -> None:
    log = opened(fs, clean=True)
    for n in range(4):
        data = build_batch(
            [Record(NOW, b"k", b"v")], producer_id=1, producer_epoch=0, base_sequence=n, transactional=True
        )
        log.append_as_leader(data, LeaderEpoch(0), now_ms=NOW)
        log.roll(NOW)
    marker = end_transaction_marker(ControlType.ABORT, 1, 0, 0, NOW)
    log.append_as_leader(marker, LeaderEpoch(0), now_ms=NOW, origin=Origin.COORDINATOR)
    log.flush()
    log.close(clean=False)
    write_file(fs, name(4, ".txnindex"), b"x" * 34, sync=False)
    again = opened(fs, recovery_point=4)
    assert again.aborted_transactions(0, 5) == [(1, 0, 4, 5)]
    assert again.producers.open_transactions == {}


# -- lost records --------------------------------------------------------------------------------------------------


def rot(fs: MemoryFileSystem, base: int, position: int) -> None:
    """Flip a bit of a segment, and lose its offset index."""
    data = bytearray(read_file(fs, name(base)))
    data[position] ^= 1
    write_file(fs, name(base), bytes(data), sync=True)
    fs.remove(name(base, ".index"))
    fs.sync_directory(DIRECTORY)


@pytest.mark.parametrize("clean", [True, False])
def test_rot_below_the_recovery_point_leaves_no_hole_and_is_reported(fs: MemoryFileSystem, clean: bool) -> None:
    written = filled(fs, 20)
    size = len(written[0])
    rot(fs, 5, 2 * size + 65)
    log = opened(fs, clean=clean, recovery_point=20)
    assert content(log) == b"".join(written[:7])
    assert (bases(log), log.log_end_offset, log.recovery_point) == ([0, 5], 7, 7)
    assert log.recovery.lost == LostRecords(7, 20, name(5), 2 * size)
    assert log.recovery.removed_segments == [15, 10]
    assert log.epochs.entries == [(0, 0), (1, 4)]
    assert log.producers.entries[1].last_sequence == 6


def test_torn_batch_above_the_recovery_point_is_no_loss(fs: MemoryFileSystem) -> None:
    filled(fs, 7)
    write_file(fs, name(5), read_file(fs, name(5))[:-1], sync=False)
    assert opened(fs, recovery_point=6).recovery.lost is None


def test_torn_batch_below_the_recovery_point_is_reported(fs: MemoryFileSystem) -> None:
    size = len(filled(fs, 7)[0])
    write_file(fs, name(5), read_file(fs, name(5))[:-1], sync=False)
    for clean in (False, True):
        assert opened(fs, recovery_point=7, clean=clean).recovery.lost == LostRecords(6, 7, name(5), size)


def test_lost_segments_are_reported(fs: MemoryFileSystem) -> None:
    filled(fs, 7)
    for base in (0, 5):
        fs.remove(name(base))
    assert opened(fs, recovery_point=7).recovery.lost == LostRecords(0, 7, DIRECTORY, 0)


def test_records_above_the_recovery_point_before_the_epochs_were_lost_are_no_loss(fs: MemoryFileSystem) -> None:
    filled(fs, 7)
    write_file(fs, join(DIRECTORY, "leader-epoch-checkpoint"), b"nonsense", sync=False)
    assert opened(fs, recovery_point=7).recovery.lost is None


def test_rot_below_the_log_start_offset_is_no_loss(fs: MemoryFileSystem) -> None:
    written = filled(fs, 20)
    rot(fs, 5, 65)
    log = opened(fs, recovery_point=20, log_start_offset=12)
    assert (log.log_end_offset, log.recovery.lost) == (20, None)
    assert bytes(log.read(12, 1, 20).data) == written[12]


@pytest.mark.parametrize("step", range(36))
def test_interrupted_cut_of_a_damaged_log_leaves_no_hole(step: int) -> None:
    """The recovery of a damaged log fails at one of its operations, and the power fails."""
    fs = MemoryFileSystem()
    filled(fs, 25)
    rot(fs, 5, 65)
    operations: tuple[Operation, ...] = ("remove", "sync_directory", "sync", "truncate")
    fs.fail(operations[step % 4], skip=step // 4)
    with contextlib.suppress(LogDirFailure):
        opened(fs, recovery_point=25)
    fs.faults.clear()
    fs.crash(Random(step))
    log = opened(fs, recovery_point=25)
    offsets = [header.base_offset for segment in log.segments for _, header in segment.headers()]
    assert offsets == list(range(log.log_end_offset))
    assert log.recovery.lost is not None
    assert (log.recovery.lost.first_offset, log.recovery.lost.end_offset) == (log.log_end_offset, 25)


def with_epoch(fs: MemoryFileSystem, base: int, position: int, epoch: int) -> None:
    """Change the leader epoch of a batch, which the checksum of the batch does not cover, and lose the index."""
    data = bytearray(read_file(fs, name(base)))
    data[position + 12 : position + 16] = epoch.to_bytes(4)
    write_file(fs, name(base), bytes(data), sync=True)
    fs.remove(name(base, ".index"))


@pytest.mark.parametrize("epoch", [0, 3])
@pytest.mark.parametrize("clean", [True, False])
def test_wrong_epoch_below_the_recovery_point_is_damage(fs: MemoryFileSystem, epoch: int, clean: bool) -> None:
    written = filled(fs, 20)
    with_epoch(fs, 5, len(written[0]), epoch)
    log = opened(fs, clean=clean, recovery_point=20)
    assert (log.log_end_offset, log.epochs.entries) == (6, [(0, 0), (1, 4)])
    assert log.recovery.lost == LostRecords(6, 20, name(5), len(written[0]))


def test_decreasing_epoch_above_the_recovery_point_is_damage(fs: MemoryFileSystem) -> None:
    written = filled(fs, 20)
    with_epoch(fs, 5, len(written[0]), 0)
    log = opened(fs, recovery_point=5)
    assert (log.log_end_offset, log.epochs.entries, log.recovery.lost) == (6, [(0, 0), (1, 4)], None)


# -- unfinished changes --------------------------------------------------------------------------------------------


def test_deleted_files_are_removed_but_not_the_metadata_logs(fs: MemoryFileSystem) -> None:
    filled(fs, 3)
    for suffix in (".log.deleted", ".snapshot.deleted", "-0000000001.checkpoint.deleted"):
        write_file(fs, name(50, suffix), b"", sync=False)
    opened(fs, clean=True)
    assert [entry for entry in fs.list(DIRECTORY) if "deleted" in entry] == [f"{50:020d}-0000000001.checkpoint.deleted"]


def cleaned_segment(fs: MemoryFileSystem, log: Log, base: int, batches: list[bytes]) -> LogSegment:
    segment = LogSegment.create(fs, DIRECTORY, base, log.config, created_ms=NOW, suffix=CLEANED_SUFFIX)
    for batch in batches:
        header = parse_header(batch)
        segment.append(batch, header.last_offset, header.max_timestamp)
    segment.finish()
    return segment


@pytest.mark.parametrize("step", range(40))
def test_interrupted_swap_leaves_the_old_or_the_new_segments(step: int) -> None:
    """Compaction replaces the first two segments by one with every other batch."""
    fs = MemoryFileSystem()
    written = filled(fs, 12, config=COMPACTED)
    log = opened(fs, clean=True, config=COMPACTED)
    kept = written[0:10:2]
    replaced = list(log.segments)[:2]
    cleaned = cleaned_segment(fs, log, 0, kept)
    operations: tuple[Operation, ...] = ("rename", "sync_directory", "sync")
    fs.fail(operations[step % 3], skip=step // 3)
    with contextlib.suppress(LogDirFailure):
        log.replace_segments(cleaned, replaced)
    fs.faults.clear()
    fs.crash(Random(step))
    again = opened(fs, recovery_point=12, config=COMPACTED)
    old, new = b"".join(written), b"".join(kept + written[10:])
    assert content(again) in ((old, new) if log.failure else (new,))
    assert [entry for entry in fs.list(DIRECTORY) if entry.endswith((".cleaned", ".swap", ".deleted"))] == []
    assert again.log_end_offset == 12


def test_replaced_segments_are_read_at_once(fs: MemoryFileSystem) -> None:
    written = filled(fs, 12, config=COMPACTED)
    log = opened(fs, clean=True, config=COMPACTED)
    replaced = list(log.segments)[:2]
    for segment in log.replace_segments(cleaned_segment(fs, log, 0, written[1:10:2]), replaced):
        segment.remove_files()
    assert bases(log) == [0, 10]
    assert bytes(log.read(0, 10_000, 12).data) == b"".join(written[1:10:2])
    assert bytes(log.read(10, 10_000, 12).data) == b"".join(written[10:])


# -- snapshots, epochs, log start ----------------------------------------------------------------------------------


def test_snapshots_above_the_recovery_point_are_discarded(fs: MemoryFileSystem) -> None:
    """A snapshot above the recovery point may belong to a truncated history; recovery replays the batches instead."""
    filled(fs, 7)
    assert fs.exists(name(5, ".snapshot"))
    other = MemoryFileSystem()
    filled(other, 3)
    write_file(fs, name(5, ".snapshot"), read_file(other, name(3, ".snapshot")), sync=False)
    assert opened(fs, recovery_point=0).producers.entries[1].last_sequence == 6


def test_corrupt_snapshots_are_removed_and_an_older_one_loaded(fs: MemoryFileSystem) -> None:
    filled(fs, 12)
    write_file(fs, name(12, ".snapshot"), b"nonsense", sync=False)
    write_file(fs, name(10, ".snapshot"), b"", sync=False)
    log = opened(fs, clean=True)
    assert log.producers.entries[1].last_sequence == 11
    assert log.snapshots.offsets == [5]


def test_clean_log_without_snapshots_has_no_producers(fs: MemoryFileSystem) -> None:
    filled(fs, 7)
    for base in (5, 7):
        fs.remove(name(base, ".snapshot"))
    assert opened(fs, clean=True).producers.entries == {}


def test_corrupt_epoch_checkpoint_is_rebuilt_from_batches(fs: MemoryFileSystem) -> None:
    filled(fs, 12)
    write_file(fs, join(DIRECTORY, "leader-epoch-checkpoint"), b"nonsense", sync=False)
    assert opened(fs, clean=True).epochs.entries == [(0, 0), (1, 4), (2, 8)]


def test_epochs_beyond_the_log_end_are_dropped(fs: MemoryFileSystem) -> None:
    filled(fs, 7)
    write_file(fs, join(DIRECTORY, "leader-epoch-checkpoint"), b"0\n3\n0 0\n1 4\n9 50\n", sync=False)
    assert opened(fs, clean=True).epochs.entries == [(0, 0), (1, 4)]


def test_log_that_ends_below_its_start_is_recreated_there(fs: MemoryFileSystem) -> None:
    filled(fs, 7)
    log = opened(fs, clean=True, log_start_offset=100)
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (100, 100, [100])
    assert (log.epochs.entries, log.size_bytes) == ([], 0)


def test_log_starts_at_the_checkpoint_or_the_first_segment(fs: MemoryFileSystem) -> None:
    filled(fs, 12)
    log = opened(fs, clean=True, log_start_offset=7)
    assert (log.log_start_offset, log.epochs.entries) == (7, [(1, 7), (2, 8)])
    log.close()
    for suffix in (".log", ".index", ".timeindex"):
        fs.remove(name(0, suffix))
    assert opened(fs, clean=True, log_start_offset=3).log_start_offset == 5


def test_batches_below_the_log_start_set_no_epochs(fs: MemoryFileSystem) -> None:
    """The whole log was deleted and continued with a history of lower epochs; batches below belong to the old
    history.
    """
    log = opened(fs, clean=True)
    for epoch in (7, 3, 5):
        if epoch == 3:
            log.advance_high_watermark(1)
            log.maybe_increment_log_start_offset(1)
        log.append_as_leader(bytearray(build_batch([Record(NOW, b"k", b"v")])), LeaderEpoch(epoch), now_ms=NOW)
    assert log.epochs.entries == [(3, 1), (5, 2)]
    log.close(clean=False)
    assert opened(fs, log_start_offset=1).epochs.entries == [(3, 1), (5, 2)]


@pytest.mark.parametrize("is_flushed", [True, False])
@pytest.mark.parametrize("deleted", [3, 5])
def test_crash_after_truncation_does_not_restore_deleted_records(
    fs: MemoryFileSystem, deleted: int, *, is_flushed: bool
) -> None:
    """The log continues with lower epochs than those of its deleted records; the checkpoint of its log start offset is
    older than the deletion.
    """
    log = opened(fs, clean=True)
    for _ in range(5):
        log.append_as_leader(bytearray(build_batch([Record(NOW, b"k", b"v")])), LeaderEpoch(7), now_ms=NOW)
    log.flush()
    log.advance_high_watermark(deleted)
    log.maybe_increment_log_start_offset(deleted)
    log.truncate_to(3, now_ms=NOW)
    for _ in range(2):
        log.append_as_leader(bytearray(build_batch([Record(NOW, b"k", b"v")])), LeaderEpoch(4), now_ms=NOW)
    if is_flushed:
        log.flush()
    log.close(clean=False)
    log = opened(fs, recovery_point=log.recovery_point, log_start_offset=0)
    assert (log.log_start_offset, log.log_end_offset, log.epochs.entries) == (3, 5, [(4, 3)])


@pytest.mark.parametrize("recovery_point", [12, 7])
@pytest.mark.parametrize(
    ("log_start", "epochs"), [(0, [(0, 0), (1, 4), (2, 8)]), (5, [(1, 5), (2, 8)]), (9, [(2, 9)]), (10, [(2, 10)])]
)
def test_epochs_of_records_restored_by_a_crash_are_rebuilt(
    fs: MemoryFileSystem, recovery_point: int, log_start: int, epochs: list[tuple[int, int]]
) -> None:
    """A flush has written the epochs from 9 on; the checkpoint of the log start offset is older, or newer."""
    filled(fs, 12)
    log = opened(fs, clean=True)
    log.advance_high_watermark(9)
    log.maybe_increment_log_start_offset(9)
    log.flush()
    log.close(clean=False)
    assert opened(fs, recovery_point=recovery_point, log_start_offset=log_start).epochs.entries == epochs


def test_log_without_its_first_offsets_has_no_epochs_there(fs: MemoryFileSystem) -> None:
    """Compaction removed them: an epoch does not begin before its first batch."""
    log = opened(fs, clean=True, config=COMPACTED)
    data = build_batch([Record(NOW, b"k", b"v")], base_offset=3, leader_epoch=LeaderEpoch(4))
    log.append_as_follower(data, now_ms=NOW)
    log.close(clean=False)
    assert opened(fs, recovery_point=4, config=COMPACTED).epochs.entries == [(4, 3)]


def test_torn_tail_is_truncated_even_after_a_clean_shutdown(fs: MemoryFileSystem) -> None:
    """A torn tail follows a clean shutdown if the directory was copied while the log was written."""
    written = filled(fs, 7)
    write_file(fs, name(5), read_file(fs, name(5))[:-1], sync=False)
    assert content(opened(fs, clean=True)) == b"".join(written[:6])


def test_foreign_files_are_kept(fs: MemoryFileSystem) -> None:
    filled(fs, 3)
    for entry in (
        "quorum-state",
        "notes.txt",
        "leader-epoch-checkpoint.tmp",
        "00000000000000000002-0000000001.checkpoint",
    ):
        write_file(fs, join(DIRECTORY, entry), b"mine", sync=False)
    before = set(fs.list(DIRECTORY))
    assert opened(fs, clean=True).log_end_offset == 3
    assert before <= set(fs.list(DIRECTORY))


@pytest.mark.parametrize("seed", range(10))
def test_log_emptied_at_its_start_stays_empty(seed: int) -> None:
    fs = MemoryFileSystem()
    filled(fs, batches=3)
    log = opened(fs, clean=True)
    log.truncate_fully_and_start_at(0, now_ms=NOW)
    fs.crash(Random(seed))
    assert opened(fs).log_end_offset == 0
