"""Results that wait for readers (`broker.fetch.remote_reads.results`)."""

import pytest

from broker.fetch.remote_reads.results import KeptResults
from broker.runtime.loop.waiters import Deadlines
from tests.support.manual_loop import ManualLoop

RESULTS = [object() for _ in range(10)]


class Stage:
    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.kept: KeptResults[int, object] = KeptResults(Deadlines(self.loop))

    def put(self, *keys: int, size: int = 10) -> None:
        self.kept.put({key: RESULTS[key] for key in keys}, size, 1000, 35)

    @property
    def here(self) -> list[int]:
        return [key for key in range(10) if key in self.kept]


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_the_memory_of_a_read_counts_once_until_all_of_it_is_gone(stage: Stage) -> None:
    stage.put(1, 2)
    assert (stage.kept.size_bytes, stage.kept.awaiting_bytes) == (10, 10)
    stage.kept.delivered(1, RESULTS[1], 500)
    stage.kept.delivered(1, RESULTS[1], 500)
    assert (stage.kept.size_bytes, stage.kept.awaiting_bytes) == (10, 10)
    stage.kept.delivered(2, RESULTS[2], 500)
    assert (stage.kept.size_bytes, stage.kept.awaiting_bytes) == (10, 0)
    stage.loop.advance(500 / 1000)
    assert (stage.kept.size_bytes, stage.here) == (0, [])


def test_what_nobody_comes_for_goes_with_the_time(stage: Stage) -> None:
    stage.put(1)
    stage.loop.advance(999 / 1000)
    assert stage.kept.get(1) == RESULTS[1]
    stage.loop.advance(1 / 1000)
    assert (stage.kept.get(1), stage.kept.size_bytes, stage.kept.awaiting_bytes) == (None, 0, 0)


def test_what_was_delivered_makes_room_first_then_what_is_oldest(stage: Stage) -> None:
    stage.put(1)
    stage.put(2)
    stage.put(3)
    stage.kept.delivered(2, RESULTS[2], 500)
    stage.put(4)
    assert stage.here == [1, 3, 4]
    stage.put(5)
    assert (stage.here, stage.kept.size_bytes) == ([3, 4, 5], 30)


def test_one_read_is_kept_however_large(stage: Stage) -> None:
    stage.put(1)
    stage.put(2, 3, size=100)
    assert (stage.here, stage.kept.size_bytes) == ([2, 3], 100)


def test_a_result_in_the_place_of_another(stage: Stage) -> None:
    stage.put(1)
    stage.kept.put({1: RESULTS[9]}, 5, 1000, 35)
    stage.kept.delivered(1, RESULTS[1], 10)  # the one before
    stage.loop.advance(100 / 1000)
    assert (stage.kept.get(1), stage.kept.size_bytes, stage.kept.awaiting_bytes) == (RESULTS[9], 5, 5)
    stage.kept.clear()
    assert (stage.kept.size_bytes, stage.kept.awaiting_bytes) == (0, 0)
