"""Logs for the pipeline's tests: random histories with every feature of a log, as batches and as bytes, and the results
of the node's own replay.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from broker.metadata.image.features import feature_record
from broker.metadata.image.loader import MetadataLoader, RecordBatch
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.metadata_version import MetadataVersion
from broker.metadata.image.partition import PartitionRegistration
from broker.metadata.image.records import MetadataRecord, decode_record, encode_record
from broker.metadata.image.topic_image import TopicsDelta, TopicsImage
from protocol.compiler import encode_bytes
from protocol.errors import EncodeError
from protocol.messages import metadata_records as messages
from protocol.messages.common_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    VotersRecord,
    VotersRecordVoter,
)
from protocol.primitives import Uuid
from protocol.records.builder import build_value_batch
from protocol.records.compression import Codec
from protocol.records.control import ControlType, control_batch
from protocol.records.quorum_control import ControlState, read_control_state
from spark_jobs.metadata.log_rows import rows_of
from tests.broker.metadata.histories import BROKERS, History
from tests.broker.metadata.images import directory_of

FOREVER = 2**62
TOPIC_RECORDS = (
    messages.TopicRecord,
    messages.RemoveTopicRecord,
    messages.PartitionRecord,
    messages.PartitionChangeRecord,
    messages.ClearElrRecord,
)


class EveryHistory(History):
    """Draws like `History`, with additional rare records: old metadata versions, moves without directories, cleared
    eligible leaders, repeated partition records, transactions across batches.
    """

    def __init__(self, seed: int, steps: int = 200) -> None:
        self._in_transaction = False
        super().__init__(seed, steps)
        if self._in_transaction:
            self._append([messages.EndTransactionRecord()])

    def _change_level(self) -> list[MetadataRecord]:
        return [feature_record("metadata.version", self._random.choice(list(MetadataVersion))).message]

    def _move_without_directories(self) -> list[MetadataRecord]:
        if not self._live:
            return []
        topic_id, count = self._live[self._random.choice(list(self._live))]
        replicas = self._random.sample(BROKERS, self._random.randrange(1, 5))
        index = self._random.randrange(count)
        return [messages.PartitionChangeRecord(partition_id=index, topic_id=topic_id, replicas=replicas)]

    def _clear_elr(self) -> list[MetadataRecord]:
        if not self._live:
            return []
        names = ["", "", *self._live]
        return [messages.ClearElrRecord(topic_name=self._random.choice(names))]

    def _change_much(self) -> list[MetadataRecord]:
        if not self._live:
            return []
        topic_id, count = self._live[self._random.choice(list(self._live))]
        draw = self._random
        records: list[MetadataRecord] = []
        for index in range(count):
            record = messages.PartitionChangeRecord(partition_id=index, topic_id=topic_id)
            record.isr = draw.sample(BROKERS, 2)
            record.leader = draw.choice([-1, 1, 300, 70_000])
            record.eligible_leader_replicas = draw.choice([None, [], [3]])
            record.last_known_elr = draw.choice([None, [], [4, 5]])
            records.append(record)
        return records

    def _state_again(self) -> list[MetadataRecord]:
        if not self._live:
            return []
        topic_id, count = self._live[self._random.choice(list(self._live))]
        record = self._partition(topic_id, self._random.randrange(count))
        record.leader_epoch, record.partition_epoch = self._random.randrange(50), self._random.randrange(50)
        record.eligible_leader_replicas = self._random.choice([None, [], [1, 2]])
        record.removing_replicas = self._random.choice([[], [7]])
        return [record]

    def _move_to_many(self) -> list[MetadataRecord]:
        """Return records with lists too long for counts and sizes of one byte."""
        if not self._live:
            return []
        topic_id, count = self._live[self._random.choice(list(self._live))]
        replicas = list(range(self._random.choice([7, 31, 32, 126, 127, 200])))
        record = messages.PartitionChangeRecord(partition_id=self._random.randrange(count), topic_id=topic_id)
        record.replicas, record.isr = replicas, replicas[: self._random.randrange(len(replicas))]
        record.directories = [directory_of(broker) for broker in replicas]
        return [record]

    def _replace_topic(self) -> list[MetadataRecord]:
        """Remove a topic and create it again under its name, in one batch."""
        removed = self._remove_topic()
        return [*removed, *self._create_topic()]

    def _begin_or_end(self) -> list[MetadataRecord]:
        """Begin a transaction, or end the open one. An aborted one contradicts no later record."""
        if not self._in_transaction:
            if self._random.random() < 0.6:
                return []
            self._in_transaction = True
            return [messages.BeginTransactionRecord()]
        self._in_transaction = False
        return [messages.EndTransactionRecord(), *self._say_little()]

    def _abort(self) -> list[MetadataRecord]:
        if self._in_transaction or not self._live:
            return []
        topic_id, _ = self._live[self._random.choice(list(self._live))]
        return [
            *self._say_little(),
            messages.BeginTransactionRecord(),
            messages.RemoveTopicRecord(topic_id=topic_id),
            messages.ConfigRecord(resource_type=4, resource_name="", name="never", value="seen"),
            messages.AbortTransactionRecord(),
        ]

    _steps = (
        *History._steps,
        _change_level,
        _move_without_directories,
        _clear_elr,
        _clear_elr,
        _change_much,
        _change_much,
        _state_again,
        _move_to_many,
        _replace_topic,
        _begin_or_end,
        _begin_or_end,
        _abort,
    )


def batch_bytes(batch: RecordBatch, draw: random.Random) -> bytes:
    """Encode a batch of a log; records get any version that can hold their fields."""
    base, epoch = batch.base_offset, batch.epoch
    if not batch.records:
        kind, value = draw.choice(
            [
                (ControlType.LEADER_CHANGE, encode_bytes(LeaderChangeMessage(), 0)),
                (ControlType.KRAFT_VERSION, encode_bytes(KRaftVersionRecord(kraft_version=draw.randrange(2)), 0)),
                (ControlType.KRAFT_VOTERS, encode_bytes(_voters(draw), 0)),
            ]
        )
        count = batch.last_offset - batch.base_offset + 1
        return control_batch([(kind, value)] * count, batch.timestamp_ms, base_offset=base, leader_epoch=epoch)
    frames = [frame_of(record, draw) for record in batch.records]
    codec = draw.choice([Codec.NONE] * 6 + [Codec.ZSTD, Codec.LZ4])
    return build_value_batch(frames, batch.timestamp_ms, base_offset=base, leader_epoch=epoch, codec=codec)


def _voters(draw: random.Random) -> VotersRecord:
    return VotersRecord(voters=[VotersRecordVoter(id, directory_of(id)) for id in draw.sample(BROKERS, 3)])


def frame_of(record: MetadataRecord, draw: random.Random) -> bytes:
    versions = list(range(record.MIN_VERSION, record.MAX_VERSION + 1))
    draw.shuffle(versions)
    for version in versions:
        try:
            return encode_record(record, version)
        except EncodeError:
            continue
    raise AssertionError(f"no version can say {record}")


@dataclass
class Log:
    """A history with its bytes: `images[n]` is the image after batch n, None while a transaction is open; `controls[n]`
    is the control state then.
    """

    batches: list[RecordBatch]
    data: list[bytes]
    images: list[MetadataImage | None] = field(default_factory=list)
    controls: list[ControlState | None] = field(default_factory=list)

    @classmethod
    def of(cls, batches: Sequence[RecordBatch], seed: int) -> "Log":
        draw = random.Random(seed)
        data = [batch_bytes(batch, draw) for batch in batches]
        log = cls([], data)
        loader = MetadataLoader(supported=None)
        for batch, raw in zip(batches, data, strict=True):
            read = batch._replace(records=[decode_record(frame) for frame in _frames(raw, batch)])
            loader.load([read])
            log.batches.append(read)
            log.images.append(None if loader.state.in_transaction else loader.image)
            before = log.controls[-1] if log.controls else None
            log.controls.append(before if batch.records else read_control_state(raw, 0, before))
        return log

    def rows(self, first: int, end: int) -> pa.Table:
        """Return the rows of some batches."""
        data = b"".join(self.data[first:end])
        return pa.Table.from_batches([rows_of(data, start=0, end=FOREVER)])

    def aligned(self) -> list[int]:
        """Return the batches after which a snapshot may be taken."""
        return [number for number, image in enumerate(self.images) if image is not None]


def _frames(raw: bytes, batch: RecordBatch) -> list[bytes]:
    rows = rows_of(raw, start=0, end=FOREVER)
    return rows.column("frame").to_pylist() if batch.records else []


# Changes according to the node's replay


class Entry(NamedTuple):
    """A topic, or one partition of it."""

    name: str
    partition: PartitionRegistration | None


def topic_changes(batches: Sequence[RecordBatch]) -> Iterator[dict[str, Any]]:
    """Yield the changes of topics and partitions by each record, in the columns of SECTION_CHANGES, by comparing
    images.
    """
    topics = TopicsImage()
    for batch, offset, record in committed(batches):
        if isinstance(record, TOPIC_RECORDS):
            delta = TopicsDelta(topics)
            replay(delta, record)
            after = delta.apply()
            for key in sorted(_touched(delta, topics, after)):
                before, now = entry(topics, *key), entry(after, *key)
                if before != now or isinstance(record, messages.PartitionChangeRecord | messages.PartitionRecord):
                    yield change(offset, batch, key, before, now)
            topics = after


def committed(batches: Sequence[RecordBatch]) -> Iterator[tuple[RecordBatch, int, MetadataRecord]]:
    """Yield the effective records, without the records of aborted transactions."""
    pending: list[tuple[RecordBatch, int, MetadataRecord]] | None = None
    for batch in batches:
        for offset, record in enumerate(batch.records, batch.base_offset):
            match record:
                case messages.BeginTransactionRecord():
                    pending = []
                case messages.EndTransactionRecord():
                    yield from pending or ()
                    pending = None
                case messages.AbortTransactionRecord():
                    pending = None
                case _ if pending is not None:
                    pending.append((batch, offset, record))
                case _:
                    yield batch, offset, record


def replay(delta: TopicsDelta, record: MetadataRecord) -> None:
    match record:
        case messages.TopicRecord():
            delta.create_topic(record)
        case messages.RemoveTopicRecord():
            delta.remove_topic(record)
        case messages.PartitionRecord():
            delta.add_partition(record)
        case messages.PartitionChangeRecord():
            delta.change_partition(record)
        case messages.ClearElrRecord():
            delta.clear_elr(record)


def entry(topics: TopicsImage, topic_id: Uuid, index: int) -> Entry | None:
    """Return a topic (index -1) or a partition, or None."""
    topic = topics.by_id(topic_id)
    if topic is None:
        return None
    partition = topic.partition(index)
    return Entry(topic.name, None) if index < 0 else None if partition is None else Entry(topic.name, partition)


def entries(topics: TopicsImage) -> dict[tuple[Uuid, int], Entry]:
    """Return all topics and partitions."""
    found = {}
    for topic in topics:
        for index in (-1, *topic.partitions):
            known = entry(topics, topic.id, index)
            assert known is not None
            found[topic.id, index] = known
    return found


def change(
    offset: int, batch: RecordBatch, key: tuple[Uuid, int], before: Entry | None, after: Entry | None
) -> dict[str, Any]:
    """Return a row of SECTION_CHANGES."""
    known = after or before
    assert known is not None
    return {
        "offset": offset,
        "epoch": batch.epoch,
        "timestamp_ms": batch.timestamp_ms,
        "topic_id": key[0],
        "topic": known.name,
        "partition": None if key[1] < 0 else key[1],
        "operation": "created" if before is None else "removed" if after is None else "changed",
        "is_summarized": False,
        **_columns("before", before),
        **_columns("after", after),
    }


def _touched(delta: TopicsDelta, before: TopicsImage, after: TopicsImage) -> set[tuple[Uuid, int]]:
    touched = {(id, index) for id, topic in delta.changed.items() for index in topic.changed_partitions}
    touched |= {(id, -1) for id, topic in delta.changed.items() if topic.is_new}
    touched |= {(id, index) for id, topic in delta.deleted.items() for index in (-1, *topic.partitions)}
    return touched


def _columns(when: str, known: Entry | None) -> dict[str, Any]:
    partition = None if known is None else known.partition
    return {
        f"{when}_{name}": None if partition is None else _plain(getattr(partition, name))
        for name in PartitionRegistration._fields
    }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else int(value)
