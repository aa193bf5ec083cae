"""Remote segment events in the text format of Kafka's dump tool and console consumer (KIP-405)."""

from typing import Final

from protocol.primitives import uuid_to_text
from storage.tiered.catalog.metadata_records import MetadataEvent
from storage.tiered.segment_metadata import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    RemoteSegmentId,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)

_SEGMENT_STATES: Final = {
    SegmentState.COPY_STARTED: "COPY_SEGMENT_STARTED",
    SegmentState.COPY_FINISHED: "COPY_SEGMENT_FINISHED",
    SegmentState.DELETE_STARTED: "DELETE_SEGMENT_STARTED",
    SegmentState.DELETE_FINISHED: "DELETE_SEGMENT_FINISHED",
}
_PARTITION_STATES: Final = {state: f"DELETE_PARTITION_{state.name}" for state in PartitionDeleteState}


def event_text(event: MetadataEvent) -> str:
    """Return the event's text, equal to `toString` of Kafka's classes."""
    match event:
        case RemoteSegment():
            return _segment(event)
        case SegmentUpdate():
            return _update(event)
        case PartitionDelete():
            return _delete(event)


def _segment(segment: RemoteSegment) -> str:
    epochs = ", ".join(f"{epoch}={offset}" for epoch, offset in segment.leader_epochs)
    return (
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_id(segment.id)}, startOffset={segment.start_offset}, "
        f"endOffset={segment.end_offset}, brokerId={segment.broker_id}, maxTimestampMs={segment.max_timestamp_ms}, "
        f"eventTimestampMs={segment.event_timestamp_ms}, segmentLeaderEpochs={{{epochs}}}, "
        f"segmentSizeInBytes={segment.size_bytes}, customMetadata={_custom(segment.custom_metadata)}, "
        f"state={_SEGMENT_STATES[segment.state]}, txnIdxEmpty={str(segment.txn_index_empty).lower()}}}"
    )


def _update(update: SegmentUpdate) -> str:
    return (
        f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={_id(update.id)}, "
        f"customMetadata={_custom(update.custom_metadata)}, state={_SEGMENT_STATES[update.state]}, "
        f"eventTimestampMs={update.event_timestamp_ms}, brokerId={update.broker_id}}}"
    )


def _delete(event: PartitionDelete) -> str:
    return (
        f"RemotePartitionDeleteMetadata{{topicPartition={_partition(event.partition)}, "
        f"state={_PARTITION_STATES[event.state]}, eventTimestampMs={event.event_timestamp_ms}, "
        f"brokerId={event.broker_id}}}"
    )


def _id(segment_id: RemoteSegmentId) -> str:
    partition, number = segment_id
    return f"RemoteLogSegmentId{{topicIdPartition={_partition(partition)}, id={uuid_to_text(number)}}}"


def _partition(partition: TopicIdPartition) -> str:
    return f"{uuid_to_text(partition.topic_id)}:{partition}"


def _custom(custom_metadata: bytes | None) -> str:
    """Return the text of custom metadata, which contains its size only, as in Kafka."""
    return "Optional.empty" if custom_metadata is None else f"Optional[CustomMetadata{{{len(custom_metadata)} bytes}}]"
