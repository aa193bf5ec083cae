"""The common state of a schedule: the simulation, the random source, and the end of the faults."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.cluster.controller import ControllerProcess
from tests.simulation.cluster.tier_checker import TIERED_NAME
from tests.simulation.replication.broker import Node
from tests.simulation.replication.disk import ReplicaName

if TYPE_CHECKING:
    from tests.simulation.cluster.simulation import ClusterSimulator


class ScheduleState:
    """The state of a schedule. After `is_over` there are no faults; until `quiet_until_ms` there is only work."""

    def __init__(self, simulation: "ClusterSimulator") -> None:
        self.simulation = simulation
        self.random = Random(f"schedule {simulation.seed}")
        self.is_over = False
        self.quiet_until_ms = 0.0


class FaultSource:
    """A source of faults or operations."""

    def __init__(self, state: ScheduleState) -> None:
        self._state = state
        self._simulation = state.simulation
        self._random = state.random
        self._world = state.simulation.world

    @property
    def _is_over(self) -> bool:
        return self._state.is_over

    def _after(self, delay_ms: float, action: Callable[[], None]) -> None:
        self._world.schedule(delay_ms, action)

    def _note(self, text: str) -> None:
        self._simulation.checker.note(text)

    def _count(self, name: str) -> None:
        self._simulation.checker.counts.add(name)

    def _brokers(self) -> list[Node]:
        """Return the running brokers."""
        return [node for node in self._simulation.nodes.values() if node.is_up]

    def _controllers(self) -> list[ControllerProcess]:
        return list(self._simulation.controllers.values())

    def _any_node(self) -> int | None:
        """Return a running node."""
        up = [node_id for node_id in self._simulation.quorum_nodes if self._simulation.is_up(node_id)]
        return self._random.choice(up) if up else None

    def _any(self, nodes: list[Node]) -> Node | None:
        return self._random.choice(nodes) if nodes else None

    def _partitions(self) -> list[ReplicaName]:
        checker = self._simulation.checker
        return [*checker.data.histories, *([] if checker.tier is None else [TIERED_NAME])]
