"""Faults of machines: stalls, wall clocks that step, and disks that fail, fill or stall."""

from collections.abc import Callable
from random import Random
from typing import Final

from tests.simulation.replication.broker import Node
from tests.simulation.replication.process import StallingIo
from tests.simulation.replication.simulation import ReplicationSimulator

_CLOCK_STEPS_MS: Final = (5_000, 3_600_000, 86_400_000)


class MachineFaults:
    """The faults of machines that lose no data by themselves."""

    def __init__(self, simulation: ReplicationSimulator, random: Random, note: Callable[[str], None]) -> None:
        self._simulation = simulation
        self._random = random
        self._note = note

    def _any(self) -> Node | None:
        up = [node for node in self._simulation.nodes.values() if node.is_up]
        return self._random.choice(up) if up else None

    def stall(self) -> None:
        """Pause a machine: only its clocks continue."""
        node = self._any()
        if node is not None and node.broker is not None:
            pause_ms = self._random.choice((50.0, 800.0, 3_000.0)) * self._simulation.scenario.pace
            self._note(f"node {node.id} stalls for {pause_ms:.0f} ms")
            node.broker.process.stalled_until_ms = self._simulation.world.now_ms + pause_ms

    def stall_disk(self) -> None:
        """Let the file work of a process wait; what runs on its loop continues."""
        node = self._any()
        if node is not None and node.broker is not None and isinstance(node.broker.io, StallingIo):
            pause_ms = self._random.choice((100.0, 1_000.0, 5_000.0)) * self._simulation.scenario.pace
            self._note(f"the disk of node {node.id} stalls for {pause_ms:.0f} ms")
            self._simulation.checker.counts.add("disk stalls")
            node.broker.io.stalled_until_ms = self._simulation.world.now_ms + pause_ms

    def step_clock(self) -> None:
        """Step the wall clock of a broker or of the controller."""
        step_ms = self._random.choice(_CLOCK_STEPS_MS) * self._random.choice((1, -1))
        self._simulation.checker.counts.add("clock steps")
        if self._random.random() < 0.3:
            self._note(f"the wall clock of the controller steps by {step_ms} ms")
            self._simulation.service.process.step_wall_clock(step_ms)
            return
        node = self._random.choice(list(self._simulation.nodes.values()))
        self._note(f"the wall clock of node {node.id} steps by {step_ms} ms")
        node.wall_offset_ms += step_ms
        if node.broker is not None:
            node.broker.process.step_wall_clock(step_ms)

    def fail_directory_soon(self) -> None:
        """Let a log directory fail at one of its next operations."""
        node = self._any()
        if node is not None:
            node.disk.error_path = self._random.choice(node.disk.directories(self._simulation.scenario.directories))
            node.disk.error_after = self._random.randint(0, 20)

    def fill_disk(self) -> None:
        """Let no file of a log directory grow for a while."""
        node = self._any()
        if node is not None:
            path = self._random.choice(node.disk.directories(self._simulation.scenario.directories))
            self._note(f"the disk of node {node.id} is full at {path}")
            self._simulation.checker.counts.add("full disks")
            node.disk.full_path = path
            length_ms = self._random.uniform(1.0, 4.0) * self._simulation.scenario.session_timeout_ms
            self._simulation.world.schedule(length_ms, self._free, node)

    def _free(self, node: Node) -> None:
        node.disk.full_path = None
