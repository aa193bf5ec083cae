"""A quota of 1 MB/s on three nodes: librdkafka's rate in 30 s of produce and fetch, and another client's latency.

The quota holds within 5 %. The 99th percentile of the other client's produce latency is measured with and without the
limited client. Takes three minutes, so it runs only with OTTLA_QUOTA_SHOW=1.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.processes.ottla_cluster import OttlaCluster

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RATE = 1_000_000
TOLERANCE = 0.05
MEASURED_S = 30
SETTLING_S = 5
WINDOWS = {"quota.window.num": "2"}
"""Two windows of a second allow a burst of a second. With the default, 11 windows, a client that has more to send uses
ten seconds of its quota at once and then pauses, with Apache Kafka too: the average holds over multiples of 11 s only.
"""
RECORD_BYTES = 10_000
BATCH_BYTES = 50_000
LATENCY_S = 15
PAUSE_S = 0.01
SLACK_MS = 10.0
"""Room for noise in the 99th percentile of 1,000 to 2,000 requests. Run this on an idle machine."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaCluster]:
    if os.environ.get("OTTLA_QUOTA_SHOW") != "1":
        pytest.skip("takes three minutes; set OTTLA_QUOTA_SHOW=1 to run it")
    with OttlaCluster(tmp_path_factory.mktemp("quotas"), settings=WINDOWS) as running:
        for topic in ("limited", "free"):  # led by the same node, which counts the quota
            running.ottla("topics", *server(running), "--create", "--topic", topic, "--replica-assignment", "1:2:3")
        limits = f"producer_byte_rate={RATE},consumer_byte_rate={RATE}"
        running.ottla("configs", *server(running), "--alter", "--client", "limited", "--add-config", limits)
        yield running


def server(cluster: OttlaCluster) -> tuple[str, str]:
    return "--bootstrap-server", cluster.bootstrap


def settings(cluster: OttlaCluster, client: str) -> dict[str, object]:
    return {"bootstrap.servers": cluster.bootstrap, "client.id": client}


class Load:
    """Runs `step`, which returns bytes, in a thread, and measures its rate in the steady state."""

    def __init__(self, step: Callable[[], int]) -> None:
        self._step = step
        self._total = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.is_set():
            self._total += self._step()

    def rate(self) -> float:
        """Return bytes per second over 30 s, from now on."""
        began, before = time.monotonic(), self._total
        self._is_over.wait(MEASURED_S)
        return (self._total - before) / (time.monotonic() - began)


def producing(cluster: OttlaCluster) -> Callable[[], int]:
    producer = Producer(
        {**settings(cluster, "limited"), "batch.size": BATCH_BYTES, "queue.buffering.max.messages": 100}
    )
    payload, delivered = os.urandom(RECORD_BYTES), [0]

    def on_delivery(error: object, _message: object) -> None:
        assert error is None, error
        delivered[0] += RECORD_BYTES

    def step() -> int:
        before = delivered[0]
        try:
            producer.produce("limited", payload, on_delivery=on_delivery)
        except BufferError:
            producer.poll(0.1)
        producer.poll(0)
        return delivered[0] - before

    return step


def consuming(cluster: OttlaCluster) -> Callable[[], int]:
    sizes = {"fetch.message.max.bytes": BATCH_BYTES, "fetch.max.bytes": BATCH_BYTES, "message.max.bytes": BATCH_BYTES}
    consumer = Consumer({**settings(cluster, "limited"), **sizes, "group.id": "readers"})
    consumer.assign([TopicPartition("limited", 0, 0)])

    def step() -> int:
        message = consumer.poll(0.1)
        assert message is None or message.error() is None, message.error()
        return 0 if message is None else len(message.value())

    return step


def latency_p99_ms(cluster: OttlaCluster) -> float:
    """Return the 99th percentile of the unlimited client's produce latency."""
    producer = Producer({**settings(cluster, "free"), "linger.ms": 0, "acks": "all"})
    producer.produce("free", b"first")
    assert producer.flush(30) == 0
    latencies: list[float] = []
    end = time.monotonic() + LATENCY_S
    while time.monotonic() < end:
        began = time.monotonic()
        producer.produce("free", b"x" * 100)
        assert producer.flush(30) == 0
        latencies.append((time.monotonic() - began) * 1000)
        producer.poll(PAUSE_S)
    return sorted(latencies)[int(len(latencies) * 0.99)]


def settle() -> None:
    threading.Event().wait(SETTLING_S)


def test_quota_of_a_megabyte_holds_for_produce_and_fetch_and_delays_nobody_else(cluster: OttlaCluster) -> None:
    AdminClient(settings(cluster, "free")).list_topics(timeout=30)
    without = latency_p99_ms(cluster)
    with Load(producing(cluster)) as load:
        settle()
        produced = load.rate()
        beside_producer = latency_p99_ms(cluster)
    filler = Producer({**settings(cluster, "filler"), "linger.ms": 50})
    for _ in range(60):
        for _ in range(100):
            filler.produce("limited", os.urandom(RECORD_BYTES))
        assert filler.flush(60) == 0
    with Load(consuming(cluster)) as load:
        settle()
        fetched = load.rate()
        beside_consumer = latency_p99_ms(cluster)
    print(f"produce {produced / 1e6:.3f} MB/s, fetch {fetched / 1e6:.3f} MB/s")
    print(f"p99 of the other client: {without:.1f} ms; beside it {beside_producer:.1f} and {beside_consumer:.1f} ms")
    assert abs(produced - RATE) <= TOLERANCE * RATE
    assert abs(fetched - RATE) <= TOLERANCE * RATE
    assert max(beside_producer, beside_consumer) <= without + SLACK_MS
