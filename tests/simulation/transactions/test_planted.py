"""The checker detects planted bugs of transactions within a few seeds."""

import pytest

from broker.build_form import COMPILED, build_form
from tests.simulation.transactions.campaign import run_seed
from tests.simulation.transactions.planted import EVENTS, PLANTED


@pytest.mark.skipif(build_form() == COMPILED, reason="compiled callers do not see a planted bug")
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
