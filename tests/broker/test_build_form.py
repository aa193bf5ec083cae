"""The form of the build, as `ottla --version` and the metrics tell it."""

import re
import sys
import tomllib
from collections.abc import Iterator
from enum import Enum
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from pkgutil import walk_packages

import pytest

import broker
import protocol
import storage
from broker.build_form import COMPILED, PURE, build_form, build_info
from tests.support.kafka.apache_kafka import REPOSITORY

SETTINGS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
MODULES: list[str] = SETTINGS["tool"]["ottla"]["compile"]["modules"]

NAMES = {path.removesuffix(".py").replace("/", ".") for path in MODULES}
IS_HEAP_TYPE = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: set for classes in Python, and not for the static types of CPython and its extensions."""


@cache
def classes() -> list[type]:
    """Return all classes of the program, except those that mypyc leaves interpreted: named tuples and enumerations."""
    for package in (broker, protocol, storage):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)
    found = {
        each for each in _subclasses(object) if str(each.__module__).startswith(("broker.", "protocol.", "storage."))
    }
    return sorted((each for each in found if not issubclass(each, tuple | Enum)), key=str)


def _subclasses(kind: type) -> Iterator[type]:
    subclasses: list[type] = type.__subclasses__(kind)
    for each in subclasses:
        yield each
        yield from _subclasses(each)


def test_subclasses_of_listed_classes_are_listed() -> None:
    """An interpreted class cannot derive from a compiled one: creating an object of it raises TypeError."""
    assert [
        each
        for each in classes()
        if each.__module__ not in NAMES and any(base.__module__ in NAMES for base in each.__mro__)
    ] == []


def test_no_listed_class_derives_from_a_type_in_c() -> None:
    """A compiled class has no room for the fields of such a type, such as asyncio.Future: the process would crash."""
    assert [
        each
        for each in classes()
        if each.__module__ in NAMES
        and not issubclass(each, BaseException)
        and any(
            base is not object and not base.__flags__ & IS_HEAP_TYPE for base in each.__mro__ if base not in classes()
        )
    ] == []


def test_no_listed_class_has_weak_references() -> None:
    """Objects of compiled classes take no weak references."""
    slots = [(each, each.__dict__.get("__slots__", ())) for each in classes() if each.__module__ in NAMES]
    assert [each for each, names in slots if "__weakref__" in names] == []


def test_no_listed_module_has_a_lazy_dataclass() -> None:
    """mypyc makes native classes of dataclasses, and knows no other decorator."""
    assert [path for path in MODULES if "@lazy_dataclass" in (REPOSITORY / path).read_text()] == []


def test_other_modules_have_lazy_dataclasses_only() -> None:
    """A dataclass costs a start 0.4 ms, a lazy one a tenth of it. A class with bases cannot be lazy."""
    eager = [
        (path, each)
        for folder in ("broker", "protocol", "storage")
        for path in sorted((REPOSITORY / folder).rglob("*.py"))
        if str(path.relative_to(REPOSITORY)) not in MODULES
        for each in re.findall(r"^@dataclass\b.*\nclass \w+(?:\(Generic.*\))?:$", path.read_text(), re.MULTILINE)
    ]
    assert eager == []


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
