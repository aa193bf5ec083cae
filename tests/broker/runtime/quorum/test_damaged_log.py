"""Starts on a metadata log that rots: synced records are missed, a torn end is cut silently."""

from random import Random

import pytest

from broker.quorum.ready import ElectionState, TruncateTo
from broker.runtime.quorum.metadata_log import RaftMetadataLog
from broker.runtime.quorum.metadata_recovery import UnusableMetadataLog
from broker.runtime.quorum.state_file import QuorumStateFile, to_json
from broker.runtime.quorum.synced_end import FILE_NAME, SyncedEndFile
from protocol.ids import LeaderEpoch, Offset
from protocol.records.batch import iter_headers
from storage.checked_json import CHECKSUM
from storage.files import read_file, replace_file, write_file
from tests.broker.runtime.quorum.test_metadata_log import (
    DIRECTORY,
    NOW,
    append,
    batch,
    fill,
    generate,
    install,
    names,
    opened,
)
from tests.support.fakes.memory_files import MemoryFileSystem
from tests.support.quorum_values import make_snapshot_id

ACTIVE = f"{DIRECTORY}/{0:020d}.log"


def synced(*ends: tuple[int, int]) -> MemoryFileSystem:
    """Return the disk of a killed node with a synced log: pairs of an epoch and its end offset."""
    fs = MemoryFileSystem()
    log = opened(fs)
    QuorumStateFile(fs, DIRECTORY).write(ElectionState(LeaderEpoch(9)))
    for epoch, end in ends:
        fill(log, end, epoch)
    return fs


def contents(fs: MemoryFileSystem) -> dict[str, bytes]:
    return {name: read_file(fs, f"{DIRECTORY}/{name}") for name in names(fs, ".log")}


def put(fs: MemoryFileSystem, name: str, content: bytes) -> None:
    write_file(fs, f"{DIRECTORY}/{name}", content, sync=True)
    fs.sync_directory(DIRECTORY)


def test_any_damaged_byte_of_a_synced_record_stops_the_start_and_changes_no_segment() -> None:
    """The checksum of a batch covers neither its offset nor its epoch."""
    fs = synced((1, 3), (4, 5), (5, 7), (7, 9))
    random = Random(1)
    for name, content in contents(fs).items():
        for position in range(len(content)):
            damaged = bytearray(content)
            damaged[position] ^= 1 << random.randrange(8)
            put(fs, name, bytes(damaged))
            with pytest.raises(UnusableMetadataLog, match="were synced: the disk has lost records"):
                opened(fs)
            assert contents(fs)[name] == damaged
        put(fs, name, content)
    assert opened(fs).log_end_offset == 9


def test_message_names_file_offset_and_way_out() -> None:
    fs = synced((1, 9))
    (name, *_), (content, *_) = zip(*contents(fs).items(), strict=True)
    put(fs, name, content[:200] + b"?" + content[201:])
    with pytest.raises(UnusableMetadataLog) as caught:
        opened(fs)
    sentence = str(caught.value)
    assert f"{DIRECTORY}/{name} has no valid batch at offset 2 (byte 1" in sentence
    assert "although all records below offset 9 were synced" in sentence
    assert "replace the metadata directory as after the loss of a disk, and let the node join again" in sentence
    assert "\n" not in sentence


def test_refused_log_is_refused_at_every_start() -> None:
    fs = synced((1, 9))
    content = read_file(fs, ACTIVE)
    put(fs, ACTIVE.rpartition("/")[2], content[:100] + bytes(50) + content[150:])
    for _ in range(3):
        with pytest.raises(UnusableMetadataLog):
            opened(fs)


def test_shortened_log_stops_the_start() -> None:
    fs = synced((1, 20))
    last = names(fs, ".log")[-1]
    put(fs, last, read_file(fs, f"{DIRECTORY}/{last}")[:-1])
    with pytest.raises(UnusableMetadataLog, match=r"at offset 19 \(byte"):
        opened(fs)


@pytest.mark.parametrize("which", [0, 1, -1])
def test_lost_segment_stops_the_start(which: int) -> None:
    fs = synced((1, 20))
    fs.remove(f"{DIRECTORY}/{names(fs, '.log')[which]}")
    with pytest.raises(UnusableMetadataLog):
        opened(fs)


def test_loss_of_all_segments_stops_the_start() -> None:
    fs = synced((1, 20))
    for name in names(fs, ".log"):
        fs.remove(f"{DIRECTORY}/{name}")
    with pytest.raises(UnusableMetadataLog, match="has no valid batch at offset 0"):
        opened(fs)


def test_rot_below_a_snapshot_stops_the_start() -> None:
    """The records after the damage would be lost too, and the bound does not say how many there are."""
    fs = synced((1, 20))
    generate(opened(fs), make_snapshot_id(18, 1))
    content = read_file(fs, ACTIVE)
    put(fs, ACTIVE.rpartition("/")[2], b"?" + content[1:])
    with pytest.raises(UnusableMetadataLog):
        opened(fs)


def batches_below(fs: MemoryFileSystem, end: int) -> list[tuple[str, int, int]]:
    """Return file name, position and size of each batch that ends below `end`."""
    return [
        (name, start, header.size)
        for name, content in contents(fs).items()
        for start, header in iter_headers(content)
        if header.last_offset < end
    ]


