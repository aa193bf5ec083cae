"""Nodes of Apache Kafka and Ottla in one metadata quorum, formatted, started and killed in the same way.

Both read the same properties file, so that a node of one implementation can take over the directory of the other.
"""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, TypeVar

from broker.cli.node.initial_controllers import InitialController
from broker.client import ClientConfig, ClientError, Connection, Endpoint
from protocol.errors import ErrorCode
from protocol.messages import Message
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.primitives import Uuid, uuid_from_text
from protocol.records.batch import HEADER_SIZE, parse_header
from storage.directories.formatting import random_id
from tests.support.kafka import java_options
from tests.support.kafka.apache_kafka import JARS, free_ports, random_uuid_text, run_tool, stop, wait_for_port
from tests.support.processes.ottla_node import clean_environment, run_ottla

PATIENCE_S = 240
POLL_S = 0.05
BROKER_CONFIG = 4
SET = 0
# All nodes share two cores, so the timeouts are twice Kafka's defaults.
SETTINGS = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.quorum.election.timeout.ms": "2000",
    "controller.quorum.fetch.timeout.ms": "4000",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "ottla.http.listener": "127.0.0.1:0",
}

T = TypeVar("T")


class Make(StrEnum):
    """The implementation that a node runs."""

    APACHE = "apache"
    OTTLA = "ottla"


class Quorum(NamedTuple):
    """The leader's view of the quorum: log end offsets by node id."""

    leader: int
    epoch: int
    high_watermark: int
    voters: dict[int, int]
    observers: dict[int, int]


