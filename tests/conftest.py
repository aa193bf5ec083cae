"""Configuration of the whole suite.

One run decides on a pull request, so every run is the same: hypothesis draws the same examples, and no example fails
for its duration on a busy machine. OTTLA_EXHAUSTIVE=1 draws new examples.
"""

import gc

import pytest
from hypothesis import HealthCheck, settings

from tests.protocol.profile import EXHAUSTIVE

settings.register_profile(
    "suite",
    max_examples=1000 if EXHAUSTIVE else 100,
    derandomize=not EXHAUSTIVE,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the slowest kinds of tests first: the workers then end at about the same time."""
    items.sort(key=_speed)


def pytest_collection_finish() -> None:
    """Keep tests and modules out of garbage collections: they live until the end, and there are millions of objects."""
    gc.collect()
    gc.freeze()


def _speed(item: pytest.Item) -> int:
    if item.get_closest_marker("integration") or item.get_closest_marker("interop"):
        return 0
    return 1 if item.get_closest_marker("slow") else 2
