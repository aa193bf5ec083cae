"""The metadata log on a faulty disk: operations, recovery, and power failures at any point (KIP-630)."""

from collections.abc import Callable
from random import Random

import pytest

from broker.quorum.identity import SnapshotId
from broker.quorum.ready import Append, DiscardPart, FinishPart, StartAt, Trim, TruncateTo, WritePart
from broker.quorum.settings import StoredSnapshot
from broker.runtime.quorum.metadata_log import RaftMetadataLog, SnapshotNotFound
from broker.runtime.quorum.metadata_recovery import UnusableMetadataLog
from protocol.compiler import encode_bytes
from protocol.ids import LeaderEpoch, Offset
from protocol.messages.common_records import KRaftVersionRecord, SnapshotHeaderRecord, VotersRecord, VotersRecordVoter
from protocol.records.batch import iter_headers
from protocol.records.builder import Record, build_batch
from protocol.records.control import ControlType, control_batch
from storage.config import LogConfig
from storage.errors import LogDirFailure, OffsetOutOfRange, UnexpectedOffset
from storage.files import read_file, write_file
from storage.log_snapshots import FORMATTED, CheckpointId, checkpoint_name
from tests.support.fakes.memory_files import MemoryFileSystem
from tests.support.fakes.power_loss import FailingPower, lose_power_in
from tests.support.quorum_values import (
    make_append,
    make_control_record,
    make_epoch_entry,
    make_recovered,
    make_snapshot_id,
)

NOW = 1_700_000_000_000
DIRECTORY = "meta/__cluster_metadata-0"
SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100)


def opened(fs: MemoryFileSystem) -> RaftMetadataLog:
    fs.make_directory("meta")
    fs.sync_directory(".")
    return RaftMetadataLog.open(fs, DIRECTORY, SMALL, NOW)


def batch(base: int, epoch: int, count: int = 1) -> bytes:
    records = [Record(NOW + base, None, b"record %d of %d" % (base + n, epoch)) for n in range(count)]
    return build_batch(records, base_offset=base, leader_epoch=LeaderEpoch(epoch))


def voters(*ids: int) -> VotersRecord:
    return VotersRecord(voters=[VotersRecordVoter(voter_id=voter_id) for voter_id in ids])


def control(base: int, epoch: int, *ids: int) -> bytes:
    """Return a control batch with kraft.version 1 at `base`, followed by voters."""
    records = [
        (ControlType.KRAFT_VERSION, encode_bytes(KRaftVersionRecord(kraft_version=1), 0)),
        (ControlType.KRAFT_VOTERS, encode_bytes(voters(*ids), 0)),
    ]
    return control_batch(records, NOW, base_offset=base, leader_epoch=LeaderEpoch(epoch))


def append(log: RaftMetadataLog, *batches: bytes) -> None:
    data = b"".join(batches)
    headers = [header for _, header in iter_headers(data)]
    log.perform(make_append(data, headers[-1].next_offset, headers[-1].leader_epoch), NOW)


def fill(log: RaftMetadataLog, end: int, epoch: int) -> None:
    for base in range(log.log_end_offset, end):
        append(log, batch(base, epoch))
    log.sync()


def snapshot_bytes(id: SnapshotId, *voter_ids: int, body: int = 1) -> bytes:
    header = encode_bytes(SnapshotHeaderRecord(last_contained_log_timestamp=NOW + id.end_offset), 0)
    opening = [(ControlType.SNAPSHOT_HEADER, header)]
    if voter_ids:
        opening.append((ControlType.KRAFT_VERSION, encode_bytes(KRaftVersionRecord(kraft_version=1), 0)))
        opening.append((ControlType.KRAFT_VOTERS, encode_bytes(voters(*voter_ids), 0)))
    first = len(opening)
    data = build_batch([Record(NOW, None, b"state")] * body, base_offset=first, leader_epoch=id.epoch)
    footer = control_batch(
        [(ControlType.SNAPSHOT_FOOTER, bytes(3))], NOW, base_offset=first + body, leader_epoch=id.epoch
    )
    return control_batch(opening, NOW, leader_epoch=id.epoch) + data + footer


def generate(log: RaftMetadataLog, id: SnapshotId, *voter_ids: int) -> StoredSnapshot:
    writer = log.begin_snapshot(id)
    writer.append(snapshot_bytes(id, *voter_ids))
    return writer.commit(NOW + id.end_offset)


