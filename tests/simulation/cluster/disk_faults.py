"""Faults of disks and of the object store."""

from tests.simulation.cluster.disks import StallableIo
from tests.simulation.cluster.fault_source import FaultSource


class DiskFaults(FaultSource):
    """Disks that fail, fill up or stall, and an object store that is down or loses responses."""

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

    def fail_store(self) -> None:
        """Let the object store be down, or lose responses, for a while."""
        tier = self._simulation.tier
        if tier is None:
            return
        for_ms = self._random.choice((300.0, 1_000.0, 4_000.0))
        if self._random.random() < 0.5:
            tier.faults.is_down = True
            self._count("store outages")
        else:
            tier.faults.lost_share = self._random.choice((0.2, 0.7))
            self._count("stores that lose responses")
        self._note(f"the store {'is down' if tier.faults.is_down else 'loses responses'} for {for_ms:.0f} ms")
        self._after(for_ms, tier.faults.end)
