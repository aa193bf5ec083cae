"""Runs seeds of the cluster simulator, with the product's code or with planted bugs."""

import gc
from collections.abc import Sequence

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
    with planted(patches):
        try:
            return ClusterSimulator(seed, RandomSchedule, events=events).run()
        finally:
            gc.enable()  # a node that dies while it loads a snapshot leaves the collector disabled


def run_deposed_leaders(seed: int, events: int, patches: Sequence[Patch] = ()) -> SimulationResult:
    """Run one seed with a tiered topic whose leaders are deposed and do not learn of it."""
    with planted(patches):
        try:
            return ClusterSimulator(seed, DeposedTieredLeaders, events=events, tiered=True).run()
        finally:
            gc.enable()


def run_rotting_store(seed: int, events: int, patches: Sequence[Patch] = ()) -> SimulationResult:
    """Run one seed with a tiered topic whose objects rot."""
    with planted(patches):
        try:
            return ClusterSimulator(seed, RottingStore, events=events, tiered=True).run()
        finally:
            gc.enable()


def run_losing_store(seed: int, events: int, patches: Sequence[Patch] = ()) -> SimulationResult:
    """Run one seed with a tiered topic whose objects are lost for good."""
    with planted(patches):
        try:
            return ClusterSimulator(seed, LosingStore, events=events, tiered=True).run()
        finally:
            gc.enable()


def run_watching_controllers(seed: int, events: int, patches: Sequence[Patch] = ()) -> SimulationResult:
    """Run one seed whose controllers look for ended broker processes."""
    with planted(patches):
        try:
            return ClusterSimulator(seed, RandomSchedule, events=events, watches=True).run()
        finally:
            gc.enable()


def run_members(seed: int, events: int, patches: Sequence[Patch] = ()) -> SimulationResult:
    """Run one seed with members of consumer groups."""
    with planted(patches):
        try:
            return ClusterSimulator(
                seed, RandomSchedule, events=events, tiered=False, coordinators=True, work=Work.MEMBERS
            ).run()
        finally:
            gc.enable()


def run_migrations(seed: int, events: int, patches: Sequence[Patch] = ()) -> SimulationResult:
    """Run one seed with members of both protocols in one group."""
    with planted(patches):
        try:
            return ClusterSimulator(
                seed, RandomSchedule, events=events, tiered=False, coordinators=True, work=Work.MIGRATIONS
            ).run()
        finally:
            gc.enable()


def run_shares(seed: int, events: int, patches: Sequence[Patch] = ()) -> SimulationResult:
    """Run one seed with members of a share group."""
    with planted(patches):
        try:
            return ClusterSimulator(
                seed, RandomSchedule, events=events, tiered=False, coordinators=True, work=Work.SHARES
            ).run()
        finally:
            gc.enable()


def run_coordinators(seed: int, events: int, patches: Sequence[Patch] = ()) -> SimulationResult:
    """Run one seed with coordinators of transactions and groups on the brokers."""
    with planted(patches):
        try:
            return ClusterSimulator(seed, RandomSchedule, events=events, tiered=False, coordinators=True).run()
        finally:
            gc.enable()


def run_deposed_coordinators(seed: int, events: int, patches: Sequence[Patch] = ()) -> SimulationResult:
    """Run one seed with transaction coordinators that are deposed and do not learn of it."""
    with planted(patches):
        try:
            return ClusterSimulator(
                seed,
                DeposedCoordinators,
                events=events,
                tiered=False,
                coordinators=True,
                work=Work.TRANSACTIONS,
            ).run()
        finally:
            gc.enable()
