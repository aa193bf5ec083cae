"""A section of topics folded: its state after some rows, and what changed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from immutables import Map

from broker.metadata.partition import LeaderRecoveryState, PartitionRegistration
from broker.metadata.records import InvalidMetadata, MetadataRecord, decode_record
from broker.metadata.topic_image import TopicImage, TopicsDelta, TopicsImage
from protocol.errors import DecodeError
from protocol.messages.metadata_records import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from protocol.primitives import Uuid
from spark_jobs.metadata.fold_context import FoldContext, context_of, rows_to_fold
from spark_jobs.metadata.frame_heads import MalformedLog
from spark_jobs.metadata.log_rows import FROM_SNAPSHOT, section_rows
from spark_jobs.metadata.registry import Registry, RegistryChange, RegistryResult, fold_registry
from spark_jobs.metadata.section_changes import SECTION_CHANGES, STATE_FIELDS
from spark_jobs.metadata.section_state import SECTION_STATE, TOPIC_ROW, empty_state

__all__ = [
    "FoldContext",
    "Registry",
    "RegistryChange",
    "RegistryResult",
    "SectionResult",
    "context_of",
    "fold_registry",
    "fold_section",
]


@dataclass(frozen=True, slots=True)
class SectionResult:
    """`state` as SECTION_STATE, `changes` as SECTION_CHANGES (empty unless wanted). `records` were folded;
    `changed_records` were changed or removed by them, each time counted again, as KIP-630's ratio is reckoned here.
    """

    state: pa.Table
    changes: pa.Table
    records: int
    changed_records: int


def fold_section(section: int, state: pa.Table | None, rows: pa.Table, context: FoldContext) -> SectionResult:
    """Fold the rows of a section into its state; rows of others, and what is not to be folded now, may be among them.

    Rows come in any order. Raises MalformedLog for a record that does not parse, UnknownRecord, and InvalidMetadata for
    one that contradicts the state.
    """
    topics = _topics(empty_state() if state is None else state)
    mine = section_rows(rows_to_fold(rows, context), section).sort_by([("offset", "ascending")])
    fold = _Fold(topics)
    replaced = [row for row in mine.to_pylist() if row["origin"] == FROM_SNAPSHOT]
    if context.replaces:
        fold.replace(replaced)
    for row in mine.to_pylist():
        if row["origin"] != FROM_SNAPSHOT:
            fold.replay(row)
    changes = pa.Table.from_pylist(fold.changes if context.with_changes else [], SECTION_CHANGES)
    return SectionResult(_table(fold.topics), changes, len(mine), fold.changed_records)


class _Entry(NamedTuple):
    name: str
    partition: PartitionRegistration | None


class _Fold:
    def __init__(self, topics: TopicsImage) -> None:
        self.topics = topics
        self.changes: list[dict[str, Any]] = []
        self.changed_records = 0

    def replace(self, rows: list[dict[str, Any]]) -> None:
        delta = TopicsDelta(TopicsImage())
        records = [_record(row) for row in rows]
        for record in records:
            if isinstance(record, TopicRecord):
                delta.create_topic(record)
        for record in records:
            if isinstance(record, PartitionRecord):
                delta.add_partition(record)
            elif not isinstance(record, TopicRecord):
                raise InvalidMetadata(f"a {type(record).__name__} has no place in a snapshot")
        before, self.topics = self.topics, delta.apply()
        if rows:
            self._tell(rows[0], before, summarized=True)

    def replay(self, row: dict[str, Any]) -> None:
        delta = TopicsDelta(self.topics)
        match _record(row):
            case TopicRecord() as record:
                delta.create_topic(record)
            case RemoveTopicRecord() as record:
                delta.remove_topic(record)
            case PartitionRecord() as record:
                delta.add_partition(record)
            case PartitionChangeRecord() as record:
                delta.change_partition(record)
            case ClearElrRecord() as record:
                if not record.topic_name or self.topics.by_name(record.topic_name) is not None:
                    delta.clear_elr(record)
        before, self.topics = self.topics, delta.apply()
        self._tell(row, before)

    def _tell(self, row: dict[str, Any], before: TopicsImage, *, summarized: bool = False) -> None:
        old, new = dict(_entries(before)), dict(_entries(self.topics))
        for key in sorted({**old, **new}):
            one, other = old.get(key), new.get(key)
            if one == other:
                continue
            self.changed_records += one is not None
            self.changes.append(_change(row, key, one, other) | {"is_summarized": summarized})


def _record(row: dict[str, Any]) -> MetadataRecord:
    try:
        return decode_record(row["frame"])
    except DecodeError as error:
        raise MalformedLog(f"the record at offset {row['offset']} does not parse: {error}") from error


def _entries(topics: TopicsImage) -> Iterator[tuple[tuple[Uuid, int], _Entry]]:
    for topic in topics:
        yield (topic.id, TOPIC_ROW), _Entry(topic.name, None)
        for index, partition in topic.in_order():
            yield (topic.id, index), _Entry(topic.name, partition)


def _change(row: dict[str, Any], key: tuple[Uuid, int], before: _Entry | None, after: _Entry | None) -> dict[str, Any]:
    entry = after or before
    assert entry is not None
    return {
        **{name: row[name] for name in ("offset", "epoch", "timestamp_ms")},
        "topic_id": key[0],
        "topic": entry.name,
        "partition": None if key[1] == TOPIC_ROW else key[1],
        "operation": "created" if before is None else "removed" if after is None else "changed",
        **_state_columns("before", before),
        **_state_columns("after", after),
    }


def _state_columns(when: str, entry: _Entry | None) -> dict[str, Any]:
    partition = None if entry is None else entry.partition
    if partition is None:
        return {f"{when}_{name}": None for name, _ in STATE_FIELDS}
    return {f"{when}_{name}": getattr(partition, name) for name, _ in STATE_FIELDS}


def _topics(state: pa.Table) -> TopicsImage:
    topics: dict[Uuid, TopicImage] = {}
    partitions: dict[Uuid, dict[int, PartitionRegistration]] = {}
    for row in state.to_pylist():
        id = Uuid(row["topic_id"])
        if row["partition"] == TOPIC_ROW:
            topics[id] = TopicImage(row["name"], id, Map())
            partitions[id] = {}
        else:
            partitions[id][row["partition"]] = _registration(row)
    full = [topic._replace(partitions=Map(partitions[id])) for id, topic in topics.items()]
    count = sum(len(each) for each in partitions.values())
    return TopicsImage(Map({each.name: each for each in full}), Map({each.id: each for each in full}), count)


def _registration(row: dict[str, Any]) -> PartitionRegistration:
    directories = row["directories"]
    return PartitionRegistration(
        _ids(row["replicas"]),
        _ids(row["isr"]),
        row["leader"],
        row["leader_epoch"],
        row["partition_epoch"],
        tuple(Uuid(directories[at : at + 16]) for at in range(0, len(directories), 16)),
        _ids(row["removing_replicas"]),
        _ids(row["adding_replicas"]),
        _ids(row["elr"]),
        _ids(row["last_known_elr"]),
        LeaderRecoveryState(row["leader_recovery_state"]),
    )


def _table(topics: TopicsImage) -> pa.Table:
    rows = []
    for (id, index), entry in sorted(_entries(topics)):
        row: dict[str, Any] = {"topic_id": id, "partition": index}
        if entry.partition is None:
            row["name"] = entry.name
        else:
            for name, _ in STATE_FIELDS:
                row[name] = _raw(getattr(entry.partition, name))
        rows.append(row)
    return pa.Table.from_pylist(rows, SECTION_STATE)


def _raw(value: Any) -> Any:
    if not isinstance(value, tuple):
        return value
    return b"".join(each if isinstance(each, bytes) else each.to_bytes(4, "big", signed=True) for each in value)


def _ids(raw: bytes) -> tuple[int, ...]:
    return tuple(int.from_bytes(raw[at : at + 4], "big", signed=True) for at in range(0, len(raw), 4))