def install(log: RaftMetadataLog, id: SnapshotId, *voter_ids: int) -> None:
    """Write and finish a snapshot as a follower does after fetching all pages."""
    content = snapshot_bytes(id, *voter_ids)
    for position in range(0, len(content), 100):
        log.perform(WritePart(id, position, content[position : position + 100]), NOW)
    assert log.perform(FinishPart(id, len(content)), NOW) is not None
    log.perform(StartAt(id), NOW)


def stored(id: SnapshotId, *voter_ids: int) -> StoredSnapshot:
    return StoredSnapshot(id, len(snapshot_bytes(id, *voter_ids)), NOW + id.end_offset)


def path(id: SnapshotId) -> str:
    return f"{DIRECTORY}/{checkpoint_name(CheckpointId(*id))}"


def place(fs: MemoryFileSystem, id: SnapshotId, content: bytes | None = None) -> None:
    """Write a snapshot file without the log."""
    write_file(fs, path(id), snapshot_bytes(id) if content is None else content, sync=True)
    fs.sync_directory(DIRECTORY)


def damage(fs: MemoryFileSystem, id: SnapshotId) -> None:
    place(fs, id, read_file(fs, path(id))[:-1])


def content(log: RaftMetadataLog) -> bytes:
    """Return all batches."""
    data, offset = b"", log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, 2**20, log.log_end_offset)
        data, offset = data + bytes(found.data), found.next_offset
    return data


def snapshots(log: RaftMetadataLog) -> list[SnapshotId]:
    return [snapshot.id for snapshot in log.recovered.snapshots]


def names(fs: MemoryFileSystem, suffix: str) -> list[str]:
    return [name for name in fs.list(DIRECTORY) if name.endswith(suffix)]


# Operations


def test_new_log_is_empty() -> None:
    assert opened(MemoryFileSystem()).recovered == make_recovered(None, 0, 0, (), (), ())


def test_log_has_the_metadata_topic_id() -> None:
    fs = MemoryFileSystem()
    opened(fs).close()
    text = read_file(fs, f"{DIRECTORY}/partition.metadata")
    assert bytes(text).split() == [b"version:", b"0", b"topic_id:", b"AAAAAAAAAAAAAAAAAAAAAQ"]


def test_synced_records_survive_a_crash() -> None:
    fs = MemoryFileSystem()
    log = opened(fs)
    append(log, batch(0, 1), batch(1, 1, count=3), batch(4, 2))
    before = content(log)
    assert log.sync() == 5
    fs.crash(Random(1))
    log = opened(fs)
    assert content(log) == before
    assert log.recovered.log_end_offset == 5
    assert log.recovered.epochs == (make_epoch_entry(1, 0), make_epoch_entry(2, 4))
    assert log.recovered.log_bytes == len(before) == log.size_bytes


def test_append_must_continue_the_log() -> None:
    log = opened(MemoryFileSystem())
    append(log, batch(0, 1))
    for wrong in (batch(0, 1), batch(2, 1), batch(1, 1) + batch(3, 1)):
        with pytest.raises(UnexpectedOffset):
            append(log, wrong)
    with pytest.raises(UnexpectedOffset):
        log.perform(make_append(batch(1, 1), 3, 1), NOW)
    assert log.log_end_offset == 1


def test_truncation_removes_records_and_epochs() -> None:
    fs = MemoryFileSystem()
    log = opened(fs)
    fill(log, 12, 1)
    fill(log, 20, 2)
    log.perform(TruncateTo(Offset(11)), NOW)
    fs.crash(Random(1))
    recovered = opened(fs).recovered
    assert recovered.log_end_offset == 11
    assert recovered.epochs == (make_epoch_entry(1, 0),)


def test_trim_deletes_segments_at_the_next_sync() -> None:
    fs = MemoryFileSystem()
    log = opened(fs)
    fill(log, 30, 1)
    old, new = make_snapshot_id(10, 1), make_snapshot_id(25, 1)
    generate(log, old)
    generate(log, new)
    log.perform(Trim(new), NOW)
    assert log.log_start_offset == 25
    with pytest.raises(OffsetOutOfRange):
        log.read(24, 100, 30)
    log.sync()
    assert names(fs, ".checkpoint") == [checkpoint_name(CheckpointId(*new))]
    assert names(fs, ".deleted") == []
    assert min(names(fs, ".log")) > f"{20:020d}.log"
    fs.crash(Random(1))
    log = opened(fs)
    assert log.log_start_offset == 25
    assert snapshots(log) == [new]
    assert log.log_end_offset == 30


