"""The disks of a machine: one for the metadata log, one for partitions. Either can fill up, and stall."""

import errno
from random import Random

from tests.simulation.quorum.disk import SimulatedDisk
from tests.simulation.replication.disk import PartitionDisk
from tests.simulation.world import Process, SimulatedIo


class MetadataDisk(SimulatedDisk):
    """A metadata disk; while `is_full`, every write fails."""

    is_full = False

    def claim(self, size: int) -> None:
        if self.is_full and size > 0:
            self.has_failed = True
            raise OSError(errno.ENOSPC, "the disk is full")


class DataDisk(PartitionDisk):
    """A disk of partition logs; while `is_full`, every write fails."""

    is_full = False

    def claim(self, size: int) -> None:
        if self.is_full and size > 0:
            self.has_failed = True
            raise OSError(errno.ENOSPC, "the disk is full")


class StallableIo(SimulatedIo):
    """File work of a process whose disks may stall: until `stalled_until_ms`, no piece of work ends."""

    def __init__(self, process: Process, random: Random, *, inline_share: float, delay_ms: float) -> None:
        super().__init__(process, random, inline_share=inline_share, delay_ms=delay_ms)
        self._usual_share = inline_share
        self.stalled_until_ms = 0.0

    def stall(self, until_ms: float) -> None:
        """Stall the disks until a simulated time."""
        self.stalled_until_ms = until_ms
        self._inline_share = 0.0

    def _schedule(self) -> None:
        now_ms = self._process.world.now_ms
        left_ms = max(0.0, self.stalled_until_ms - now_ms)
        if not left_ms:
            self._inline_share = self._usual_share
        delay_ms = left_ms + self._random.expovariate(1.0 / self._delay_ms)
        self._process.world.schedule(delay_ms, self._run_first, process=self._process)
