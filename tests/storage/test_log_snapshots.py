"""Snapshot files are written to a temporary name, checked and read in pages (`storage.log_snapshots`, KIP-630)."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from protocol.ids import LeaderEpoch
from protocol.records.batch import HEADER_SIZE, iter_headers
from protocol.records.builder import Record, build_batch
from protocol.records.control import ControlType, control_batch, control_type
from protocol.records.reader import iter_records
from storage.errors import DamagedSnapshot
from storage.files import read_file, write_file
from storage.log_snapshots import (
    MAX_BATCH_BYTES,
    READ_BYTES,
    CheckpointId,
    SnapshotFiles,
    checkpoint_name,
    parse_checkpoint_name,
)
from tests.support.fakes.memory_files import MemoryFileSystem
from tests.support.fakes.power_loss import FailingPower, lose_power_in

ID = CheckpointId(100, LeaderEpoch(3))
TIME = 1_700_000_000_000
KAFKA_TIME = 1_795_261_796_329
HEADER = (ControlType.SNAPSHOT_HEADER, bytes(2) + TIME.to_bytes(8) + b"\x00")
FOOTER = (ControlType.SNAPSHOT_FOOTER, bytes(3))
OTHER = (ControlType.LEADER_CHANGE, b"?")


def control(offset: int, *records: tuple[ControlType, bytes], epoch: int = 3) -> bytes:
    return control_batch(records, TIME, base_offset=offset, leader_epoch=LeaderEpoch(epoch))


def data(offset: int, *values: bytes, epoch: int = 3) -> bytes:
    return build_batch(
        [Record(TIME, None, value) for value in values], base_offset=offset, leader_epoch=LeaderEpoch(epoch)
    )


def snapshot(*bodies: bytes, opening: Sequence[tuple[ControlType, bytes]] = (HEADER,)) -> bytes:
    """Return a whole snapshot with one data batch of one record for each body."""
    first = len(opening)
    middle = b"".join(data(first + n, body) for n, body in enumerate(bodies))
    return control(0, *opening) + middle + control(first + len(bodies), FOOTER)


def files(fs: MemoryFileSystem | None = None) -> SnapshotFiles:
    fs = fs or MemoryFileSystem()
    fs.make_directory("d")
    fs.sync_directory(".")
    return SnapshotFiles(fs, "d")


def placed(fs: MemoryFileSystem, content: bytes, id: CheckpointId = ID) -> SnapshotFiles:
    held = files(fs)
    write_file(fs, f"d/{checkpoint_name(id)}", content, sync=True)
    return held


def checked(content: bytes) -> int:
    return placed(MemoryFileSystem(), content).check(ID, lambda batch: None)


def test_snapshot_name_equals_kafkas() -> None:
    assert checkpoint_name(CheckpointId(5120793, LeaderEpoch(2))) == "00000000000005120793-0000000002.checkpoint"


@pytest.mark.parametrize(
    "name",
    [
        "00000000000005120793-0000000002.checkpoint.part",
        "00000000000005120793-0000000002.checkpoint.deleted",
        "5120793-2.checkpoint",
        "bootstrap.checkpoint",
        "leader-epoch-checkpoint",
        "00000000000005120793.snapshot",
        "00000000000005120793-0000000002.checkpoint.damaged",
    ],
)
def test_other_file_names_are_not_snapshots(name: str) -> None:
    assert parse_checkpoint_name(name) is None


def test_snapshot_names_round_trip() -> None:
    for id in (ID, CheckpointId(0, LeaderEpoch(0)), CheckpointId(2**62, LeaderEpoch(2**31 - 1))):
        assert parse_checkpoint_name(checkpoint_name(id)) == id


def test_ids_order_by_epoch_then_offset() -> None:
    fs = MemoryFileSystem()
    for end, epoch in ((50, 4), (100, 3), (90, 3), (0, 0)):
        id = CheckpointId(end, LeaderEpoch(epoch))
        held = placed(fs, b"", id)
    assert held.ids() == [(0, 0), (90, 3), (100, 3), (50, 4)]


def test_whole_snapshot_passes_the_check_and_returns_its_timestamp() -> None:
    assert checked(snapshot()) == TIME
    assert checked(snapshot(b"a", b"b", b"c")) == TIME


def test_check_passes_control_batches_to_the_callback() -> None:
    seen: list[bytes] = []
    content = snapshot(b"a", opening=(HEADER, OTHER))
    placed(MemoryFileSystem(), content).check(ID, lambda batch: seen.append(bytes(batch)))
    assert seen == [control(0, HEADER, OTHER), control(3, FOOTER)]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "does not end with its footer"),
        (data(0, b"a") + control(1, FOOTER), "does not begin with its header"),
        (control(0, OTHER, HEADER) + control(2, FOOTER), "does not begin with its header"),
        (control(0, HEADER), "does not end with its footer"),
        (control(0, HEADER, FOOTER), "footer shares its batch"),
        (control(0, HEADER) + control(1, OTHER, FOOTER), "footer shares its batch"),
        (control(0, HEADER) + control(1, HEADER) + control(2, FOOTER), "second header"),
        (snapshot() + data(2, b"a"), "a batch follows the footer"),
        (control(0, HEADER) + data(2, b"a") + control(3, FOOTER), "offset 2 is out of place"),
        (control(0, HEADER) + data(1, b"a", epoch=2) + control(2, FOOTER), "has leader epoch 2"),
        (control(0, (ControlType.SNAPSHOT_HEADER, b"")) + control(1, FOOTER), "header is too short"),
        (snapshot()[:-1], "at byte"),
        (snapshot() + b"rest", "at byte"),
    ],
)
def test_incomplete_snapshots_raise_damaged_snapshot(content: bytes, reason: str) -> None:
    with pytest.raises(DamagedSnapshot, match=reason):
        checked(content)


def test_snapshot_of_apache_kafka_passes_the_check() -> None:
    content = Path(__file__).with_name("apache_kafka_4_2_snapshot.checkpoint").read_bytes()
    id, types = CheckpointId(27, LeaderEpoch(1)), list[ControlType | None]()
    held = placed(MemoryFileSystem(), content, id)
    assert (
        held.check(id, lambda batch: types.extend(control_type(each.key) for each in iter_records(batch))) == KAFKA_TIME
    )
    assert types == [
        ControlType.SNAPSHOT_HEADER,
        ControlType.KRAFT_VERSION,
        ControlType.KRAFT_VOTERS,
        ControlType.SNAPSHOT_FOOTER,
    ]


def test_flipped_bit_is_detected() -> None:
    content = snapshot(b"some", b"records")
    for position in range(len(content)):
        with pytest.raises(DamagedSnapshot):
            checked(content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :])


def test_impossible_length_allocates_no_memory() -> None:
    huge = bytearray(snapshot(bytes(1000)))
    huge[8:12] = (MAX_BATCH_BYTES).to_bytes(4)
    with pytest.raises(DamagedSnapshot, match="at byte 0"):
        checked(bytes(huge) + bytes(2 * MAX_BATCH_BYTES))


def test_batches_larger_than_a_read_are_checked_and_returned_whole() -> None:
    content = snapshot(b"a", bytes(3 * READ_BYTES), b"b", bytes(READ_BYTES), *[bytes(300_000)] * 9)
    fs = MemoryFileSystem()
    held = placed(fs, content)
    assert held.check(ID, lambda batch: None) == TIME
    reader = held.open(ID)
    chunks = list(iter(reader.next_chunk, b""))
    assert b"".join(chunks) == content
    assert len(chunks) > 5
    assert all(len(chunk) <= READ_BYTES or len(list(iter_headers(chunk))) == 1 for chunk in chunks)
    assert reader.size == len(content)


def test_reader_raises_damaged_snapshot() -> None:
    content = snapshot(b"a")
    for cut in (HEADER_SIZE - 1, len(content) - 1):
        reader = placed(MemoryFileSystem(), content[:cut]).open(ID)
        with pytest.raises(DamagedSnapshot):
            list(iter(reader.next_chunk, b""))


def test_header_is_read_without_records() -> None:
    held = placed(MemoryFileSystem(), snapshot(b"a")[:-5])
    assert held.read_timestamp(ID) == TIME
    with pytest.raises(DamagedSnapshot):
        placed(MemoryFileSystem(), b"").read_timestamp(ID)


def test_pages_start_at_any_position() -> None:
    content = snapshot(b"abc", b"def")
    held = placed(MemoryFileSystem(), content)
    pages = [held.read(ID, position, 7) for position in range(0, len(content), 7)]
    assert b"".join(pages) == content
    assert held.read(ID, len(content), 7) == b""
    with pytest.raises(FileNotFoundError):
        held.read(CheckpointId(1, LeaderEpoch(1)), 0, 7)


def fetched(held: SnapshotFiles, content: bytes, page: int = 50) -> None:
    for position in range(0, len(content), page):
        held.write_part(ID, position, content[position : position + page])


def test_fetched_snapshot_appears_once_complete() -> None:
    content, held = snapshot(b"abc"), files()
    fetched(held, content)
    assert held.ids() == []
    assert held.finish_part(ID, len(content), lambda batch: None) == TIME
    assert held.ids() == [ID]
    assert held.size(ID) == len(content)


def test_page_at_position_0_restarts_the_part() -> None:
    held = files()
    fetched(held, bytes(500))
    fetched(held, snapshot(b"abc"))
    assert held.finish_part(ID, len(snapshot(b"abc")), lambda batch: None) == TIME


def test_page_beyond_the_part_is_refused() -> None:
    held = files()
    held.write_part(ID, 0, b"abc")
    with pytest.raises(AssertionError, match="has 3 bytes, next position is 4"):
        held.write_part(ID, 4, b"e")


@pytest.mark.parametrize("size", [0, 1, 10_000])
def test_part_of_another_size_is_not_completed(size: int) -> None:
    held = files()
    fetched(held, snapshot(b"abc"))
    with pytest.raises(DamagedSnapshot, match="does not have its"):
        held.finish_part(ID, size, lambda batch: None)
    held.discard_part(ID)
    with pytest.raises(DamagedSnapshot, match="does not have its"):
        held.finish_part(ID, len(snapshot(b"abc")), lambda batch: None)
    assert held.ids() == []


def test_generated_and_fetched_parts_of_one_snapshot_are_separate() -> None:
    content, held = snapshot(b"abc"), files()
    writer = held.begin(ID)
    fetched(held, content[:-1])
    writer.append(content[:20])
    writer.append(content[20:])
    writer.commit()
    assert held.check(ID, lambda batch: None) == TIME
    writer.abandon()
    assert held.ids() == [ID]


def test_abandoned_snapshot_leaves_no_file() -> None:
    fs = MemoryFileSystem()
    writer = files(fs).begin(ID)
    writer.append(b"abc")
    writer.abandon()
    assert fs.list("d") == []


def test_only_leftovers_are_removed() -> None:
    fs = MemoryFileSystem()
    held = placed(fs, snapshot())
    held.begin(CheckpointId(200, LeaderEpoch(3))).append(b"abc")
    fetched(held, b"abc")
    write_file(fs, f"d/{checkpoint_name(ID)}.deleted", b"", sync=True)
    write_file(fs, "d/00000000000000000000.log", b"", sync=True)
    held.remove_leftovers()
    assert fs.list("d") == ["00000000000000000000.log", checkpoint_name(ID)]


def test_damaged_snapshot_is_kept_under_another_name() -> None:
    fs = MemoryFileSystem()
    held = placed(fs, b"abc")
    held.set_aside(ID)
    assert held.ids() == []
    assert read_file(fs, f"d/{checkpoint_name(ID)}.damaged") == b"abc"


def test_large_snapshots_are_synced_on_the_way() -> None:
    fs = MemoryFileSystem()
    writer = files(fs).begin(ID)
    for _ in range(20):
        writer.append(bytes(1024 * 1024))
    assert sum(operation == "sync" for operation, _ in fs.log) == 2


@pytest.mark.parametrize("way", ["written here", "fetched"])
def test_power_loss_leaves_a_whole_snapshot_or_none(way: str) -> None:
    content = snapshot(b"abc" * 1000, b"def")
    for after in range(1000):
        fs = FailingPower()
        held = files(fs)

        def work(held: SnapshotFiles = held) -> None:
            if way == "fetched":
                fetched(held, content, page=800)
                held.finish_part(ID, len(content), lambda batch: None)
            else:
                writer = held.begin(ID)
                writer.append(content[:700])
                writer.append(content[700:])
                writer.commit()

        failed = lose_power_in(fs, after, Random(after), work)
        if not failed:
            fs.crash(Random(after))
            assert held.ids() == [ID], "a finished snapshot stays"
        assert held.ids() in ([], [ID])
        if held.ids():
            assert held.check(ID, lambda batch: None) == TIME
        if not failed:
            break
    assert after > 5
