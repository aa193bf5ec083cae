"""Runs seeds of the replication simulator, with the product's code or with planted bugs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from tests.simulation.campaign import without_log_lines
from tests.simulation.replication.schedule import RandomSchedule
from tests.simulation.replication.simulation import ReplicationSimulator
from tests.simulation.simulator import SimulationResult, Violation


class Patch(NamedTuple):
    """An attribute of a class or module, and its replacement during a simulation."""

    owner: Any
    name: str
    replacement: Any


@contextmanager
def planted(patches: Sequence[Patch]) -> Iterator[None]:
    """Apply patches, and suppress the broker's log, for the duration."""
    with without_log_lines(), ExitStack() as stack:
        for each in patches:
            stack.enter_context(patch.object(each.owner, each.name, each.replacement))
        yield


def run_seed(seed: int, events: int, patches: Sequence[Patch] = ()) -> SimulationResult:
    """Run one seed."""
    with planted(patches):
        return ReplicationSimulator(seed, RandomSchedule, events=events).run()


def run_script(script: Callable[[int], None], seed: int, patches: Sequence[Patch] = ()) -> str | None:
    """Run a script; return the invariant that it violates, if any."""
    with planted(patches):
        try:
            script(seed)
        except Violation as violation:
            return violation.invariant
    return None
