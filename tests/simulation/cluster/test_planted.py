"""The checker detects planted bugs of controllers and of metadata within a few seeds."""

import pytest

from broker.build_form import COMPILED, build_form
from tests.simulation.cluster.campaign import run_deposed_leaders
from tests.simulation.cluster.planted import EVENTS, PLANTED

pytestmark = pytest.mark.slow


@pytest.mark.skipif(build_form() == COMPILED, reason="compiled callers do not see a planted bug")
@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bug_is_found(bug: str) -> None:
    planted = PLANTED[bug]
    noticed = []
    for seed in range(planted.first, planted.first + planted.seeds):
        found = planted.run(seed, EVENTS, planted.patches).found
        if found is not None and found.invariant in planted.catchers:
            return
        noticed.append(found)
    pytest.fail(f"not noticed in {planted.seeds} seeds; instead: {[each for each in noticed if each is not None]}")


@pytest.mark.parametrize("seed", range(6, 13))
def test_deposed_tiered_leaders_hold_every_invariant(seed: int) -> None:
    assert run_deposed_leaders(seed, EVENTS).found is None
