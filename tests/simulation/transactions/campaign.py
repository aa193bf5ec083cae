"""Runs seeds of the transaction simulator, with the product's code or with planted bugs."""

from collections.abc import Sequence

from tests.simulation.replication.campaign import Patch, planted
from tests.simulation.simulator import SimulationResult
from tests.simulation.transactions.simulation import TransactionSimulator


def run_seed(seed: int, events: int, patches: Sequence[Patch] = ()) -> SimulationResult:
    """Run one seed."""
    with planted(patches):
        return TransactionSimulator(seed, events).run()
