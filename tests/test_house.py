"""House rules that a program can check: sizes, opening words of docstrings and test names, unique class names.

CONTRIBUTING.md has the rules in prose. An exception is an entry in a table below, with its reason.
"""

import ast
import gc
import importlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
PRODUCT: Final = ("broker", "protocol", "schemas", "spark_jobs", "storage")
GENERATED: Final = ROOT / "protocol" / "messages"

FILES_IN_A_FOLDER: Final = 30
LINES_IN_A_FILE: Final = 500
LINES_IN_A_FUNCTION: Final = 60
CONSTRUCTOR_PARAMETERS: Final = 8
PUBLIC_METHODS: Final = 20

LARGE_CLASSES: Final = {
    "Controller": "one method per controller API; each delegates to the component that owns it",
    "LogSegment": "one file with its indexes; a second object costs a call per batch",
    "QuorumDriver": "three interfaces: Quorum, the peer of the request handlers, the snapshot generator's quorum",
    "RemoteLogMetadataCache": "events and look-ups share one table; a split adds a call to each look-up",
}

_OBSCURE_OPENINGS = """
it they who whoever whose what whatever which where that those these this of for to from with by on so but and or nor
not nothing nobody some somebody something else then there here such same is are has may must told tells
"""
OBSCURE_OPENINGS: Final = frozenset(_OBSCURE_OPENINGS.split())
"""Words that open a sentence without naming its subject."""
IN_TEST_NAMES: Final = frozenset({"from", "is", "nothing", "same"})
"""Words of the above that are the subject, or part of a name, in `test_nothing_is_delivered` or `test_same_seed`."""


@cache
def modules() -> dict[Path, ast.Module]:
    """Return the syntax trees of all modules but the generated ones, by path below the root."""
    paths = (path for folder in (*PRODUCT, "tests") for path in sorted((ROOT / folder).rglob("*.py")))
    gc.disable()  # a collection within ast.parse can make it fail (CPython 3.11: "recursion depth mismatch")
    try:
        return {path.relative_to(ROOT): ast.parse(path.read_text()) for path in paths if GENERATED not in path.parents}
    finally:
        gc.enable()


def product() -> Iterator[tuple[Path, ast.Module]]:
    return ((path, tree) for path, tree in modules().items() if path.parts[0] in PRODUCT)


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def opening_word(text: str) -> str:
    words = text.split()
    return words[0].strip("`'\"(*,.:;").lower() if words else ""


def test_folders_hold_at_most_thirty_files() -> None:
    counts = Counter(str(path.parent) for path, _ in product())
    assert {folder: count for folder, count in counts.items() if count > FILES_IN_A_FOLDER} == {}


def test_files_have_at_most_five_hundred_lines() -> None:
    lengths = {str(path): len((ROOT / path).read_text().splitlines()) for path, _ in product()}
    assert {path: length for path, length in lengths.items() if length > LINES_IN_A_FILE} == {}


def test_functions_have_at_most_sixty_lines() -> None:
    long = {}
    for path, tree in product():
        for node in functions(tree):
            first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
            if (length := (node.end_lineno or 0) - first.lineno + 1) > LINES_IN_A_FUNCTION:
                long[f"{path}:{node.lineno} {node.name}"] = length
    assert long == {}


def test_constructors_have_at_most_eight_parameters() -> None:
    wide = {}
    for path, tree in product():
        for node in functions(tree):
            count = len(node.args.args) + len(node.args.kwonlyargs) - 1
            if node.name == "__init__" and count > CONSTRUCTOR_PARAMETERS:
                wide[f"{path}:{node.lineno}"] = count
    assert wide == {}


def test_classes_have_at_most_twenty_public_methods() -> None:
    large = set()
    for _path, tree in product():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                methods = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
                if sum(not each.name.startswith("_") for each in methods) > PUBLIC_METHODS:
                    large.add(node.name)
    assert large == LARGE_CLASSES.keys()


def test_public_classes_have_unique_names() -> None:
    places = defaultdict(list)
    for path, tree in product():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


@pytest.mark.parametrize("folder", [*PRODUCT, "tests"])
def test_docstrings_open_with_their_subject(folder: str) -> None:
    found = []
    for path, tree in modules().items():
        for node in ast.walk(tree) if path.parts[0] == folder else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                docstring = ast.get_docstring(node)
                if docstring and opening_word(docstring) in OBSCURE_OPENINGS:
                    found.append(f"{path}:{getattr(node, 'lineno', 1)} {docstring.splitlines()[0]}")
    assert found == []


def test_test_names_open_with_their_subject() -> None:
    found = []
    for path, tree in modules().items():
        for node in functions(tree) if path.parts[0] == "tests" else ():
            words = node.name.split("_")
            if words[0] == "test" and len(words) > 1 and words[1] in OBSCURE_OPENINGS - IN_TEST_NAMES:
                found.append(f"{path}:{node.lineno} {node.name}")
    assert found == []


def test_documents_have_no_conflict_markers() -> None:
    documents = (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    marker = re.compile(r"^(<{7} .*|={7}|>{7} .*)$", re.MULTILINE)
    marked = [str(path.relative_to(ROOT)) for path in documents if marker.search(path.read_text())]
    assert documents
    assert marked == []


@pytest.mark.parametrize("program", ["benchmarks", "chaos", "scenarios", "simulation"])
def test_programs_of_the_tests_can_be_imported(program: str) -> None:
    """`make` runs these by hand only, so that no other test notices a module that fails at its import."""
    assert importlib.import_module(f"tests.{program}.__main__").main is not None
