"""Consumers of permanently damaged remote records: the application gets an error with the offset on every poll and may
seek past the damage, as for a damaged file on a broker's disk.

Apache Kafka serves a damaged batch. A Java consumer then reports the checksum; librdkafka delivers the batch unless
`check.crcs` is set. Errors of its remote storage plug-ins become UNKNOWN_SERVER_ERROR, on which a Java consumer repeats
the fetch for ever without an error.
"""

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.kafka.apache_kafka import java_command, unavailable_reason
from tests.support.processes.local_tiered_cluster import SETTINGS, TIERED, until
from tests.support.processes.ottla_node import OttlaNode

pytestmark = pytest.mark.interop

PROGRAM = str(Path(__file__).parent / "java" / "DamageScenarios.java")
TOPIC = "damaged"
RECORDS = 500
RECORD_BYTES = 10_000
TIMEOUT_S = 60.0


class DamagedTier:
    """A node, and a topic whose second remote segment has a changed byte in its middle."""

    def __init__(self, directory: Path) -> None:
        self._root = directory / "remote"
        self._root.mkdir()
        self.node = OttlaNode(directory / "node", SETTINGS | {"rsm.config.storage.root": str(self._root)})

    @property
    def bootstrap(self) -> str:
        return self.node.bootstrap

    def fill(self) -> None:
        """Produce and wait until three segments have been deleted locally."""
        topic = NewTopic(TOPIC, 1, 1, config=TIERED)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})  # the client closes when it is garbage-collected
        admin.create_topics([topic])[TOPIC].result(30)
        producer = Producer({"bootstrap.servers": self.bootstrap, "batch.size": 50_000, "linger.ms": 50})
        for number in range(RECORDS):
            producer.produce(TOPIC, str(number).ljust(RECORD_BYTES).encode(), partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        until(self._is_local_log_trimmed, "the local log is not cut")

    def _is_local_log_trimmed(self) -> bool:
        local_start = min(int(path.stem) for path in self.node.data.glob(f"{TOPIC}-0/*.log"))
        return sum(base < local_start for base in self._bases()) >= 3

    def _logs(self) -> list[Path]:
        return sorted(self._root.rglob("*.log"), key=lambda path: path.name)

    def _bases(self) -> list[int]:
        """Return the base offsets of the remote segments."""
        return [int(path.name[:20]) for path in self._logs()]

    def damage(self) -> range:
        """Damage the segment and return its offsets."""
        path, (first, after) = self._logs()[1], self._bases()[1:3]
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        return range(first, after)


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DamagedTier]:
    tier = DamagedTier(tmp_path_factory.mktemp("damage"))
    with tier.node:
        tier.fill()
        yield tier


@pytest.fixture(scope="module")
def damaged(tier: DamagedTier) -> range:
    return tier.damage()


def test_java_consumer_gets_an_error_and_seeks_past_the_damage(tier: DamagedTier, damaged: range) -> None:
    if reason := unavailable_reason():
        pytest.skip(reason)
    command = java_command(PROGRAM, tier.bootstrap, TOPIC, str(damaged.stop), str(RECORDS), heap="128m")
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    outputs = done.stdout.splitlines()
    for first, again, beyond in (outputs[:3], outputs[3:]):
        assert first == again
        found = re.fullmatch(r"error (\d+) (\d+) Encountered corrupt message when fetching offset (\d+) .*", first)
        assert found is not None, first
        (offset,) = {int(each) for each in found.groups()}
        assert offset in damaged, "the consumer reads all records before the damage and its position stays there"
        assert beyond == f"read to {RECORDS}"


def test_librdkafka_consumer_gets_an_error_and_seeks_past_the_damage(tier: DamagedTier, damaged: range) -> None:
    consumer = Consumer({"bootstrap.servers": tier.bootstrap, "group.id": "g", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        first = _read_until_error(consumer, 0)
        assert first in damaged
        assert _read_until_error(consumer, first) == first
        consumer.assign([TopicPartition(TOPIC, 0, damaged.stop)])
        assert _read_until_error(consumer, damaged.stop) == RECORDS
    finally:
        consumer.close()


def _read_until_error(consumer: Consumer, offset: int) -> int:
    """Read until an error or the end. Return the consumer's position."""
    deadline = time.monotonic() + TIMEOUT_S
    while offset < RECORDS:
        assert time.monotonic() < deadline, f"no error at {offset}"
        message = consumer.poll(0.2)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError.INVALID_MSG
            return offset
        assert message.offset() == offset
        offset += 1
    return offset
