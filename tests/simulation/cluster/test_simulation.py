"""Seeded histories of clusters hold every invariant, are reproducible, and contain every incident."""

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.simulation.__main__ import main
from tests.simulation.campaign import regression_seeds, run_job, workers
from tests.simulation.cluster.campaign import run_seed
from tests.simulation.cluster.checker import ClusterCounts
from tests.simulation.simulator import SimulationResult

HERE = Path(__file__).parent
EVENTS = 2_000
SEEDS = (35, 829, *range(1_001_022, 1_001_044))
"""Seeds of a minute, the first two with rare incidents; `make sim PLANE=cluster SEEDS=n` runs more."""


def run_all(seeds: Iterable[tuple[int, int]]) -> Counter[str]:
    """Return the incidents of all seeds; fail at the first violation."""
    seen: Counter[str] = Counter()
    for seed, events in seeds:
        result = run_seed(seed, events)
        assert result.found is None, f"{result.found}\nreplay with: make sim PLANE=cluster SEED={seed}"
        assert result.events >= events
        seen.update(result.counts.by_name)
    return seen


def assert_same(one: SimulationResult, other: SimulationResult) -> None:
    assert one.lines == other.lines
    assert (one.events, one.counts.by_name) == (other.events, other.counts.by_name)


def test_seed_determines_the_history() -> None:
    first, second, other = (run_seed(seed, EVENTS) for seed in (7, 7, 8))
    assert_same(first, second)
    assert other.lines != first.lines


def test_history_is_independent_of_the_hash_seed() -> None:
    histories = []
    for hash_seed in ("0", "2"):
        with patch.dict(os.environ, {"PYTHONHASHSEED": hash_seed}), workers(1) as pool:
            histories.append(pool.map(run_job, [(run_seed, seed, EVENTS) for seed in (4, 652, 2_000_101)]))
    for one, other in zip(*histories, strict=True):
        assert_same(one, other)


def test_seeds_hold_every_invariant_and_contain_every_incident() -> None:
    seen = run_all((seed, EVENTS) for seed in SEEDS)
    assert all(seen[name] > 0 for name in ClusterCounts.NAMES), seen


def test_regression_seeds_hold() -> None:
    run_all(regression_seeds(HERE, EVENTS))


def test_command_ends_with_one_line_of_totals(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--plane", "cluster", "--seeds", "2", "--first", "5", "--events", "300", "--processes", "1"]) == 0
    words = capsys.readouterr().out.splitlines()[-1].split()
    assert [words[0], words[1], words[3], words[4], words[5]] == ["2", "seeds,", "events,", "0", "violations"]
    assert int(words[2]) >= 600
