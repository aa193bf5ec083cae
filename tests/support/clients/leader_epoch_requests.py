"""Requests of a client about leader epochs, for the partition with index 0 of a topic (KIP-320)."""

import contextlib
from collections.abc import Iterator

from broker.client import ClientConfig, Connection, Endpoint
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.primitives import Buffer

CONSUMER = -1
NO_EPOCH = -1
MAX_BYTES = 1 << 20
TIMEOUT_MS = 5_000


class LeaderEpochClient:
    """Sends requests to one broker, in the highest versions that it supports."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        self._topic = topic

    @classmethod
    @contextlib.contextmanager
    def connect(cls, address: str, topic: str) -> Iterator["LeaderEpochClient"]:
        endpoint = Endpoint.parse(address)
        with contextlib.closing(Connection.open(endpoint, ClientConfig((endpoint,)))) as connection:
            yield cls(connection, topic)

    def metadata(self, *, highest: int | None = None) -> MetadataResponseTopic:
        request = MetadataRequest([MetadataRequestTopic(name=self._topic)])
        return self._connection.call(request, MetadataResponse, highest=highest).topics[0]

    def end_of(self, epoch: int, current: int = NO_EPOCH, *, highest: int | None = None) -> EpochEndOffset:
        """Return the end offset of an epoch by OffsetForLeaderEpoch with the current leader epoch `current`."""
        partitions = [OffsetForLeaderPartition(0, current, epoch)]
        request = OffsetForLeaderEpochRequest(CONSUMER, [OffsetForLeaderTopic(self._topic, partitions)])
        return self._connection.call(request, OffsetForLeaderEpochResponse, highest=highest).topics[0].partitions[0]

    def offset_at(
        self, timestamp: int, current: int = NO_EPOCH, *, highest: int | None = None
    ) -> ListOffsetsPartitionResponse:
        """Return an offset by ListOffsets; -1 is the latest, -2 the earliest."""
        topics = [ListOffsetsTopic(self._topic, [ListOffsetsPartition(0, current, timestamp)])]
        request = ListOffsetsRequest(CONSUMER, topics=topics)
        return self._connection.call(request, ListOffsetsResponse, highest=highest).topics[0].partitions[0]

    def fetch(
        self,
        offset: int,
        current: int = NO_EPOCH,
        last_fetched: int = NO_EPOCH,
        *,
        highest: int | None = None,
        wait_ms: int = 0,
    ) -> FetchResponse:
        """Fetch all records from an offset on at once, or those that arrive within `wait_ms`."""
        partition = FetchPartition(0, current, offset, last_fetched, partition_max_bytes=MAX_BYTES)
        topics = [FetchTopic(self._topic, self.metadata().topic_id, [partition])]
        request = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=topics)
        return self._connection.call(request, FetchResponse, highest=highest)

    def produce(self, records: Buffer) -> ProduceResponse:
        """Produce a batch with acks=1."""
        data = [TopicProduceData(self._topic, self.metadata().topic_id, [PartitionProduceData(0, records)])]
        return self._connection.call(ProduceRequest(None, 1, TIMEOUT_MS, data), ProduceResponse)
