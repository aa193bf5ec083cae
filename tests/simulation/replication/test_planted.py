"""The checker finds planted bugs, which other systems have had, within a few seeds."""

from collections.abc import Iterator
from multiprocessing.pool import Pool

import pytest

from tests.simulation.campaign import workers
from tests.simulation.replication.campaign import run_script
from tests.simulation.replication.planted import PLANTED, run_planted
from tests.simulation.replication.scripts import (
    fetch_of_a_former_life,
    fetch_of_an_unregistered_life,
    follower_from_an_older_epoch,
    parted_below_a_deletion,
    parted_below_a_forgotten_deletion,
)


@pytest.fixture(scope="module")
def worker() -> Iterator[Pool]:
    with workers(1) as pool:
        yield pool


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bug_is_found(bug: str, worker: Pool) -> None:
    planted = PLANTED[bug]
    noticed = []
    for seed in range(planted.first, planted.first + planted.seeds):
        found = worker.apply(run_planted, ((bug, seed),))
        if found in planted.catchers:
            return
        noticed.append(found)
    pytest.fail(f"not noticed in {planted.seeds} seeds; instead: {[each for each in noticed if each is not None]}")


@pytest.mark.parametrize(
    "script",
    [
        follower_from_an_older_epoch,
        fetch_of_a_former_life,
        fetch_of_an_unregistered_life,
        parted_below_a_deletion,
        parted_below_a_forgotten_deletion,
    ],
)
@pytest.mark.parametrize("seed", range(1, 6))
def test_script_without_a_planted_bug_violates_nothing(script: object, seed: int) -> None:
    assert callable(script)
    assert run_script(script, seed) is None
