"""The release of the program that runs, and its form: hot modules compiled by mypyc, or pure Python."""

import functools
import sys
from typing import Final

from broker.clock import SystemClock
from broker.metrics.family import Family, Sample

COMPILED: Final = "compiled"
PURE: Final = "pure Python"


@functools.cache
def release() -> str:
    """Return the version of the installed package. The first call takes 15 ms, which no start needs to spend."""
    from importlib.metadata import version

    return version("ottla")


def build_form() -> str:
    """Return "compiled" or "pure Python". Builds compile all modules of `[tool.ottla.compile]` or none."""
    source = sys.modules[SystemClock.__module__].__file__ or ""
    return PURE if source.endswith(".py") else COMPILED


def build_info() -> Family:
    """Return the gauge whose labels describe the build; its value is 1."""
    return Family("ottla_build_info", "Version of Ottla, form of its build, and version of Python", "gauge", _read)


def _read() -> list[Sample]:
    python = ".".join(str(part) for part in sys.version_info[:3])
    return [Sample(1, {"version": release(), "form": build_form(), "python": python})]
