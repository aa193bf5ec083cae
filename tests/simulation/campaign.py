"""Many seeds in several processes, without the log lines of the simulated nodes."""

import logging
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path

from tests.simulation.simulator import SimulationResult

RunSeed = Callable[[int, int], SimulationResult]
"""Runs a seed for a number of events."""

Job = tuple[RunSeed, int, int]

_JOBS_AT_A_TIME = 4


@contextmanager
def workers(count: int) -> Iterator[Pool]:
    """Start processes that run seeds."""
    with get_context("spawn").Pool(count) as pool:
        yield pool


def run_job(job: Job) -> SimulationResult:
    """Run a job in a worker. Raise RuntimeError with the trace of an error that ended the seed.

    Another process cannot receive every exception, and one that it cannot receive would stop it.
    """
    run_seed, seed, events = job
    try:
        return run_seed(seed, events)
    except Exception as error:  # noqa: BLE001  whatever ended the seed
        raise RuntimeError(f"seed {seed}: {''.join(traceback.format_exception(error))}") from None


def run_seeds(run_seed: RunSeed, seeds: Iterable[int], events: int, *, processes: int) -> Iterator[SimulationResult]:
    """Run seeds in worker processes; yield results in the order of completion."""
    jobs: list[Job] = [(run_seed, seed, events) for seed in seeds]
    with workers(processes) as pool:
        yield from pool.imap_unordered(run_job, jobs, chunksize=min(_JOBS_AT_A_TIME, len(jobs)))


def regression_seeds(directory: Path, default_events: int) -> list[tuple[int, int]]:
    """Return the seeds in `regression_seeds.txt` that once found a violation, each with its number of events."""
    lines = (directory / "regression_seeds.txt").read_text().splitlines()
    first_words = [line.split()[0].partition(":") for line in lines if line and not line.startswith("#")]
    return [(int(seed), int(events or default_events)) for seed, _, events in first_words]


@contextmanager
def without_log_lines() -> Iterator[None]:
    """Suppress the broker's log for the duration."""
    logger = logging.getLogger("broker")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
