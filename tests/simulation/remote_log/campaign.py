"""Runs seeds of the remote storage simulator, with the product's code or with planted bugs."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from tests.simulation.campaign import without_log_lines
from tests.simulation.remote_log.cluster import RemoteStorageSimulator
from tests.simulation.simulator import SimulationResult


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Keep the garbage of one seed, which is small, until its end."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def run_seed(seed: int, events: int) -> SimulationResult:
    """Run one seed."""
    with without_log_lines(), without_garbage_collection():
        return RemoteStorageSimulator(seed, events).run()
