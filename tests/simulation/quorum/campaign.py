"""Runs seeds of the quorum simulator, with the product's code or with planted bugs."""

from tests.simulation.quorum.replica import Parts, RealReplicas
from tests.simulation.quorum.schedule import RandomSchedule
from tests.simulation.quorum.simulation import QuorumSimulator
from tests.simulation.simulator import SimulationResult


def run_seed(seed: int, events: int, parts: Parts | None = None) -> SimulationResult:
    """Run one seed."""
    return QuorumSimulator(seed, RealReplicas(parts or Parts()), RandomSchedule, events=events).run()
