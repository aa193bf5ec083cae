"""Work on images of a million partitions in steps, so that the event loop runs in between.

Such work is a generator, which yields after about a millisecond and returns its result. The driver decides how many
steps form a slice, since only drivers know the time. `finish` runs all steps at once.
"""

from collections.abc import Generator, Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import Any, Final, Protocol, TypeAlias, TypeVar

# Units of cheap work, such as one dict entry or one comparison of keys, in a step.
UNITS_PER_STEP: Final = 4_096

R = TypeVar("R")
Steps: TypeAlias = Generator[None, None, R]


class Sortable(Protocol):
    """A type with an order."""

    def __lt__(self, other: Any, /) -> bool: ...


K = TypeVar("K", bound=Sortable)


def finish(steps: Steps[R]) -> R:
    """Run all steps and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: R = stop.value
            return result


def sorted_in_steps(keys: Iterable[K]) -> Steps[Iterator[K]]:
    """Return the keys in order. Runs are sorted in steps, and merged while the result is read."""
    unsorted = iter(keys)
    runs: list[list[K]] = []
    while run := list(islice(unsorted, UNITS_PER_STEP)):
        run.sort()
        runs.append(run)
        yield
    return iter(runs[0]) if len(runs) == 1 else merge(*runs)
