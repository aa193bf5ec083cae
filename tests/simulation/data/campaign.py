"""One seed with the real parts, or with some of them planted wrong."""

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest.mock import patch

from tests.simulation.data.schedule import RandomSchedule
from tests.simulation.data.simulation import Result, Simulation


class Patch(NamedTuple):
    """Something of a class or module that is replaced while a history runs."""

    owner: Any
    name: str
    replacement: Any


def run_seed(seed: int, events: int, patches: Sequence[Patch] = ()) -> Result:
    """The history of a seed: always the same, as long as the code is."""
    logger = logging.getLogger("broker")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with ExitStack() as planted:
            for each in patches:
                planted.enter_context(patch.object(each.owner, each.name, each.replacement))
            return Simulation(seed, RandomSchedule, events=events).run()
    finally:
        logger.setLevel(level)
