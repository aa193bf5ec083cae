"""FetchSnapshot (key 59), versions 0-1, on a client listener: pages of a metadata snapshot for ordinary clients.

A client that reads `__cluster_metadata` below the log start offset gets a snapshot id in response to its Fetch, and the
snapshot's bytes here, from the broker that serves the topic. Replicas use the controller listener, which has another
handler.
"""

from collections.abc import Awaitable
from functools import partial
from typing import Final, cast

from broker.api.pipeline.permission import READ_TOPIC
from broker.api.serving.context import RequestContext
from broker.api.serving.current_leader import LeaderHints
from broker.api.serving.metadata_source import MetadataSource
from broker.metadata.image.topic_names import CLUSTER_METADATA_TOPIC
from broker.quorum.wire.replication import answer_other_partitions, metadata_snapshot_partition
from broker.quorum.wire.shape import WrongPartition
from broker.runtime.loop.io_thread import BlockingIo
from broker.runtime.partitions.metadata_topic import METADATA_PARTITION, ClusterMetadataTopic, MetadataPartition
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import LeaderEpoch
from protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotRequestPartitionSnapshot,
    FetchSnapshotResponse,
    FetchSnapshotResponsePartitionSnapshot,
    FetchSnapshotResponseSnapshotId,
    FetchSnapshotResponseTopicSnapshot,
    LeaderIdAndEpoch,
    NodeEndpoint,
)
from storage.log_snapshots import CheckpointId

MAX_PAGE_BYTES: Final = 8 * 1024 * 1024
_ENDPOINTS_FROM: Final = 1


class FetchPublicSnapshotHandler:
    """Answers FetchSnapshot for clients; pages are read on the IO thread."""

    def __init__(
        self, metadata: MetadataSource, topic: ClusterMetadataTopic | None, io: BlockingIo, *, cluster_id: str
    ) -> None:
        self._metadata = metadata
        self._topic = topic
        self._io = io
        self._cluster_id = cluster_id

    def __call__(
        self, request: FetchSnapshotRequest, context: RequestContext
    ) -> FetchSnapshotResponse | Awaitable[FetchSnapshotResponse]:
        if request.cluster_id not in (None, self._cluster_id):
            return FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        try:
            asked = metadata_snapshot_partition(request)
        except WrongPartition as wrong:
            return cast(FetchSnapshotResponse, wrong.response)
        if not context.allows(READ_TOPIC, CLUSTER_METADATA_TOPIC):
            refusal = self._refusal(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            topics = [FetchSnapshotResponseTopicSnapshot(CLUSTER_METADATA_TOPIC, [refusal])]
            return answer_other_partitions(request, FetchSnapshotResponse(topics=topics))
        try:
            partition = self._partition(asked)
        except KafkaError as error:
            return self._response(request, self._refusal(asked, error.code), context)
        return self._page(request, asked, partition, context)

    def _partition(self, asked: FetchSnapshotRequestPartitionSnapshot) -> MetadataPartition:
        """Return the metadata partition. Raises KafkaError if it is not served here."""
        if self._topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition = self._topic.serving(self._metadata.image, asked.partition)
        partition.check_epoch(LeaderEpoch(asked.current_leader_epoch))
        return partition

    async def _page(
        self,
        request: FetchSnapshotRequest,
        asked: FetchSnapshotRequestPartitionSnapshot,
        partition: MetadataPartition,
        context: RequestContext,
    ) -> FetchSnapshotResponse:
        try:
            answer = await self._io.submit(partial(_read, partition, asked, min(request.max_bytes, MAX_PAGE_BYTES)))
        except KafkaError as error:
            answer = self._refusal(asked, error.code)
        except OSError as error:
            code = partition.offline(partition.log.fail(error)).code
            answer = self._refusal(asked, code)
        return self._response(request, answer, context)

    def _refusal(
        self, asked: FetchSnapshotRequestPartitionSnapshot, code: ErrorCode
    ) -> FetchSnapshotResponsePartitionSnapshot:
        return FetchSnapshotResponsePartitionSnapshot(index=asked.partition, error_code=code, unaligned_records=b"")

    def _response(
        self, request: FetchSnapshotRequest, answer: FetchSnapshotResponsePartitionSnapshot, context: RequestContext
    ) -> FetchSnapshotResponse:
        topic = FetchSnapshotResponseTopicSnapshot(CLUSTER_METADATA_TOPIC, [answer])
        response = answer_other_partitions(request, FetchSnapshotResponse(topics=[topic]))
        if self._topic is not None:
            image = self._metadata.image
            hints = LeaderHints(image, context.listener)
            answer.current_leader = LeaderIdAndEpoch(*hints.leader_of(self._topic.topic(image), METADATA_PARTITION))
            if context.api_version >= _ENDPOINTS_FROM:
                response.node_endpoints = [
                    NodeEndpoint(each.node_id, each.host, each.port) for each in hints.addresses()
                ]
        return response


def _read(
    partition: MetadataPartition, asked: FetchSnapshotRequestPartitionSnapshot, max_bytes: int
) -> FetchSnapshotResponsePartitionSnapshot:
    """Read one page. Blocks. Raises KafkaError SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE; OSError."""
    id = CheckpointId(asked.snapshot_id.end_offset, LeaderEpoch(asked.snapshot_id.epoch))
    if id.end_offset <= 0 or id.epoch < 0:
        raise KafkaError(ErrorCode.SNAPSHOT_NOT_FOUND)
    try:
        size = partition.snapshots.size(id)
        if not 0 <= asked.position < size:
            raise KafkaError(ErrorCode.POSITION_OUT_OF_RANGE)
        data = partition.snapshots.read(id, asked.position, max(0, max_bytes))
    except FileNotFoundError as error:
        raise KafkaError(ErrorCode.SNAPSHOT_NOT_FOUND) from error
    return FetchSnapshotResponsePartitionSnapshot(
        index=METADATA_PARTITION,
        snapshot_id=FetchSnapshotResponseSnapshotId(*id),
        size=size,
        position=asked.position,
        unaligned_records=data,
    )
