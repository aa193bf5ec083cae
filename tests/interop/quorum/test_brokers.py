"""Brokers of one implementation with controllers of the other: join by snapshot, serve, fail over, and unregister."""

import json
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.kafka.apache_kafka import unavailable_reason
from tests.support.kafka.kraft_nodes import PATIENCE_S, KraftNode, KraftNodes, Make, until
from tests.support.processes.ottla_node import run_ottla

pytestmark = pytest.mark.interop

BROKER = 11
OFTEN = {"metadata.log.max.record.bytes.between.snapshots": "500"}
STOPPED_BY_SIGTERM = {Make.APACHE: 143, Make.OTTLA: 0}


@pytest.fixture(autouse=True)
def require_kafka() -> None:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)


@pytest.fixture
def controllers(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[KraftNodes]:
    """Start three controllers of the parametrized implementation, with a snapshot on the active one."""
    make = request.param
    voters = [KraftNode(tmp_path / f"controller-{n}", make, n, settings=OFTEN) for n in (1, 2, 3)]
    with KraftNodes(voters) as quorum:
        quorum.format_dynamic()
        quorum.start()
        for number in range(12):
            quorum.change(str(1000 + number))
        if make is Make.OTTLA:
            run_ottla("metadata-quorum", "--bootstrap-controller", quorum.leader().controller_address, "snapshot")
        until(lambda: quorum.leader().snapshots, PATIENCE_S, quorum)
        yield quorum


@pytest.mark.parametrize(
    ("controllers", "make"),
    [(Make.OTTLA, Make.APACHE), (Make.APACHE, Make.OTTLA)],
    indirect=["controllers"],
    ids=["apache-broker", "ottla-broker"],
)
def test_broker_joins_serves_and_leaves(controllers: KraftNodes, make: Make, tmp_path: Path) -> None:
    broker = controllers.join(KraftNode(tmp_path / "broker", make, BROKER, "broker"))
    assert broker.snapshots, "the broker did not start from the snapshot"
    create(broker, "first", 3)
    produce(broker, "first", 3)
    assert consumed(broker, "first", 3) == [b"0", b"1", b"2"]

    lost = controllers.leader()
    lost.kill()
    controllers.leader(other_than=[lost.id])
    create(broker, "second", 1)
    produce(broker, "second", 1)
    lost.start()
    controllers.caught_up()

    assert broker.terminate() == STOPPED_BY_SIGTERM[make]
    shutting_down, fenced = registration_changes(controllers.leader())[-2:]
    assert (shutting_down["brokerId"], shutting_down["inControlledShutdown"]) == (BROKER, 1)
    assert (fenced["brokerId"], fenced["fenced"]) == (BROKER, 1)

    broker.start()
    assert consumed(broker, "first", 3) == [b"0", b"1", b"2"]
    assert consumed(broker, "second", 1) == [b"0"]


def registration_changes(node: KraftNode) -> list[dict[str, object]]:
    """Return the broker registration changes in the node's log, as Ottla's dump tool prints them."""
    files = ",".join(map(str, node.segments))
    printed = run_ottla("dump-log", "--cluster-metadata-decoder", "--files", files, "--json").stdout
    payloads = [json.loads(line).get("payload") or {} for line in printed.splitlines()]
    return [each["data"] for each in payloads if each.get("type") == "BROKER_REGISTRATION_CHANGE_RECORD"]


def create(broker: KraftNode, topic: str, partitions: int) -> None:
    """Create a topic and wait until its partitions have leaders."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    (created,) = admin.create_topics([NewTopic(topic, partitions, 1)], request_timeout=PATIENCE_S).values()
    created.result(PATIENCE_S)

    def led() -> bool:
        found = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic]
        return [part.leader for part in found.partitions.values()] == [BROKER] * partitions

    assert until(led, PATIENCE_S)


def produce(broker: KraftNode, topic: str, partitions: int) -> None:
    """Produce one record, the partition's index, to every partition."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "enable.idempotence": True})
    for partition in range(partitions):
        producer.produce(topic, str(partition), partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def consumed(broker: KraftNode, topic: str, count: int) -> list[bytes]:
    """Return `count` records of a topic, sorted, read by a new group."""
    settings = {"bootstrap.servers": broker.address, "group.id": f"of {topic}", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False})
    try:
        consumer.subscribe([topic])
        found: list[bytes] = []

        def read() -> bool:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message.value())
            return len(found) == count

        until(read, PATIENCE_S)
        return sorted(found)
    finally:
        consumer.close()
