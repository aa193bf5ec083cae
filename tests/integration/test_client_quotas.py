"""Client quotas with librdkafka: a limited client keeps its rate, and another is not delayed (KIP-13, KIP-219).

All times are the broker's: append timestamps and the throttle times of its responses. A machine that pauses lengthens
the run and breaks no bound.
"""

import os
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.processes.ottla_node import OttlaNode, run_ottla

pytestmark = pytest.mark.integration

RATE = 1_000_000
BURST_S = 1.0
"""Two windows of a second each let an idle client use one second of its quota at once."""
WINDOWS = {"quota.window.num": "2", "log.message.timestamp.type": "LogAppendTime"}
MESSAGE_BYTES, MESSAGES = 10_000, 300
BATCH_BYTES = FETCH_BYTES = 100_000
DEADLINE_S = 120


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    with OttlaNode(Path(tmp_path_factory.mktemp("quotas")), WINDOWS) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        topics = [NewTopic(name, 1, 1) for name in ("limited", "free")]
        for done in admin.create_topics(topics).values():
            done.result(20)
        limits = f"producer_byte_rate={RATE},consumer_byte_rate={RATE}"
        arguments = ("--client", "limited", "--add-config", limits)
        run_ottla("configs", "--bootstrap-server", running.bootstrap, "--alter", *arguments)
        yield running


class Throttles:
    """The throttle times of a client's responses."""

    def __init__(self) -> None:
        self.total_s = 0.0

    def __call__(self, event: confluent_kafka.ThrottleEvent) -> None:
        self.total_s += event.throttle_time


def settings(node: OttlaNode, client: str, throttles: Throttles) -> dict[str, object]:
    return {"bootstrap.servers": node.bootstrap, "client.id": client, "throttle_cb": throttles}


def consume(node: OttlaNode, throttles: Throttles) -> list[tuple[int, int]]:
    """Return append time in ms and size of all messages of the limited topic."""
    fetches = {"fetch.message.max.bytes": FETCH_BYTES, "fetch.max.bytes": FETCH_BYTES, "message.max.bytes": 50_000}
    consumer = confluent_kafka.Consumer({**settings(node, "limited", throttles), **fetches, "group.id": "readers"})
    consumer.assign([confluent_kafka.TopicPartition("limited", 0, 0)])
    messages: list[tuple[int, int]] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(messages) < MESSAGES:
        assert time.monotonic() < deadline
        message = consumer.poll(1.0)
        if message is not None:
            assert message.error() is None, message.error()
            messages.append((message.timestamp()[1], len(message.value())))
    consumer.close()
    return messages


def test_metrics_of_a_subscribed_client_are_shown(node: OttlaNode) -> None:
    """librdkafka asks for its subscription when it connects, and pushes metrics by KIP-714."""
    subscription = ("--client-metrics", "all", "--add-config", "metrics=*,interval.ms=100,match=[client_id=seen]")
    run_ottla("configs", "--bootstrap-server", node.bootstrap, "--alter", *subscription)
    producer = confluent_kafka.Producer({"bootstrap.servers": node.bootstrap, "client.id": "seen"})
    deadline = time.monotonic() + DEADLINE_S
    latencies: list[str] = []
    while not any(float(line.rpartition(" ")[2]) > 0 for line in latencies):
        assert time.monotonic() < deadline
        producer.produce("free", b"x")
        producer.flush(1)
        page = node.http("/metrics")[1].splitlines()
        latencies = [line for line in page if line.startswith("kafka_client_producer_node_request_latency_max{")]
    assert all('client_software_name="confluent-kafka-python"' in line for line in latencies)
    assert all('client_id="seen"' in line for line in latencies)
    assert any(line.startswith("kafka_client_producer_connection_creation_total{") for line in page)


def test_limited_client_keeps_to_its_rate_and_another_is_not_delayed(node: OttlaNode) -> None:
    produced, fetched, unlimited = Throttles(), Throttles(), Throttles()
    limited = confluent_kafka.Producer({**settings(node, "limited", produced), "batch.size": BATCH_BYTES, "acks": 1})
    free = confluent_kafka.Producer({**settings(node, "free", unlimited), "linger.ms": 0})
    appended_freely: list[int] = []
    for _ in range(MESSAGES):
        limited.produce("limited", os.urandom(MESSAGE_BYTES))
    deadline = time.monotonic() + DEADLINE_S
    while len(limited):
        assert time.monotonic() < deadline
        limited.poll(0)
        free.produce("free", b"x", on_delivery=lambda _error, message: appended_freely.append(message.timestamp()[1]))
        assert free.flush(DEADLINE_S) == 0
    started_s = time.monotonic()
    appended = consume(node, fetched)
    fetching_s = time.monotonic() - started_s

    total_bytes = sum(size for _, size in appended)
    producing_s = (appended[-1][0] - appended[0][0]) / 1000
    assert total_bytes <= 1.05 * RATE * (producing_s + BURST_S) + BATCH_BYTES
    assert 0 < produced.total_s <= 1.05 * total_bytes / RATE
    assert total_bytes <= 1.05 * RATE * (fetching_s + BURST_S) + FETCH_BYTES
    assert 0 < fetched.total_s <= 1.05 * total_bytes / RATE + BURST_S

    pauses = [(first, second) for (first, _), (second, _) in pairwise(appended) if second - first > 20]
    assert any(start < moment < end for start, end in pauses for moment in appended_freely)
    assert unlimited.total_s == 0

    metrics = node.http("/metrics")[1]
    assert 'kafka_server_quota_throttle_time{clientId="limited",resource="Produce",user=""}' in metrics
    assert 'clientId="free"' not in metrics
