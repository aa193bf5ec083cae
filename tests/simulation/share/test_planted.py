"""The checker detects planted bugs of share partitions within a few seeds."""

import pytest

from tests.simulation.share.campaign import run_seed
from tests.simulation.share.planted import EVENTS, PLANTED


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bug_is_found(bug: str) -> None:
    planted = PLANTED[bug]
    noticed = []
    for seed in range(1, planted.seeds + 1):
        found = run_seed(seed, EVENTS, planted.patches).found
        if found is not None and found.invariant in planted.catchers:
            return
        noticed.append(found)
    pytest.fail(f"not noticed in {planted.seeds} seeds; instead: {[each for each in noticed if each is not None]}")
