"""The wheel: built from a copy of the sources, installed into an environment that does not know the checkout."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kafka.apache_kafka import REPOSITORY

pytestmark = pytest.mark.integration

PACKAGES = ("broker", "protocol", "schemas", "spark_jobs", "storage")
FILES = ("pyproject.toml", "setup.py", "build_backend.py", "README.md", "LICENSE")


def _run(*command: str | Path, cwd: Path) -> str:
    """Run a command that does not find the checkout by PYTHONPATH; return its output."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(each) for each in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-1000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the sources as a git repository of its own, with one commit."""
    copy = tmp_path_factory.mktemp("wheel") / "sources"
    left_out = shutil.ignore_patterns("__pycache__", "COMMIT", "*.so")
    for package in PACKAGES:
        shutil.copytree(REPOSITORY / package, copy / package, ignore=left_out)
    for name in FILES:
        shutil.copy(REPOSITORY / name, copy)
    (copy / ".gitignore").write_text("build/\n*.egg-info/\n")
    author = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    _run("git", "init", "--quiet", ".", cwd=copy)
    _run("git", "add", "--all", cwd=copy)
    _run("git", *author, "commit", "--quiet", "--message", "Sources", cwd=copy)
    return copy


@pytest.fixture(scope="module")
def wheel(sources: Path) -> Iterator[Path]:
    pip = (sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--wheel-dir", "dist", ".")
    _run(*pip, cwd=sources)
    (built,) = (sources / "dist").glob("ottla-*.whl")
    yield built
    shutil.rmtree(sources / "dist")


def test_wheel_holds_every_file_of_the_packages(sources: Path, wheel: Path) -> None:
    tracked = _run("git", "ls-files", *PACKAGES, cwd=sources).split()
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == {*tracked, "broker/COMMIT"}


def test_wheel_runs_outside_the_checkout_and_tells_its_commit(sources: Path, wheel: Path, tmp_path: Path) -> None:
    commit = _run("git", "rev-parse", "--short=12", "HEAD", cwd=sources).strip()
    environment = tmp_path / "environment"
    _run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=tmp_path)
    program = environment / "bin" / "python"
    _run(sys.executable, "-m", "pip", "--python", program, "--quiet", "install", "--no-deps", wheel, cwd=tmp_path)
    (packages,) = (environment / "lib").glob("python*/site-packages")
    # The dependencies of this environment, after the fresh one's own packages.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    assert (
        _run(environment / "bin" / "ottla", "--version", cwd=tmp_path)
        == f"ottla 0.1.0 (commit {commit}, pure Python)\n"
    )
    loaded = "import json, broker, schemas, storage; print(json.dumps([broker.__file__, schemas.__file__]))"
    assert all(str(environment) in path for path in json.loads(_run(program, "-c", loaded, cwd=tmp_path)))
    described = _run(environment / "bin" / "ottla", "storage", "random-uuid", cwd=tmp_path)
    assert len(described.strip()) == 22
