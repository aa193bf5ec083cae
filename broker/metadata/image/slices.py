"""Work on images of a million partitions, cut into steps: an event loop gets its turn between any two of them.

Such work is a generator. It yields after about a millisecond's worth and returns its result; whoever drives it decides
how many steps make a slice, since only drivers know the time. `finish` is for those who need not wait.
"""

from collections.abc import Generator, Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import Any, Final, Protocol, TypeAlias, TypeVar

# Units of cheap work (one dict entry, one comparison of keys) in a step.
UNITS_PER_STEP: Final = 4_096

R = TypeVar("R")
Steps: TypeAlias = Generator[None, None, R]


class Sortable(Protocol):
    """What has an order."""

    def __lt__(self, other: Any, /) -> bool: ...


K = TypeVar("K", bound=Sortable)


def finish(steps: Steps[R]) -> R:
    """Do all the steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: R = stop.value
            return result


def sorted_in_steps(keys: Iterable[K]) -> Steps[Iterator[K]]:
    """The keys in order. Runs are sorted in steps, and merged as the result is read."""
    unsorted = iter(keys)
    runs: list[list[K]] = []
    while run := list(islice(unsorted, UNITS_PER_STEP)):
        run.sort()
        runs.append(run)
        yield
    return iter(runs[0]) if len(runs) == 1 else merge(*runs)
