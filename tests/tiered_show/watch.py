"""Invariants checked from outside during the run.

Copies never pass the last stable offset: the leader is queried for every copy in the metadata topic. Every acknowledged
offset is readable, once and unchanged: random ranges are read. While the store is gone a reader may wait, but never
receives an error that the offset does not exist.
"""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from storage.tiered.catalog.metadata_records import UndecodableEvent, decode_event
from storage.tiered.segment_metadata import RemoteSegment
from tests.support.clients.checkable_records import Recipe

METADATA_TOPIC = "__remote_log_metadata"
_QUIET = {"group.id": "watch", "enable.auto.commit": False, "log_level": 0, "topic.metadata.refresh.interval.ms": 2000}


class CopyWatch(threading.Thread):
    """A reader of the metadata topic. `copies` counts the COPY_STARTED events."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.copies = 0
        self.faults: list[str] = []
        self._topic = topic
        self._stable: dict[int, int] = {}
        self._is_over = threading.Event()
        common = {**_QUIET, "bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}
        self._events = Consumer(common)
        self._asking = Consumer({**common, "isolation.level": "read_committed"})

    def run(self) -> None:
        self._events.assign([TopicPartition(METADATA_TOPIC, each, 0) for each in range(self._partition_count())])
        while not self._is_over.is_set():
            for message in self._events.consume(500, 0.2):
                if message.error() is None:
                    self._take(message.value())
        self._events.close()
        self._asking.close()

    def _partition_count(self) -> int:
        while True:
            found = self._events.list_topics(METADATA_TOPIC, timeout=30).topics[METADATA_TOPIC]
            if found.error is None and found.partitions:
                return len(found.partitions)
            time.sleep(0.2)

    def _take(self, value: bytes | None) -> None:
        try:
            event = decode_event(value)
        except UndecodableEvent as error:
            self.faults.append(f"invalid remote log metadata: {error}")
            return
        if isinstance(event, RemoteSegment) and event.id.partition.topic == self._topic:
            self.copies += 1
            self._check(event.id.partition.partition, event)

    def _check(self, partition: int, segment: RemoteSegment) -> None:
        if segment.end_offset >= self._stable.get(partition, 0):
            self._stable[partition] = self._last_stable_offset(partition)
        if segment.end_offset >= (stable := self._stable[partition]):
            self.faults.append(f"{segment.id} ends at {segment.end_offset}, above the last stable offset {stable}")

    def _last_stable_offset(self, partition: int) -> int:
        while True:
            try:
                where = TopicPartition(self._topic, partition)
                return int(self._asking.get_watermark_offsets(where, timeout=10)[1])
            except KafkaException:
                time.sleep(0.2)  # the partition has no leader at the moment

    def finish(self) -> None:
        self._is_over.set()
        self.join()


@dataclass
class Samples:
    """Number of ranges read, and of ranges that timed out."""

    whole: int = 0
    late: int = 0


class SampleWatch(threading.Thread):
    """A reader of random ranges below the acknowledged offsets."""

    RANGE = 100
    PATIENCE_S = 2.0
    PAUSE_S = 0.5

    def __init__(self, bootstrap: str, topic: str, recipe: Recipe, acknowledged: Callable[[], dict[int, int]]) -> None:
        super().__init__(daemon=True)
        self.samples = Samples()
        self.faults: list[str] = []
        self._topic = topic
        self._recipe = recipe
        self._acknowledged = acknowledged
        self._random = random.Random(405)
        self._is_over = threading.Event()
        self._consumer = Consumer(
            {
                **_QUIET,
                "bootstrap.servers": bootstrap,
                "auto.offset.reset": "error",
                "fetch.message.max.bytes": 1 << 17,
                "queued.max.messages.kbytes": 256,
            }
        )

    def run(self) -> None:
        while not self._is_over.wait(self.PAUSE_S):
            there = {partition: count for partition, count in self._acknowledged().items() if count > self.RANGE}
            if there:
                partition = self._random.choice(sorted(there))
                self._read(partition, self._random.randrange(there[partition] - self.RANGE))
        self._consumer.close()

    def _read(self, partition: int, first: int) -> None:
        self._consumer.assign([TopicPartition(self._topic, partition, first)])
        deadline, expected = time.monotonic() + self.PATIENCE_S, first
        while expected < first + self.RANGE and time.monotonic() < deadline:
            for message in self._consumer.consume(self.RANGE, 0.1):
                if message.error() is not None:
                    if message.error().code() == KafkaError._AUTO_OFFSET_RESET:
                        self.faults.append(f"partition {partition} at {expected}: {message.error()}")
                        return
                    continue
                if fault := self._recipe.fault(message, expected):
                    self.faults.append(fault)
                expected += 1
        if expected >= first + self.RANGE:
            self.samples.whole += 1
        else:
            self.samples.late += 1

    def finish(self) -> None:
        self._is_over.set()
        self.join()
