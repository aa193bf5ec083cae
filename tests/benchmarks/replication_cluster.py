"""Three nodes of Ottla or Apache Kafka, each broker and controller, with replicas on all; killable and measurable."""

import contextlib
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from tests.benchmarks import sides
from tests.benchmarks.sides import Cpu
from tests.benchmarks.wire import METADATA_VERSION, Wire
from tests.support.kafka.apache_kafka import java_command
from tests.support.kafka.java_options import OPTIMIZED
from tests.support.kafka.kraft_nodes import KraftNode, KraftNodes, Make
from tests.support.processes.ottla_node import clean_environment

IDS = (1, 2, 3)
PATIENCE_S = 60.0
START_TIMEOUT_S = 180.0
POLL_S = 0.05
# Quorum timeouts: Kafka's defaults, which `KraftNode` doubles.
SETTINGS = {
    **sides.SETTINGS,
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
    "leader.imbalance.check.interval.seconds": "3600",
}
OF_ONE_MACHINE: Mapping[Make, Mapping[str, str]] = {
    Make.OTTLA: {"ottla.scheduling.policy": "batch"},
    Make.APACHE: {},
}
"""Settings that `ottla cluster` and `ottla start --brokers` add for nodes of one machine. Apache Kafka has none."""
TUNED = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    "replica.lag.time.max.ms": "2000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
}
"""Settings to detect failures within two seconds. With much less, the quorums of six nodes that start on a few cores
lose their leaders.
"""


class ReplicaNode(KraftNode):
    """A node for measurements: the JVM compiles as for users, with a heap of 1 GB (the scripts' default)."""

    def launch(self) -> None:
        if self.make is Make.OTTLA:
            super().launch()
            return
        with (self.directory / "node.log").open("ab") as output:
            self.process = subprocess.Popen(
                java_command("kafka.Kafka", str(self.properties), heap="1g", options=OPTIMIZED),
                stdout=output,
                stderr=subprocess.STDOUT,
                env=clean_environment(),
            )

    def cpu(self) -> Cpu:
        """Return the processor time of the running process so far."""
        assert self.process is not None
        return Cpu.of(psutil.Process(self.process.pid))


class Trio:
    """The nodes 1 to 3. `name` is that of the broker."""

    def __init__(self, name: str, nodes: list[ReplicaNode], quorum: KraftNodes) -> None:
        self.name = name
        self._nodes = nodes
        self._quorum = quorum

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self._nodes)

    def node(self, node_id: int) -> ReplicaNode:
        return self._nodes[node_id - 1]

    def cpu(self) -> Cpu:
        """Return the processor time of all three."""
        return sum((node.cpu() for node in self._nodes), Cpu(0.0, 0.0))

    def cpu_s(self) -> float:
        """Return the processor time of all three, user and system."""
        return self.cpu().total

    def active_controller(self) -> int:
        """Return the leader of the quorum."""
        return self._quorum.leader().id

    # Topics

    def create_topic(
        self,
        name: str,
        partitions: int = len(IDS),
        *,
        leaders: Sequence[int] = IDS,
        config: Mapping[str, str] = {},
    ) -> None:
        """Create a topic with three replicas per partition, led in turn by `leaders`; return when it is ready."""
        preferred = [leaders[index % len(leaders)] for index in range(partitions)]
        replicas = [[IDS[(first - 1 + offset) % len(IDS)] for offset in range(len(IDS))] for first in preferred]
        new = NewTopic(name, partitions, replica_assignment=replicas, config=dict(config))
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([new])[name].result(30)
        self.wait_in_sync(name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})  # its calls end when it is deleted
        admin.delete_topics([name])[name].result(30)

    def wait_in_sync(self, topic: str, *, preferred: bool = False, told_by: Sequence[int] = IDS) -> None:
        """Wait until all of these nodes report all replicas of all partitions in sync, with the preferred leader if
        `preferred`.
        """
        deadline = time.monotonic() + PATIENCE_S
        for node in (self.node(each) for each in told_by):
            while not _is_whole(_partitions(node, topic), preferred=preferred):
                assert time.monotonic() < deadline, (
                    f"{self.name}: {topic} is not in sync in time\n{node.log_text[-2000:]}"
                )
                time.sleep(POLL_S)

    def wait_out_of_sync(self, node_id: int, topic: str) -> None:
        """Wait until the first node reports that no ISR contains the node."""
        deadline = time.monotonic() + PATIENCE_S
        while any(node_id in each.isr_nodes for each in _partitions(self._nodes[0], topic)):
            assert time.monotonic() < deadline, f"{self.name}: node {node_id} is still in sync"
            time.sleep(POLL_S)

    def restore(self, killed: int, topic: str) -> None:
        """Restart a killed node and make it leader of its partitions again."""
        self.node(killed).launch()
        self.node(killed).wait_until_ready(START_TIMEOUT_S)
        self.wait_in_sync(topic)
        partitions = [TopicPartition(topic, index) for index in range(len(IDS))]
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.elect_leaders(ElectionType.PREFERRED, partitions).result(30)
        self.wait_in_sync(topic, preferred=True)


def _partitions(node: ReplicaNode, topic: str) -> list[MetadataResponsePartition]:
    """Return the partitions by the metadata of a node; none if it is unreachable."""
    try:
        with Wire(node.address) as wire:
            wanted = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
            return wire.call(wanted, MetadataResponse, METADATA_VERSION).topics[0].partitions
    except OSError:
        return []


def _is_whole(partitions: list[MetadataResponsePartition], *, preferred: bool) -> bool:
    return bool(partitions) and all(
        len(each.isr_nodes) == len(IDS) and (each.leader_id == each.replica_nodes[0] or not preferred)
        for each in partitions
    )


@contextlib.contextmanager
def trio(make: Make, directory: Path, settings: Mapping[str, str] = {}) -> Iterator[Trio]:
    """Run three nodes in `directory`; `settings` override the common ones."""
    nodes = [
        ReplicaNode(
            directory / f"node-{each}",
            make,
            each,
            "broker,controller",
            {**SETTINGS, **OF_ONE_MACHINE[make], **settings},
        )
        for each in IDS
    ]
    with KraftNodes(nodes) as quorum:
        quorum.format_static()
        for node in nodes:
            node.launch()
        for node in nodes:
            node.wait_until_ready(START_TIMEOUT_S)
        quorum.leader()
        yield Trio("ottla" if make is Make.OTTLA else "kafka", nodes, quorum)
