"""ListOffsets (key 2), versions 1-11: the offset for a timestamp, or for one end of the log.

Special timestamps: -1 latest; -2 earliest; -3 the record with the largest timestamp (7+); -4 earliest on local disk
(8+); -5 latest in remote storage (9+); -6 earliest not yet in remote storage (11+). Without tiered storage the last two
do not exist, and -4 is -2. 2+ isolation level; 4+ leader epochs (KIP-320); 5+ OFFSET_NOT_AVAILABLE; 10+ a timeout for
look-ups in remote storage, the slowest of which the response waits for (KIP-1075).
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Sequence

from broker.api.pipeline.permission import DESCRIBE_TOPIC
from broker.api.serving.context import RequestContext
from broker.runtime.partitions import offset_lookup
from broker.runtime.partitions.metadata_topic import ClusterMetadataTopic
from broker.runtime.partitions.offset_lookup import FoundOffset, OffsetQuery, RemoteLookups
from broker.runtime.partitions.reads import FetchIsolation
from broker.runtime.partitions.registry import Partitions
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import LeaderEpoch
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
READ_COMMITTED = 1

# The first version of each special timestamp.
_SPECIAL_FROM = {
    offset_lookup.LATEST: 1,
    offset_lookup.EARLIEST: 1,
    offset_lookup.MAX_TIMESTAMP: 7,
    offset_lookup.EARLIEST_LOCAL: 8,
    offset_lookup.LATEST_TIERED: 9,
    offset_lookup.EARLIEST_PENDING_UPLOAD: 11,
}


class ListOffsetsHandler:
    """Answers ListOffsets.

    `metadata_topic` is None where clients may not read `__cluster_metadata`, `remote` where there is no remote storage.
    """

    def __init__(
        self,
        partitions: Partitions,
        metadata_topic: ClusterMetadataTopic | None = None,
        remote: RemoteLookups | None = None,
    ) -> None:
        self._partitions = partitions
        self._metadata_topic = metadata_topic
        self._remote = remote

    def __call__(
        self, request: ListOffsetsRequest, context: RequestContext
    ) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
        asked = Counter((topic.name, p.partition_index) for topic in request.topics for p in topic.partitions)
        repeated = {partition for partition, times in asked.items() if times > 1}
        waiting: list[_Waiting] = []
        response = ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    topic.name,
                    [
                        _refused(p, ErrorCode.INVALID_REQUEST, context)
                        if (topic.name, p.partition_index) in repeated
                        else self._answer(topic, p, request, context, waiting)
                        for p in {p.partition_index: p for p in topic.partitions}.values()
                    ]
                    if context.allows(DESCRIBE_TOPIC, topic.name)
                    else [_refused(p, ErrorCode.TOPIC_AUTHORIZATION_FAILED, context) for p in topic.partitions],
                )
                for topic in request.topics
            ]
        )
        return _PendingOffsets(response, waiting, context).future if waiting else response

    def _answer(
        self,
        topic: ListOffsetsTopic,
        asked: ListOffsetsPartition,
        request: ListOffsetsRequest,
        context: RequestContext,
        waiting: "list[_Waiting]",
    ) -> ListOffsetsPartitionResponse:
        """Return the entry of a partition; a look-up in remote storage fills it later."""
        if not is_served(asked.timestamp, context.api_version):
            return _refused(asked, ErrorCode.UNSUPPORTED_VERSION, context)
        try:
            found = self._find(topic.name, asked.partition_index, _query(asked, request), request.timeout_ms)
        except KafkaError as error:
            return _refused(asked, error.code, context)
        if isinstance(found, FoundOffset):
            return _answered(asked.partition_index, found)
        entry = ListOffsetsPartitionResponse(asked.partition_index)
        waiting.append((entry, found))
        return entry

    def _find(
        self, topic: str, index: int, query: OffsetQuery, timeout_ms: int
    ) -> "FoundOffset | asyncio.Future[FoundOffset]":
        """Return the offset, or a future of it. Raises KafkaError."""
        if self._metadata_topic is not None and self._metadata_topic.matches(topic):
            return self._metadata_topic.serving(self._partitions.image, index).list_offset(query)
        partition = self._partitions.hosted(topic, index)
        if self._remote is not None and self._remote.covers(partition):
            return self._remote.list_offset(partition, query, timeout_ms)
        return offset_lookup.list_offset(partition, query)


_Waiting = tuple[ListOffsetsPartitionResponse, "asyncio.Future[FoundOffset]"]


class _PendingOffsets:
    """A response with entries that are being looked up; `future` has the response once all are there."""

    def __init__(self, response: ListOffsetsResponse, waiting: Sequence[_Waiting], context: RequestContext) -> None:
        self._response = response
        self._waiting = waiting
        self._context = context
        self._left = len(waiting)
        self.future: asyncio.Future[ListOffsetsResponse] = waiting[0][1].get_loop().create_future()
        self.future.add_done_callback(self._on_done)
        for _, lookup in waiting:
            lookup.add_done_callback(self._on_found)

    def _on_found(self, _: "asyncio.Future[FoundOffset]") -> None:
        self._left -= 1
        if not self._left and not self.future.done():
            for entry, lookup in self._waiting:
                self._fill(entry, lookup)
            self.future.set_result(self._response)

    def _fill(self, entry: ListOffsetsPartitionResponse, lookup: "asyncio.Future[FoundOffset]") -> None:
        try:
            found = lookup.result()
        except KafkaError as error:
            entry.error_code = _client_code(error.code, self._context)
        else:
            entry.timestamp, entry.offset, entry.leader_epoch = found

    def _on_done(self, future: "asyncio.Future[ListOffsetsResponse]") -> None:
        """Cancel the remaining look-ups, if the peer is gone."""
        if future.cancelled():
            for _, lookup in self._waiting:
                lookup.cancel()


def _answered(index: int, found: FoundOffset) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(index, ErrorCode.NONE, found.timestamp, found.offset, found.leader_epoch)


def _refused(asked: ListOffsetsPartition, code: ErrorCode, context: RequestContext) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(asked.partition_index, _client_code(code, context))


def _client_code(code: ErrorCode, context: RequestContext) -> ErrorCode:
    """Return the error code that this client's version knows."""
    if code is ErrorCode.OFFSET_NOT_AVAILABLE and context.api_version < OFFSET_NOT_AVAILABLE_FROM:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return code


def is_served(timestamp: int, version: int) -> bool:
    """Whether a version supports a timestamp; real timestamps are supported always."""
    return timestamp >= 0 or version >= _SPECIAL_FROM.get(timestamp, version + 1)


def _query(asked: ListOffsetsPartition, request: ListOffsetsRequest) -> OffsetQuery:
    """Return the query: consumers see committed records; followers and debugging consumers see the whole log."""
    isolation = FetchIsolation.LOG_END
    if request.replica_id == CONSUMER_ID:
        committed = request.isolation_level == READ_COMMITTED
        isolation = FetchIsolation.LAST_STABLE if committed else FetchIsolation.HIGH_WATERMARK
    return OffsetQuery(
        asked.timestamp,
        LeaderEpoch(asked.current_leader_epoch),
        isolation,
        needs_leader=request.replica_id != offset_lookup.DEBUGGING_REPLICA_ID,
    )
