"""The build backend: setuptools, which also asks for mypyc where OTTLA_COMPILE=1 compiles modules of a wheel."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def get_requires_for_build_wheel(config_settings: Mapping[str, str | list[str] | None] | None = None) -> list[str]:
    """Return the packages that the build of a wheel needs beside those of `[build-system]`."""
    if os.environ.get("OTTLA_COMPILE") == "1":  # setup.py cannot run before mypyc is there
        settings = tomllib.loads(Path("pyproject.toml").read_text())
        return list(settings["tool"]["ottla"]["compile"]["requires"])
    return build_meta.get_requires_for_build_wheel(config_settings)