def test_trim_deletes_the_segment_rolled_by_the_previous_trim() -> None:
    """The active segment is rolled, so that logs smaller than a segment are trimmed too."""
    fs = MemoryFileSystem()
    fs.make_directory("meta")
    log = RaftMetadataLog.open(fs, DIRECTORY, LogConfig(), NOW)
    for end in (10, 20, 30, 40):
        fill(log, end, 1)
        generate(log, make_snapshot_id(end, 1))
        log.perform(Trim(make_snapshot_id(end, 1)), NOW)
        log.sync()
    assert names(fs, ".log") == [f"{40:020d}.log"]


def test_snapshot_replaces_the_log() -> None:
    fs = MemoryFileSystem()
    log = opened(fs)
    fill(log, 12, 1)
    generate(log, make_snapshot_id(10, 1))
    install(log, make_snapshot_id(500, 4), 1, 2)
    assert (log.log_start_offset, log.log_end_offset) == (500, 500)
    log.sync()
    assert names(fs, ".checkpoint") == [checkpoint_name(CheckpointId(500, LeaderEpoch(4)))]
    fill(log, 505, 4)
    fs.crash(Random(1))
    log = opened(fs)
    assert log.recovered == make_recovered(
        None,
        log_start_offset=500,
        log_end_offset=505,
        epochs=(make_epoch_entry(4, 500),),
        snapshots=(stored(make_snapshot_id(500, 4), 1, 2),),
        control=(make_control_record(499, 1, None), make_control_record(499, None, voters(1, 2))),
        log_bytes=len(content(log)),
    )
    assert content(log) == b"".join(batch(offset, 4) for offset in range(500, 505))


def test_finish_part_returns_the_snapshots_voters() -> None:
    log = opened(MemoryFileSystem())
    id = make_snapshot_id(500, 4)
    data = snapshot_bytes(id, 1, 2)
    log.perform(WritePart(id, 0, memoryview(data)), NOW)
    fetched = log.perform(FinishPart(id, len(data)), NOW)
    assert fetched is not None
    assert fetched.stored == stored(id, 1, 2)
    assert fetched.control == (make_control_record(499, 1, None), make_control_record(499, None, voters(1, 2)))


def test_incomplete_fetched_snapshot_is_deleted() -> None:
    fs = MemoryFileSystem()
    log = opened(fs)
    id, data = make_snapshot_id(500, 4), snapshot_bytes(make_snapshot_id(500, 3))
    log.perform(WritePart(id, 0, data), NOW)
    assert log.perform(FinishPart(id, len(data)), NOW) is None
    log.perform(WritePart(id, 0, data[:10]), NOW)
    log.perform(DiscardPart(id), NOW)
    assert names(fs, ".part") == names(fs, ".checkpoint") == []


def test_fetched_snapshot_with_invalid_voters_is_not_installed() -> None:
    """An installed snapshot would outlive this process, and no later process could start."""
    fs = MemoryFileSystem()
    log = opened(fs)
    id = make_snapshot_id(500, 4)
    data = snapshot_bytes(id, 1, 1)
    log.perform(WritePart(id, 0, data), NOW)
    assert log.perform(FinishPart(id, len(data)), NOW) is None
    assert names(fs, ".part") == names(fs, ".checkpoint") == []


def test_log_cannot_start_at_a_missing_snapshot() -> None:
    with pytest.raises(AssertionError, match="the snapshot is not on disk"):
        opened(MemoryFileSystem()).perform(StartAt(make_snapshot_id(5, 1)), NOW)


def test_snapshots_are_read_by_page_and_by_batch() -> None:
    log = opened(MemoryFileSystem())
    fill(log, 5, 1)
    id = make_snapshot_id(5, 1)
    assert generate(log, id) == stored(id)
    data = snapshot_bytes(id)
    assert log.read_snapshot_page(id, 7, 20) == data[7:27]
    assert log.read_snapshot_page(id, len(data) - 5, 20) == data[-5:]
    assert log.open_snapshot(id).next_chunk() == data
    for read in (
        lambda: log.read_snapshot_page(make_snapshot_id(9, 9), 0, 1),
        lambda: log.open_snapshot(make_snapshot_id(9, 9)),
    ):
        with pytest.raises(SnapshotNotFound):
            read()


