"""Seeded histories of quorums hold every invariant, are reproducible, and contain every incident."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.simulation.__main__ import main
from tests.simulation.campaign import regression_seeds
from tests.simulation.quorum.campaign import run_seed
from tests.simulation.quorum.checker import QuorumCounts

HERE = Path(__file__).parent
EVENTS = 2_000
SEEDS = range(1_000_001, 1_000_031)
"""Seeds of half a minute; `make sim PLANE=quorum SEEDS=n` runs more."""


def run_all(seeds: Iterable[int]) -> Counter[str]:
    """Return the incidents of all seeds; fail at the first violation."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        result = run_seed(seed, EVENTS)
        assert result.found is None, f"{result.found}\nreplay with: make sim SEED={seed}"
        assert result.events >= EVENTS
        seen.update(result.counts.by_name)
    return seen


def test_seed_determines_the_history() -> None:
    first, second = run_seed(7, EVENTS), run_seed(7, EVENTS)
    assert first.lines == second.lines
    assert (first.events, first.counts.by_name) == (second.events, second.counts.by_name)
    assert run_seed(8, EVENTS).lines != first.lines


def test_seeds_hold_every_invariant_and_contain_every_incident() -> None:
    seen = run_all(SEEDS)
    assert all(seen[name] > 0 for name in QuorumCounts.NAMES), seen


def test_regression_seeds_hold() -> None:
    run_all(seed for seed, _ in regression_seeds(HERE, EVENTS))


def test_command_ends_with_one_line_of_totals(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--plane", "quorum", "--seeds", "2", "--first", "5", "--events", "300", "--processes", "1"]) == 0
    words = capsys.readouterr().out.splitlines()[-1].split()
    assert [words[0], words[1], words[3], words[4], words[5]] == ["2", "seeds,", "events,", "0", "violations"]
    assert int(words[2]) >= 600


def test_command_replays_a_seed_with_its_history(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--plane", "quorum", "--seed", "5", "--events", "300"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("faults end" in line for line in lines)
    assert lines[-1].startswith("1 seeds, ")
