"""Seeded histories of brokers hold every rule, and are the same for the same seed, and eventful."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from multiprocessing.pool import Pool
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.simulation.__main__ import main
from tests.simulation.data.campaign import run_job, workers
from tests.simulation.data.checker import Counts
from tests.simulation.data.simulation import Result

EVENTS = 2_000
FAST_SEEDS = range(1_000_001, 1_000_061)
SLOW_SEEDS = range(2_000_001, 2_001_001)
"""Some two minutes; `make sim PLANE=data SEEDS=n` runs more."""


@pytest.fixture(scope="module")
def worker() -> Iterator[Pool]:
    with workers(1) as pool:
        yield pool


def regression_seeds() -> list[tuple[int, int]]:
    """With the number of events of each."""
    lines = Path(__file__).with_name("regression_seeds.txt").read_text().splitlines()
    first_words = [line.split()[0].partition(":") for line in lines if line and not line.startswith("#")]
    return [(int(seed), int(events or EVENTS)) for seed, _, events in first_words]


def run_all(worker: Pool, seeds: Iterable[tuple[int, int]]) -> Counter[str]:
    """What they saw together; the first violation fails the test."""
    seen: Counter[str] = Counter()
    for result in worker.imap(run_job, seeds):
        assert result.found is None, f"{result.found}\nreplay with: make sim PLANE=data SEED={result.seed}"
        assert result.events >= EVENTS
        seen.update(result.counts.by_name)
    return seen


def test_a_seed_is_one_history(worker: Pool) -> None:
    first, second, other = (worker.apply(run_job, ((seed, EVENTS),)) for seed in (7, 7, 8))
    assert_same(first, second)
    assert other.lines != first.lines


def assert_same(one: Result, other: Result) -> None:
    assert one.lines == other.lines
    assert (one.events, one.counts.by_name) == (other.events, other.counts.by_name)


def test_a_seed_is_one_history_whatever_the_hash_seed() -> None:
    """These used to part, by the order in which a starting broker took up its roles."""
    histories = []
    for hash_seed in ("0", "2"):
        with patch.dict(os.environ, {"PYTHONHASHSEED": hash_seed}), workers(1) as pool:
            histories.append(pool.map(run_job, [(seed, EVENTS) for seed in (4, 7, 2_000_101)]))
    for one, other in zip(*histories, strict=True):
        assert_same(one, other)


def test_some_seeds_hold_every_rule_and_see_everything(worker: Pool) -> None:
    seen = run_all(worker, ((seed, EVENTS) for seed in FAST_SEEDS))
    assert all(seen[name] > 0 for name in Counts.NAMES), seen


def test_seeds_that_once_found_something_hold(worker: Pool) -> None:
    run_all(worker, regression_seeds())


@pytest.mark.slow
@pytest.mark.parametrize("fifth", range(5))
def test_a_thousand_seeds_hold_every_rule(fifth: int, worker: Pool) -> None:
    seen = run_all(worker, ((seed, EVENTS) for seed in SLOW_SEEDS[fifth * 200 : (fifth + 1) * 200]))
    assert all(seen[name] > 0 for name in Counts.NAMES), seen


def test_the_command_ends_with_one_line_of_totals(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--plane", "data", "--seeds", "2", "--first", "5", "--events", "300", "--processes", "1"]) == 0
    words = capsys.readouterr().out.splitlines()[-1].split()
    assert [words[0], words[1], words[3], words[4], words[5]] == ["2", "seeds,", "events,", "0", "violations"]
    assert int(words[2]) >= 600
