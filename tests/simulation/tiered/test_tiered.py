"""Seeded histories of tiered partitions, and bugs that they must find."""

import pytest

from tests.simulation.tiered.cluster import Cluster, Counts, Violation
from tests.simulation.tiered.planted import PLANTED, planted

ACTIONS = 150
SEEDS = range(8)
FOUND_BY = {
    "local_deletion_before_copy_finished": range(2, 8),
    "copy_beyond_the_last_stable_offset": range(2),
    "expiration_without_raising_the_log_start": range(1, 4),
    "size_retention_counts_twice": range(1, 6),
    "crashed_copies_stay": range(4),
    "failed_copies_stay": range(1, 5),
}
"""Seeds one of which must find it; the first does, as long as nothing changes the order of draws."""


@pytest.fixture(scope="module")
def counts() -> list[Counts]:
    """Of all histories that held."""
    return []


@pytest.mark.parametrize("seed", SEEDS)
def test_what_must_hold_does(seed: int, counts: list[Counts]) -> None:
    counts.append(Cluster(seed, ACTIONS).run())


def test_the_histories_had_what_they_are_about(counts: list[Counts]) -> None:
    if len(counts) < len(SEEDS):
        pytest.skip("not all histories ran, or held")
    for name in ("copies", "local_deletions", "remote_deletions", "elections", "unclean", "crashes", "tier_starts"):
        assert sum(getattr(each, name) for each in counts), name


@pytest.mark.parametrize("name", PLANTED)
def test_planted_bugs_are_found(name: str) -> None:
    with planted(name):
        assert any(finds(seed) for seed in FOUND_BY[name])


def finds(seed: int) -> bool:
    try:
        Cluster(seed, ACTIONS).run()
    except Violation:
        return True
    return False
