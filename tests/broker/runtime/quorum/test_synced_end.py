"""The lower bound of the metadata log's synced end: kills, power failures and rot at any point."""

from random import Random

import pytest

from broker.runtime.quorum.synced_end import _SAVE_EVERY, FILE_NAME, SyncedEndFile
from storage.files import read_file, write_file
from tests.support.fakes.memory_files import MemoryFileSystem
from tests.support.fakes.power_loss import FailingPower, lose_power_in

DIRECTORY = "data"
PATH = f"{DIRECTORY}/{FILE_NAME}"


def opened(fs: MemoryFileSystem) -> SyncedEndFile:
    file = SyncedEndFile(fs, DIRECTORY)
    file.read()
    return file


def created(fs: MemoryFileSystem, end: int = 0) -> SyncedEndFile:
    fs.make_directory(DIRECTORY)
    file = opened(fs)
    file.replace(end)
    fs.sync_directory(".")
    fs.sync_directory(DIRECTORY)
    return file


def advance(file: SyncedEndFile, end: int) -> None:
    """Record a synced end and save it when that is due, as the replica does."""
    file.advance(end)
    if file.is_due:
        file.save()


def found(fs: MemoryFileSystem) -> int:
    return SyncedEndFile(fs, DIRECTORY).read()


def test_bound_is_unknown_without_the_file() -> None:
    fs = MemoryFileSystem()
    fs.make_directory(DIRECTORY)
    assert found(fs) == 0
    assert not fs.exists(PATH)


def test_bound_is_exact_after_a_kill() -> None:
    fs = MemoryFileSystem()
    file = created(fs, 5)
    for end in range(6, 100):
        file.advance(end)
        assert found(fs) == end


def test_advance_never_lowers_the_bound() -> None:
    fs = MemoryFileSystem()
    created(fs, 5).advance(4)
    assert found(fs) == 5


@pytest.mark.parametrize("seed", range(50))
def test_bound_is_at_most_some_fsyncs_behind_after_a_power_failure(seed: int) -> None:
    fs = MemoryFileSystem()
    file = created(fs)
    last = Random(seed).randint(1, 5 * _SAVE_EVERY)
    for end in range(1, last + 1):
        advance(file, end)
    fs.crash(Random(seed))
    assert last - _SAVE_EVERY < found(fs) <= last


def test_file_is_fsynced_once_for_many_fsyncs_of_the_log() -> None:
    fs = MemoryFileSystem()
    file = created(fs)
    fs.log.clear()
    for end in range(1, 4 * _SAVE_EVERY + 1):
        advance(file, end)
    assert [operation for operation, _ in fs.log].count("sync") == 4


@pytest.mark.parametrize("seed", range(20))
def test_second_save_changes_nothing(seed: int) -> None:
    fs = MemoryFileSystem()
    file = created(fs)
    for end in range(1, _SAVE_EVERY + 1):
        file.advance(end)
    for _ in range(2):
        file.save()
    file.advance(100)
    fs.crash(Random(seed))
    assert found(fs) in (_SAVE_EVERY, 100)


@pytest.mark.parametrize("seed", range(50))
def test_lowered_bound_stays_low_after_a_power_failure(seed: int) -> None:
    fs, random = MemoryFileSystem(), Random(seed)
    file = created(fs)
    for end in range(1, random.randint(2, 40)):
        advance(file, end)
    file.lower(1)
    fs.crash(random)
    assert found(fs) == 1


def test_bound_that_is_low_enough_is_not_written_again() -> None:
    fs = MemoryFileSystem()
    file = created(fs, 5)
    fs.log.clear()
    file.lower(5)
    assert fs.log == []


def test_damaged_file_gives_no_bound() -> None:
    fs = MemoryFileSystem()
    created(fs, 5)
    for content in (b"", b"{}", b"[]\n", bytes(1024), b'{"generation":"x","syncedEnd":9}'):
        write_file(fs, PATH, content, sync=True)
        assert found(fs) == 0


def test_any_flipped_bit_gives_an_earlier_bound() -> None:
    fs = MemoryFileSystem()
    file = created(fs, 80)
    file.advance(100)
    file.lower(90)
    file.advance(95)
    content = read_file(fs, PATH)
    for position in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[position // 8] ^= 1 << position % 8
        write_file(fs, PATH, bytes(damaged), sync=True)
        assert found(fs) in (90, 95)


@pytest.mark.parametrize("seed", range(100))
def test_bound_is_never_too_high_after_a_power_failure_at_any_point(seed: int) -> None:
    """A bound above the synced end, or above a truncation that may have begun, would stop a sound node."""
    fs, random = FailingPower(), Random(seed)
    file = created(fs)
    allowed = 0
    for _ in range(60):
        end = random.randint(0, 40)
        if random.random() < 0.6:
            allowed = max(allowed, end)  # the log is synced before the bound is written
            failed = lose_power_in(fs, random.randrange(12), random, lambda: advance(file, end))  # noqa: B023
        else:
            failed = lose_power_in(fs, random.randrange(12), random, lambda: file.lower(end))  # noqa: B023
            allowed = allowed if failed else min(allowed, end)
        if failed:
            file = opened(fs)
        elif random.random() < 0.2:
            fs.crash(random)
            file = opened(fs)
        assert found(fs) <= allowed


def test_closed_file_is_not_written() -> None:
    fs = MemoryFileSystem()
    file = created(fs, 5)
    file.close()
    file.advance(9)
    assert found(fs) == 5
