"""The records of `__share_group_state` in Kafka's formats, and their events.

A snapshot holds the whole state of a share partition, an update one write. A snapshot without value is a tombstone.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from broker.coordination.log_fold import FoldRule
from broker.coordination.shard import CoordinatorRecord
from broker.coordination.share_partition_key import SharePartitionKey
from broker.share_state.state import ShareState, StateBatch
from protocol.compiler import decode, encode_bytes
from protocol.errors import DecodeError
from protocol.messages import Message
from protocol.messages.share_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareSnapshotValueStateBatch,
    ShareUpdateKey,
    ShareUpdateValue,
    ShareUpdateValueStateBatch,
)

VALUE_VERSION: Final = 0
_KEY_VERSION: Final = 0
_TYPE_BYTES: Final = 2


def _extended(key: bytes) -> bytes | None:
    """Return the key of the snapshot that an update completes; None for the key of a snapshot."""
    if _int16(key) != ShareUpdateKey.API_KEY:
        return None
    return ShareSnapshotKey.API_KEY.to_bytes(_TYPE_BYTES, "big") + key[_TYPE_BYTES:]


SHARE_STATE_FOLD: Final = FoldRule(lambda _: None, extends=_extended)


class ShareSnapshotWritten(NamedTuple):
    key: SharePartitionKey
    state: ShareState


class ShareUpdateWritten(NamedTuple):
    key: SharePartitionKey
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


class ShareStateRemoved(NamedTuple):
    key: SharePartitionKey


ShareStateEvent: TypeAlias = ShareSnapshotWritten | ShareUpdateWritten | ShareStateRemoved
ShareStateRecord: TypeAlias = CoordinatorRecord[ShareStateEvent]


def snapshot_written(key: SharePartitionKey, state: ShareState) -> ShareStateRecord:
    """Return a snapshot of a share partition's state."""
    message = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.create_ms,
        write_timestamp=state.write_ms,
        state_batches=[ShareSnapshotValueStateBatch(*each) for each in state.batches],
    )
    return CoordinatorRecord(_key(ShareSnapshotKey(*key)), _value(message), ShareSnapshotWritten(key, state))


def update_written(update: ShareUpdateWritten, snapshot_epoch: int) -> ShareStateRecord:
    """Return the record of a write on top of the snapshot with that epoch."""
    message = ShareUpdateValue(
        snapshot_epoch=snapshot_epoch,
        leader_epoch=update.leader_epoch,
        start_offset=update.start_offset,
        delivery_complete_count=update.delivery_complete_count,
        state_batches=[ShareUpdateValueStateBatch(*each) for each in update.batches],
    )
    return CoordinatorRecord(_key(ShareUpdateKey(*update.key)), _value(message), update)


def state_removed(key: SharePartitionKey) -> ShareStateRecord:
    """Return the tombstone of a share partition's state."""
    return CoordinatorRecord(_key(ShareSnapshotKey(*key)), None, ShareStateRemoved(key))


def decode_record(key: bytes, value: bytes | None) -> ShareStateEvent | None:
    """Return the event of a record; None for a type that this broker does not know. Raises DecodeError."""
    match _int16(key):
        case ShareSnapshotKey.API_KEY:
            return _snapshot(_share_partition(ShareSnapshotKey, key), value)
        case ShareUpdateKey.API_KEY:
            return _update(_share_partition(ShareUpdateKey, key), value)
    return None


def _snapshot(key: SharePartitionKey, value: bytes | None) -> ShareStateEvent:
    if value is None:
        return ShareStateRemoved(key)
    message, _ = decode(ShareSnapshotValue, value, _version(value), _TYPE_BYTES)
    state = ShareState(
        snapshot_epoch=message.snapshot_epoch,
        state_epoch=message.state_epoch,
        leader_epoch=message.leader_epoch,
        start_offset=message.start_offset,
        delivery_complete_count=message.delivery_complete_count,
        batches=_batches(message.state_batches),
        create_ms=message.create_timestamp,
        write_ms=message.write_timestamp,
    )
    return ShareSnapshotWritten(key, state)


def _update(key: SharePartitionKey, value: bytes | None) -> ShareStateEvent | None:
    if value is None:
        return None
    message, _ = decode(ShareUpdateValue, value, _version(value), _TYPE_BYTES)
    return ShareUpdateWritten(
        key,
        message.leader_epoch,
        message.start_offset,
        message.delivery_complete_count,
        _batches(message.state_batches),
    )


def _batches(
    batches: Iterable[ShareSnapshotValueStateBatch | ShareUpdateValueStateBatch],
) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in batches
    )


def _share_partition(message_class: type[ShareSnapshotKey] | type[ShareUpdateKey], key: bytes) -> SharePartitionKey:
    message, _ = decode(message_class, key, _KEY_VERSION, _TYPE_BYTES)
    return SharePartitionKey(message.group_id, message.topic_id, message.partition)


def _key(message: ShareSnapshotKey | ShareUpdateKey) -> bytes:
    return message.API_KEY.to_bytes(_TYPE_BYTES, "big") + encode_bytes(message, _KEY_VERSION)


def _value(message: Message) -> bytes:
    return VALUE_VERSION.to_bytes(_TYPE_BYTES, "big") + encode_bytes(message, VALUE_VERSION)


def _version(value: bytes) -> int:
    version = _int16(value)
    if version != VALUE_VERSION:
        raise DecodeError(f"unknown version {version} of a value in __share_group_state")
    return version


def _int16(data: bytes) -> int:
    if len(data) < _TYPE_BYTES:
        raise DecodeError("a record of __share_group_state is too short for a version")
    return int.from_bytes(data[:_TYPE_BYTES], "big", signed=True)