class KraftNode:
    """One node in `directory`. `settings` override all other properties."""

    def __init__(
        self, directory: Path, make: Make, node_id: int, roles: str = "controller", settings: Mapping[str, str] = {}
    ) -> None:
        self.directory = directory
        self.make = make
        self.id = node_id
        self.roles = roles
        self.client_port, self.controller_port = free_ports(2)
        self.settings = dict(settings)
        self.environment: dict[str, str] = {}
        """Variables of the node's process, in addition to those of the test."""
        self.process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    # Files

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def metadata(self) -> Path:
        """The directory of the metadata log."""
        return self.data / "__cluster_metadata-0"

    @property
    def properties(self) -> Path:
        return self.directory / "server.properties"

    @property
    def snapshots(self) -> list[Path]:
        """Return the valid snapshots, oldest first, without the 0-0 snapshot."""
        return sorted(path for path in self.metadata.glob("*.checkpoint") if not path.name.startswith("0" * 20))

    @property
    def segments(self) -> list[Path]:
        return sorted(self.metadata.glob("*.log"))

    @property
    def log_text(self) -> str:
        path = self.directory / "node.log"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def directory_id(self) -> Uuid:
        """Return the directory id in the node's formatted metadata directory."""
        lines = (self.data / "meta.properties").read_text().splitlines()
        found = next(line.partition("=")[2] for line in lines if line.startswith("directory.id="))
        return uuid_from_text(found.replace("\\", ""))

    def write_properties(self, quorum: Mapping[str, str]) -> None:
        listeners = []
        if "broker" in self.roles:
            listeners.append(f"PLAINTEXT://127.0.0.1:{self.client_port}")
        if "controller" in self.roles:
            listeners.append(f"CONTROLLER://127.0.0.1:{self.controller_port}")
        own = {
            "process.roles": self.roles,
            "node.id": str(self.id),
            "listeners": ",".join(listeners),
            "log.dirs": str(self.data),
        }
        merged = {**SETTINGS, **quorum, **own, **self.settings}
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in merged.items()))

    def format(self, cluster_id: str, *how: str, make: Make | None = None) -> None:
        """Format with the storage tool of the node's own implementation, or of the other one."""
        arguments = ("format", "-t", cluster_id, "-c", str(self.properties), *how)
        if (make or self.make) is Make.APACHE:
            run_tool("kafka.tools.StorageTool", *arguments)
        else:
            run_ottla("storage", *arguments)

    # Process

    @property
    def address(self) -> str:
        """Return the address for clients."""
        return f"127.0.0.1:{self.client_port}"

    @property
    def controller_address(self) -> str:
        return f"127.0.0.1:{self.controller_port}"

    @property
    def pid(self) -> int:
        """The process id of the running node."""
        assert self.process is not None
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def launch(self) -> None:
        """Start the process without waiting."""
        if self.make is Make.APACHE:
            tuning = ["-Xmx384m", *java_options.quick()]
            logging = "-Dorg.apache.logging.log4j.level=INFO"
            command = ["java", *tuning, logging, "-cp", f"{JARS}/*", "kafka.Kafka", str(self.properties)]
        else:
            command = [sys.executable, "-m", "broker", "start", str(self.properties)]
        with (self.directory / "node.log").open("ab") as output:
            environment = clean_environment() | self.environment
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)

    def wait_until_ready(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait until a controller listens, or until a broker is registered and unfenced."""
        assert self.process is not None
        try:
            wait_for_port(self.client_port if "broker" in self.roles else self.controller_port, self.process, timeout_s)
            if "broker" in self.roles:
                until(self._is_let_in, timeout_s)
        except AssertionError as error:
            raise AssertionError(f"node {self.id} ({self.make}): {error}\n{self.log_text[-4000:]}") from None

    def _is_let_in(self) -> bool:
        assert self.running, "the process ended"
        answer = _asked(self.client_port, MetadataRequest([]), MetadataResponse)
        return answer is not None and self.id in [broker.node_id for broker in answer.brokers]

    def start(self) -> "KraftNode":
        self.launch()
        self.wait_until_ready()
        return self

    def kill(self) -> None:
        """Send SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def terminate(self, timeout_s: float = PATIENCE_S) -> int:
        """Stop the node and return its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def end(self) -> None:
        if self.process is not None:
            stop(self.process, (signal.SIGKILL,))

    # The log on disk

    def batches(self) -> dict[int, bytes]:
        """Return the whole batches of the metadata log by base offset, from the files."""
        found: dict[int, bytes] = {}
        for segment in self.segments:
            data, position = segment.read_bytes(), 0
            while len(data) - position >= HEADER_SIZE:
                header = parse_header(data, position)
                if header.size > len(data) - position or not header.record_count:
                    break
                found[header.base_offset] = data[position : position + header.size]
                position += header.size
        return found


class KraftNodes:
    """The nodes of a cluster. Controllers are the first voters. Stops all nodes at exit."""

    def __init__(self, nodes: Sequence[KraftNode]) -> None:
        self.nodes = list(nodes)
        self.cluster_id = random_uuid_text()

    def __enter__(self) -> "KraftNodes":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes:
            node.end()
        if error is not None:
            error.add_note("".join(f"\n--- node {node.id}, {node.make}\n{_tail(node)}" for node in self.nodes))

    def __getitem__(self, node_id: int) -> KraftNode:
        return next(node for node in self.nodes if node.id == node_id)

    @property
    def controllers(self) -> list[KraftNode]:
        return [node for node in self.nodes if "controller" in node.roles]

    # Formatting

    def format_static(self, *how: str) -> None:
        """Form a quorum of static voters."""
        voters = ",".join(f"{node.id}@{node.controller_address}" for node in self.controllers)
        for node in self.nodes:
            node.write_properties({"controller.quorum.voters": voters})
            node.format(self.cluster_id, *how, make=Make.OTTLA)

    def format_dynamic(self, *how: str, make: Make | None = Make.OTTLA) -> None:
        """Form a quorum of dynamic voters, with Ottla's storage tool unless `make` says otherwise (None: each node's
        own).
        """
        first = [InitialController(n.id, "127.0.0.1", n.controller_port, random_id()) for n in self.controllers]
        for node in self.nodes:
            node.write_properties(self.bootstrap_servers)
            node.format(self.cluster_id, *how, "--initial-controllers", ",".join(map(str, first)), make=make)

    @property
    def bootstrap_servers(self) -> dict[str, str]:
        return {"controller.quorum.bootstrap.servers": ",".join(node.controller_address for node in self.controllers)}

    def join(self, node: KraftNode, *, make: Make = Make.OTTLA) -> KraftNode:
        """Format another node for an existing dynamic quorum, and start it."""
        node.write_properties(self.bootstrap_servers)
        node.format(self.cluster_id, *(("--no-initial-controllers",) if "controller" in node.roles else ()), make=make)
        self.nodes.append(node)
        return node.start()

    def start(self) -> "KraftNodes":
        """Start all nodes, and wait until they are ready and have a leader."""
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait_until_ready()
        self.quorum()
        return self

    # Queries

    def quorum(self, condition: Callable[[Quorum], bool] = lambda _: True, timeout_s: float = PATIENCE_S) -> Quorum:
        """Return the leader's view as soon as it meets the condition."""

        def attempt() -> Quorum | None:
            found = self._ask_leader()
            return found if found is not None and condition(found) else None

        return until(attempt, timeout_s, self)

    def _ask_leader(self) -> Quorum | None:
        partition = DescribeQuorumRequestTopicData("__cluster_metadata", [DescribeQuorumRequestPartitionData(0)])
        for node in self.controllers:
            answer = _asked(node.controller_port, DescribeQuorumRequest([partition]), DescribeQuorumResponse)
            if answer is None or answer.error_code or answer.topics[0].partitions[0].error_code:
                continue
            data = answer.topics[0].partitions[0]
            return Quorum(
                data.leader_id,
                data.leader_epoch,
                data.high_watermark,
                {each.replica_id: each.log_end_offset for each in data.current_voters},
                {each.replica_id: each.log_end_offset for each in data.observers},
            )
        return None

    def leader(self, other_than: Iterable[int] = ()) -> KraftNode:
        """Return the active controller other than the excluded nodes; with a high watermark, it accepts changes."""
        unwanted = set(other_than)
        return self[self.quorum(lambda view: view.leader not in unwanted and view.high_watermark > 0).leader]

    def hand_over(self, to: KraftNode) -> None:
        """Make this voter of three the leader: kill the leader while the third voter lacks a record."""
        self.caught_up()
        if (leader := self.leader()) is to:
            return
        (third,) = [node for node in self.controllers if node not in (leader, to)]
        third.kill()
        self.change("4000")
        self.caught_up([to.id])
        leader.kill()
        third.start()
        assert self.leader() is to
        leader.start()
        self.caught_up()

    def change(self, text: str) -> int:
        """Commit a dynamic default of brokers, and return a high watermark of the leader that includes it."""

        def attempt() -> bool:
            leader = self.leader()
            wanted = AlterableConfig("log.cleaner.backoff.ms", SET, text)
            request = IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER_CONFIG, "", [wanted])])
            answer = _asked(leader.controller_port, request, IncrementalAlterConfigsResponse)
            return answer is not None and answer.responses[0].error_code == ErrorCode.NONE

        until(attempt, PATIENCE_S, self)
        return self.quorum().high_watermark

    def caught_up(self, node_ids: Iterable[int] | None = None) -> Quorum:
        """Wait until these nodes (by default all) have all present records of the leader."""
        wanted = [node.id for node in self.nodes if node.running] if node_ids is None else list(node_ids)
        target = self.quorum().high_watermark
        return self.quorum(
            lambda view: (
                view.high_watermark >= target
                and all((view.voters | view.observers).get(each, -1) >= target for each in wanted)
            )
        )

    def assert_same_log(self, node_ids: Iterable[int]) -> None:
        """Check that the files of these nodes hold equal bytes below the high watermark."""
        committed = self.caught_up(node_ids).high_watermark
        logs = {each: self[each].batches() for each in node_ids}
        ends = {each: max(log, default=-1) for each, log in logs.items()}
        begin = max(min(log, default=0) for log in logs.values())
        last = min(*ends.values(), committed - 1)
        parts = [{at: data for at, data in log.items() if begin <= at <= last} for log in logs.values()]
        assert parts[0], "the logs do not overlap"
        assert all(part == parts[0] for part in parts[1:]), {node: sorted(log) for node, log in logs.items()}


def until(attempt: Callable[[], T | None], timeout_s: float, nodes: KraftNodes | None = None) -> T:
    """Return the first truthy result. Fail the test after the timeout."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = attempt()
        if found:
            return found
        assert time.monotonic() < deadline, "it did not come about in time"
        for node in [] if nodes is None else nodes.nodes:
            if node.process is not None and (code := node.process.poll()) not in (None, 0, -signal.SIGKILL, 143):
                raise AssertionError(f"node {node.id} ({node.make}) exited with {code}")
        time.sleep(POLL_S)


R = TypeVar("R", bound=Message)


def _asked(port: int, request: Message, response_type: type[R]) -> R | None:
    """Send one request to one node; return None if the node is unreachable."""
    endpoint = Endpoint("127.0.0.1", port)
    config = ClientConfig((endpoint,), connect_timeout_ms=2000, request_timeout_ms=3000)
    try:
        connection = Connection.open(endpoint, config)
    except ClientError:
        return None
    with contextlib.closing(connection):
        try:
            return connection.call(request, response_type)
        except ClientError:
            return None


def _tail(node: KraftNode) -> str:
    return node.log_text[-3000:]