def test_abandoned_snapshot_leaves_no_file() -> None:
    fs = MemoryFileSystem()
    writer = opened(fs).begin_snapshot(make_snapshot_id(5, 1))
    writer.append(b"abc")
    assert writer.size == 3
    writer.abandon()
    assert names(fs, ".part") == []


def test_failed_snapshot_write_does_not_fail_the_log() -> None:
    fs = MemoryFileSystem()
    log = opened(fs)
    writer = log.begin_snapshot(make_snapshot_id(1, 1))
    fs.fail("write", path_part=".part")
    with pytest.raises(OSError, match="error"):
        writer.append(b"abc")
    fill(log, 1, 1)


@pytest.mark.parametrize("operation", [WritePart(make_snapshot_id(5, 1), 0, b"a"), make_append(batch(0, 1), 1, 1)])
def test_io_error_fails_the_log_permanently(operation: WritePart | Append) -> None:
    fs = MemoryFileSystem()
    log = opened(fs)
    fs.fail("write")
    for _ in range(2):
        with pytest.raises(LogDirFailure):
            log.perform(operation, NOW)


# Control records


def test_voters_come_from_the_0_0_snapshot_then_from_the_log() -> None:
    fs = MemoryFileSystem()
    log = opened(fs)
    place(fs, make_snapshot_id(*FORMATTED), snapshot_bytes(make_snapshot_id(*FORMATTED), 1))
    append(log, batch(0, 1), control(1, 1, 1, 2))
    log.sync()
    recovered = opened(fs).recovered
    assert recovered.control == (
        make_control_record(-1, 1, None),
        make_control_record(-1, None, voters(1)),
        make_control_record(1, 1, None),
        make_control_record(2, None, voters(1, 2)),
    )
    assert recovered.snapshots == ()


def test_newest_snapshot_replaces_earlier_voter_records() -> None:
    fs = MemoryFileSystem()
    log = opened(fs)
    place(fs, make_snapshot_id(*FORMATTED), snapshot_bytes(make_snapshot_id(*FORMATTED), 1))
    append(log, control(0, 1, 1, 2), control(2, 1, 1, 2, 3), control(4, 1, 2, 3))
    generate(log, make_snapshot_id(2, 1), 1, 2)
    generate(log, make_snapshot_id(4, 1), 1, 2, 3)
    log.sync()
    assert opened(fs).recovered.control == (
        make_control_record(3, 1, None),
        make_control_record(3, None, voters(1, 2, 3)),
        make_control_record(4, 1, None),
        make_control_record(5, None, voters(2, 3)),
    )


def test_damaged_0_0_snapshot_stops_the_start() -> None:
    fs = MemoryFileSystem()
    opened(fs)
    place(fs, make_snapshot_id(*FORMATTED), b"?")
    with pytest.raises(UnusableMetadataLog, match="which formatting wrote"):
        opened(fs)


def test_undecodable_control_batch_stops_the_start() -> None:
    fs = MemoryFileSystem()
    log = opened(fs)
    append(log, control_batch([(ControlType.KRAFT_VOTERS, b"")], NOW, leader_epoch=LeaderEpoch(1)))
    log.sync()
    with pytest.raises(UnusableMetadataLog, match="at offset 0"):
        opened(fs)


def test_data_batches_are_not_read_for_control_records() -> None:
    fs = MemoryFileSystem()
    log = opened(fs)
    append(log, build_batch([Record(NOW, None, b"\xff" * 30)], leader_epoch=LeaderEpoch(1)), control(1, 1, 1))
    log.sync()
    assert [record.offset for record in opened(fs).recovered.control] == [1, 2]


# Recovery


def test_temporary_files_are_removed() -> None:
    fs = MemoryFileSystem()
    log = opened(fs)
    log.perform(WritePart(make_snapshot_id(5, 1), 0, b"abc"), NOW)
    log.begin_snapshot(make_snapshot_id(5, 1)).append(b"abc")
    write_file(fs, path(make_snapshot_id(3, 1)) + ".deleted", b"abc", sync=True)
    opened(fs)
    assert [name for name in fs.list(DIRECTORY) if "checkpoint." in name] == []


