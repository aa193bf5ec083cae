"""The records of groups in `__consumer_offsets`, in Kafka's formats, and their events.

A key is an int16 type and a message; a value is an int16 version and a message; no value is a tombstone. Types 0 and 1
are committed offsets, 2 is a classic group; the types of consumer, streams and share groups are in their packages'
`records.py`. Other types are ignored: not decoded, not replayed, not deleted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from broker.coordination.shard import CoordinatorRecord
from broker.groups.classic import ClassicGroup
from broker.groups.consumer.records import ConsumerGroupEvent, decode_consumer_record
from broker.groups.share.records import ShareGroupEvent, decode_share_record
from broker.groups.streams.records import StreamsGroupEvent, decode_streams_record
from protocol.compiler import decode, encode_bytes
from protocol.errors import DecodeError
from protocol.ids import LeaderEpoch
from protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from protocol.primitives import ZERO_UUID, Uuid

LEGACY_OFFSET_COMMIT_TYPE: Final = 0
OFFSET_COMMIT_TYPE: Final = 1
GROUP_METADATA_TYPE: Final = 2

# Version 1 is the only one with an expiry time; 4 is Kafka's current one, with the topic id.
_OFFSET_VALUE_VERSION: Final = 4
_EXPIRING_OFFSET_VALUE_VERSION: Final = 1
_GROUP_VALUE_VERSION: Final = 3
_KEY_VERSION: Final = 0
_PARTITION_BYTES: Final = 4
_CACHED_GROUP_TOPICS: Final = 1024


@dataclass(slots=True)
class CommittedOffset:
    """A committed offset as stored. `expire_ms` is −1 unless the client set a retention time."""

    offset: int
    leader_epoch: LeaderEpoch
    metadata: str
    commit_ms: int
    expire_ms: int = -1
    topic_id: Uuid = ZERO_UUID
    record_offset: int = -1


class OffsetKey(NamedTuple):
    """Group, topic and partition of a committed offset."""

    group_id: str
    topic: str
    partition: int


class OffsetCommitted(NamedTuple):
    key: OffsetKey
    value: CommittedOffset


class OffsetRemoved(NamedTuple):
    key: OffsetKey


class GroupWritten(NamedTuple):
    group_id: str
    value: GroupMetadataValue


class GroupRemoved(NamedTuple):
    group_id: str


GroupEvent = (
    OffsetCommitted
    | OffsetRemoved
    | GroupWritten
    | GroupRemoved
    | ConsumerGroupEvent
    | StreamsGroupEvent
    | ShareGroupEvent
)
GroupRecord = CoordinatorRecord[GroupEvent]


def offset_committed(key: OffsetKey, value: CommittedOffset) -> GroupRecord:
    """Return the record of a commit."""
    version = _OFFSET_VALUE_VERSION if value.expire_ms < 0 else _EXPIRING_OFFSET_VALUE_VERSION
    message = OffsetCommitValue(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp=value.commit_ms,
        expire_timestamp=value.expire_ms,
        topic_id=value.topic_id,
    )
    return CoordinatorRecord(
        _offset_key(key), encode_bytes(message, version, version.to_bytes(2, "big")), OffsetCommitted(key, value)
    )


def offset_removed(key: OffsetKey) -> GroupRecord:
    """Return the tombstone of a commit."""
    return CoordinatorRecord(_offset_key(key), None, OffsetRemoved(key))


def group_written(group: ClassicGroup, assignments: Mapping[str, bytes]) -> GroupRecord:
    """Return the record of a group in its current generation, with metadata for the elected protocol only."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp=group.state_since_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol),
                assignment=assignments[member.member_id],
            )
            for member in group.members.values()
        ],
    )
    return _group_record(group.group_id, value)


def group_created(group: ClassicGroup) -> GroupRecord:
    """Return the record of a group with pending members only, which makes the group exist after a failover."""
    return _group_record(
        group.group_id, GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=group.state_since_ms)
    )


def group_removed(group_id: str) -> GroupRecord:
    """Return the tombstone of a group."""
    return CoordinatorRecord(_group_key(group_id), None, GroupRemoved(group_id))


