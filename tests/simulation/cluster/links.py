"""Links between nodes and clients, cut for a while."""

from collections.abc import Callable
from typing import NamedTuple

from tests.simulation.quorum.network import Network
from tests.simulation.replication.network import Wires
from tests.simulation.world import World


class Cut(NamedTuple):
    """Cut links, as pairs of sender and receiver, until a time. A lasting cut outlives the repair of other links."""

    links: frozenset[tuple[int, int]]
    until_ms: float
    is_lasting: bool


class Links:
    """The cut links of both networks of a cluster; `is_recovering` tells whether the faults are over."""

    def __init__(self, world: World, wires: Wires, network: Network, is_recovering: Callable[[], bool]) -> None:
        self._world = world
        self._wires = wires
        self._network = network
        self._is_recovering = is_recovering
        self._cuts: list[Cut] = []

    def cut(self, links: frozenset[tuple[int, int]], for_ms: float, *, is_lasting: bool = False) -> None:
        """Cut links for a while, in addition to those that are cut already."""
        self._cuts.append(Cut(links, self._world.now_ms + for_ms, is_lasting))
        self._world.schedule(for_ms, self._block)
        self._block()

    @property
    def has_lasting_cut(self) -> bool:
        return any(cut.is_lasting for cut in self._cuts)

    def heal(self) -> None:
        """Restore all links; those of lasting cuts only after the faults."""
        self._cuts = [cut for cut in self._cuts if cut.is_lasting and not self._is_recovering()]
        self._block()

    def _block(self) -> None:
        self._cuts = [cut for cut in self._cuts if cut.until_ms > self._world.now_ms]
        links: frozenset[tuple[int, int]] = frozenset[tuple[int, int]]().union(*(cut.links for cut in self._cuts))
        self._wires.block(links)
        self._network.block(links)
