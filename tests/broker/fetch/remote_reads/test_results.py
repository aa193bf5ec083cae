"""Kept results of remote reads (`broker.fetch.remote_reads.results`)."""

import pytest

from broker.fetch.remote_reads.results import KeptResults
from broker.runtime.loop.waiters import Deadlines
from tests.support.fakes.manual_loop import ManualLoop

RESULTS = [object() for _ in range(10)]


class Harness:
    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.kept: KeptResults[int, object] = KeptResults(Deadlines(self.loop))

    def put(self, *keys: int, size: int = 10) -> None:
        self.kept.put({key: RESULTS[key] for key in keys}, size, 1000, 35)

    @property
    def here(self) -> list[int]:
        return [key for key in range(10) if key in self.kept]


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_shared_memory_counts_once_until_all_its_results_are_dropped(harness: Harness) -> None:
    harness.put(1, 2)
    assert (harness.kept.size_bytes, harness.kept.awaiting_bytes) == (10, 10)
    harness.kept.delivered(1, RESULTS[1], 500)
    harness.kept.delivered(1, RESULTS[1], 500)
    assert (harness.kept.size_bytes, harness.kept.awaiting_bytes) == (10, 10)
    harness.kept.delivered(2, RESULTS[2], 500)
    assert (harness.kept.size_bytes, harness.kept.awaiting_bytes) == (10, 0)
    harness.loop.advance(500 / 1000)
    assert (harness.kept.size_bytes, harness.here) == (0, [])


def test_undelivered_results_expire(harness: Harness) -> None:
    harness.put(1)
    harness.loop.advance(999 / 1000)
    assert harness.kept.get(1) == RESULTS[1]
    harness.loop.advance(1 / 1000)
    assert (harness.kept.get(1), harness.kept.size_bytes, harness.kept.awaiting_bytes) == (None, 0, 0)


def test_delivered_results_are_evicted_first_then_the_oldest(harness: Harness) -> None:
    harness.put(1)
    harness.put(2)
    harness.put(3)
    harness.kept.delivered(2, RESULTS[2], 500)
    harness.put(4)
    assert harness.here == [1, 3, 4]
    harness.put(5)
    assert (harness.here, harness.kept.size_bytes) == ([3, 4, 5], 30)


def test_results_of_one_read_are_kept_however_large(harness: Harness) -> None:
    harness.put(1)
    harness.put(2, 3, size=100)
    assert (harness.here, harness.kept.size_bytes) == ([2, 3], 100)


def test_new_result_replaces_one_with_the_same_key(harness: Harness) -> None:
    harness.put(1)
    harness.kept.put({1: RESULTS[9]}, 5, 1000, 35)
    harness.kept.delivered(1, RESULTS[1], 10)  # the replaced result
    harness.loop.advance(100 / 1000)
    assert (harness.kept.get(1), harness.kept.size_bytes, harness.kept.awaiting_bytes) == (RESULTS[9], 5, 5)
    harness.kept.clear()
    assert (harness.kept.size_bytes, harness.kept.awaiting_bytes) == (0, 0)