def test_snapshot_newer_than_the_log_empties_the_log() -> None:
    fs = MemoryFileSystem()
    fill(opened(fs), 12, 1)
    place(fs, make_snapshot_id(40, 1))
    log = opened(fs)
    assert (log.log_start_offset, log.log_end_offset) == (40, 40)
    assert snapshots(log) == [make_snapshot_id(40, 1)]


def test_snapshot_that_contradicts_the_log_replaces_it() -> None:
    """Snapshots are committed; the end of the log may be from a deposed leader."""
    for id in (make_snapshot_id(12, 2), make_snapshot_id(8, 2), make_snapshot_id(12, 3)):
        fs = MemoryFileSystem()
        log = opened(fs)
        fill(log, 5, 1)
        fill(log, 12, 4)
        generate(log, make_snapshot_id(5, 1))
        place(fs, id)
        log = opened(fs)
        assert (log.log_start_offset, log.log_end_offset, snapshots(log)) == (id.end_offset, id.end_offset, [id])


def test_snapshots_within_the_log_are_kept() -> None:
    fs = MemoryFileSystem()
    log = opened(fs)
    fill(log, 12, 1)
    fill(log, 20, 2)
    for id in (make_snapshot_id(5, 1), make_snapshot_id(12, 1), make_snapshot_id(20, 2)):
        generate(log, id)
    log = opened(fs)
    assert (log.log_start_offset, log.log_end_offset) == (0, 20)
    assert snapshots(log) == [make_snapshot_id(5, 1), make_snapshot_id(12, 1), make_snapshot_id(20, 2)]


def trimmed_log(fs: MemoryFileSystem) -> SnapshotId:
    """Return segments from an offset above 0 on, and a snapshot at the log start."""
    log = opened(fs)
    fill(log, 30, 1)
    id = generate(log, make_snapshot_id(25, 1)).id
    log.perform(Trim(id), NOW)
    log.sync()
    return id


def test_log_with_a_later_start_and_no_snapshot_stops_the_start() -> None:
    for older in (None, make_snapshot_id(3, 1)):
        fs = MemoryFileSystem()
        fs.remove(path(trimmed_log(fs)))
        if older is not None:
            place(fs, older)
        with pytest.raises(UnusableMetadataLog, match="without a snapshot of the records before"):
            opened(fs)


def test_snapshots_below_the_first_segment_are_removed() -> None:
    fs = MemoryFileSystem()
    id = trimmed_log(fs)
    place(fs, make_snapshot_id(3, 1))
    assert snapshots(opened(fs)) == [id]
    assert names(fs, ".checkpoint") == [checkpoint_name(CheckpointId(*id))]


def test_damaged_snapshot_is_renamed_if_the_log_covers_it() -> None:
    fs = MemoryFileSystem()
    log = opened(fs)
    fill(log, 30, 1)
    generate(log, make_snapshot_id(25, 1))
    damage(fs, make_snapshot_id(25, 1))
    log = opened(fs)
    assert (log.log_start_offset, log.log_end_offset) == (0, 30)
    assert snapshots(log) == []
    assert names(fs, ".damaged") == [checkpoint_name(CheckpointId(25, LeaderEpoch(1))) + ".damaged"]


def test_damaged_snapshot_is_renamed_if_an_older_one_covers_the_log() -> None:
    fs = MemoryFileSystem()
    id = trimmed_log(fs)
    place(fs, make_snapshot_id(28, 1), b"damaged")
    log = opened(fs)
    assert (log.log_start_offset, snapshots(log)) == (25, [id])


@pytest.mark.parametrize("extra", [None, make_snapshot_id(3, 1)])
def test_damaged_snapshot_that_is_needed_stops_the_start(extra: SnapshotId | None) -> None:
    fs = MemoryFileSystem()
    id = trimmed_log(fs)
    damage(fs, id)
    if extra is not None:
        place(fs, extra)
    for _ in range(2):
        with pytest.raises(UnusableMetadataLog, match=r"is damaged: 0*25-0*1\.checkpoint: "):
            opened(fs)
    assert names(fs, ".damaged") == [], "the obstacle to the start stays unchanged"


