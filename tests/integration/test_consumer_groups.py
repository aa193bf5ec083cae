"""librdkafka's consumers of KIP-848 on one node, which join, leave, commit, subscribe by pattern, and see a restart."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupType, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.support.processes.ottla_node import OttlaNode

pytestmark = pytest.mark.integration

GROUP = "readers"
TOPIC = "orders"
PARTITIONS = 6
TIMEOUT_S = 60
FAST_HEARTBEATS = {
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
}
CLASSIC_SETTINGS = {"heartbeat.interval.ms": 200, "partition.assignment.strategy": "cooperative-sticky"}


class Readers:
    """Consumers of one group by name; `poll` drives all of them."""

    def __init__(self, node: OttlaNode) -> None:
        self._node = node
        self.consumers: dict[str, Consumer] = {}
        self.received: list[Message] = []

    def join(self, name: str, topics: list[str], *, protocol: str = "consumer") -> Consumer:
        own = CLASSIC_SETTINGS if protocol == "classic" else {}
        consumer = Consumer(
            {
                **own,
                "bootstrap.servers": self._node.bootstrap,
                "group.id": GROUP,
                "client.id": name,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 500,
            }
        )
        consumer.subscribe(topics)
        self.consumers[name] = consumer
        return consumer

    def leave(self, name: str) -> None:
        self.consumers.pop(name).close()

    def poll(self) -> None:
        for consumer in self.consumers.values():
            message = consumer.poll(0.02)
            if message is None:
                continue
            error = message.error()
            if error is None:
                self.received.append(message)
            else:
                assert not error.fatal(), error

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, f"{what}: not within {TIMEOUT_S} s; {self.assignments()}"
            self.poll()

    def assignments(self) -> dict[str, list[str]]:
        return {
            name: sorted(f"{each.topic}-{each.partition}" for each in consumer.assignment())
            for name, consumer in self.consumers.items()
        }

    def share(self, sizes: list[int], partitions: int = PARTITIONS) -> bool:
        """Whether each partition has one reader, and the readers have these numbers of partitions."""
        assigned = list(self.assignments().values())
        owners = Counter(partition for each in assigned for partition in each)
        return sorted(map(len, assigned)) == sizes and len(owners) == partitions and set(owners.values()) <= {1}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OttlaNode]:
    with OttlaNode(tmp_path / "node", FAST_HEARTBEATS) as running:
        yield running


@pytest.fixture
def readers(node: OttlaNode) -> Iterator[Readers]:
    made = Readers(node)
    yield made
    for name in list(made.consumers):
        made.leave(name)


def create_topic(admin: AdminClient, name: str, partitions: int) -> None:
    for done in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        done.result(20)


def produce(node: OttlaNode, topic: str, partitions: int) -> None:
    """Write one message to each partition."""
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for partition in range(partitions):
        producer.produce(topic, f"{topic}-{partition}".encode(), partition=partition)
    assert producer.flush(30) == 0


def test_librdkafka_consumers_share_topics_by_the_new_protocol(node: OttlaNode, readers: Readers) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    create_topic(admin, TOPIC, PARTITIONS)
    produce(node, TOPIC, PARTITIONS)

    first = readers.join("a", [TOPIC])
    readers.until(lambda: readers.share([6]), "one consumer has all partitions")
    readers.until(lambda: len(readers.received) == PARTITIONS, "all messages are read")
    first.commit(asynchronous=False)
    offsets = first.committed([TopicPartition(TOPIC, each) for each in range(PARTITIONS)], timeout=20)
    assert [each.offset for each in offsets] == [1] * PARTITIONS

    readers.join("b", [TOPIC])
    readers.join("c", [TOPIC])
    readers.until(lambda: readers.share([2, 2, 2]), "three consumers have two partitions each")
    listed = admin.list_consumer_groups(request_timeout=20).result().valid
    assert [(each.group_id, each.type) for each in listed] == [(GROUP, ConsumerGroupType.CONSUMER)]
    described = admin.describe_consumer_groups([GROUP], request_timeout=20)[GROUP].result()
    assert sorted(len(each.assignment.topic_partitions) for each in described.members) == [2, 2, 2]

    readers.leave("b")
    readers.until(lambda: readers.share([3, 3]), "two consumers have three partitions each")

    for done in admin.create_partitions([NewPartitions(TOPIC, PARTITIONS + 2)]).values():
        done.result(20)
    readers.until(lambda: readers.share([4, 4], PARTITIONS + 2), "new partitions are assigned")

    node.kill()
    node.start()
    readers.join("d", ["^ord.*"])
    readers.until(lambda: readers.share([2, 3, 3], PARTITIONS + 2), "a consumer by pattern joins after a restart")
    produce(node, TOPIC, PARTITIONS + 2)
    total = 2 * PARTITIONS + 2
    readers.until(lambda: len(readers.received) >= total, "messages written after the restart are read")
    for name in ("a", "c", "d"):
        readers.leave(name)
    readers.join("e", [TOPIC])
    readers.until(lambda: readers.share([8], PARTITIONS + 2), "the group starts again")
    readers.leave("e")
    del readers.received[:]
    readers.join("f", ["__cluster_metadata"])
    readers.until(lambda: bool(readers.received), "the metadata log is read as a topic")


def test_group_moves_between_the_protocols_without_a_stop(node: OttlaNode, readers: Readers) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    create_topic(admin, TOPIC, PARTITIONS)
    readers.join("classic", [TOPIC], protocol="classic")
    readers.until(lambda: readers.share([6]), "a classic consumer has all partitions")
    readers.join("modern", [TOPIC])
    readers.until(lambda: readers.share([3, 3]), "consumers of both protocols share the partitions")
    readers.leave("classic")
    readers.until(lambda: readers.share([6]), "the new consumer has all partitions")
    readers.join("late", [TOPIC], protocol="classic")
    readers.until(lambda: readers.share([3, 3]), "a classic consumer joins")
    readers.leave("modern")
    readers.until(lambda: readers.share([6]), "the classic consumer has all partitions")
    (listed,) = admin.list_consumer_groups(request_timeout=20).result().valid
    assert listed.type == ConsumerGroupType.CLASSIC
