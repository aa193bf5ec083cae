"""A metadata quorum of two Ottla nodes and an Apache Kafka controller: elections, replication, handover of leadership.

The steps build on each other: Kafka's controller joins and follows Ottla; Ottla is elected with its vote; it leads and
Ottla follows it and forwards requests to it; it resigns when it stops.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.kafka.apache_kafka import (
    free_ports,
    java_command,
    random_uuid_text,
    run_tool,
    stop,
    unavailable_reason,
)
from tests.support.processes.ottla_node import clean_environment

pytestmark = pytest.mark.interop

APACHE = 3
TIMEOUT_S = 120


def ottla(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "broker", *arguments]


class MixedQuorum:
    """Nodes 1 and 2 are Ottla brokers and controllers; node 3 is an Apache Kafka controller."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        ports = free_ports(7)
        self.clients = {1: ports[0], 2: ports[1]}
        self.controllers = dict(zip((1, 2, APACHE), ports[2:5], strict=True))
        self._http = {1: ports[5], 2: ports[6]}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._format()

    def _format(self) -> None:
        cluster_id = random_uuid_text()
        voters = ",".join(f"{node}@127.0.0.1:{port}:{random_uuid_text()}" for node, port in self.controllers.items())
        arguments = ("format", "-t", cluster_id, "-r", "4.2-IV1", "-I", voters, "-c")
        for node in self.controllers:
            self._properties(node).write_text("".join(f"{key}={value}\n" for key, value in self._settings(node)))
        for node in self.clients:
            self._run(ottla("storage", *arguments, str(self._properties(node))))
        # Kafka must not finalize features that Ottla does not finalize by default, should it lead first.
        off = [f"--feature={name}.version=0" for name in ("share", "streams", "transaction")]
        run_tool("kafka.tools.StorageTool", *arguments, str(self._properties(APACHE)), *off)

    def _settings(self, node: int) -> Iterator[tuple[str, str]]:
        listeners = f"CONTROLLER://127.0.0.1:{self.controllers[node]}"
        if node in self.clients:
            listeners += f",PLAINTEXT://127.0.0.1:{self.clients[node]}"
            yield "ottla.http.listener", f"127.0.0.1:{self._http[node]}"
        yield "process.roles", "broker,controller" if node in self.clients else "controller"
        yield "node.id", str(node)
        yield "listeners", listeners
        yield "advertised.listeners", listeners
        yield "listener.security.protocol.map", "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"
        yield "controller.listener.names", "CONTROLLER"
        yield "controller.quorum.bootstrap.servers", self.bootstrap
        yield "log.dirs", str(self.directory / f"data-{node}")

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.controllers.values())

    def start(self, node: int) -> None:
        path = str(self._properties(node))
        command = ottla("start", path) if node in self.clients else java_command("kafka.Kafka", path, heap="400m")
        with (self.directory / f"node-{node}.log").open("ab") as output:
            self._processes[node] = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env=clean_environment()
            )

    def kill(self, node: int) -> None:
        process = self._processes.pop(node)
        process.kill()
        process.wait(timeout=20)

    def terminate(self, node: int) -> None:
        os.kill(self._processes[node].pid, signal.SIGTERM)

    def stop_all(self) -> None:
        for process in self._processes.values():
            stop(process, (signal.SIGKILL,))

    def create_topic(self, name: str, through: int) -> None:
        """Create a topic, retrying until a leader does it."""
        command = ottla("topics", "--bootstrap-server", f"127.0.0.1:{self.clients[through]}", "--create")
        self.wait_until(lambda: f"Created topic {name}" in self._run([*command, "--topic", name], check=False))

    def leader(self, asked: int) -> int | None:
        """Return the leader according to the queried node, None if that leader does not respond."""
        found = re.search(r"LeaderId:\s+(\d+)", self._describe(asked, "--status"))
        return int(found[1]) if found else None

    def end_offsets(self, asked: int) -> dict[int, int]:
        """Return the replicas' log end offsets as the leader reports them."""
        rows = [line.split() for line in self._describe(asked, "--replication").splitlines()[1:]]
        return {int(row[0]): int(row[2]) for row in rows if len(row) > 2}

    def wait_for_leader(self, asked: int, *expected: int) -> int:
        leaders: list[int | None] = [None]

        def is_there() -> bool:
            leaders[0] = self.leader(asked)
            return leaders[0] in expected

        self.wait_until(is_there)
        assert leaders[0] is not None
        return leaders[0]

    def wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, f"not in {TIMEOUT_S} s; see {self.directory}"

    def _describe(self, asked: int, what: str) -> str:
        address = f"127.0.0.1:{self.controllers[asked]}"
        return self._run(ottla("metadata-quorum", "--bootstrap-controller", address, "describe", what), check=False)

    def _properties(self, node: int) -> Path:
        return self.directory / f"node-{node}.properties"

    def _run(self, command: list[str], *, check: bool = True) -> str:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=clean_environment()
        )
        assert not check or done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def mixed_quorum(directory: Path) -> Iterator[MixedQuorum]:
    quorum = MixedQuorum(directory)
    try:
        yield quorum
    finally:
        quorum.stop_all()


@pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason()))
def test_mixed_quorum_elects_replicates_and_hands_over(tmp_path: Path) -> None:
    with mixed_quorum(tmp_path) as quorum:
        for node in (1, 2):
            quorum.start(node)
        first = quorum.wait_for_leader(1, 1, 2)
        second = 3 - first

        quorum.start(APACHE)
        quorum.create_topic("theirs-follows", through=second)
        reached = quorum.end_offsets(first)[first]
        quorum.wait_until(lambda: quorum.end_offsets(first).get(APACHE, -1) >= reached)

        quorum.kill(first)
        quorum.wait_for_leader(second, second, APACHE)
        quorum.create_topic("elected-together", through=second)
        quorum.kill(second)

        quorum.start(first)  # its log lacks committed records, so it cannot win an election
        assert quorum.wait_for_leader(APACHE, APACHE) == APACHE
        quorum.create_topic("theirs-leads", through=first)
        quorum.start(second)
        reached = quorum.end_offsets(APACHE)[APACHE]
        quorum.wait_until(lambda: min(quorum.end_offsets(APACHE).get(node, -1) for node in (1, 2)) >= reached)

        quorum.terminate(APACHE)
        quorum.wait_for_leader(1, 1, 2)
        quorum.create_topic("theirs-left", through=1)
