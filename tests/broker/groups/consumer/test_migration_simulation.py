"""The simulation of migrating groups keeps its invariants, contains both conversions, and notices planted bugs."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from broker.build_form import COMPILED, build_form
from broker.groups import replay
from broker.groups.classic import ClassicGroup
from broker.groups.consumer import departures, groups, migration
from broker.groups.consumer.environment import MigrationPolicy
from broker.groups.records import group_written
from broker.groups.replay import group_from_record
from tests.broker.groups.consumer.migration_simulation import MigrationSimulation

SEEDS = range(15)
SEEDS_OF_A_BUG = range(20)


@pytest.mark.parametrize("policy", MigrationPolicy)
def test_random_migrations_keep_single_owners_and_end_fully_assigned(policy: MigrationPolicy) -> None:
    counts = Counter[str]()
    for seed in SEEDS:
        simulation = MigrationSimulation(seed, policy)
        try:
            simulation.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        counts += simulation.counts
    assert (counts["upgrades"] > 5, counts["downgrades"] > 5) == (policy.allows_upgrade, policy.allows_downgrade)


def _with_generation_0(function: Callable[..., Any]) -> Callable[..., Any]:
    def changed(classic: Any, *rest: Any) -> Any:
        classic.generation = 0
        return function(classic, *rest)

    return changed


def _without_rebalance(*arguments: Any) -> ClassicGroup:
    group = group_from_record(*arguments)
    group.awaits_rebalance = False
    return group


_upgraded = migration.upgraded

PLANTED: dict[str, tuple[object, str, object]] = {
    "a group of classic members alone stays": (departures, "can_downgrade", lambda *_: False),
    "a downgrade loses the targets": (migration, "assignment_bytes", lambda *_: b""),
    "a downgrade begins with generation 0": (migration, "group_written", _with_generation_0(group_written)),
    "a downgrade is followed by no rebalance": (
        replay,
        "group_from_record",
        _without_rebalance,
    ),
    "an upgrade forgets what members own": (migration, "embedded_assignment", lambda *_: {}),
    "an upgrade begins with epoch 0": (groups, "upgraded", _with_generation_0(_upgraded)),
}


@pytest.mark.skipif(build_form() == COMPILED, reason="compiled callers do not see a planted bug")
@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*PLANTED[bug])
    for seed in SEEDS_OF_A_BUG:
        try:
            MigrationSimulation(seed, MigrationPolicy.BIDIRECTIONAL).run()
        except AssertionError:
            return
    pytest.fail(f"not noticed in {len(SEEDS_OF_A_BUG)} seeds")
