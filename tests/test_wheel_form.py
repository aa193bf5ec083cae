"""The choice of `make wheel` between compiled modules and pure Python, with a program in place of the C compiler."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.kafka.apache_kafka import REPOSITORY

SCRIPT = REPOSITORY / "wheel_form.sh"


def _compiler(tmp_path: Path, said: str) -> str:
    program = tmp_path / "cc"
    program.write_text(f"#!/bin/sh\n{said}\n")
    program.chmod(0o755)
    return str(program)


def _choose(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT, sys.executable], env=environment, capture_output=True, text=True, check=True)


def test_modules_are_compiled_where_a_compiler_finds_the_headers(tmp_path: Path) -> None:
    chosen = _choose(CC=_compiler(tmp_path, 'test "$(cat)" = "#include <Python.h>"'))
    assert chosen.stdout == "1\n"
    assert "OTTLA_COMPILE=0 makes a pure wheel" in chosen.stderr


def test_wheel_is_pure_without_a_working_compiler(tmp_path: Path) -> None:
    broken, absent = _compiler(tmp_path, "exit 1"), str(tmp_path / "absent")
    for compiler in (broken, absent):
        chosen = _choose(CC=compiler)
        assert chosen.stdout == "0\n"
        assert f'the wheel is pure Python: "{compiler}" finds no' in chosen.stderr


@pytest.mark.parametrize("asked", ["0", "1"])
def test_environment_overrides_the_choice(asked: str, tmp_path: Path) -> None:
    assert _choose(CC=_compiler(tmp_path, "exit 1"), OTTLA_COMPILE=asked).stdout == f"{asked}\n"
