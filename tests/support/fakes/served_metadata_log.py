"""A metadata log of given batches, served by a fake broker like `__cluster_metadata`.

Tests append, trim, disconnect the broker, or change the cluster id.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from types import TracebackType

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    SnapshotId,
)
from protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    FetchSnapshotResponsePartitionSnapshot,
    FetchSnapshotResponseSnapshotId,
    FetchSnapshotResponseTopicSnapshot,
)
from protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from protocol.primitives import Buffer
from protocol.records.batch import BatchHeader, parse_header
from tests.support.fakes.fake_broker import NODE_ID, FakeBroker

TOPIC = "__cluster_metadata"
EARLIEST = -2


class ServedMetadataLog:
    """A context manager; `visible` batches are committed, those before number `first` are trimmed.

    `most` limits the batches per response, `page_bytes` the pages of a snapshot; a `leader` of -1 means none.
    `on_fetch` is called with each requested offset before the response.
    """

    def __init__(
        self, batches: Sequence[Buffer], *, cluster_id: str = "fake", visible: int | None = None, most: int = 1000
    ) -> None:
        self.batches = list(batches)
        self.headers: list[BatchHeader] = [parse_header(batch) for batch in self.batches]
        self._ends = [header.next_offset for header in self.headers]
        self.cluster_id = cluster_id
        self.visible = len(self.batches) if visible is None else visible
        self.first = 0
        self.most = most
        self.page_bytes = 1 << 20
        self.leader = NODE_ID
        self.is_readable = True
        self.on_fetch: Callable[[int], None] = lambda offset: None
        self.snapshots: dict[tuple[int, int], bytes] = {}
        self.broker = FakeBroker()
        self._grown = threading.Condition()
        self.broker.answer(ApiKey.METADATA, self._metadata)
        self.broker.answer(ApiKey.LIST_OFFSETS, self._list_offsets)
        self.broker.answer(ApiKey.FETCH, self._fetch)
        self.broker.answer(ApiKey.FETCH_SNAPSHOT, self._fetch_snapshot)
        self.broker.answer(ApiKey.OFFSET_FOR_LEADER_EPOCH, self._epoch_end)

    def __enter__(self) -> "ServedMetadataLog":
        self.broker.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.broker.__exit__(kind, error, trace)

    @property
    def address(self) -> str:
        return self.broker.address

    def end_of(self, number: int) -> int:
        """Return the offset after a batch."""
        return self.headers[number].next_offset

    @property
    def end(self) -> int:
        return self.end_of(self.visible - 1) if self.visible else 0

    @property
    def start(self) -> int:
        return self.headers[self.first].base_offset if self.first < len(self.headers) else self.end

    def grow(self, visible: int) -> None:
        """Commit further batches."""
        with self._grown:
            self.visible = visible
            self._grown.notify_all()

    def trim(self, first: int, snapshot: bytes) -> None:
        """Start the log at batch `first`, with a snapshot of the batches before."""
        last = self.headers[first - 1]
        self.snapshots = {(last.next_offset, last.leader_epoch): snapshot}
        self.first = first

    # Responses

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        partition = MetadataResponsePartition(
            error_code=0 if self.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE, leader_id=self.leader
        )
        topic = MetadataResponseTopic(name=TOPIC, partitions=[partition])
        if not self.is_readable:
            topic = MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=TOPIC)
        return MetadataResponse(
            brokers=[MetadataResponseBroker(NODE_ID, "127.0.0.1", self.broker.port)],
            cluster_id=self.cluster_id,
            controller_id=NODE_ID,
            topics=[topic] if request.topics else [],
        )

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        asked = request.topics[0].partitions[0].timestamp
        found = ListOffsetsPartitionResponse(offset=self.start if asked == EARLIEST else self.end)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(TOPIC, [found])])

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        asked = request.topics[0].partitions[0]
        self.on_fetch(asked.fetch_offset)
        with self._grown:
            self._grown.wait_for(lambda: asked.fetch_offset < self.end, request.max_wait_ms / 1000)
        data = PartitionData(high_watermark=self.end, log_start_offset=self.start, records=b"")
        if asked.fetch_offset < self.start:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            data.snapshot_id = SnapshotId(*max(self.snapshots, default=(-1, -1)))
        else:
            data.records = self._records(asked.fetch_offset, asked.partition_max_bytes)
        return FetchResponse(responses=[FetchableTopicResponse(TOPIC, partitions=[data])])

    def _records(self, offset: int, max_bytes: int) -> bytes:
        """Return at least one batch; the last may be cut, as by Kafka."""
        first = bisect_right(self._ends, offset)
        taken: list[Buffer] = []
        size = 0
        for batch in self.batches[first : min(self.visible, first + self.most)]:
            taken.append(batch)
            size += len(batch)
            if size >= max_bytes:
                break
        return b"".join(taken)[: max(max_bytes, len(taken[0]))] if taken else b""

    def _fetch_snapshot(self, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        asked = request.topics[0].partitions[0]
        name = (asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
        found = FetchSnapshotResponsePartitionSnapshot(snapshot_id=FetchSnapshotResponseSnapshotId(*name))
        content = self.snapshots.get(name)
        if content is None:
            found.error_code, found.unaligned_records = ErrorCode.SNAPSHOT_NOT_FOUND, b""
        else:
            found.size, found.position = len(content), asked.position
            found.unaligned_records = content[asked.position : asked.position + min(self.page_bytes, request.max_bytes)]
        return FetchSnapshotResponse(topics=[FetchSnapshotResponseTopicSnapshot(TOPIC, [found])])

    def _epoch_end(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        epoch = request.topics[0].partitions[0].leader_epoch
        held = [each for each in self.headers[self.first : self.visible] if each.leader_epoch <= epoch]
        end = (
            EpochEndOffset(0, 0, held[-1].leader_epoch, held[-1].next_offset) if held else EpochEndOffset(0, 0, -1, -1)
        )
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(TOPIC, [end])])
