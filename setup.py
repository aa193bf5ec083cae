"""Build steps beyond pyproject.toml: record the commit for `ottla --version`, and compile the hot modules on request.

OTTLA_COMMIT in the environment gives the commit where there is no .git, as in the build of the image. OTTLA_COMPILE=1
compiles the modules of `[tool.ottla.compile]` with mypyc, all or none: an error in one of them fails the build.
OTTLA_COMPILE_LEVEL is the C compiler's level of optimisation: 3 unless tests build for one run (0: a sixth of the CPU).
"""

import os
import runpy
import sys
import tomllib
from itertools import chain
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, cast

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

RECORD = "broker/COMMIT"
IN_PLACE = (
    "OTTLA_COMPILE=1 does not build in place: an extension module beside its source would hide later changes of it. "
    "Unset it for an editable installation, or build a wheel: OTTLA_COMPILE=1 make wheel"
)


def _record(root: str) -> None:
    commit = os.environ.get("OTTLA_COMMIT") or runpy.run_path("broker/build_commit.py")["build_commit"]()
    path = Path(root) / RECORD
    path.unlink(missing_ok=True)  # a source archive is made of hard links
    path.write_text(f"{commit}\n")


class BuildWithCommit(build_py):
    """Record the commit in a wheel. An editable installation stays without, since its commit changes."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            _record(self.build_lib)


class SourcesWithCommit(sdist):
    """Record the commit in a source archive, of which wheels are built without .git."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        _record(base_dir)


class BuildCompiled(build_ext):
    """Compile into the build directory only, from which extensions of former builds are removed first.

    The C files are compiled side by side, on all cores: setuptools would take them one after the other.
    """

    def run(self) -> None:
        if self.inplace or self.editable_mode:
            raise SystemExit(IN_PLACE)
        for former in Path(self.build_lib).rglob("*.so"):
            former.unlink()
        super().run()

    def build_extensions(self) -> None:
        compile_some = self.compiler.compile

        def compile_all(sources: list[str], *args: Any, **kwargs: Any) -> list[str]:
            with ThreadPool(os.cpu_count()) as threads:
                objects = threads.map(lambda source: compile_some([source], *args, **kwargs), sources, chunksize=1)
            return list(chain.from_iterable(objects))

        self.compiler.compile = compile_all
        super().build_extensions()


def _compiled() -> list[Extension]:
    """Return the extension modules: none without OTTLA_COMPILE=1."""
    asked = os.environ.get("OTTLA_COMPILE", "0")
    if asked not in ("0", "1"):
        raise SystemExit(f"OTTLA_COMPILE is {asked!r}; 1 compiles the hot modules, 0 leaves all of them pure Python")
    if asked == "0" or {"egg_info", "dist_info", "sdist"} & set(sys.argv[1:]):  # steps that compile nothing
        return []
    if {"editable_wheel", "develop"} & set(sys.argv[1:]):
        raise SystemExit(IN_PLACE)
    from mypyc.build import mypycify

    settings = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["ottla"]["compile"]
    # Without the strict rules of pyproject.toml, which `make check` applies with all dependencies installed.
    options = ["--config-file=", "--ignore-missing-imports"]
    level = os.environ.get("OTTLA_COMPILE_LEVEL", "3")
    compiled = mypycify(
        [*options, *settings["modules"]], opt_level=level, debug_level="0", group_name="ottla", multi_file=True
    )
    return cast("list[Extension]", compiled)


setup(
    cmdclass={"build_py": BuildWithCommit, "sdist": SourcesWithCommit, "build_ext": BuildCompiled},
    ext_modules=_compiled(),
)
