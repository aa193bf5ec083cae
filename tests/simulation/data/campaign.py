"""Seeds with the real parts, or with some of them planted wrong, in processes of their own or in this one."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from multiprocessing.pool import Pool
from typing import Any, NamedTuple
from unittest.mock import patch

from tests.simulation.data.schedule import RandomSchedule
from tests.simulation.data.simulation import Result, Simulation
from tests.simulation.history import Violation


class Patch(NamedTuple):
    """Something of a class or module that is replaced while a history runs."""

    owner: Any
    name: str
    replacement: Any


@contextmanager
def planted(patches: Sequence[Patch]) -> Iterator[None]:
    """With these in place, and without the log lines of many nodes at once."""
    logger = logging.getLogger("broker")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with ExitStack() as stack:
            for each in patches:
                stack.enter_context(patch.object(each.owner, each.name, each.replacement))
            yield
    finally:
        logger.setLevel(level)


def run_seed(seed: int, events: int, patches: Sequence[Patch] = ()) -> Result:
    """The history of a seed: always the same, as long as the code is."""
    with planted(patches):
        return Simulation(seed, RandomSchedule, events=events).run()


def run_script(script: Callable[[int], None], seed: int, patches: Sequence[Patch] = ()) -> str | None:
    """Play a script; the rule that it breaks, if any."""
    with planted(patches):
        try:
            script(seed)
        except Violation as violation:
            return violation.invariant
    return None


def run_job(job: tuple[int, int]) -> Result:
    """A seed and its events, for `workers`."""
    return run_seed(*job)


@contextmanager
def workers(count: int) -> Iterator[Pool]:
    """Processes to run seeds in."""
    with get_context("spawn").Pool(count) as pool:
        yield pool
