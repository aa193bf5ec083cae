"""`kill -9` at random moments under idempotent producers with acks=all: no record is lost, duplicated or reordered."""

import random
import threading
import time
from collections import defaultdict
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.processes.ottla_node import OttlaNode

pytestmark = [pytest.mark.integration, pytest.mark.slow]

KILLS = 12
PARTITIONS = 4
PRODUCERS = 3
SEED = 7
SETTINGS = {"log.segment.bytes": "1048576", "log.flush.offset.checkpoint.interval.ms": "500"}

Stream = tuple[int, int]
"""(producer, partition), within which sequence numbers ascend."""


class SteadyProducer(threading.Thread):
    """A producer that sends ascending numbers to all partitions until stopped, and records the acknowledged offsets."""

    def __init__(self, bootstrap: str, number: int, codec: str) -> None:
        super().__init__()
        self.acknowledged: dict[Stream, dict[int, int]] = defaultdict(dict)
        self.failures: list[str] = []
        self.stopping = threading.Event()
        self._number = number
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "compression.type": codec,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 300,
                "linger.ms": 5,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        sequence = 0
        while not self.stopping.is_set():
            try:
                self._send(sequence)
                sequence += 1
            except BufferError:
                self._producer.poll(0.05)
            self._producer.poll(0)
            if sequence % 200 == 0:
                time.sleep(0.005)
        assert self._producer.flush(120) == 0

    def _send(self, sequence: int) -> None:
        value = b"%d %d %s" % (self._number, sequence, b"x" * 200)
        self._producer.produce("t", value, partition=sequence % PARTITIONS, on_delivery=self._on_delivery)

    def _on_delivery(self, error: object, message: "confluent_kafka.Message") -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            sequence = int(message.value().split()[1])
            self.acknowledged[self._number, message.partition()][sequence] = message.offset()


def read_all(bootstrap: str) -> dict[Stream, list[tuple[int, int]]]:
    """Return (number, offset) of all records per stream, in log order."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "checker", "check.crcs": True, "enable.auto.commit": False}
    )
    places = [confluent_kafka.TopicPartition("t", index, 0) for index in range(PARTITIONS)]
    left = sum(consumer.get_watermark_offsets(place, timeout=20)[1] for place in places)
    consumer.assign(places)
    found: dict[Stream, list[tuple[int, int]]] = defaultdict(list)
    while left:
        messages = consumer.consume(min(left, 10_000), timeout=20)
        assert messages, f"{left} records were not delivered"
        for message in messages:
            assert message.error() is None, message.error()
            producer, sequence, _ = message.value().split()
            found[int(producer), message.partition()].append((int(sequence), message.offset()))
        left -= len(messages)
    consumer.close()
    return found


def test_kills_lose_duplicate_and_reorder_no_record(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    with OttlaNode(tmp_path, SETTINGS) as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_topics([NewTopic("t", PARTITIONS)])["t"].result(20)
        codecs = ("none", "lz4", "zstd")
        producers = [SteadyProducer(node.bootstrap, number, codecs[number]) for number in range(PRODUCERS)]
        for producer in producers:
            producer.start()
        for _ in range(KILLS):
            time.sleep(rng.uniform(0.2, 2.0))  # the test kills the node at random moments
            node.kill()
            node.start()
        for producer in producers:
            producer.stopping.set()
        for producer in producers:
            producer.join()
        found = read_all(node.bootstrap)
        assert "fault of the broker" not in node.log_text
    assert [failure for producer in producers for failure in producer.failures] == []
    for stream, records in found.items():
        numbers = [sequence for sequence, _ in records]
        assert numbers == sorted(set(numbers)), f"duplicated or reordered records in {stream}"
        assert dict(records) == producers[stream[0]].acknowledged[stream]
