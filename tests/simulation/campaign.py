"""One seed with the real parts, or with some of them planted wrong."""

from tests.simulation.replica import Parts, RealReplicas
from tests.simulation.schedule import RandomSchedule
from tests.simulation.simulation import Result, Simulation


def run_seed(seed: int, events: int, parts: Parts | None = None) -> Result:
    """The history of a seed: always the same, as long as the code is."""
    return Simulation(seed, RealReplicas(parts or Parts()), RandomSchedule, events=events).run()
