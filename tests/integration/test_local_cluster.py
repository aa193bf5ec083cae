"""`ottla cluster` as a real process: used by clients, its node or itself killed, stopped, and started again."""

import contextlib
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.processes.ottla_cluster import free_port_block
from tests.support.processes.ottla_node import clean_environment

pytestmark = pytest.mark.integration

TIMEOUT_S = 60
STATUS = re.compile(r"node 1  (?P<address>\S+)  (?P<http>\S+)  pid (?P<pid>\d+)  ready (again )?in [\d.]+ s")

TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Program that makes standard input the controlling terminal of a new session, then runs the given command."""


class RunningCluster:
    """An `ottla cluster` process on its own terminal, so that Ctrl-C sends SIGINT."""

    def __init__(self, directory: Path, port: int, *arguments: str) -> None:
        self.directory = directory
        self.port = port
        self._terminal, terminal_of_child = pty.openpty()
        command = [sys.executable, "-m", "broker", "cluster", "--dir", str(directory), "--port", str(port)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", TAKE_TERMINAL, *command, "--http-port", "0", "--nodes", "1", *arguments],
            stdin=terminal_of_child,
            stdout=terminal_of_child,
            stderr=terminal_of_child,
            start_new_session=True,
            env=clean_environment(),
        )
        os.close(terminal_of_child)
        self._rest = ""

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid_file(self) -> Path:
        return self.directory / "node-0" / "ottla.pid"

    def line(self) -> str:
        """Return the next printed line. Fail if none comes in time."""
        while "\r\n" not in self._rest:
            ready, _, _ = select.select([self._terminal], [], [], TIMEOUT_S)
            assert ready, f"no further line; so far: {self._rest}"
            self._rest += os.read(self._terminal, 4096).decode()
        line, _, self._rest = self._rest.partition("\r\n")
        return line

    def status(self) -> re.Match[str]:
        """Return the match of the next line, which must be the status of a ready node."""
        line = self.line()
        found = STATUS.fullmatch(line)
        assert found, line
        return found

    def press_ctrl_c(self) -> None:
        os.write(self._terminal, b"\x03")

    def wait(self) -> int:
        return self.process.wait(timeout=TIMEOUT_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.wait()
        os.close(self._terminal)


@pytest.fixture
def port() -> int:
    """Return a free port whose successor, the controller's port, is free too."""
    return free_port_block(1)


@contextlib.contextmanager
def running_cluster(directory: Path, port: int, *arguments: str) -> Iterator[tuple[RunningCluster, re.Match[str]]]:
    """Run a cluster and yield it with the status line of its node."""
    with contextlib.closing(RunningCluster(directory, port, *arguments)) as cluster:
        status = cluster.status()
        assert cluster.line() == f"bootstrap server: {cluster.bootstrap}"
        yield cluster, status


def wait_until_gone(pid: int) -> None:
    """Wait until a process that is not a child has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], TIMEOUT_S)[0], f"{pid} still runs"
    finally:
        os.close(descriptor)


def produce(cluster: RunningCluster, value: bytes) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
    errors: list[object] = []
    producer.produce("t", value, on_delivery=lambda error, _message: errors.append(error))
    assert producer.flush(20) == 0
    assert errors == [None]


def create_topic(cluster: RunningCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("t", 1)])["t"].result(20)


def consume(cluster: RunningCluster, count: int) -> list[bytes]:
    config = {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(config)
    try:
        consumer.assign([confluent_kafka.TopicPartition("t", 0, confluent_kafka.OFFSET_BEGINNING)])
        return [message.value() for message in consumer.consume(count, timeout=20)]
    finally:
        consumer.close()


def test_cluster_keeps_records_through_kill_and_restart(tmp_path: Path, port: int) -> None:
    with running_cluster(tmp_path, port) as (cluster, status):
        assert status["address"] == cluster.bootstrap
        assert cluster.pid_file.read_text() == f"{status['pid']}\n"
        with urllib.request.urlopen(f"{status['http']}/health/ready", timeout=10) as answer:
            assert answer.status == 200
        create_topic(cluster)
        produce(cluster, b"before the kill")

        os.kill(int(status["pid"]), signal.SIGKILL)
        assert cluster.line().startswith("node 1 has exited (SIGKILL) and is restarted")
        again = cluster.status()
        assert again["pid"] != status["pid"]
        assert os.sched_getscheduler(int(again["pid"])) == os.SCHED_BATCH
        assert cluster.pid_file.read_text() == f"{again['pid']}\n"
        produce(cluster, b"after the kill")
        assert consume(cluster, 2) == [b"before the kill", b"after the kill"]

        cluster.process.send_signal(signal.SIGTERM)
        assert cluster.wait() == 0
        wait_until_gone(int(again["pid"]))
        assert not cluster.pid_file.exists()
    with running_cluster(tmp_path, port) as (cluster, _):
        assert consume(cluster, 2) == [b"before the kill", b"after the kill"]


def test_ctrl_c_stops_the_node_cleanly(tmp_path: Path, port: int) -> None:
    with running_cluster(tmp_path, port) as (cluster, status):
        cluster.press_ctrl_c()
        assert cluster.wait() == 0
        wait_until_gone(int(status["pid"]))
    assert (tmp_path / "node-0" / "data" / ".kafka_cleanshutdown").exists()
    assert not cluster.pid_file.exists()


def test_node_ends_with_its_killed_supervisor(tmp_path: Path, port: int) -> None:
    with running_cluster(tmp_path, port) as (cluster, status):
        create_topic(cluster)
        produce(cluster, b"kept")
        cluster.process.kill()
        cluster.wait()
    with running_cluster(tmp_path, port) as (cluster, _):  # started at once: it waits for the previous node to end
        assert consume(cluster, 1) == [b"kept"]
    wait_until_gone(int(status["pid"]))


def test_second_cluster_on_a_directory_is_refused(tmp_path: Path, port: int) -> None:
    with running_cluster(tmp_path, port), contextlib.closing(RunningCluster(tmp_path, port)) as second:
        assert second.line() == f"Error: {tmp_path} is in use by another `ottla cluster`."
        assert second.wait() == 1


def test_first_start_fails_on_a_port_in_use(tmp_path: Path, port: int) -> None:
    with (
        socket.create_server(("127.0.0.1", port)),
        contextlib.closing(RunningCluster(tmp_path, port)) as cluster,
    ):
        line = cluster.line()
        assert line.startswith("Error: node 1 did not start: ")
        assert str(port) in line
        assert cluster.wait() == 1


def test_no_restart_option_leaves_a_killed_node_stopped(tmp_path: Path, port: int) -> None:
    with running_cluster(tmp_path, port, "--no-restart") as (cluster, status):
        os.kill(int(status["pid"]), signal.SIGKILL)
        assert "is not restarted" in cluster.line()
        assert not cluster.pid_file.exists()
        assert cluster.process.poll() is None
        cluster.press_ctrl_c()
        assert cluster.wait() == 0
