"""Records whose content follows from partition and sequence number.

The key is the sequence number; the value begins with partition and number and ends with a CRC-32 of the bytes before
it; timestamps increase by a millisecond per record. With a single producer of a partition, the number equals the
offset. `crc` covers all values of a partition in order, so that different readers can be compared.
"""

import random
import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

NOISE = random.Random(405).randbytes(1 << 17)
PATIENCE_S = 60.0
_CRC_BYTES = 4
_QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 200}


@dataclass(frozen=True, slots=True)
class Recipe:
    """The properties of a topic's records: `size` of a value in bytes, `first_ms` the timestamp of number 0."""

    size: int
    first_ms: int

    def value(self, partition: int, number: int) -> bytes:
        head = b"%d %d " % (partition, number)
        start = number * 31 % (len(NOISE) - self.size)
        body = head + NOISE[start : start + self.size - len(head) - _CRC_BYTES]
        return body + zlib.crc32(body).to_bytes(_CRC_BYTES, "big")

    def timestamp_ms(self, number: int) -> int:
        return self.first_ms + number

    def crc(self, partition: int, numbers: Iterable[int]) -> int:
        """Return the expected CRC of these records."""
        crc = 0
        for number in numbers:
            crc = zlib.crc32(self.value(partition, number), crc)
        return crc

    def fault(self, message: Message, number: int) -> str | None:
        """Return the problem of a record that should have this number; None for a correct record."""
        partition = message.partition()
        assert partition is not None
        where = f"{message.topic()}-{partition} at {message.offset()}"
        if message.key() != b"%d" % number:
            return f"{where}: the key is {message.key()!r}, not {number}"
        if message.value() != self.value(partition, number):
            return f"{where}: the value differs"
        if message.timestamp()[1] != self.timestamp_ms(number):
            return f"{where}: the timestamp is {message.timestamp()[1]}, not {self.timestamp_ms(number)}"
        return None


def write(bootstrap: str, topic: str, recipe: Recipe, partition: int, numbers: Iterable[int]) -> None:
    """Write records; all in-sync replicas have acknowledged them on return."""
    failed: list[str] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(str(error))

    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, **_QUIET}
    producer = Producer(settings)
    for number in numbers:
        while len(producer) > 2000:
            producer.poll(0.1)
        producer.produce(
            topic,
            recipe.value(partition, number),
            b"%d" % number,
            partition,
            on_delivery=on_delivery,
            timestamp=recipe.timestamp_ms(number),
        )
    assert producer.flush(PATIENCE_S) == 0, "records were not acknowledged in time"
    assert not failed, failed[:3]


@dataclass
class ReadBack:
    """The result of reading some partitions from given offsets. `faults` has the first few problems."""

    recipe: Recipe
    positions: dict[int, int]
    crcs: dict[int, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    count: int = 0

    def take(self, message: Message) -> None:
        """Check the next record; every offset must come once, in order."""
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        expected = self.positions[partition]
        fault = self.recipe.fault(message, offset) if offset == expected else f"{offset} came and not {expected}"
        if fault is not None and len(self.faults) < 10:
            self.faults.append(fault)
        self.positions[partition] = offset + 1
        self.crcs[partition] = zlib.crc32(value, self.crcs.get(partition, 0))
        self.count += 1


def read_back(
    bootstrap: str,
    topic: str,
    recipe: Recipe,
    ends: Mapping[int, int],
    starts: Mapping[int, int] | None = None,
    patience_s: float = PATIENCE_S,
    more: Mapping[str, str] | None = None,
) -> ReadBack:
    """Read partitions up to their `ends`, from 0 or `starts` on; give up after `patience_s` without a record."""
    found = ReadBack(recipe, {partition: (starts or {}).get(partition, 0) for partition in ends})
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "nobody",
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "check.crcs": True,
        "fetch.error.backoff.ms": 50,
        "topic.metadata.refresh.interval.ms": 1000,
        **_QUIET,
    }
    consumer = Consumer(settings | dict(more or {}))
    try:
        consumer.assign([TopicPartition(topic, partition, found.positions[partition]) for partition in ends])
        _drain(consumer, found, ends, patience_s)
    finally:
        consumer.close()
    return found


def _drain(consumer: Consumer, found: ReadBack, ends: Mapping[int, int], patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while any(found.positions[partition] < end for partition, end in ends.items()):
        for message in consumer.consume(1000, 0.2):
            if message.error() is None:
                if message.offset() < ends[message.partition()]:
                    found.take(message)
                deadline = time.monotonic() + patience_s
            elif message.error().code() == KafkaError._AUTO_OFFSET_RESET:
                raise KafkaException(message.error())
        assert time.monotonic() < deadline, f"no record came for {patience_s:.0f} s: {found.positions} of {dict(ends)}"


def offsets_by_timestamp(bootstrap: str, topic: str, timestamps: Mapping[int, Iterable[int]]) -> dict[int, list[int]]:
    """Return for each partition the first offsets at or after these times, -1 for none, with a request for each."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody", **_QUIET})
    try:
        return {
            partition: [_offset_at(consumer, topic, partition, each) for each in asked]
            for partition, asked in timestamps.items()
        }
    finally:
        consumer.close()


def _offset_at(consumer: Consumer, topic: str, partition: int, timestamp_ms: int) -> int:
    """Look up an offset, retrying while a store is unavailable."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            [found] = consumer.offsets_for_times([TopicPartition(topic, partition, timestamp_ms)], timeout=10)
            if found.error is None:
                return int(found.offset)
            error: object = found.error
        except KafkaException as failure:
            error = failure
        assert time.monotonic() < deadline, f"no offset of {topic}-{partition} at {timestamp_ms}: {error}"
