"""Index of remote segments by timestamp (`storage.tiered.catalog.timestamp_index`)."""

from random import Random

import pytest

from storage.tiered.catalog.timestamp_index import TimestampIndex

END = 2**62


def chain(*pieces: tuple[int, int, int]) -> TimestampIndex:
    made = TimestampIndex()
    for piece in pieces:
        made.append(*piece)
    return made


def test_ascending_timestamps_are_found() -> None:
    ascending = chain(*((10 * n, 10 * n + 9, 100 * n) for n in range(100)))
    assert list(ascending.candidates(9850, 0, END)) == [990]
    assert next(ascending.candidates(4201, 0, END)) == 430
    assert next(ascending.candidates(0, 555, END)) == 550
    assert list(ascending.candidates(9901, 0, END)) == []
    assert list(ascending.candidates(0, 975, 990)) == [970, 980]
    assert ascending.next_offset == 1000


def test_descending_timestamps_are_found() -> None:
    mixed = chain((0, 9, 500), (10, 19, 100), (20, 29, 300), (30, 39, 700))
    assert list(mixed.candidates(200, 0, END)) == [0, 20, 30]
    assert list(mixed.candidates(200, 10, END)) == [20, 30]
    assert list(mixed.candidates(600, 0, END)) == [30]
    assert list(mixed.latest(0, END)) == [(700, 30), (500, 0), (300, 20), (100, 10)]
    assert list(mixed.latest(5, 20)) == [(500, 0), (100, 10)]
    assert next(chain((0, 9, 5), (10, 19, 5)).latest(0, END)) == (5, 0)


def test_empty_index_has_no_candidates() -> None:
    assert (len(TimestampIndex()), TimestampIndex().next_offset) == (0, 0)
    assert list(TimestampIndex().candidates(0, 0, END)) == []
    assert list(TimestampIndex().latest(0, END)) == []


def test_entries_must_be_appended_in_order() -> None:
    with pytest.raises(ValueError, match="a piece from 9 to 20"):
        chain((0, 9, 0), (9, 20, 0))


@pytest.mark.parametrize("seed", range(30))
def test_index_agrees_with_linear_search(seed: int) -> None:
    random = Random(seed)
    pieces, offset = [], 0
    for _ in range(random.randint(0, 20)):
        offset += random.choice((0, 0, 4))
        length = random.randint(1, 9)
        pieces.append((offset, offset + length - 1, random.randint(0, 50)))
        offset += length
    made = chain(*pieces)
    for _ in range(30):
        time, first, below = random.randint(0, 55), random.randint(0, offset + 3), random.randint(0, offset + 3)
        expected = [start for start, last, greatest in pieces if last >= first and start < below and greatest >= time]
        assert list(made.candidates(time, first, below)) == expected