def test_damaged_snapshot_ahead_of_the_log_stops_the_start() -> None:
    """Records that this node acknowledged would be lost."""
    fs = MemoryFileSystem()
    fill(opened(fs), 12, 1)
    place(fs, make_snapshot_id(40, 1), b"damaged")
    with pytest.raises(UnusableMetadataLog):
        opened(fs)


def test_snapshot_with_invalid_voters_counts_as_damaged() -> None:
    fs = MemoryFileSystem()
    log = opened(fs)
    fill(log, 6, 1)
    generate(log, make_snapshot_id(5, 1), 1, 1)
    assert opened(fs).recovered.snapshots == ()


def test_log_starts_at_its_oldest_snapshot() -> None:
    fs = MemoryFileSystem()
    id = trimmed_log(fs)
    newer = generate(opened(fs), make_snapshot_id(28, 1)).id
    log = opened(fs)
    assert (log.log_start_offset, snapshots(log)) == (25, [id, newer])


@pytest.mark.parametrize("seed", range(20))
def test_recovery_is_idempotent(seed: int) -> None:
    """Recovery also syncs data that the previous process left in the page cache."""
    fs = MemoryFileSystem()
    log = opened(fs)
    for base in range(12):
        append(log, batch(base, 1))
    assert opened(fs).recovered.log_end_offset == 12
    fs.crash(Random(seed))
    assert opened(fs).recovered.log_end_offset == 12


def test_epoch_entries_start_at_the_log_start_offset() -> None:
    fs = MemoryFileSystem()
    log = opened(fs)
    fill(log, 12, 1)
    fill(log, 30, 3)
    id = generate(log, make_snapshot_id(25, 3)).id
    log.perform(Trim(id), NOW)
    log.sync()
    assert opened(fs).recovered.epochs == (make_epoch_entry(3, 25),)


# Power failures


