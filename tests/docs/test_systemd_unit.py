"""The systemd unit of docs/production.md."""

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

PROGRAM = "/opt/ottla/bin/ottla"


@pytest.fixture
def unit() -> str:
    found = re.search(r"```ini\n(\[Unit\]\n.*?)```", (ROOT / "docs" / "production.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def test_systemd_accepts_the_unit(unit: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not on PATH: install Debian's systemd")
    program = tmp_path / "ottla"
    program.touch(mode=0o755)
    file = tmp_path / "ottla.service"
    file.write_text(unit.replace(PROGRAM, str(program)))
    verified = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")


def test_unit_starts_the_installed_program_and_stops_it_by_a_controlled_shutdown(unit: str) -> None:
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.read_string(unit)
    service = parsed["Service"]
    assert service["ExecStart"].split()[:2] == [PROGRAM, "start"]
    assert service["KillSignal"] == "SIGTERM"
    assert f"{PROGRAM} --version" in (ROOT / "docs" / "production.md").read_text()
