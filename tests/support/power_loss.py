"""A disk whose power fails at a chosen operation, and a walk over all of them."""

from collections.abc import Callable
from random import Random

from tests.support.memory_files import MemoryFileSystem, Operation

NEVER = 10**9


class PowerLoss(Exception):
    """Not an OSError: nobody may handle it."""


class FailingPower(MemoryFileSystem):
    """Raises PowerLoss instead of doing the operation after `left` more of them. Reads do not count."""

    def __init__(self) -> None:
        super().__init__()
        self.left = NEVER

    def maybe_fail(self, operation: Operation, path: str) -> None:
        if operation not in ("read", "list", "open"):
            if self.left == 0:
                raise PowerLoss(f"before the {operation} of {path}")
            self.left -= 1
        super().maybe_fail(operation, path)


def lose_power_in(fs: FailingPower, after: int, random: Random, work: Callable[[], object]) -> bool:
    """Does `work` until `after` operations were done; then the lights go out. False if it came to its end before."""
    fs.left = after
    try:
        work()
    except PowerLoss:
        fs.crash(random)
        return True
    finally:
        fs.left = NEVER
    return False
