"""Runs seeds of the remote storage simulator, with the product's code or with planted bugs."""

from tests.simulation.campaign import without_log_lines
from tests.simulation.remote_log.cluster import RemoteStorageSimulator
from tests.simulation.simulator import SimulationResult


def run_seed(seed: int, events: int) -> SimulationResult:
    """Run one seed."""
    with without_log_lines():
        return RemoteStorageSimulator(seed, events).run()
