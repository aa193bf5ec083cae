"""A remote metadata topic that a node has pruned: a reader from its start learns all current remote segments.

Readers are librdkafka, Ottla's console consumer, and Apache Kafka's consumer with its remote metadata deserializer.
"""

import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from broker.runtime.remote_metadata.settings import TOPIC as METADATA_TOPIC
from storage.tiered.catalog.materialized_metadata import MaterializedMetadata
from storage.tiered.catalog.metadata_records import decode_event
from storage.tiered.errors import InvalidSegmentTransition
from storage.tiered.segment_metadata import SegmentState
from tests.support.kafka.apache_kafka import run_tool, unavailable_reason
from tests.support.processes.changing_directory import files_below
from tests.support.processes.local_tiered_cluster import SETTINGS, until
from tests.support.processes.ottla_node import OttlaNode, run_ottla

pytestmark = pytest.mark.integration

TOPIC = "pruned"
SEGMENT_BYTES = 1 << 20
SEGMENTS = 12
PRUNED_FROM = 20
DELETED = 80
"""Number of records; a segment holds about ten."""
FORMATTER = "org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde"
FORMATTER_OPTION = ("--formatter", f"{FORMATTER}$RemoteLogMetadataFormatter")
TIMEOUT_S = 60
REST_S = 300
CONFIG = {
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT_BYTES),
    "local.retention.bytes": str(SEGMENT_BYTES),
}


T = TypeVar("T")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    directory = tmp_path_factory.mktemp("pruned")
    more = {
        "rsm.config.storage.root": str(directory / "bucket"),
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.ottla.prune.min.records": str(PRUNED_FROM),
        "rlmm.config.ottla.prune.interval.ms": "200",
    }
    (directory / "bucket").mkdir()
    with OttlaNode(directory, SETTINGS | more) as running:
        fill_and_prune(running)
        yield running


def fill_and_prune(node: OttlaNode) -> None:
    """Copy segments and delete most of them, so that most metadata records are obsolete."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIG)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": node.bootstrap, "batch.size": 100_000, "log_level": 0})
    for _ in range(SEGMENTS * 10):
        producer.produce(TOPIC, bytes(SEGMENT_BYTES // 10), partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0
    until(lambda: len(manifests(node)) >= SEGMENTS - 1, "copies")
    at = TopicPartition(TOPIC, 0, DELETED)
    admin.delete_records([at])[at].result(30)
    until(lambda: bounds(node)[0] > 0, "the pruning of the metadata topic")
    until(lambda: is_settled(node), "the end of all copies and deletions")


def is_settled(node: OttlaNode) -> bool:
    """Whether nothing remains to be copied, deleted or pruned."""
    start, end = bounds(node)
    if end - start >= PRUNED_FROM:
        return False
    caches = list(metadata_of(read(node, start, end)))
    states = [one.state for cache in caches for one in cache.segments()]
    return set(states) == {SegmentState.COPY_FINISHED} and len(states) == len(manifests(node))


def manifests(node: OttlaNode) -> list[Path]:
    return [path for path in files_below(node.directory / "bucket") if path.suffix == ".rsm-manifest"]


def bounds(node: OttlaNode) -> tuple[int, int]:
    """Return the log start offset and the log end offset of the metadata topic."""
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "nobody", "log_level": 0})
    try:
        start, end = consumer.get_watermark_offsets(TopicPartition(METADATA_TOPIC, 0), timeout=30)
        return int(start), int(end)
    finally:
        consumer.close()


def unchanged_reading(node: OttlaNode, look: Callable[[int, int], T]) -> tuple[range, T]:
    """Return a reader's result and the topic's offsets, which did not change while it read. Retry a reading that
    was overtaken by pruning."""
    deadline = time.monotonic() + REST_S
    while True:
        before = bounds(node)
        found = look(*before)
        if bounds(node) == before:
            return range(*before), found
        assert time.monotonic() < deadline, f"the metadata topic still changes after {REST_S} s"


def read(node: OttlaNode, start: int, end: int) -> list[Message]:
    """Return the records between two offsets, or only the first ones if the rest has been pruned."""
    options = {"bootstrap.servers": node.bootstrap, "group.id": "nobody", "log_level": 0, "auto.offset.reset": "error"}
    consumer = Consumer(options)
    found: list[Message] = []
    try:
        consumer.assign([TopicPartition(METADATA_TOPIC, 0, start)])
        deadline = time.monotonic() + TIMEOUT_S
        while len(found) < end - start:
            assert time.monotonic() < deadline, f"{len(found)} of {end - start} records received"
            for message in consumer.consume(end - start - len(found), 0.2):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                    return found
        return found
    finally:
        consumer.close()


def metadata_of(messages: list[Message]) -> MaterializedMetadata:
    """Return the metadata that a reader of only these records knows."""
    metadata = MaterializedMetadata()
    for message in messages:
        value = message.value()
        assert isinstance(value, bytes)
        try:
            metadata.apply(decode_event(value))
        except InvalidSegmentTransition:
            continue  # a segment that a later record describes, or a deleted segment
    return metadata


def test_reader_of_a_pruned_topic_learns_all_remote_segments(node: OttlaNode) -> None:
    offsets, messages = unchanged_reading(node, lambda start, end: read(node, start, end))
    assert [message.offset() for message in messages] == list(offsets)
    (cache,) = metadata_of(messages)
    finished = [one for one in cache.segments() if one.state is SegmentState.COPY_FINISHED]
    assert len(finished) == len(cache)
    assert len(finished) == len(manifests(node))
    assert finished[0].start_offset <= DELETED <= finished[0].end_offset
    for one, following in pairwise(finished):
        assert one.end_offset + 1 == following.start_offset


@pytest.mark.interop
def test_kafkas_deserializer_reads_the_pruned_topic_in_order(node: OttlaNode) -> None:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    options = ("--bootstrap-server", node.bootstrap, "--topic", METADATA_TOPIC, "--partition", "0", *FORMATTER_OPTION)

    def consume(start: int, end: int) -> tuple[list[str], list[str]]:
        """Consume by number of records: a consumer that starts at `earliest` may find fewer after pruning."""
        numbers = ("--offset", str(start), "--max-messages", str(end - start), "--timeout-ms", str(TIMEOUT_S * 1000))
        theirs = run_tool("org.apache.kafka.tools.consumer.ConsoleConsumer", *options, *numbers)
        return theirs.splitlines(), run_ottla("console-consumer", *options, *numbers).stdout.splitlines()

    offsets, (theirs, ours) = unchanged_reading(node, consume)
    assert [int(line.split("offset: ")[1].split(",")[0]) for line in theirs] == list(offsets)
    assert ours == theirs
