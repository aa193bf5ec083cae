"""Encoding of remote segment events as values in `__remote_log_metadata`, byte for byte as Kafka writes them.

A value is a frame: framing version 1, record type and record version, each a uvarint, then the record. Keys are null.
Events are not checked against the state of their segment here.
"""

from typing import Final, TypeAlias, TypeVar

from protocol.codec_errors import DecodeError, EncodeError
from protocol.compiler import decode, encode_bytes
from protocol.ids import BrokerId, LeaderEpoch
from protocol.messages import Message
from protocol.messages.storage_records import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataRecordRemoteLogSegmentIdEntry,
    RemoteLogSegmentMetadataRecordSegmentLeaderEpochEntry,
    RemoteLogSegmentMetadataRecordTopicIdPartitionEntry,
    RemoteLogSegmentMetadataUpdateRecord,
    RemoteLogSegmentMetadataUpdateRecordRemoteLogSegmentIdEntry,
    RemoteLogSegmentMetadataUpdateRecordTopicIdPartitionEntry,
    RemotePartitionDeleteMetadataRecord,
    RemotePartitionDeleteMetadataRecordTopicIdPartitionEntry,
)
from protocol.primitives import decode_uvarint
from storage.tiered.segment_metadata import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    RemoteSegmentId,
    SegmentEpoch,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)

FRAME_VERSION: Final = 1
RECORD_VERSION: Final = 0

MetadataEvent: TypeAlias = RemoteSegment | SegmentUpdate | PartitionDelete

_STATES: Final = tuple(SegmentState)
_DELETE_STATES: Final = tuple(PartitionDeleteState)
_NOT_COMPACTED: Final = -1
_E = TypeVar("_E")


class UndecodableEvent(Exception):
    """A value that is no event, or an event of an unknown kind."""


def partition_of(event: MetadataEvent) -> TopicIdPartition:
    """Return the partition of an event."""
    return event.partition if isinstance(event, PartitionDelete) else event.id.partition


# ---- writing


def encode_event(event: MetadataEvent) -> bytes:
    """Return a record value. Raises ValueError for a number out of its field's range, such as a size of 2 GiB."""
    record = _record(event)
    try:
        return bytes((FRAME_VERSION, record.API_KEY, RECORD_VERSION)) + encode_bytes(record, RECORD_VERSION)
    except EncodeError as error:
        raise ValueError(f"an event of {partition_of(event)} cannot be written: {error}") from error


def _record(event: MetadataEvent) -> Message:
    match event:
        case RemoteSegment():
            return _segment_record(event)
        case SegmentUpdate():
            return _update_record(event)
        case PartitionDelete():
            return _delete_record(event)


def _segment_record(segment: RemoteSegment) -> RemoteLogSegmentMetadataRecord:
    (topic_id, topic, partition), segment_id = segment.id
    entry = RemoteLogSegmentMetadataRecordTopicIdPartitionEntry(topic, topic_id, partition)
    epochs = [RemoteLogSegmentMetadataRecordSegmentLeaderEpochEntry(*epoch) for epoch in segment.leader_epochs]
    return RemoteLogSegmentMetadataRecord(
        remote_log_segment_id=RemoteLogSegmentMetadataRecordRemoteLogSegmentIdEntry(entry, segment_id),
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        broker_id=segment.broker_id,
        max_timestamp_ms=segment.max_timestamp_ms,
        event_timestamp_ms=segment.event_timestamp_ms,
        segment_leader_epochs=epochs,
        segment_size_in_bytes=segment.size_bytes,
        custom_metadata=segment.custom_metadata,
        remote_log_segment_state=segment.state,
        txn_index_empty=segment.txn_index_empty,
        compacted_to=_NOT_COMPACTED if segment.compacted_to is None else segment.compacted_to,
    )


def _update_record(update: SegmentUpdate) -> RemoteLogSegmentMetadataUpdateRecord:
    (topic_id, topic, partition), segment_id = update.id
    entry = RemoteLogSegmentMetadataUpdateRecordTopicIdPartitionEntry(topic, topic_id, partition)
    return RemoteLogSegmentMetadataUpdateRecord(
        remote_log_segment_id=RemoteLogSegmentMetadataUpdateRecordRemoteLogSegmentIdEntry(entry, segment_id),
        broker_id=update.broker_id,
        event_timestamp_ms=update.event_timestamp_ms,
        custom_metadata=update.custom_metadata,
        remote_log_segment_state=update.state,
        only_unfinished=update.only_unfinished,
    )


