"""Build steps beyond pyproject.toml: record the commit in wheels and source archives, for `ottla --version`.

OTTLA_COMMIT in the environment gives the commit where there is no .git, as in the build of the image.
"""

import os
import runpy
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

RECORD = "broker/COMMIT"


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


setup(cmdclass={"build_py": BuildWithCommit, "sdist": SourcesWithCommit})
