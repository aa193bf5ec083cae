"""The checker detects planted bugs, known from other systems, within a few seeds."""

from collections.abc import Iterator
from multiprocessing.pool import Pool

import pytest

from broker.build_form import COMPILED, build_form
from tests.simulation.campaign import workers
from tests.simulation.replication.campaign import run_script
from tests.simulation.replication.planted import PLANTED, run_planted
from tests.simulation.replication.scripts.recreation import (
    fetch_with_deleted_topic_id,
    topic_recreated_while_brokers_are_dead,
)
from tests.simulation.replication.scripts.rot import rotten_record_of_a_leader, rotten_record_of_the_last_replica
from tests.simulation.replication.scripts.scripted import (
    acknowledgement_of_an_earlier_term,
    delayed_fetch_before_registration,
    delayed_fetch_of_previous_registration,
    divergence_below_deleted_records,
    divergence_below_lost_log_start,
    fetch_with_older_leader_epoch,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def worker() -> Iterator[Pool]:
    with workers(1) as pool:
        yield pool


@pytest.mark.skipif(build_form() == COMPILED, reason="compiled callers do not see a planted bug")
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
        fetch_with_older_leader_epoch,
        delayed_fetch_of_previous_registration,
        delayed_fetch_before_registration,
        divergence_below_deleted_records,
        divergence_below_lost_log_start,
        acknowledgement_of_an_earlier_term,
        rotten_record_of_a_leader,
        rotten_record_of_the_last_replica,
        topic_recreated_while_brokers_are_dead,
        fetch_with_deleted_topic_id,
    ],
)
@pytest.mark.parametrize("seed", range(1, 6))
def test_script_without_planted_bug_holds_every_invariant(script: object, seed: int) -> None:
    assert callable(script)
    assert run_script(script, seed) is None