def _delete_record(event: PartitionDelete) -> RemotePartitionDeleteMetadataRecord:
    topic_id, topic, partition = event.partition
    return RemotePartitionDeleteMetadataRecord(
        topic_id_partition=RemotePartitionDeleteMetadataRecordTopicIdPartitionEntry(topic, topic_id, partition),
        broker_id=event.broker_id,
        event_timestamp_ms=event.event_timestamp_ms,
        remote_partition_delete_state=event.state,
    )


# ---- reading


def decode_event(value: bytes | None) -> MetadataEvent:
    """Decode a record value of Kafka or Ottla. Raises UndecodableEvent."""
    if value is None:
        raise UndecodableEvent("a tombstone says nothing of a segment")
    try:
        return _decoded(value)
    except (DecodeError, ValueError) as error:
        raise UndecodableEvent(str(error)) from error


def _decoded(value: bytes) -> MetadataEvent:
    kind, position = _frame(value)
    match kind:
        case RemoteLogSegmentMetadataRecord.API_KEY:
            return _segment(decode(RemoteLogSegmentMetadataRecord, value, RECORD_VERSION, position)[0])
        case RemoteLogSegmentMetadataUpdateRecord.API_KEY:
            return _update(decode(RemoteLogSegmentMetadataUpdateRecord, value, RECORD_VERSION, position)[0])
        case RemotePartitionDeleteMetadataRecord.API_KEY:
            return _delete(decode(RemotePartitionDeleteMetadataRecord, value, RECORD_VERSION, position)[0])
        case _:
            raise UndecodableEvent(f"record type {kind} is not known")


def _frame(value: bytes) -> tuple[int, int]:
    """Return the record type and the position of the record."""
    frame_version, position = decode_uvarint(value, 0)
    if frame_version != FRAME_VERSION:
        raise UndecodableEvent(f"frame version {frame_version} is not {FRAME_VERSION}")
    kind, position = decode_uvarint(value, position)
    version, position = decode_uvarint(value, position)
    if version != RECORD_VERSION:
        raise UndecodableEvent(f"version {version} of record type {kind} is not known")
    return kind, position


def _segment(record: RemoteLogSegmentMetadataRecord) -> RemoteSegment:
    entry = record.remote_log_segment_id
    partition = entry.topic_id_partition
    return RemoteSegment(
        id=RemoteSegmentId(TopicIdPartition(partition.id, partition.name, partition.partition), entry.id),
        start_offset=record.start_offset,
        end_offset=record.end_offset,
        max_timestamp_ms=record.max_timestamp_ms,
        broker_id=BrokerId(record.broker_id),
        event_timestamp_ms=record.event_timestamp_ms,
        size_bytes=record.segment_size_in_bytes,
        leader_epochs=tuple(
            sorted(SegmentEpoch(LeaderEpoch(one.leader_epoch), one.offset) for one in record.segment_leader_epochs)
        ),
        state=_named(_STATES, record.remote_log_segment_state),
        custom_metadata=record.custom_metadata,
        txn_index_empty=record.txn_index_empty,
        compacted_to=None if record.compacted_to == _NOT_COMPACTED else record.compacted_to,
    )


def _update(record: RemoteLogSegmentMetadataUpdateRecord) -> SegmentUpdate:
    entry = record.remote_log_segment_id
    partition = entry.topic_id_partition
    return SegmentUpdate(
        id=RemoteSegmentId(TopicIdPartition(partition.id, partition.name, partition.partition), entry.id),
        state=_named(_STATES, record.remote_log_segment_state),
        event_timestamp_ms=record.event_timestamp_ms,
        broker_id=BrokerId(record.broker_id),
        custom_metadata=record.custom_metadata,
        only_unfinished=record.only_unfinished,
    )


def _delete(record: RemotePartitionDeleteMetadataRecord) -> PartitionDelete:
    partition = record.topic_id_partition
    return PartitionDelete(
        partition=TopicIdPartition(partition.id, partition.name, partition.partition),
        state=_named(_DELETE_STATES, record.remote_partition_delete_state),
        event_timestamp_ms=record.event_timestamp_ms,
        broker_id=BrokerId(record.broker_id),
    )


def _named(states: tuple[_E, ...], number: int) -> _E:
    if not 0 <= number < len(states):
        raise UndecodableEvent(f"state {number} is not known")
    return states[number]
