"""The three nodes of a chaos run, of Ottla or Apache Kafka, each on its own host."""

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from broker.client import ClientConfig, ClientError, Connection, Endpoint
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.chaos.network import Network
from tests.chaos.security import Security
from tests.support.kafka import java_options
from tests.support.kafka.apache_kafka import JARS, random_uuid_text, run_tool
from tests.support.kafka.kraft_nodes import Make
from tests.support.processes.ottla_node import clean_environment, run_ottla

# A start takes two seconds, and much longer on a busy machine.
READY_TIMEOUT_S = 120.0
TERMINATE_TIMEOUT_S = 40.0
POLL_S = 0.1
# Short, so that a run of ten minutes has many elections; the same for both implementations.
SETTINGS = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "CLIENT",
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
    "controller.quorum.request.timeout.ms": "2000",
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "4000",
    "replica.socket.timeout.ms": "5000",
    "controller.socket.timeout.ms": "5000",
    "leader.imbalance.check.interval.seconds": "15",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "ottla.http.listener": "127.0.0.1:0",
}


class ChaosNode:
    """A combined broker and controller on the host of the same number."""

    def __init__(
        self,
        directory: Path,
        make: Make,
        node_id: int,
        network: Network,
        settings: Mapping[str, str],
        security: Security | None,
    ) -> None:
        self.directory = directory
        self.make = make
        self.id = node_id
        self.client_address, self.controller_address = network.addresses(node_id)
        # The run observes and administers the node here.
        self.run_address = self.client_address if security is None else network.run_address(node_id)
        self._network = network
        self._settings = settings
        self._security = security
        self._process: subprocess.Popen[bytes] | None = None

    # Files

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def log_text(self) -> str:
        path = self.directory / "node.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def log_since(self, position: int) -> str:
        """Return the output after the first `position` bytes."""
        with (self.directory / "node.log").open("rb") as output:
            output.seek(position)
            return output.read().decode(errors="replace")

    @property
    def log_bytes(self) -> int:
        return (self.directory / "node.log").stat().st_size

    def format(self, cluster_id: str, voters: str) -> None:
        self.directory.mkdir(parents=True)
        listeners = f"CLIENT://{self.client_address},CONTROLLER://{self.controller_address}"
        secure = self._security
        if secure is not None:
            listeners += f",RUN://{self.run_address}"
        own = {
            "node.id": str(self.id),
            "listeners": listeners,
            "controller.quorum.voters": voters,
            "log.dirs": str(self.data),
        }
        properties = self.directory / "server.properties"
        settings = {**SETTINGS, **self._settings, **({} if secure is None else secure.node_settings), **own}
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        arguments = ["format", "-t", cluster_id, "-c", str(properties)]
        arguments += [] if secure is None else secure.format_arguments
        if self.make is Make.APACHE:
            run_tool("kafka.tools.StorageTool", *arguments)
        else:
            run_ottla("storage", *arguments)

    # Life

    def launch(self) -> None:
        """Start the process without waiting until it is ready."""
        properties = str(self.directory / "server.properties")
        if self.make is Make.APACHE:
            tuning = ["-Xmx384m", *java_options.quick()]
            logging = "-Dorg.apache.logging.log4j.level=INFO"
            command = ["java", *tuning, logging, "-cp", f"{JARS}/*", "kafka.Kafka", properties]
        else:
            command = [sys.executable, "-m", "broker", "start", properties]
        with (self.directory / "node.log").open("ab") as output:
            self._process = subprocess.Popen(
                self._network.command(self.id, command),
                stdout=output,
                stderr=subprocess.STDOUT,
                env=clean_environment(),
            )

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until the node serves clients and lists itself as alive, which requires its registration."""
        deadline = time.monotonic() + timeout_s
        while self.id not in self.known_brokers():
            assert self._process is not None, f"node {self.id} was not started"
            code = self._process.poll()
            assert code is None, f"node {self.id} exited with {code}:\n{self.log_text[-3000:]}"
            assert time.monotonic() < deadline, f"node {self.id} is not ready in time:\n{self.log_text[-3000:]}"
            time.sleep(POLL_S)

    def known_brokers(self) -> list[int]:
        """Return the live brokers according to this node, empty if it does not answer."""
        answer = self._metadata([])
        return [] if answer is None else [broker.node_id for broker in answer.brokers]

    def in_sync(self, topic: str) -> set[int] | None:
        """Return the union of the ISRs of the topic's partitions according to this node, None if it does not answer
        or does not know the topic."""
        answer = self._metadata([MetadataRequestTopic(name=topic)])
        if answer is None or any(topic.error_code for topic in answer.topics):
            return None
        return {node for topic in answer.topics for each in topic.partitions for node in each.isr_nodes}

    def leads(self, topic: str) -> bool:
        """Whether the node leads a partition of the topic according to itself."""
        answer = self._metadata([MetadataRequestTopic(name=topic)])
        return answer is not None and any(
            each.leader_id == self.id for topic in answer.topics for each in topic.partitions
        )

    def is_fully_replicated(self) -> bool:
        """Whether every replica of every partition is in sync according to this node."""
        answer = self._metadata(None)
        return answer is not None and all(
            set(each.isr_nodes) == set(each.replica_nodes) for topic in answer.topics for each in topic.partitions
        )

    def _metadata(self, topics: list[MetadataRequestTopic] | None) -> MetadataResponse | None:
        host, _, port = self.run_address.rpartition(":")
        endpoint = Endpoint(host, int(port))
        config = ClientConfig((endpoint,), connect_timeout_ms=1000, request_timeout_ms=2000)
        try:
            with contextlib.closing(Connection.open(endpoint, config)) as connection:
                return connection.call(MetadataRequest(topics), MetadataResponse)
        except ClientError:
            return None

    def lose_logs(self, topics: Sequence[str]) -> None:
        """Delete all replicas of these topics from the disk. The node must be stopped and out of their ISRs."""
        for topic in topics:
            for replica in self.data.glob(f"{topic}-[0-9]*"):
                shutil.rmtree(replica)

    def kill(self) -> None:
        """Kill the process with SIGKILL, also while it is paused."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def terminate(self) -> bool:
        """Request a clean stop. Return False if the node did not stop and was killed."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(TERMINATE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        return True

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


class ChaosCluster:
    """A context manager that formats and starts nodes 1 to n in `directory`, and kills them at the end.

    `settings` are added to those of every run.
    """

    def __init__(
        self,
        directory: Path,
        make: Make,
        nodes: int,
        network: Network,
        settings: Mapping[str, str] | None = None,
        security: Security | None = None,
    ) -> None:
        self.directory = directory
        self.security = security
        self._dead: set[int] = set()
        numbers = range(1, nodes + 1)
        self.nodes = [
            ChaosNode(directory / f"node-{each}", make, each, network, settings or {}, security) for each in numbers
        ]

    def __enter__(self) -> "ChaosCluster":
        cluster_id = random_uuid_text()
        voters = ",".join(f"{node.id}@{node.controller_address}" for node in self.nodes)
        try:
            for node in self.nodes:
                node.format(cluster_id, voters)
                node.launch()
            self.wait_ready()
            if self.security is not None:
                self.security.grant(self.bootstrap)
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def __getitem__(self, node_id: int) -> ChaosNode:
        return self.nodes[node_id - 1]

    @property
    def ids(self) -> list[int]:
        """Return the ids of the nodes that are not dead for good."""
        return [node.id for node in self.living]

    @property
    def living(self) -> list[ChaosNode]:
        """Return the nodes that are not dead for good."""
        return [node for node in self.nodes if node.id not in self._dead]

    def bury(self, node_id: int) -> None:
        """Kill a node for the rest of the run."""
        self._dead.add(node_id)
        self[node_id].kill()

    @property
    def bootstrap(self) -> str:
        """Return the addresses for this process."""
        return ",".join(node.run_address for node in self.nodes)

    @property
    def client_bootstrap(self) -> str:
        """Return the addresses for client programs."""
        return ",".join(node.client_address for node in self.nodes)

    def wait_ready(self) -> None:
        """Wait until all living nodes serve clients."""
        for node in self.living:
            node.wait_ready()

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()


def topic_settings(*, acks: str, unclean: bool) -> Mapping[str, str]:
    """Return the configs of the main topic: small segments without retention."""
    return {
        "min.insync.replicas": "2" if acks == "all" else "1",
        "unclean.leader.election.enable": str(unclean).lower(),
        "segment.bytes": str(8 << 20),
        "retention.ms": "-1",
    }


def partition_directories(nodes: Sequence[ChaosNode], topic: str, partition: int) -> list[Path]:
    return [node.data / f"{topic}-{partition}" for node in nodes]
