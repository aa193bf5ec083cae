"""One seed with the real parts, or with some of them planted wrong, told like those of the other planes."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.pool import Pool

from tests.simulation.history import Violation
from tests.simulation.tiered.cluster import Cluster
from tests.simulation.tiered.state import Counts


@dataclass(frozen=True, slots=True)
class Found:
    """A violation, and what led to it."""

    seed: int
    event: int
    invariant: str
    text: str
    last_lines: list[str]


@dataclass(frozen=True, slots=True)
class Result:
    seed: int
    events: int
    counts: Counts
    found: Found | None = None
    lines: list[str] = field(default_factory=list)


def run_seed(seed: int, events: int) -> Result:
    """The history of a seed: always the same, as long as the code is. Without the log lines of many nodes at once."""
    logger = logging.getLogger("broker")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        return _run(Cluster(seed, events))
    finally:
        logger.setLevel(level)


def _run(cluster: Cluster) -> Result:
    state, found = cluster.state, None
    try:
        cluster.run()
    except Violation as violation:
        found = Found(state.seed, state.events, violation.invariant, violation.text, list(state.lines))
    return Result(state.seed, state.events, state.counts, found, list(state.lines))


def run_job(job: tuple[int, int]) -> Result:
    """A seed and its events, for `workers`."""
    return run_seed(*job)


@contextmanager
def workers(count: int) -> Iterator[Pool]:
    """Processes to run seeds in."""
    with get_context("spawn").Pool(count) as pool:
        yield pool
