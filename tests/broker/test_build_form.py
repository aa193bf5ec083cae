"""The form of the build, as `ottla --version` and the metrics tell it."""

import sys
import tomllib
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

from broker.build_form import COMPILED, PURE, build_form, build_info
from tests.support.kafka.apache_kafka import REPOSITORY

SETTINGS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
MODULES: list[str] = SETTINGS["tool"]["ottla"]["compile"]["modules"]


def test_listed_modules_exist_and_are_sorted() -> None:
    assert sorted(MODULES) == MODULES
    assert [path for path in MODULES if not (REPOSITORY / path).is_file()] == []


def test_checkout_has_no_extension_module() -> None:
    """A stale extension would hide later changes of its source."""
    if build_form() == COMPILED:
        pytest.skip("the tests run in the copy of the checkout that `make test-compiled` makes")
    folders = ("broker", "protocol", "storage", "schemas", "spark_jobs")
    assert [path for folder in folders for path in (REPOSITORY / folder).rglob("*.so")] == []


@pytest.mark.parametrize("path", MODULES)
def test_modules_are_compiled_all_or_none(path: str) -> None:
    module = import_module(path.removesuffix(".py").replace("/", "."))
    assert module.__file__ is not None
    assert Path(module.__file__).suffix == (".py" if build_form() == PURE else ".so")


def test_metric_tells_version_form_and_interpreter() -> None:
    (sample,) = build_info().read()
    python = ".".join(map(str, sys.version_info[:3]))
    assert (sample.value, sample.labels) == (1, {"version": version("ottla"), "form": build_form(), "python": python})


def test_compilation_uses_the_pinned_mypy() -> None:
    assert set(SETTINGS["tool"]["ottla"]["compile"]["requires"]) <= {
        *SETTINGS["project"]["optional-dependencies"]["test"]
    }
