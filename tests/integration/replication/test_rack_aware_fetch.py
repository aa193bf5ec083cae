"""Consumers that fetch from a follower in their rack (KIP-392) and return to the leader when it stops."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import confluent_kafka
import pytest

from tests.support.clients.partition_states import until, wait_until_whole
from tests.support.clients.replicated_load import create_topic, produce
from tests.support.processes.broker_cluster import BrokerCluster

pytestmark = pytest.mark.integration

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
BYTES_OUT = "kafka_server_brokertopicmetrics_bytesout_total"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BrokerCluster]:
    racks = {broker_id: {"broker.rack": f"rack-{broker_id}"} for broker_id in (1, 2, 3)}
    # A long lag limit keeps slow followers in sync, since consumers are only sent to in-sync replicas.
    settings = {"replica.selector.class": SELECTOR, "replica.lag.time.max.ms": "30000"}
    with BrokerCluster(tmp_path, settings=settings, each=racks) as running:
        yield running


def bytes_out(cluster: BrokerCluster) -> dict[int, float]:
    running = {broker_id: broker for broker_id, broker in cluster.brokers.items() if broker.is_running}
    return {broker_id: broker.metric(BYTES_OUT, topic="t") for broker_id, broker in running.items()}


def read(consumer: confluent_kafka.Consumer, count: int) -> list[bytes | None]:
    """Return the values of the next `count` records, waiting while the consumer changes its read replica."""
    found: list[bytes | None] = []

    def are_enough() -> bool:
        found.extend(message.value() for message in consumer.consume(count, 0.1) if message.error() is None)
        return len(found) >= count

    until(are_enough)
    return found


def test_consumer_fetches_from_its_rack_while_a_replica_is_there(cluster: BrokerCluster) -> None:
    create_topic(cluster.bootstrap, "t", 0, assignment=[[1, 2, 3]])
    produce(cluster.bootstrap, "t", [bytes(1000)])
    config = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "nobody",
        "client.rack": "rack-3",
        "topic.metadata.refresh.interval.ms": 1000,
        "log_level": 0,
    }
    with closing(confluent_kafka.Consumer(config)) as consumer:
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        assert read(consumer, 1) == [bytes(1000)]
        before = bytes_out(cluster)
        sent = [b"%04d" % number + bytes(1000) for number in range(50)]
        produce(cluster.bootstrap, "t", sent)
        assert read(consumer, 50) == sent
        grown = {broker_id: after - before[broker_id] for broker_id, after in bytes_out(cluster).items()}
        assert grown[1] == grown[2] == 0
        assert grown[3] > 50_000
        cluster[3].kill()
        produce(cluster.bootstrap, "t", [b"from the leader"])
        assert read(consumer, 1) == [b"from the leader"]
        assert bytes_out(cluster)[1] > before[1]
        cluster.start(3)
        wait_until_whole(cluster.bootstrap, "t")
        cluster[1].kill()
        produce(cluster.bootstrap, "t", [b"from a new leader"])
        assert read(consumer, 1) == [b"from a new leader"]


def test_consumer_without_a_replica_in_its_rack_fetches_from_the_leader(cluster: BrokerCluster) -> None:
    create_topic(cluster.bootstrap, "t", 0, assignment=[[1, 2, 3]])
    produce(cluster.bootstrap, "t", [bytes(1000)])
    for rack in ("", "elsewhere", "rack-1"):
        config = {"bootstrap.servers": cluster.bootstrap, "group.id": "nobody", "client.rack": rack}
        with closing(confluent_kafka.Consumer(config)) as consumer:
            consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
            assert read(consumer, 1) == [bytes(1000)]
    out = bytes_out(cluster)
    assert out[2] == out[3] == 0
    assert out[1] > 3000
