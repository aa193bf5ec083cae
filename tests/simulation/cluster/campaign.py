"""Runs seeds of the cluster simulator, with the product's code or with planted bugs."""

import gc
from collections.abc import Sequence
from typing import Any

from tests.simulation.cluster.coordinators.applications import Work
from tests.simulation.cluster.schedule import (
    DeposedCoordinators,
    DeposedTieredLeaders,
    LosingStore,
    RandomSchedule,
    RottingStore,
)
from tests.simulation.cluster.simulation import ClusterSimulator
from tests.simulation.replication.campaign import Patch, planted
from tests.simulation.simulator import SimulationResult


def run_seed(seed: int, events: int, patches: Sequence[Patch] = ()) -> SimulationResult:
    """Run one seed."""
    return _run(seed, events, patches)


def run_deposed_leaders(seed: int, events: int, patches: Sequence[Patch] = ()) -> SimulationResult:
    """Run one seed with a tiered topic whose leaders are deposed and do not learn of it."""
    return _run(seed, events, patches, DeposedTieredLeaders, tiered=True)


def run_rotting_store(seed: int, events: int, patches: Sequence[Patch] = ()) -> SimulationResult:
    """Run one seed with a tiered topic whose objects rot."""
    return _run(seed, events, patches, RottingStore, tiered=True)


def run_losing_store(seed: int, events: int, patches: Sequence[Patch] = ()) -> SimulationResult:
    """Run one seed with a tiered topic whose objects are lost for good."""
    return _run(seed, events, patches, LosingStore, tiered=True)


def run_watching_controllers(seed: int, events: int, patches: Sequence[Patch] = ()) -> SimulationResult:
    """Run one seed whose controllers look for ended broker processes."""
    return _run(seed, events, patches, watches=True)


def run_members(seed: int, events: int, patches: Sequence[Patch] = ()) -> SimulationResult:
    """Run one seed with members of consumer groups."""
    return _run(seed, events, patches, tiered=False, coordinators=True, work=Work.MEMBERS)


def run_migrations(seed: int, events: int, patches: Sequence[Patch] = ()) -> SimulationResult:
    """Run one seed with members of both protocols in one group."""
    return _run(seed, events, patches, tiered=False, coordinators=True, work=Work.MIGRATIONS)


def run_shares(seed: int, events: int, patches: Sequence[Patch] = ()) -> SimulationResult:
    """Run one seed with members of a share group."""
    return _run(seed, events, patches, tiered=False, coordinators=True, work=Work.SHARES)


def run_coordinators(seed: int, events: int, patches: Sequence[Patch] = ()) -> SimulationResult:
    """Run one seed with coordinators of transactions and groups on the brokers."""
    return _run(seed, events, patches, tiered=False, coordinators=True)


def run_deposed_coordinators(seed: int, events: int, patches: Sequence[Patch] = ()) -> SimulationResult:
    """Run one seed with transaction coordinators that are deposed and do not learn of it."""
    return _run(seed, events, patches, DeposedCoordinators, tiered=False, coordinators=True, work=Work.TRANSACTIONS)


def _run(
    seed: int,
    events: int,
    patches: Sequence[Patch],
    schedule: type[RandomSchedule] = RandomSchedule,
    **roles: Any,
) -> SimulationResult:
    """Run one seed with planted bugs, and the roles of `ClusterSimulator`."""
    with planted(patches):
        try:
            return ClusterSimulator(seed, schedule, events=events, **roles).run()
        finally:
            gc.enable()  # a node that dies while it loads a snapshot leaves the collector disabled
