"""Faults of disks."""

from tests.simulation.cluster.disks import StallableIo
from tests.simulation.cluster.fault_source import FaultSource


class DiskFaults(FaultSource):
    """Disks that fail, fill up or stall."""

    def fail_disk_soon(self) -> None:
        node_id = self._any_node()
        if node_id is not None:
            disk = self._random.choice(self._simulation.disks(node_id))
            disk.error_after = self._random.randint(0, 20)
            disk.error_path = "/"

    def fill_disk(self) -> None:
        """Fill a disk for a while: its node stops, or goes on with its other disk."""
        node_id = self._any_node()
        if node_id is None:
            return
        disk = self._random.choice(self._simulation.disks(node_id))
        disk.is_full = True
        self._note(f"a disk of node {node_id} is full")
        self._count("full disks")

        def free() -> None:
            disk.is_full = False

        self._after(self._random.choice((500.0, 3_000.0)), free)

    def stall_disk(self) -> None:
        node_id = self._any_node()
        if node_id is None:
            return
        stall_ms = self._random.choice((100.0, 500.0, 2_000.0))
        controller, node = self._simulation.controllers.get(node_id), self._simulation.nodes.get(node_id)
        io = (
            controller.io if controller is not None else None if node is None or node.broker is None else node.broker.io
        )
        assert isinstance(io, StallableIo)
        self._note(f"the disks of node {node_id} stall for {stall_ms:.0f} ms")
        self._count("stalled disks")
        io.stall(self._world.now_ms + stall_ms)
