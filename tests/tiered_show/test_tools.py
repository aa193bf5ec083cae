"""Tools of the run: self-checking records, leader epoch histories, percentiles."""

import math
import zlib

from tests.support.clients.checkable_records import ReadBack, Recipe
from tests.support.processes.tiered_cluster import clipped
from tests.tiered_show.audit import bounds_faults
from tests.tiered_show.load import Latency, between, percentile

RECIPE = Recipe(200, 1000)


class Record:
    """The used part of a message."""

    def __init__(self, offset: int, value: bytes | None = None, key: bytes | None = None, late_ms: int = 0) -> None:
        self._offset = offset
        self._value = RECIPE.value(3, offset) if value is None else value
        self._key = b"%d" % offset if key is None else key
        self._late_ms = late_ms

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return 1, 1000 + self._offset + self._late_ms


def test_value_has_its_size_and_ends_with_its_checksum() -> None:
    value = RECIPE.value(3, 7)
    assert len(value) == 200
    assert value.startswith(b"3 7 ")
    assert zlib.crc32(value[:-4]) == int.from_bytes(value[-4:], "big")


def test_unchanged_record_has_no_fault() -> None:
    assert RECIPE.fault(Record(7), 7) is None


def test_changed_record_has_a_fault() -> None:
    for wrong in (Record(7, value=RECIPE.value(2, 7)), Record(7, key=b"8"), Record(7, late_ms=1), Record(8)):
        assert RECIPE.fault(wrong, 7) is not None


def test_reading_finds_missing_and_duplicate_records() -> None:
    for offsets, faults in ((range(3), 0), ((0, 2), 1), ((0, 0, 1), 1)):
        found = ReadBack(RECIPE, {3: 0})
        for offset in offsets:
            found.take(Record(offset))
        assert len(found.faults) == faults


def test_reading_has_the_checksum_of_the_written_values() -> None:
    found = ReadBack(RECIPE, {3: 0})
    for offset in range(5):
        found.take(Record(offset))
    assert found.crcs == {3: RECIPE.crc(3, range(5))}


def test_history_is_clipped_to_a_range() -> None:
    epochs = [(0, 0), (2, 10), (5, 20)]
    assert clipped(epochs, 0, 9) == ((0, 0),)
    assert clipped(epochs, 5, 10) == ((0, 5), (2, 10))
    assert clipped(epochs, 12, 40) == ((2, 12), (5, 20))


def test_bounds_with_a_gap_are_a_fault() -> None:
    row = {
        "partition": 0,
        "logStartOffset": 0,
        "remoteStartOffset": 0,
        "localLogStartOffset": 80,
        "highestRemoteOffset": 99,
        "logEndOffset": 120,
    }
    assert bounds_faults(row) == []
    assert bounds_faults(row | {"localLogStartOffset": 101}) != []
    assert bounds_faults(row | {"remoteStartOffset": 3}) != []


def test_latencies_belong_to_the_phase_of_the_whole_wait() -> None:
    inside, before, across = Latency(5.0, 1.0), Latency(3.5, 1.0), Latency(9.5, 3.0)
    assert between([before, inside, across], 3.0, 9.0) == [inside]
    assert percentile([Latency(0.0, each / 1000) for each in range(1, 101)], 0.99) == 100.0
    assert math.isnan(percentile([], 0.5))
