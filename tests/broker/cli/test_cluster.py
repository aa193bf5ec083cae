"""ottla cluster with real processes: status lines, restarts, an orderly end, and data that stays."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.cli.main import run
from tests.support.apache_kafka import free_ports
from tests.support.ottla_node import clean_environment

pytestmark = pytest.mark.integration


@contextlib.contextmanager
def a_cluster(directory: Path, port: int, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The supervisor, once it has said where clients connect."""
    command = [sys.executable, "-m", "broker", "cluster", "--dir", str(directory), "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--http-port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=clean_environment(),
    )
    try:
        assert process.stdout is not None
        status, bootstrap = process.stdout.readline(), process.stdout.readline()
        assert status.startswith(f"node 1  127.0.0.1:{port}  http://127.0.0.1:"), status
        assert bootstrap == f"bootstrap server: 127.0.0.1:{port}\n"
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=40)


@pytest.fixture
def port() -> int:
    """A free port with the next one free, too, for the controller."""
    while True:
        (candidate,) = free_ports(1)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", candidate + 1)):
            return candidate


def test_a_cluster_keeps_its_node_and_its_data(tmp_path: Path, port: int, capsys: pytest.CaptureFixture[str]) -> None:
    address = ["--bootstrap-server", f"127.0.0.1:{port}"]
    pid_file = tmp_path / "node-0" / "ottla.pid"
    with a_cluster(tmp_path, port) as supervisor:
        assert run(["topics", *address, "--create", "--topic", "kept"]) == 0
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline().startswith("node 1 has exited")
    assert supervisor.returncode == 0
    assert not pid_file.exists()
    with a_cluster(tmp_path, port):
        capsys.readouterr()
        assert run(["topics", *address, "--list"]) == 0
        assert "kept" in capsys.readouterr().out.splitlines()


def test_a_node_that_cannot_start_ends_the_cluster(tmp_path: Path, port: int) -> None:
    with a_cluster(tmp_path / "one", port):
        command = [sys.executable, "-m", "broker", "cluster", "--dir", str(tmp_path / "two"), "--port", str(port)]
        second = subprocess.run(
            [*command, "--http-port", "0"], capture_output=True, text=True, env=clean_environment(), timeout=20
        )
    assert second.returncode == 1
    assert second.stderr.startswith("Error: node 1 did not start: listener PLAINTEXT cannot listen on")
    assert second.stderr.count("\n") == 1
