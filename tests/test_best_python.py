"""The choice of the interpreter for `make up`, with programs in place of real interpreters."""

import subprocess
from pathlib import Path

import pytest

from tests.support.kafka.apache_kafka import REPOSITORY

SCRIPT = REPOSITORY / "best_python.sh"


@pytest.fixture
def versions(tmp_path: Path) -> Path:
    """Return pyenv's directory of versions, and `PATH` without Python."""
    versions = tmp_path / "pyenv" / "versions"
    versions.mkdir(parents=True)
    return versions


def _interpreter(versions: Path, version: str, said: str) -> Path:
    program = versions / version / "bin" / "python3"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{said}\n")
    program.chmod(0o755)
    return program


def _choose(versions: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    tools = tmp_path / "bin"
    tools.mkdir(exist_ok=True)
    for name in ("sh", "sort", "awk", "head", "cut"):
        (tools / name).symlink_to(f"/usr/bin/{name}")
    environment = {"PATH": str(tools), "PYENV_ROOT": str(versions.parent), "SYSTEM_PYTHON": str(tmp_path / "system")}
    return subprocess.run([SCRIPT], env=environment, capture_output=True, text=True, check=False)


def test_fastest_interpreter_is_chosen_and_the_others_are_named(versions: Path, tmp_path: Path) -> None:
    _interpreter(versions, "3.11.7", 'echo "90000 3.11.7 /slow/python"')
    _interpreter(versions, "3.13.0", 'echo "70000 3.13.0 /fast/python"')
    chosen = _choose(versions, tmp_path)
    assert chosen.stdout == "/fast/python\n"
    assert chosen.stderr.splitlines() == [
        "uses Python 3.13.0 (/fast/python), 7.0 ms a loop",
        "not used: Python 3.11.7 (/slow/python), 9.0 ms a loop",
    ]


def test_interpreter_of_the_system_competes_although_path_hides_it(versions: Path, tmp_path: Path) -> None:
    _interpreter(versions, "3.13.0", 'echo "70000 3.13.0 /pyenv/python"')
    _interpreter(versions, "3.11.2", 'echo "40000 3.11.2 /usr/bin/python3.11"').rename(tmp_path / "system")
    assert _choose(versions, tmp_path).stdout == "/usr/bin/python3.11\n"


def test_interpreter_that_fails_is_passed_over(versions: Path, tmp_path: Path) -> None:
    _interpreter(versions, "3.12.1", "exit 1")
    _interpreter(versions, "3.13.0", 'echo "70000 3.13.0 /only/python"')
    assert _choose(versions, tmp_path).stdout == "/only/python\n"


def test_failure_names_what_is_missing(versions: Path, tmp_path: Path) -> None:
    chosen = _choose(versions, tmp_path)
    assert chosen.returncode == 1
    assert "Ottla needs Python 3.11 to 3.13" in chosen.stderr
    assert "set PYTHON=" in chosen.stderr
