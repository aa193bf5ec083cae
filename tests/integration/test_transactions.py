"""Transactions of librdkafka and aiokafka on three brokers: atomicity, fencing, a killed coordinator."""

import asyncio
import time
from collections.abc import Iterator

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.processes.broker_cluster import BrokerCluster

pytestmark = pytest.mark.integration

SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
}
PARTITIONS = 3
LIMIT_S = 60


class _Silent:
    def log(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    with BrokerCluster(tmp_path_factory.mktemp("transactions"), settings=SETTINGS) as running:
        yield running


@pytest.fixture
def topic(cluster: BrokerCluster, request: pytest.FixtureRequest) -> str:
    name = request.node.name
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 3)])[name].result(LIMIT_S)
    return str(name)


def producer_of(cluster: BrokerCluster, transactional_id: str) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": transactional_id, "logger": _Silent()}
    )
    producer.init_transactions(LIMIT_S)
    return producer


def write(producer: confluent_kafka.Producer, topic: str, values: list[str]) -> None:
    for number, value in enumerate(values):
        producer.produce(topic, value.encode(), partition=number % PARTITIONS)


def committed(cluster: BrokerCluster, topic: str) -> list[str]:
    """Return what a read_committed consumer finds up to the end of every partition."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "logger": _Silent(),
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    values: list[str] = []
    ended: set[int] = set()
    deadline = time.monotonic() + LIMIT_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"only {values}, ends of {ended}"
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is None:
            values.append(message.value().decode())
        elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
            ended.add(message.partition())
    consumer.close()
    return sorted(values)


def ends_at(cluster: BrokerCluster, topic: str, values: list[str]) -> bool:
    """Wait until the markers of the last transaction have arrived everywhere, and return whether `values` are read."""
    deadline = time.monotonic() + LIMIT_S
    while (found := committed(cluster, topic)) != sorted(values):
        assert time.monotonic() < deadline, found
    return True


def test_committed_records_are_visible_and_aborted_ones_are_not(cluster: BrokerCluster, topic: str) -> None:
    producer = producer_of(cluster, "orders")
    for commits in (True, False, True):
        producer.begin_transaction()
        write(producer, topic, [f"{commits}"] * PARTITIONS)
        if commits:
            producer.commit_transaction(LIMIT_S)
        else:
            producer.flush(LIMIT_S)
            producer.abort_transaction(LIMIT_S)
    assert ends_at(cluster, topic, ["True"] * 2 * PARTITIONS)


def test_offsets_of_a_transaction_are_committed_with_it(cluster: BrokerCluster, topic: str) -> None:
    producer = producer_of(cluster, "pipeline")
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "pipeline", "logger": _Silent()}
    )
    position = confluent_kafka.TopicPartition(topic, 0, 5)
    for commits, offset in ((False, -1001), (True, 5)):
        producer.begin_transaction()
        write(producer, topic, ["result"])
        producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), LIMIT_S)
        if commits:
            producer.commit_transaction(LIMIT_S)
        else:
            producer.abort_transaction(LIMIT_S)
        assert [each.offset for each in consumer.committed([position], LIMIT_S)] == [offset]
    consumer.close()
    assert ends_at(cluster, topic, ["result"])


def test_new_instance_fences_the_former_one(cluster: BrokerCluster, topic: str) -> None:
    former = producer_of(cluster, "single")
    former.begin_transaction()
    write(former, topic, ["lost"])
    former.flush(LIMIT_S)
    following = producer_of(cluster, "single")
    with pytest.raises(confluent_kafka.KafkaException, match="fenced"):
        former.commit_transaction(LIMIT_S)
    following.begin_transaction()
    write(following, topic, ["kept"])
    following.commit_transaction(LIMIT_S)
    assert ends_at(cluster, topic, ["kept"])


def test_aiokafka_commits_and_aborts(cluster: BrokerCluster, topic: str) -> None:
    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id="asynchronous")
        await producer.start()
        try:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"kept")
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"dropped")
            await producer.abort_transaction()
        finally:
            await producer.stop()

    asyncio.run(run())
    assert ends_at(cluster, topic, ["kept"])


def test_transaction_is_committed_although_its_coordinator_is_killed(cluster: BrokerCluster, topic: str) -> None:
    producer = producer_of(cluster, "survivor")
    producer.begin_transaction()
    write(producer, topic, ["before"])
    producer.flush(LIMIT_S)
    metadata = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics("__transaction_state", LIMIT_S)
    coordinator = metadata.topics["__transaction_state"].partitions[0].leader
    cluster[coordinator].kill()
    write(producer, topic, ["after"])
    producer.commit_transaction(LIMIT_S)
    cluster.start(coordinator)
    assert ends_at(cluster, topic, ["after", "before"])