def decode_record(key: bytes, value: bytes | None) -> GroupEvent | None:
    """Decode a record of the log to its event; None for ignored types. Raise DecodeError."""
    record_type = _leading_int16(key)
    if record_type in (LEGACY_OFFSET_COMMIT_TYPE, OFFSET_COMMIT_TYPE):
        return _decode_offset(key, value)
    if record_type == GROUP_METADATA_TYPE:
        return _decode_group(key, value)
    return (
        decode_consumer_record(record_type, key, value)
        or decode_streams_record(record_type, key, value)
        or decode_share_record(record_type, key, value)
    )


def _decode_offset(key: bytes, value: bytes | None) -> GroupEvent:
    offset_key = _decode_offset_key(key)
    if value is None:
        return OffsetRemoved(offset_key)
    stored, _ = decode(OffsetCommitValue, value, _leading_int16(value), 2)
    committed = CommittedOffset(
        stored.offset,
        LeaderEpoch(stored.leader_epoch),
        stored.metadata,
        stored.commit_timestamp,
        stored.expire_timestamp,
        stored.topic_id,
    )
    return OffsetCommitted(offset_key, committed)


def _decode_offset_key(key: bytes) -> OffsetKey:
    """Decode the key of an offset. The partition is its last field, and the group and topic before it are cached:
    a load reads the offsets of a group in a row.
    """
    group_and_topic = _decode_group_and_topic(key[:-_PARTITION_BYTES])
    if group_and_topic is None:
        message, _ = decode(OffsetCommitKey, key, _KEY_VERSION, 2)
        return OffsetKey(message.group, message.topic, message.partition)
    return OffsetKey(*group_and_topic, int.from_bytes(key[-_PARTITION_BYTES:], "big", signed=True))


@lru_cache(maxsize=_CACHED_GROUP_TOPICS)
def _decode_group_and_topic(key_prefix: bytes) -> tuple[str, str] | None:
    """Decode the key of an offset without its partition; None if the topic does not end the prefix.

    Raise DecodeError.
    """
    message, end = decode(OffsetCommitKey, key_prefix + bytes(_PARTITION_BYTES), _KEY_VERSION, 2)
    return (message.group, message.topic) if end == len(key_prefix) + _PARTITION_BYTES else None


def _decode_group(key: bytes, value: bytes | None) -> GroupEvent:
    group_id = decode(GroupMetadataKey, key, _KEY_VERSION, 2)[0].group
    if value is None:
        return GroupRemoved(group_id)
    return GroupWritten(group_id, decode(GroupMetadataValue, value, _leading_int16(value), 2)[0])


def _group_record(group_id: str, value: GroupMetadataValue) -> GroupRecord:
    encoded = encode_bytes(value, _GROUP_VALUE_VERSION)
    return CoordinatorRecord(
        _group_key(group_id), _versioned(_GROUP_VALUE_VERSION, encoded), GroupWritten(group_id, value)
    )


def _group_key(group_id: str) -> bytes:
    return _versioned(GROUP_METADATA_TYPE, encode_bytes(GroupMetadataKey(group=group_id), _KEY_VERSION))


def _offset_key(key: OffsetKey) -> bytes:
    group_id, topic, partition = key
    return _offset_key_start(group_id, topic) + partition.to_bytes(_PARTITION_BYTES, "big", signed=True)


@lru_cache(_CACHED_GROUP_TOPICS)
def _offset_key_start(group_id: str, topic: str) -> bytes:
    """Return the key of a group's offsets of a topic, without the partition at its end."""
    message = OffsetCommitKey(group=group_id, topic=topic)
    return _versioned(OFFSET_COMMIT_TYPE, encode_bytes(message, _KEY_VERSION))[:-_PARTITION_BYTES]


def _versioned(number: int, encoded: bytes) -> bytes:
    return number.to_bytes(2, "big") + encoded


def _leading_int16(buffer: bytes) -> int:
    if len(buffer) < 2:
        raise DecodeError(f"a coordinator record of {len(buffer)} bytes has no type or version")
    return int.from_bytes(buffer[:2], "big", signed=True)