@pytest.mark.parametrize("seed", range(60))
def test_power_failure_hides_rot_in_records_of_the_last_fsync_alone(seed: int) -> None:
    fs, random = MemoryFileSystem(), Random(seed)
    log = opened(fs)
    QuorumStateFile(fs, DIRECTORY).write(ElectionState(LeaderEpoch(9)))
    proven = synced_end = 0
    for _ in range(random.randint(2, 40)):
        if synced_end > 2 and random.random() < 0.1:
            proven = synced_end = random.randint(1, synced_end)
            log.perform(TruncateTo(Offset(synced_end)), NOW)
        end = log.log_end_offset + random.randint(1, 3)
        fill(log, end, 1)
        proven, synced_end = synced_end, end
    append(log, batch(synced_end, 1))
    candidates = batches_below(fs, proven)
    fs.crash(random)
    if candidates:
        name, start, size = random.choice(candidates)
        content = bytearray(contents(fs)[name])
        content[start + random.randrange(size)] ^= 1 << random.randrange(8)
        put(fs, name, bytes(content))
        with pytest.raises(UnusableMetadataLog, match="were synced: the disk has lost records"):
            opened(fs)


def test_disk_without_attributes_knows_an_earlier_synced_end_after_a_power_failure() -> None:
    fs = MemoryFileSystem()
    fs.has_attributes = False
    log = opened(fs)
    QuorumStateFile(fs, DIRECTORY).write(ElectionState(LeaderEpoch(9)))
    for end in range(1, 5):
        fill(log, end, 1)
    assert SyncedEndFile(fs, DIRECTORY).read() == 4
    fs.crash(Random(1))
    assert SyncedEndFile(fs, DIRECTORY).read() == 0
    assert opened(fs).log_end_offset == 4


def test_marks_do_not_count_after_apache_kafka_has_truncated_the_log() -> None:
    fs = synced((1, 4), (2, 6))
    own = to_json(ElectionState(LeaderEpoch(12)))
    replace_file(fs, f"{DIRECTORY}/quorum-state", own[: own.index(b',"' + CHECKSUM.encode())] + b"}")
    content = read_file(fs, ACTIVE)
    write_file(fs, ACTIVE, content[:-1], sync=True)  # a truncation keeps the attribute
    log = opened(fs)
    kept = log.log_end_offset
    log.close()
    QuorumStateFile(fs, DIRECTORY).write(ElectionState(LeaderEpoch(12)))
    fs.remove(f"{DIRECTORY}/{FILE_NAME}")
    assert opened(fs).log_end_offset == kept
    assert opened(fs).log_end_offset == kept


@pytest.mark.parametrize("seed", range(30))
def test_torn_end_that_was_never_synced_is_cut(seed: int) -> None:
    fs = synced((1, 6))
    log = opened(fs)
    for base in range(6, 15):
        append(log, batch(base, 2))
    fs.crash(Random(seed))
    assert 6 <= opened(fs).log_end_offset <= 15


def test_unsynced_batch_beyond_the_quorums_epoch_is_cut() -> None:
    """The epoch in a torn header passes the checksum."""
    fs = synced((1, 6))
    append(opened(fs), batch(6, 10))
    assert opened(fs).log_end_offset == 6


def test_log_may_end_at_a_truncation() -> None:
    fs = synced((1, 20))
    log = opened(fs)
    log.perform(TruncateTo(Offset(7)), NOW)
    assert opened(fs).log_end_offset == 7
    fill(log, 8, 3)
    assert opened(fs).log_end_offset == 8


def test_log_may_be_replaced_by_a_snapshot() -> None:
    fs = synced((1, 20))
    install(opened(fs), make_snapshot_id(15, 2))
    log = opened(fs)
    assert (log.log_start_offset, log.log_end_offset) == (15, 15)


def test_closed_log_is_known_to_be_synced() -> None:
    fs = synced((1, 6))
    log = opened(fs)
    append(log, batch(6, 1), batch(7, 1))
    log.close()
    content = read_file(fs, ACTIVE)
    put(fs, ACTIVE.rpartition("/")[2], content[:-1])
    with pytest.raises(UnusableMetadataLog):
        opened(fs)


def test_log_of_an_earlier_release_is_cut_as_before() -> None:
    fs = synced((1, 4))
    fs.remove(f"{DIRECTORY}/{FILE_NAME}")
    put(fs, ACTIVE.rpartition("/")[2], read_file(fs, ACTIVE)[:-1])
    assert opened(fs).log_end_offset == 3


def test_bound_does_not_count_after_apache_kafka_has_written_the_log() -> None:
    """Kafka truncates without lowering the bound. It writes quorum-state first, without our checksum."""
    fs = synced((1, 4))
    own = to_json(ElectionState(LeaderEpoch(12)))
    replace_file(fs, f"{DIRECTORY}/quorum-state", own[: own.index(b',"' + CHECKSUM.encode())] + b"}")
    put(fs, ACTIVE.rpartition("/")[2], read_file(fs, ACTIVE)[:-1])
    log: RaftMetadataLog = opened(fs)
    assert log.log_end_offset == 3
    QuorumStateFile(fs, DIRECTORY).write(ElectionState(LeaderEpoch(12)))
    assert opened(fs).log_end_offset == 3


def test_unreadable_epochs_are_restored_from_the_batches() -> None:
    fs = synced((1, 3), (4, 6))
    put(fs, "leader-epoch-checkpoint", b"?")
    assert [entry.epoch for entry in opened(fs).recovered.epochs] == [1, 4]
