"""The indexes: lookups give the same results in the file and in memory."""

import struct
from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.files import read_file
from storage.index.entries import BLOCK_ENTRIES, SPILL_ENTRIES, EntryFile
from storage.index.offset import OffsetIndex
from storage.index.time import TimeIndex
from storage.index.transaction import AbortedTxn, TransactionIndex
from tests.protocol.profile import more_examples
from tests.support.fakes.memory_files import MemoryFileSystem

ENTRY = struct.Struct(">ii")
MANY = 2 * SPILL_ENTRIES + 3 * BLOCK_ENTRIES + 17


def entries(count: int, fs: MemoryFileSystem | None = None) -> EntryFile:
    """Return keys 0, 10, 20 … with values 5, 105, 205 …"""
    file = EntryFile(fs or MemoryFileSystem(), "index", ENTRY)
    file.reset()
    for number in range(count):
        file.append(10 * number, 100 * number + 5)
    return file


def reloaded(file: EntryFile, fs: MemoryFileSystem) -> EntryFile:
    file.save()
    other = EntryFile(fs, "index", ENTRY)
    other.load()
    return other


@pytest.mark.parametrize("count", [0, 1, BLOCK_ENTRIES, BLOCK_ENTRIES + 1, 2 * SPILL_ENTRIES, MANY])
@pytest.mark.parametrize("from_file", [True, False])
def test_every_key_is_found(count: int, from_file: bool) -> None:
    fs = MemoryFileSystem()
    file = entries(count, fs)
    if from_file:
        file = reloaded(file, fs)
    keys = [10 * number for number in range(count)]
    assert len(file) == count
    assert list(file) == [(key, 10 * key + 5) for key in keys]
    probes = {-1, 0, 1, 5, 10 * count, *range(0, 10 * count, 777), *(10 * BLOCK_ENTRIES * n - 1 for n in range(5))}
    for probe in probes:
        assert file.floor(probe) == bisect_right(keys, probe) - 1
    for number in {0, count // 2, count - 1} if count else ():
        assert file.get(number) == (10 * number, 100 * number + 5)
    if count:
        assert file.get(-1) == (10 * (count - 1), 100 * (count - 1) + 5)


@more_examples
@given(st.integers(0, MANY), st.integers(-1, 100 * MANY + 10), st.booleans())
def test_values_are_found_from_any_entry_on(start: int, value: int, from_file: bool) -> None:
    fs = _MANY_FS if from_file else None
    file = _MANY_FILED if fs else _MANY_MIXED
    values = [100 * number + 5 for number in range(start, MANY)]
    index = bisect_right(values, value)
    assert file.value_floor(value, start) == (values[index - 1] if index else -1)


_MANY_FS = MemoryFileSystem()
_MANY_MIXED = entries(MANY, _MANY_FS)
_MANY_FILED = reloaded(_MANY_MIXED, _MANY_FS)


def test_memory_is_bounded_while_the_file_grows() -> None:
    fs = MemoryFileSystem()
    file = entries(MANY, fs)
    assert len(file._keys) < 2 * SPILL_ENTRIES
    assert fs.size("index") % ENTRY.size == 0
    assert fs.size("index") >= (MANY - 2 * SPILL_ENTRIES) * ENTRY.size


@pytest.mark.parametrize("keep", [0, 1, BLOCK_ENTRIES, MANY - SPILL_ENTRIES - 30, MANY - 5, MANY])
@pytest.mark.parametrize("saved", [True, False])
def test_truncation_removes_entries_from_memory_and_file(keep: int, saved: bool) -> None:
    fs = MemoryFileSystem()
    file = entries(MANY, fs)
    if saved:
        file.save()
    file.floor(5)
    file.cut(keep)
    file.append(10**8, 7)
    expected = [(10 * n, 100 * n + 5) for n in range(keep)] + [(10**8, 7)]
    assert list(file) == expected
    assert list(reloaded(file, fs)) == expected
    assert fs.size("index") == len(expected) * ENTRY.size


def test_released_index_is_completely_in_its_file() -> None:
    fs = MemoryFileSystem()
    file = entries(MANY, fs)
    file.release()
    assert len(file._keys) == 0
    assert fs.size("index") == MANY * ENTRY.size
    assert file.floor(55) == 5


def test_incomplete_entry_at_the_end_is_ignored() -> None:
    fs = MemoryFileSystem()
    file = reloaded(entries(3, fs), fs)
    fs.open("index").write(3 * ENTRY.size, b"xx")
    file.load()
    assert len(file) == 3


def test_offset_entries_are_relative_to_the_base_in_kafkas_format() -> None:
    fs = MemoryFileSystem()
    index = OffsetIndex(fs, "i", 1000, 1024)
    index.entries.reset()
    index.append(1004, 70)
    index.append(1009, 140)
    index.entries.save()
    assert read_file(fs, "i") == struct.pack(">iiii", 4, 70, 9, 140)
    assert index.lookup(1003) == (1000, 0)
    assert index.lookup(1004) == (1004, 70)
    assert index.lookup(5000) == index.last == (1009, 140)
    assert index.position_floor(139, 1004) == 70
    assert index.position_floor(69, 1004) == -1


def test_full_offset_index_ignores_entries() -> None:
    index = OffsetIndex(MemoryFileSystem(), "i", 0, 8 * 2 + 7)
    index.entries.reset()
    for offset in range(3):
        assert index.is_full == (offset == 2)
        index.append(offset, offset)
    assert list(index) == [(0, 0), (1, 1)]


def test_offset_entries_at_or_above_a_truncation_are_dropped() -> None:
    index = OffsetIndex(MemoryFileSystem(), "i", 100, 1024)
    index.entries.reset()
    for offset in (104, 109, 115):
        index.append(offset, offset)
    index.truncate_to(109)
    assert list(index) == [(104, 104)]


def test_time_entries_grow_and_reserve_a_final_slot() -> None:
    fs = MemoryFileSystem()
    index = TimeIndex(fs, "t", 100, 12 * 3)
    index.reset()
    index.maybe_append(50, 101)
    index.maybe_append(50, 102)
    index.maybe_append(40, 103)
    index.maybe_append(60, 104)
    assert index.is_full
    index.maybe_append(70, 105)
    index.maybe_append(80, 106, final=True)
    index.entries.save()
    assert read_file(fs, "t") == struct.pack(">qiqiqi", 50, 1, 60, 4, 80, 6)
    assert index.lookup(49) == (-1, 100)
    assert index.lookup(79) == (60, 104)
    index.truncate_to(104)
    assert list(index) == [(50, 101)]
    index.maybe_append(55, 104)
    assert index.last == (55, 104)


def test_transaction_index_has_34_bytes_per_entry_and_is_created_on_demand() -> None:
    fs = MemoryFileSystem()
    index = TransactionIndex(fs, "x")
    assert index.entries == []
    assert not fs.exists("x")
    one, two = AbortedTxn(7, 10, 20, 15), AbortedTxn(8, 15, 25, 26)
    index.append(one)
    index.append(two)
    assert read_file(fs, "x") == struct.pack(">hqqqqhqqqq", 0, *one, 0, *two)
    assert TransactionIndex(fs, "x").entries == [one, two]
    index.truncate_to(25)
    assert TransactionIndex(fs, "x").entries == index.entries == [one]
    index.reset()
    assert not fs.exists("x")
