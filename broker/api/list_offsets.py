"""ListOffsets (key 2), versions 1-11: which offset stands for a point in time, or for one end of the log.

Special timestamps: -1 latest; -2 earliest; -3 the record with the largest timestamp (7+); -4 earliest on local disk
(8+); -5 latest in tiered storage (9+); -6 earliest not yet in tiered storage (11+). Without tiering the last two do not
exist, and -4 is -2. 2+ isolation; 4+ leader epochs (KIP-320); 5+ OFFSET_NOT_AVAILABLE; 10+ a timeout for lookups in
tiered storage, which does not exist here yet.
"""

from collections import Counter

from broker.api.context import RequestContext
from broker.runtime import offset_lookup
from broker.runtime.metadata_topic import MetadataTopic
from broker.runtime.offset_lookup import FoundOffset, OffsetQuery
from broker.runtime.partitions import Partitions
from broker.runtime.reads import Isolation
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

OFFSET_NOT_AVAILABLE_FROM = 5

CONSUMER_ID = -1
DEBUGGING_CONSUMER_ID = -2
READ_COMMITTED = 1

# From which version on a special timestamp may be asked for.
_SPECIAL_FROM = {
    offset_lookup.LATEST: 1,
    offset_lookup.EARLIEST: 1,
    offset_lookup.MAX_TIMESTAMP: 7,
    offset_lookup.EARLIEST_LOCAL: 8,
    offset_lookup.LATEST_TIERED: 9,
    offset_lookup.EARLIEST_PENDING_UPLOAD: 11,
}


class ListOffsetsHandler:
    """Answers ListOffsets. `metadata_topic` is None where `__cluster_metadata` is not for clients to read."""

    def __init__(self, partitions: Partitions, metadata_topic: MetadataTopic | None = None) -> None:
        self._partitions = partitions
        self._metadata_topic = metadata_topic

    def __call__(self, request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
        asked = Counter((topic.name, p.partition_index) for topic in request.topics for p in topic.partitions)
        repeated = {partition for partition, times in asked.items() if times > 1}
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    topic.name,
                    [
                        self._refused(p, ErrorCode.INVALID_REQUEST, context)
                        if (topic.name, p.partition_index) in repeated
                        else self._answer(topic, p, request, context)
                        for p in {p.partition_index: p for p in topic.partitions}.values()
                    ],
                )
                for topic in request.topics
            ]
        )

    def _answer(
        self, topic: ListOffsetsTopic, asked: ListOffsetsPartition, request: ListOffsetsRequest, context: RequestContext
    ) -> ListOffsetsPartitionResponse:
        if not is_served(asked.timestamp, context.api_version):
            return self._refused(asked, ErrorCode.UNSUPPORTED_VERSION, context)
        try:
            found = self._find(topic.name, asked.partition_index, _query(asked, request))
        except KafkaError as error:
            return self._refused(asked, error.code, context)
        return ListOffsetsPartitionResponse(
            asked.partition_index, ErrorCode.NONE, found.timestamp, found.offset, found.leader_epoch
        )

    def _find(self, topic: str, index: int, query: OffsetQuery) -> FoundOffset:
        """Raises KafkaError."""
        if self._metadata_topic is not None and self._metadata_topic.is_meant(topic):
            return self._metadata_topic.serving(self._partitions.image, index).list_offset(query)
        return offset_lookup.list_offset(self._partitions.hosted(topic, index), query)

    def _refused(
        self, asked: ListOffsetsPartition, code: ErrorCode, context: RequestContext
    ) -> ListOffsetsPartitionResponse:
        if code is ErrorCode.OFFSET_NOT_AVAILABLE and context.api_version < OFFSET_NOT_AVAILABLE_FROM:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        return ListOffsetsPartitionResponse(asked.partition_index, code)


def is_served(timestamp: int, version: int) -> bool:
    """Whether a timestamp has a meaning in a version: real ones always have."""
    return timestamp >= 0 or version >= _SPECIAL_FROM.get(timestamp, version + 1)


def _query(asked: ListOffsetsPartition, request: ListOffsetsRequest) -> OffsetQuery:
    """Consumers see what is committed; followers, and consumers that debug, see the whole log."""
    isolation = Isolation.LOG_END
    if request.replica_id == CONSUMER_ID:
        committed = request.isolation_level == READ_COMMITTED
        isolation = Isolation.LAST_STABLE if committed else Isolation.HIGH_WATERMARK
    return OffsetQuery(
        asked.timestamp,
        asked.current_leader_epoch,
        isolation,
        needs_leader=request.replica_id != DEBUGGING_CONSUMER_ID,
    )
