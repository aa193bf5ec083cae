"""The form of the program that runs: hot modules compiled by mypyc, or pure Python."""

import sys
from typing import Final

from broker.clock import SystemClock
from broker.metrics.family import Family, Sample

COMPILED: Final = "compiled"
PURE: Final = "pure Python"


def build_form() -> str:
    """Return "compiled" or "pure Python". Builds compile all modules of `[tool.ottla.compile]` or none."""
    source = sys.modules[SystemClock.__module__].__file__ or ""
    return PURE if source.endswith(".py") else COMPILED


def build_info() -> Family:
    """Return the gauge whose labels describe the build; its value is 1."""
    return Family("ottla_build_info", "Version of Ottla, form of its build, and version of Python", "gauge", _read)


def _read() -> list[Sample]:
    from importlib.metadata import version  # at the first scrape, since no start needs it

    python = ".".join(str(part) for part in sys.version_info[:3])
    return [Sample(1, {"version": version("ottla"), "form": build_form(), "python": python})]
