"""What consumers hear of records that are damaged in remote storage for good: the application is told, with the offset,
again and again, and may go on behind them. So it is where the file on a broker's disk is damaged.

Apache Kafka lets a damaged batch through, and a Java consumer tells of its checksum; librdkafka hands it out unless
`check.crcs` is set. What its plug-ins find out themselves it answers with UNKNOWN_SERVER_ERROR, and a Java consumer
repeats the fetch for ever without a word.
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

PROGRAM = str(Path(__file__).parent / "java" / "DamageStories.java")
TOPIC = "damaged"
RECORDS = 500
RECORD_BYTES = 10_000
PATIENCE_S = 60.0


class DamagedTier:
    """One node, and a topic whose second remote segment has another byte in its middle."""

    def __init__(self, directory: Path) -> None:
        self._root = directory / "remote"
        self._root.mkdir()
        self.node = OttlaNode(directory / "node", SETTINGS | {"rsm.config.storage.root": str(self._root)})

    @property
    def bootstrap(self) -> str:
        return self.node.bootstrap

    def fill(self) -> None:
        """Returns when three segments have left the disk."""
        topic = NewTopic(TOPIC, 1, 1, config=TIERED)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})  # its calls end when it is garbage
        admin.create_topics([topic])[TOPIC].result(30)
        producer = Producer({"bootstrap.servers": self.bootstrap, "batch.size": 50_000, "linger.ms": 50})
        for number in range(RECORDS):
            producer.produce(TOPIC, str(number).ljust(RECORD_BYTES).encode(), partition=0)
        assert producer.flush(PATIENCE_S) == 0
        until(self._has_shrunk, "the local log is not cut")

    def _has_shrunk(self) -> bool:
        local_start = min(int(path.stem) for path in self.node.data.glob(f"{TOPIC}-0/*.log"))
        return sum(base < local_start for base in self._bases()) >= 3

    def _logs(self) -> list[Path]:
        return sorted(self._root.rglob("*.log"), key=lambda path: path.name)

    def _bases(self) -> list[int]:
        """Where the remote segments begin."""
        return [int(path.name[:20]) for path in self._logs()]

    def damage(self) -> range:
        """Returns the offsets of the segment."""
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


def test_java_applications_are_told_and_go_on(tier: DamagedTier, damaged: range) -> None:
    if reason := unavailable_reason():
        pytest.skip(reason)
    command = java_command(PROGRAM, tier.bootstrap, TOPIC, str(damaged.stop), str(RECORDS), heap="128m")
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    told_of = done.stdout.splitlines()
    for first, again, beyond in (told_of[:3], told_of[3:]):
        assert first == again
        told = re.fullmatch(r"told (\d+) (\d+) Encountered corrupt message when fetching offset (\d+) .*", first)
        assert told is not None, first
        (offset,) = {int(each) for each in told.groups()}
        assert offset in damaged, "all before the damage is read, and the position stays there"
        assert beyond == f"read to {RECORDS}"


def test_an_application_of_librdkafka_is_told_and_goes_on(tier: DamagedTier, damaged: range) -> None:
    consumer = Consumer({"bootstrap.servers": tier.bootstrap, "group.id": "g", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        first = _read_until_told(consumer, 0)
        assert first in damaged
        assert _read_until_told(consumer, first) == first
        consumer.assign([TopicPartition(TOPIC, 0, damaged.stop)])
        assert _read_until_told(consumer, damaged.stop) == RECORDS
    finally:
        consumer.close()


def _read_until_told(consumer: Consumer, offset: int) -> int:
    """The offset that was to be read when an error came, or the end."""
    deadline = time.monotonic() + PATIENCE_S
    while offset < RECORDS:
        assert time.monotonic() < deadline, f"nothing was told at {offset}"
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
