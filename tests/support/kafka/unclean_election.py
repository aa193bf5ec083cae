"""An unclean election made to happen at will: what the leader had last is lost, and other records take its place.

Three nodes of either make. The active controller stays out of it; of the other two, one leads and one follows. The
follower is suspended until it is out of the in-sync set, the leader takes records alone and is suspended in turn, and
the follower, which runs again, is elected without them. Later the first leader comes back and must forget them.
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
from tests.support.clients.leader_epoch_requests import EpochQuestions
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
    """The cluster, in `directory`, and its topics of one partition; a context manager that starts it and kills it."""

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
        """The one node that is never suspended, and never sends a client to one that is."""
        return self.controller.address

    # What happens, in this order

    def suspend_follower(self) -> None:
        """From now on the leader is alone, and everything that it has is committed."""
        both = sorted((self.leader.id, self.follower.id))
        self._wait(lambda partition: sorted(partition.isr_nodes) == both, self.controller, self.leader)
        suspend(self.follower.pid)
        self._wait(lambda partition: partition.isr_nodes == [self.leader.id], self.controller, self.leader)
        self._let_fetches_end()

    def _let_fetches_end(self) -> None:
        """The follower's last fetch may still wait at the leader. What comes now would be the answer to it, and be read
        when the follower runs again. A fetch that waits longer ends later."""
        with EpochQuestions.asked(self.leader.address, self.topics[0]) as leader:
            leader.fetch(leader.offset_at(LATEST).offset, wait_ms=4 * FOLLOWERS_WAIT_MS)

    def elect_uncleanly(self) -> None:
        """The follower leads, without what it has missed."""
        suspend(self.leader.pid)
        resume(self.follower.pid)
        self._wait(lambda partition: partition.leader_id == self.follower.id, self.controller, self.follower)

    def bring_back(self) -> None:
        """The first leader is started anew, follows, and is in sync."""
        self.leader.kill()
        self.leader.start()
        both = sorted((self.leader.id, self.follower.id))
        self._wait(lambda partition: sorted(partition.isr_nodes) == both, *self._nodes.nodes)

    def elect_preferred(self) -> None:
        """The first leader leads again, with the log of the other."""
        partitions = [TopicPartition(topic, 0) for topic in self.topics]
        admin = self._admin()
        admin.elect_leaders(ElectionType.PREFERRED, partitions).result(TIMEOUT_S)
        self._wait(lambda partition: partition.leader_id == self.leader.id, *self._nodes.nodes)

    # Records and metadata

    def produce(self, topic: str, *values: str) -> None:
        """All of them are committed: on both nodes, or on the one that is in sync. No two have the same timestamp."""
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
        """As the controller's node knows it."""
        return self._partitions(self.controller)[topic]

    def _partitions(self, node: KraftNode) -> Mapping[str, MetadataResponsePartition]:
        with Client(ClientConfig.parse(node.address)) as client:
            found = client.metadata(self.topics)
        return {topic.name or "": topic.partitions[0] for topic in found.topics if topic.partitions}

    def _wait(self, wanted: Callable[[MetadataResponsePartition], bool], *nodes: KraftNode) -> None:
        """Until all topics are so, as each of these nodes knows them."""

        def is_known(node: KraftNode) -> bool:
            found = self._partitions(node)
            return len(found) == len(self.topics) and all(map(wanted, found.values()))

        for node in nodes:
            until(partial(is_known, node), TIMEOUT_S, self._nodes)

    def _create_topics(self) -> None:
        """Offsets of groups are on all three nodes, but their coordinator is the one that stays."""
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
