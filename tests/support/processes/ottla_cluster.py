"""`ottla cluster` as a process; tests kill, wipe and suspend its nodes and query the active controller."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.kafka.apache_kafka import claim_ports, free_ports
from tests.support.processes.ottla_node import clean_environment
from tests.support.processes.suspension import resume, suspend

PORT_STEP = 10
START_TIMEOUT_S = 60


def free_port_block(nodes: int) -> int:
    """Return a first port such that every node's client, controller and inter-broker ports are free."""
    while True:
        (first,) = free_ports(1)
        others = [first + PORT_STEP * index + extra for index in range(nodes) for extra in (0, 1, 2)][1:]
        if claim_ports(*others):
            return first


class OttlaCluster:
    """A local cluster in `directory`; a context manager that starts it and waits until every node is ready.

    Indexes count from 0, like the directories; ids from 1.
    """

    def __init__(
        self,
        directory: Path,
        nodes: int = 3,
        settings: Mapping[str, str] | None = None,
        *,
        restart: bool = True,
        room_for: int = 0,
        secure: bool = False,
    ) -> None:
        self.directory = directory
        self.nodes = nodes
        self.port = free_port_block(max(nodes, room_for))
        self.settings = dict(settings or {})
        self.restart = restart
        self.secure = secure
        self.lines: list[str] = []
        self.process: subprocess.Popen[str] | None = None
        self._news = threading.Condition()
        self._reader: threading.Thread | None = None

    # Addresses and files

    @property
    def bootstrap(self) -> str:
        return ",".join(self.address(index) for index in range(self.nodes))

    def address(self, index: int) -> str:
        return f"127.0.0.1:{self.port + PORT_STEP * index}"

    def controller_address(self, index: int) -> str:
        return f"127.0.0.1:{self.port + PORT_STEP * index + 1}"

    def node_directory(self, index: int) -> Path:
        return self.directory / f"node-{index}"

    def metadata_directory(self, index: int) -> Path:
        return self.node_directory(index) / "data" / "__cluster_metadata-0"

    def directory_id(self, index: int) -> str:
        """Return the directory id of a node's present disk."""
        lines = (self.node_directory(index) / "data" / "meta.properties").read_text().splitlines()
        return next(line for line in lines if line.startswith("directory.id=")).partition("=")[2].replace("\\", "")

    def log_text(self, index: int) -> str:
        """Return a node's output, or its last part if it is long."""
        path = self.node_directory(index) / "ottla.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def pid(self, index: int) -> int | None:
        """Return the node's process id; None while it is not running."""
        try:
            return int((self.node_directory(index) / "ottla.pid").read_text())
        except (FileNotFoundError, ValueError):
            return None

    # Processes

    def start(self) -> "OttlaCluster":
        """Start or restart the supervisor, and wait until every node is ready."""
        self.lines.clear()
        overrides = [part for key, value in self.settings.items() for part in ("--override", f"{key}={value}")]
        command = [sys.executable, "-m", "broker", "cluster", "--nodes", str(self.nodes), "--dir", str(self.directory)]
        command += ["--port", str(self.port), "--http-port", "0", *overrides]
        if self.secure:
            command.append("--secure")
        if not self.restart:
            command.append("--no-restart")
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=clean_environment()
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.wait_line(lambda line: line.startswith("bootstrap server:"), START_TIMEOUT_S)
        return self

    def _read(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()

    def wait_line(self, wanted: Callable[[str], bool], timeout_s: float, since: int = 0) -> str:
        """Return the first line, from line number `since` on, that meets the condition; fail the test without one."""
        deadline, position = time.monotonic() + timeout_s, since
        with self._news:
            while True:
                while position < len(self.lines):
                    position += 1
                    if wanted(self.lines[position - 1]):
                        return self.lines[position - 1]
                left = deadline - time.monotonic()
                assert left > 0, "the cluster did not print the line in time:\n" + "\n".join(self.lines) + self._tails()
                assert self.process is not None
                if self.process.poll() is not None and position == len(self.lines):
                    raise AssertionError("the cluster ended:\n" + "\n".join(self.lines) + self._tails())
                self._news.wait(min(left, 0.2))

    def wait_ready(self, index: int, since: int, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until a node reports, after line number `since`, that it is ready."""
        self.wait_line(lambda line: line.startswith(f"node {index + 1} ") and " ready " in line, timeout_s, since)

    def _tails(self) -> str:
        return "".join(f"\n--- node {index + 1}\n{self.log_text(index)[-3000:]}" for index in range(self.nodes))

    def kill(self, index: int) -> int:
        """Send SIGKILL to a node; return the number of lines printed so far, for `wait_ready`."""
        since, pid = len(self.lines), self.pid(index)
        assert pid is not None, f"node {index + 1} is not running"
        os.kill(pid, signal.SIGKILL)
        return since

    def terminate(self, index: int) -> float:
        """Stop a single node; return the seconds until its exit. For a cluster without restarts."""
        since, pid, begun = len(self.lines), self.pid(index), time.monotonic()
        assert pid is not None, f"node {index + 1} is not running"
        os.kill(pid, signal.SIGTERM)
        self.wait_line(lambda line: line.startswith(f"node {index + 1} has exited"), 60, since)
        return time.monotonic() - begun

    @contextlib.contextmanager
    def paused(self, index: int) -> Iterator[None]:
        """Suspend a node, within the context."""
        pid = self.pid(index)
        assert pid is not None, f"node {index + 1} is not running"
        suspend(pid)
        try:
            yield
        finally:
            resume(pid)

    def wipe(self, index: int) -> int:
        """Wipe a node's disk and kill the node, so that its next process finds nothing. The node must not detect the
        loss and exit by itself in between.
        """
        pid = self.pid(index)
        assert pid is not None, f"node {index + 1} is not running"
        suspend(pid)
        data = self.node_directory(index) / "data"
        gone = self.node_directory(index) / f"wiped-{time.monotonic_ns()}"
        data.rename(gone)
        since = self.kill(index)
        shutil.rmtree(gone)
        return since

    def stop(self) -> int:
        """Stop the supervisor and all nodes; return its exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.terminate()
        code = self.process.wait(60)
        if self._reader is not None:
            self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def __enter__(self) -> "OttlaCluster":
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # Queries

    def ottla(self, *arguments: str, check: bool = True, timeout_s: float = 180) -> str:
        """Run an `ottla` command and return its output."""
        done = subprocess.run(
            [sys.executable, "-m", "broker", *arguments],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env=clean_environment(),
        )
        assert not check or done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def quorum(self, bootstrap: str | None = None) -> dict[str, Any]:
        """Return the output of `metadata-quorum describe --status --json`."""
        output = self.ottla(
            "metadata-quorum", "--bootstrap-server", bootstrap or self.bootstrap, "describe", "--status", "--json"
        )
        found: dict[str, Any] = json.loads(output)
        return found

    def cut_snapshot(self, index: int) -> Path:
        """Generate a metadata snapshot on a node now; return its file."""
        output = self.ottla("metadata-quorum", "--bootstrap-server", self.address(index), "snapshot", "--json")
        return self.metadata_directory(index) / str(json.loads(output)["file"])

    def cut_equal_snapshots(self, timeout_s: float = 60) -> list[Path]:
        """Generate a snapshot with the same id on every running node; the metadata must not change meanwhile."""
        deadline = time.monotonic() + timeout_s
        while True:
            files = [self.cut_snapshot(index) for index in range(self.nodes) if self.pid(index) is not None]
            if len({file.name for file in files}) == 1:
                return files
            assert time.monotonic() < deadline, f"the metadata keeps changing: {files}"

    def leader_index(self) -> int:
        """Return the index of the active controller."""
        return int(self.quorum()["leaderId"]) - 1
