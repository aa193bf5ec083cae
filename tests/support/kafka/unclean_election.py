"""An unclean election on demand: the leader's last records are lost and replaced by others.

Three nodes of Apache Kafka or Ottla. The active controller is not a replica; of the other two, one leads and one
follows. The follower is suspended until it leaves the ISR; the leader appends alone and is suspended in turn; the
resumed follower is elected without these records. Later the first leader returns and truncates them.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType

from confluent_kafka import ElectionType, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from broker.client import Client, ClientConfig
from protocol.messages.metadata import MetadataResponsePartition
from tests.support.clients.leader_epoch_requests import LeaderEpochClient
from tests.support.kafka.kraft_nodes import KraftNode, KraftNodes, Make, until
from tests.support.processes.suspension import resume, suspend

TIMEOUT_S = 120.0
SETTINGS = {
    "inter.broker.listener.name": "PLAINTEXT",
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.num.partitions": "1",
}
TOPIC_SETTINGS = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
FOLLOWERS_WAIT_MS = 500
"""Kafka's replica.fetch.wait.max.ms."""
LATEST = -1
OFFSETS_TOPIC = "__consumer_offsets"


class UncleanElection:
    """The cluster, in `directory`, with topics of one partition; a context manager that starts and kills it."""

    def __init__(self, directory: Path, make: Make, topics: Sequence[str]) -> None:
        self.topics = list(topics)
        self._last_ms = time.time_ns() // 1_000_000
        self._nodes = KraftNodes(
            [KraftNode(directory / f"node-{id}", make, id, "broker,controller", SETTINGS) for id in (1, 2, 3)]
        )
        self.controller: KraftNode
        self.leader: KraftNode
        self.follower: KraftNode

    def __enter__(self) -> "UncleanElection":
        self._nodes.__enter__()
        try:
            self._nodes.format_static()
            self._nodes.start()
            self.controller = self._nodes.leader()
            self.leader, self.follower = (node for node in self._nodes.nodes if node is not self.controller)
            self._create_topics()
        except BaseException as error:
            self._nodes.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._nodes.__exit__(kind, error, trace)

    @property
    def bootstrap(self) -> str:
        """Return the only node that is never suspended, and never redirects a client to a suspended one."""
        return self.controller.address

    # Steps, in this order

    def suspend_follower(self) -> None:
        """Suspend the follower until the leader is the only in-sync replica."""
        both = sorted((self.leader.id, self.follower.id))
        self._wait(lambda partition: sorted(partition.isr_nodes) == both, self.controller, self.leader)
        suspend(self.follower.pid)
        self._wait(lambda partition: partition.isr_nodes == [self.leader.id], self.controller, self.leader)
        self._let_fetches_end()

    def _let_fetches_end(self) -> None:
        """Wait for the end of the follower's last fetch at the leader: records appended before would be its response,
        read when the follower resumes.
        """
        with LeaderEpochClient.connect(self.leader.address, self.topics[0]) as leader:
            leader.fetch(leader.offset_at(LATEST).offset, wait_ms=4 * FOLLOWERS_WAIT_MS)

    def elect_uncleanly(self) -> None:
        """Elect the follower without the records that it lacks."""
        suspend(self.leader.pid)
        resume(self.follower.pid)
        self._wait(lambda partition: partition.leader_id == self.follower.id, self.controller, self.follower)

    def bring_back(self) -> None:
        """Restart the first leader, and wait until it is in sync."""
        self.leader.kill()
        self.leader.start()
        both = sorted((self.leader.id, self.follower.id))
        self._wait(lambda partition: sorted(partition.isr_nodes) == both, *self._nodes.nodes)

    def elect_preferred(self) -> None:
        """Elect the first leader again, with the log of the other."""
        partitions = [TopicPartition(topic, 0) for topic in self.topics]
        admin = self._admin()
        admin.elect_leaders(ElectionType.PREFERRED, partitions).result(TIMEOUT_S)
        self._wait(lambda partition: partition.leader_id == self.leader.id, *self._nodes.nodes)

    # Records and metadata

    def produce(self, topic: str, *values: str) -> None:
        """Produce committed records: on both nodes, or on the only in-sync one. No two have the same timestamp."""
        failed: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failed.append(error)

        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "linger.ms": 0})
        for value in values:
            self._last_ms += 1
            producer.produce(topic, value.encode(), partition=0, timestamp=self._last_ms, on_delivery=on_delivery)
        assert producer.flush(TIMEOUT_S) == 0
        assert not failed, failed

    def partition(self, topic: str) -> MetadataResponsePartition:
        """Return the partition by the metadata of the controller's node."""
        return self._partitions(self.controller)[topic]

    def _partitions(self, node: KraftNode) -> Mapping[str, MetadataResponsePartition]:
        with Client(ClientConfig.parse(node.address)) as client:
            found = client.metadata(self.topics)
        return {topic.name or "": topic.partitions[0] for topic in found.topics if topic.partitions}

    def _wait(self, wanted: Callable[[MetadataResponsePartition], bool], *nodes: KraftNode) -> None:
        """Wait until all topics meet the condition, by the metadata of each of these nodes."""

        def is_known(node: KraftNode) -> bool:
            found = self._partitions(node)
            return len(found) == len(self.topics) and all(map(wanted, found.values()))

        for node in nodes:
            until(partial(is_known, node), TIMEOUT_S, self._nodes)

    def _create_topics(self) -> None:
        """Create the topics; `__consumer_offsets` has three replicas, with the permanent node as coordinator."""
        data = [self.leader.id, self.follower.id]
        topics = [NewTopic(topic, 1, replica_assignment=[data], config=TOPIC_SETTINGS) for topic in self.topics]
        kept = {"cleanup.policy": "compact"}
        topics.append(NewTopic(OFFSETS_TOPIC, 1, replica_assignment=[[self.controller.id, *data]], config=kept))
        admin = self._admin()
        for done in admin.create_topics(topics).values():
            done.result(TIMEOUT_S)
        self._wait(lambda partition: partition.leader_id == self.leader.id, *self._nodes.nodes)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})
