"""The form of a planted bug of the cluster plane."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.simulation.cluster.campaign import run_seed
from tests.simulation.replication.campaign import Patch
from tests.simulation.simulator import SimulationResult


class Planted(NamedTuple):
    """A bug, the invariants of which one must fail, and the number of seeds, from `first` on, within which it must.

    `first` is close to a seed that fails, for speed; `seeds` is the bound if histories change. `run` runs a seed.
    """

    patches: tuple[Patch, ...]
    catchers: frozenset[str]
    seeds: int
    first: int = 1
    run: Callable[[int, int, Sequence[Patch]], SimulationResult] = run_seed
