"""A compacted topic in remote storage on a node that is killed: its remote log shrinks and keeps every key."""

import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.processes.changing_directory import files_below, texts, total_bytes
from tests.support.processes.local_tiered_cluster import SETTINGS
from tests.support.processes.ottla_node import OttlaNode

pytestmark = pytest.mark.integration

TOPIC = "table"
PATHS = f"{TOPIC}-*/*/*"
KEYS = 300
SEGMENT_BYTES = 1 << 20
TIMEOUT_S = 120.0
CONFIG = {
    "cleanup.policy": "compact",
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT_BYTES),
    "local.retention.bytes": str(SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.2",
    "delete.retention.ms": "2000",
}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OttlaNode]:
    more = {
        "rsm.config.storage.root": str(tmp_path / "bucket"),
        "ottla.remote.storage.compacted.enable": "true",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "log.cleaner.backoff.ms": "300",
    }
    (tmp_path / "bucket").mkdir()
    with OttlaNode(tmp_path, SETTINGS | more) as running:
        yield running


class Table:
    """A topic's expected content and a reader that reads the whole topic."""

    def __init__(self, node: OttlaNode) -> None:
        self.node = node
        self.expected: dict[bytes, bytes] = {}
        self.random = random.Random(7)

    def write(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.node.bootstrap, "enable.idempotence": True, "log_level": 0})
        failures: list[object] = []
        for number in range(count):
            key = b"%d" % self.random.randrange(KEYS)
            value = None if self.random.random() < 0.1 else b"%d " % number + b"v" * 1000
            producer.produce(TOPIC, value, key, on_delivery=lambda error, _: failures.append(error) if error else None)
            producer.poll(0)
            if value is None:
                self.expected.pop(key, None)
            else:
                self.expected[key] = value
        assert producer.flush(TIMEOUT_S) == 0
        assert failures == []

    def read(self) -> tuple[dict[bytes, bytes], list[int]]:
        """Read from the beginning. Return the latest value per key and the offsets that exist."""
        consumer = Consumer(
            {"bootstrap.servers": self.node.bootstrap, "group.id": "r", "auto.offset.reset": "error", "log_level": 0}
        )
        table: dict[bytes, bytes] = {}
        offsets: list[int] = []
        try:
            start, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=TIMEOUT_S)
            assert start == 0
            consumer.assign([TopicPartition(TOPIC, 0, 0)])
            deadline = time.monotonic() + TIMEOUT_S
            while consumer.position([TopicPartition(TOPIC, 0)])[0].offset < end:
                assert time.monotonic() < deadline
                for message in consumer.consume(1000, 0.5):
                    error = message.error()
                    if error is not None:
                        raise KafkaException(error)
                    offsets.append(message.offset())
                    key, value = message.key(), message.value()
                    assert isinstance(key, bytes)
                    if value is None:
                        table.pop(key, None)
                    else:
                        table[key] = value
        finally:
            consumer.close()
        return table, offsets


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        time.sleep(0.1)


def in_bucket(node: OttlaNode, suffix: str) -> Iterator[Path]:
    bucket = node.directory / "bucket"
    return (path for path in files_below(bucket) if path.suffix == suffix and path.relative_to(bucket).match(PATHS))


def bucket_bytes(node: OttlaNode) -> int:
    return total_bytes(in_bucket(node, ".log"))


def compacted_segments(node: OttlaNode) -> int:
    manifests = map(json.loads, texts(in_bucket(node, ".rsm-manifest")))
    return sum("compactedTo" in manifest["remoteLogSegmentMetadata"] for manifest in manifests)


def local_bytes(node: OttlaNode) -> int:
    return total_bytes((node.data / f"{TOPIC}-0").glob("*.log"))


def test_remote_log_is_compacted_and_readable_across_kills(node: OttlaNode) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIG)])[TOPIC].result(30)
    table, written = Table(node), 0
    for _ in range(3):
        table.write(4000)
        written += 4000
        until(lambda: compacted_segments(node), "compaction")
        assert table.read()[0] == table.expected
        node.kill()
        node.start()
        assert table.read()[0] == table.expected
    until(lambda: local_bytes(node) < 3 * SEGMENT_BYTES, "local retention")
    until(lambda: bucket_bytes(node) < written * 1000 / 2, "a smaller bucket")
    until(lambda: len(table.read()[1]) < written / 2, "a shorter log")
    found, offsets = table.read()
    assert found == table.expected
    assert offsets == sorted(set(offsets))


def test_tiering_a_compacted_topic_needs_the_ottla_setting(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    with OttlaNode(tmp_path, SETTINGS | {"rsm.config.storage.root": str(tmp_path / "bucket")}) as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
        with pytest.raises(KafkaException) as caught:
            admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIG)])[TOPIC].result(30)
        assert caught.value.args[0].code() == confluent_kafka.KafkaError.INVALID_CONFIG