class LogSimulation:
    """A log and its expected content. `committed` is a majority's offset: never lost and never truncated."""

    def __init__(self, seed: int) -> None:
        self.fs = FailingPower()
        self.random = Random(seed)
        self.log = opened(self.fs)
        self.epoch = 1
        self.committed = 0
        self.begin = 0
        self.batches: list[bytes] = []
        """All batches since `begin`, regardless of trims."""
        self.possible: list[list[bytes]] = []
        """The possible log contents after the step in progress, with any outcome."""
        self.newest: SnapshotId | None = None

    def end(self, batches: list[bytes]) -> int:
        if batches:
            return next(iter_headers(batches[-1]))[1].next_offset
        return self.begin

    def epoch_at(self, end_offset: int) -> int | None:
        """Return the epoch before `end_offset` if a batch ends there."""
        headers = [next(iter_headers(data))[1] for data in self.batches]
        return next((header.leader_epoch for header in headers if header.next_offset == end_offset), None)

    # Steps

    def step(self) -> None:
        """Execute one operation with an occasional power failure, then check the log."""
        work = self.random.choice(
            [self.append, self.append, self.append, self.sync, self.sync, self.truncate, self.generate, self.install]
        )()
        self.possible.append(self.batches)
        after = self.random.choice([10**6, self.random.randrange(30)])
        if work is not None and lose_power_in(self.fs, after, self.random, work):
            self.restart()
        elif self.random.random() < 0.1:
            self.fs.crash(self.random)
            self.restart()
        self.possible = []

    def append(self) -> Callable[[], object]:
        self.epoch += self.random.random() < 0.1
        base = self.log.log_end_offset
        more = []
        for _ in range(self.random.randint(1, 3)):
            count = self.random.randint(1, 3)
            is_control = self.random.random() < 0.1
            data = control(base, self.epoch, count) if is_control else batch(base, self.epoch, count)
            more.append(data)
            base += 2 if is_control else count
        self.possible += [self.batches + more[:n] for n in range(len(more))]
        self.batches = self.batches + more
        return lambda: append(self.log, *more)

    def sync(self) -> Callable[[], object]:
        def work() -> None:
            self.log.sync()
            self.committed = self.log.log_end_offset

        return work

    def truncate(self) -> Callable[[], object]:
        keep = [n for n in range(len(self.batches) + 1) if self.end(self.batches[:n]) >= self.committed]
        kept = self.random.choice(keep)
        offset = self.end(self.batches[:kept])
        self.possible += [self.batches[:n] for n in range(kept, len(self.batches) + 1)]
        self.batches = self.batches[:kept]
        return lambda: self.log.perform(TruncateTo(Offset(offset)), NOW)

    def generate(self) -> Callable[[], object] | None:
        """Generate a snapshot below the committed offset, and possibly trim to it."""
        ends = [self.end(self.batches[: n + 1]) for n in range(len(self.batches))]
        ends = [end for end in ends if end <= self.committed and (self.newest is None or end > self.newest.end_offset)]
        if not ends:
            return None
        end = self.random.choice(ends)
        epoch = self.epoch_at(end)
        assert epoch is not None
        id = make_snapshot_id(end, epoch)
        trims = self.random.random() < 0.7

        def work() -> None:
            generate(self.log, id)
            self.newest = id
            if trims:
                self.log.perform(Trim(id), NOW)

        return work

    def install(self) -> Callable[[], object] | None:
        if self.random.random() < 0.7:
            return None
        self.epoch += 1
        end = self.random.randint(self.committed + 1, self.log.log_end_offset + 20)
        id = make_snapshot_id(end, self.epoch)
        self.possible.append(self.batches)
        self.batches = []

        def work() -> None:
            install(self.log, id)
            self.newest, self.committed, self.begin = id, end, end

        return work

    # After a crash

    def restart(self) -> None:
        self.log = opened(self.fs)
        found = self.log.recovered
        ids = snapshots(self.log)
        start, end = found.log_start_offset, found.log_end_offset
        assert self.newest is None or ids[-1].position >= self.newest.position, "a snapshot in place stays"
        self.newest = ids[-1] if ids else None
        assert start == 0 or start in [id.end_offset for id in ids], "a snapshot at every non-zero start"
        assert end >= self.committed, "synced records are kept"
        held = content(self.log)
        assert any(self.matches(held, start, end, batches) for batches in [*self.possible, []]), (start, end)
        headers = [header for _, header in iter_headers(held)]
        for header in headers:
            epochs = [entry.epoch for entry in found.epochs if entry.start_offset <= header.base_offset]
            assert epochs[-1] == header.leader_epoch
        assert len(found.epochs) == len({header.leader_epoch for header in headers}) or (not headers and start == end)
        after = max([start, *(id.end_offset for id in ids)])
        logged = [h.base_offset + n for h in headers if h.is_control and h.base_offset >= after for n in (0, 1)]
        assert [record.offset for record in found.control] == logged
        self.batches = [held[at : at + header.size] for at, header in iter_headers(held)]
        self.begin, self.committed = start, max(self.committed, end)
        self.log.sync()

    def matches(self, held: bytes, start: int, end: int, batches: list[bytes]) -> bool:
        """Whether the log contains a prefix of these batches that includes all required ones."""
        wanted = b"".join(data for data in batches if next(iter_headers(data))[1].next_offset > start)
        return wanted.startswith(held)


@pytest.mark.parametrize("seed", range(150))
def test_log_recovers_from_power_failures_at_random_points(seed: int) -> None:
    simulation = LogSimulation(seed)
    for _ in range(40):
        simulation.step()


def everything(log: RaftMetadataLog) -> None:
    fill(log, 30, 2)
    generate(log, make_snapshot_id(20, 2), 1)
    generate(log, make_snapshot_id(28, 2), 1)
    log.perform(Trim(make_snapshot_id(20, 2)), NOW)
    log.perform(TruncateTo(Offset(29)), NOW)
    log.perform(Trim(make_snapshot_id(28, 2)), NOW)
    fill(log, 34, 3)
    install(log, make_snapshot_id(100, 4), 1, 2)
    fill(log, 104, 4)


def test_log_recovers_from_a_power_failure_before_any_operation() -> None:
    for after in range(10_000):
        fs = FailingPower()
        log = opened(fs)
        log.sync()
        failed = lose_power_in(fs, after, Random(after), lambda log=log: everything(log))  # type: ignore[misc]
        recovered = opened(fs).recovered
        assert recovered.log_start_offset in (0, *(snapshot.id.end_offset for snapshot in recovered.snapshots))
        assert recovered == opened(fs).recovered, "a second start repairs nothing more"
        if not failed:
            break
    assert after > 100
    assert recovered.log_end_offset == 104
