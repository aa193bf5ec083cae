"""Runs seeds of the share simulator, with the product's code or with planted bugs."""

from collections.abc import Sequence

from tests.simulation.replication.campaign import Patch, planted
from tests.simulation.share.simulation import ShareSimulator
from tests.simulation.simulator import SimulationResult


def run_seed(seed: int, events: int, patches: Sequence[Patch] = ()) -> SimulationResult:
    """Run one seed."""
    with planted(patches):
        return ShareSimulator(seed, events).run()
