"""Starts and stops of nodes whose quorum is misconfigured, unreachable or absent, and their error messages."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes.ottla_node import OttlaNode, run_ottla

pytestmark = pytest.mark.integration

CLUSTER = "rgtCNgvhR4erEWu7maR0lA"
OTHER_CLUSTER = "Kl4BjzYmTn6OJy1vG5itzw"
UNREACHABLE = "127.0.0.1:1"
"""An address on which no process listens."""
VOTERS = "controller.quorum.voters"
SERVERS = "controller.quorum.bootstrap.servers"


class Member(OttlaNode):
    """A node with the given `process.roles`."""

    def __init__(self, directory: Path, node_id: int, roles: str, settings: dict[str, str]) -> None:
        super().__init__(directory)
        listeners = {"broker": f"PLAINTEXT://127.0.0.1:{self.port}", "controller": self.controller_listener}
        self.settings = {
            "node.id": str(node_id),
            "process.roles": roles,
            "listeners": ",".join(listeners[role] for role in roles.split(",")),
            "controller.listener.names": "CONTROLLER",
            **settings,
        }

    @property
    def controller_listener(self) -> str:
        return f"CONTROLLER://127.0.0.1:{self.controller_port}"

    def format(self, *more: str, cluster_id: str = CLUSTER) -> "Member":
        """Format the log directory with `ottla storage format`."""
        self.directory.mkdir(parents=True)
        config = self.directory / "server.properties"
        settings = {"log.dirs": str(self.data), **self.settings}
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        run_ottla("storage", "format", "--cluster-id", cluster_id, "--config", str(config), *more)
        return self

    def refused_start(self, *more: str) -> str:
        """Start the node, expect failure, and return the one error line that it prints."""
        failed = run_ottla(*self.command(*more)[3:], check=False)
        assert failed.returncode == 1, failed.stdout + failed.stderr
        (sentence,) = [line for line in (failed.stdout + failed.stderr).splitlines() if line.startswith("Error: ")]
        assert "Traceback" not in failed.stdout + failed.stderr
        return sentence

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the node, ready or not, inside the context."""
        try:
            self.start_unready()
            yield
        finally:
            self.__exit__(None, None, None)

    def wait_for_line(self, *words: str, timeout_s: float = 60) -> str:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for line in self.log_text.splitlines():
                if all(word in line for word in words):
                    return line
            self.http("/health/live")
        raise AssertionError(f"no line with {words} in\n{self.log_text}")


@pytest.fixture
def lone(tmp_path: Path) -> Member:
    """Return a formatted node that is only a controller and the only voter."""
    return Member(tmp_path / "lone", 1, "controller", {VOTERS: f"1@{UNREACHABLE}"}).format()


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({VOTERS: "1@nowhere"}, VOTERS),
        ({VOTERS: "banana"}, VOTERS),
        ({VOTERS: "1@h:99999"}, VOTERS),
        ({VOTERS: "1@h:9,1@h:10"}, VOTERS),
        ({VOTERS: "2@h:9"}, VOTERS),
        ({}, VOTERS),
        ({SERVERS: "h"}, SERVERS),
        ({SERVERS: "h:99999"}, SERVERS),
        ({VOTERS: "1@h:9", "controller.quorum.election.timeout.ms": "0"}, "controller.quorum.election.timeout.ms"),
        ({VOTERS: "1@h:9", "controller.quorum.fetch.timeout.ms": "-1"}, "controller.quorum.fetch.timeout.ms"),
        ({VOTERS: "1@h:9", "controller.listener.names": ""}, "controller.listener.names"),
        ({VOTERS: "1@h:9", "node.id": "-1"}, "node.id"),
        ({VOTERS: "1@h:9", "process.roles": "banana"}, "process.roles"),
    ],
    ids=str,
)
def test_invalid_quorum_settings_stop_the_start_with_one_error_line(
    tmp_path: Path, settings: dict[str, str], key: str
) -> None:
    assert key in Member(tmp_path, 1, "controller", settings).refused_start()


def test_unformatted_directory_error_names_the_format_command(tmp_path: Path) -> None:
    sentence = Member(tmp_path, 1, "controller", {SERVERS: UNREACHABLE}).refused_start()
    assert "ottla storage format" in sentence
    assert str(tmp_path) in sentence


def test_single_controller_stops_on_sigterm(lone: Member) -> None:
    with lone:
        assert lone.terminate() == 0
    assert "Traceback" not in lone.log_text


def test_directory_and_port_of_a_running_controller_are_refused(lone: Member, tmp_path: Path) -> None:
    with lone:
        twin = Member(tmp_path / "twin", 1, "controller", {VOTERS: f"1@{UNREACHABLE}"})
        twin.data = lone.data
        assert str(lone.data) in twin.refused_start()
        neighbour = Member(tmp_path / "neighbour", 1, "controller", {VOTERS: f"1@{UNREACHABLE}"}).format()
        sentence = neighbour.refused_start("--override", f"listeners={lone.controller_listener}")
        assert "CONTROLLER" in sentence
        assert str(lone.controller_port) in sentence


def test_broker_without_controller_logs_waits_idle_and_stops_on_sigterm(tmp_path: Path) -> None:
    node = Member(tmp_path / "node", 5, "broker", {SERVERS: UNREACHABLE}).format("--no-initial-controllers")
    with node.running():
        assert UNREACHABLE in node.wait_for_line("cannot be reached")
        status, reason = node.http("/health/ready")
        assert (status, "metadata" in reason) == (503, True)
        begun = time.monotonic(), node.cpu_s
        lines = len(node.log_text.splitlines())
        while time.monotonic() < begun[0] + 1:
            node.http("/health/live")
            time.sleep(0.2)
        assert node.cpu_s - begun[1] < 0.3
        assert len(node.log_text.splitlines()) == lines
        assert node.terminate() == 0
    assert "Traceback" not in node.log_text


def test_voters_of_different_clusters_log_the_inconsistency(tmp_path: Path) -> None:
    nodes = [Member(tmp_path / str(id), id, "controller", {}) for id in (1, 2)]
    voters = ",".join(f"{node.settings['node.id']}@127.0.0.1:{node.controller_port}" for node in nodes)
    for node, cluster_id in zip(nodes, (CLUSTER, OTHER_CLUSTER), strict=True):
        node.settings[VOTERS] = voters
        node.format(cluster_id=cluster_id)
    with nodes[0].running(), nodes[1].running():
        for node, other in zip(nodes, reversed(nodes), strict=True):
            line = node.wait_for_line("A node refuses requests of this node", "INCONSISTENT_CLUSTER_ID")
            assert f":{other.controller_port}" in line
        assert [node.terminate() for node in nodes] == [0, 0]
