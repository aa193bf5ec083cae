"""A disk that loses power at a chosen operation, and a loop over all operations."""

from collections.abc import Callable
from random import Random

from tests.support.fakes.memory_files import MemoryFileSystem, Operation

NEVER = 10**9


class PowerLoss(Exception):
    """Power failure. Not derived from OSError, so that no code handles it."""


class FailingPower(MemoryFileSystem):
    """A file system that raises PowerLoss instead of an operation after `left` more of them. Reads do not count."""

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
    """Run `work` until `after` operations, then crash. Return False if `work` completed before."""
    fs.left = after
    try:
        work()
    except PowerLoss:
        fs.crash(random)
        return True
    finally:
        fs.left = NEVER
    return False
