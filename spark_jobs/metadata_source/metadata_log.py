"""A client for the metadata log of one cluster: bounds, batches, epochs, pages of snapshots.

Requests are retried through elections, restarts and leader changes until the client's API timeout.
"""

import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeVar

from broker.client import TRANSIENT, Client, Connection, ConnectionLost, raise_for
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotRequestPartitionSnapshot,
    FetchSnapshotRequestSnapshotId,
    FetchSnapshotRequestTopicSnapshot,
    FetchSnapshotResponse,
    FetchSnapshotResponsePartitionSnapshot,
)
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.metadata import MetadataResponse
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.primitives import Buffer
from protocol.records.batch import BatchHeader, iter_headers
from protocol.records.errors import MalformedBatch
from spark_jobs.metadata_source.position import MetadataPosition

T = TypeVar("T")

TOPIC: Final = "__cluster_metadata"
PARTITION: Final = 0
CONSUMER: Final = -1
NO_SESSION: Final = -1
LAST_FETCH_WITH_NAMES: Final = 12

LATEST: Final = -1
EARLIEST: Final = -2

FETCH_BYTES: Final = 8 * 1024 * 1024
"""The fetch size of a quorum replica: no batch of metadata is larger."""
PAGE_BYTES: Final = 8 * 1024 * 1024
FIRST_CONTACT_BACKOFF_S: Final = 0.5


class SourceRefused(Exception):
    """The source refuses to read; the message is one sentence for the operator."""


class LogTrimmed(Exception):
    """The log begins after the requested offset; `snapshot` replaces the deleted records."""

    def __init__(self, offset: int, snapshot: "SnapshotName") -> None:
        super().__init__(f"the log no longer has offset {offset}; there is a snapshot that ends at {snapshot.end}")
        self.snapshot = snapshot


class SnapshotName(NamedTuple):
    """A snapshot of the metadata: its end offset, and the epoch of the record before that."""

    end: int
    epoch: int


class FetchedMetadata(NamedTuple):
    """Batches from the one with the requested offset on; the last may be cut short. Empty without committed records."""

    data: memoryview
    high_watermark: int

    def headers(self) -> list[BatchHeader]:
        """Return the headers of the whole batches. Raises KafkaError."""
        try:
            return [header for _, header in iter_headers(self.data)]
        except MalformedBatch as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{TOPIC}: {error}.") from error


class CommittedBounds(NamedTuple):
    """The log start offset, and the offset that will be committed next."""

    start: int
    end: int


class MetadataLogClient:
    """Reads the log through the broker that serves it. Blocks; for one thread.

    `cluster_id` is the expected cluster; None accepts any, and `cluster_id` then returns its id. `contacts` counts
    lookups of a broker: a caller that verified its position with an earlier broker may verify it again.
    """

    def __init__(
        self,
        client: Client,
        cluster_id: str | None = None,
        *,
        is_patient: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`is_patient`: also wait for a cluster that does not respond at all, because it has responded to others
        before.
        """
        self.contacts = 0
        self._client = client
        self._cluster_id = cluster_id
        self._is_patient = is_patient
        self._monotonic = monotonic
        self._sleep = sleep
        self._broker: Connection | None = None

    def close(self) -> None:
        self._client.close()

    @property
    def cluster_id(self) -> str:
        """The cluster id. Raises SourceRefused, KafkaError, ClientError, like all requests."""
        if self._cluster_id is None:
            self._retrying(lambda _broker: None)
        assert self._cluster_id is not None
        return self._cluster_id

    def bounds(self) -> CommittedBounds:
        """Return the bounds of the committed log."""
        return self._retrying(
            lambda broker: CommittedBounds(_list_offset(broker, EARLIEST), _list_offset(broker, LATEST))
        )

    def fetch(self, offset: int, max_bytes: int = FETCH_BYTES, *, max_wait_ms: int = 0) -> FetchedMetadata:
        """Return committed batches from `offset` on: at least one batch, and at most `max_bytes` beyond it.

        Waits up to `max_wait_ms` for the first record. Raises LogTrimmed.
        """
        return self._retrying(lambda broker: _fetch(broker, offset, max_bytes, max_wait_ms))

    def batch_at(self, offset: int) -> BatchHeader | None:
        """Return the header of the batch with `offset`; None if it is not committed. Raises LogTrimmed."""
        return next(iter(self.fetch(offset, 1).headers()), None)

    def check(self, position: MetadataPosition) -> None:
        """Check that the log has the record before `position` in its epoch. Raises SourceRefused for another log."""
        if position.offset == 0 or position.epoch < 0:
            return
        epoch, end = self._retrying(lambda broker: _epoch_end(broker, position.epoch))
        if epoch == position.epoch and end >= position.offset:
            return
        if self.bounds().start < position.offset:  # a deleted record will be replaced by a snapshot
            raise SourceRefused(
                f"the metadata log of cluster {self.cluster_id} does not have the records read before: offset"
                f" {position.offset - 1} had epoch {position.epoch}; the log was recreated or truncated since."
            )

    def snapshot_page(self, name: SnapshotName, at: int) -> FetchSnapshotResponsePartitionSnapshot:
        """Return bytes of a snapshot from position `at` on, with its size. Raises KafkaError SNAPSHOT_NOT_FOUND."""
        return self._retrying(lambda broker: _snapshot_page(broker, name, at))

    def snapshot(self, name: SnapshotName) -> Iterator[Buffer]:
        """Yield a whole snapshot page by page. Raises KafkaError SNAPSHOT_NOT_FOUND if it is deleted meanwhile."""
        at, size = 0, 1
        while at < size:
            page = self.snapshot_page(name, at)
            data, size = page.unaligned_records or b"", page.size
            if not data:
                raise KafkaError(
                    ErrorCode.POSITION_OUT_OF_RANGE, "a broker sent an empty page of the metadata snapshot."
                )
            yield data
            at += len(data)

    def _retrying(self, request: Callable[[Connection], T]) -> T:
        deadline = self._monotonic() + self._client.config.api_timeout_ms / 1000
        while True:
            try:
                return self._client.retrying(lambda: self._request(request))
            except ConnectionLost:
                if not self._is_patient or self._monotonic() >= deadline:
                    raise
            self._sleep(FIRST_CONTACT_BACKOFF_S)

    def _request(self, request: Callable[[Connection], T]) -> T:
        try:
            if self._broker is None:
                self._broker = self._serving_broker()
            return request(self._broker)
        except KafkaError as error:
            if error.code in TRANSIENT:
                self._broker = None
            raise
        except ConnectionLost:
            self._broker = None
            raise

    def _serving_broker(self) -> Connection:
        found = self._client.metadata([TOPIC])
        self._check_cluster(found)
        topic = found.topics[0]
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise SourceRefused(f"the brokers do not serve {TOPIC}; set ottla.cluster.metadata.readable=true on them.")
        raise_for(topic.error_code, f"topic {TOPIC!r}")
        partition = topic.partitions[0]
        if partition.leader_id < 0:
            raise_for(partition.error_code or ErrorCode.LEADER_NOT_AVAILABLE, f"{TOPIC}-{PARTITION}")
        self.contacts += 1
        return self._client.node(partition.leader_id)

    def _check_cluster(self, found: MetadataResponse) -> None:
        if self._cluster_id is None:
            self._cluster_id = found.cluster_id or ""
        elif found.cluster_id != self._cluster_id:
            raise SourceRefused(
                f"earlier records belong to cluster {self._cluster_id}, but the brokers belong to {found.cluster_id}."
            )


def _list_offset(broker: Connection, timestamp: int) -> int:
    topics = [ListOffsetsTopic(TOPIC, [ListOffsetsPartition(PARTITION, timestamp=timestamp)])]
    answer = broker.call(ListOffsetsRequest(CONSUMER, topics=topics), ListOffsetsResponse)
    found = answer.topics[0].partitions[0]
    raise_for(found.error_code, TOPIC)
    return found.offset


def _fetch(broker: Connection, offset: int, max_bytes: int, max_wait_ms: int) -> FetchedMetadata:
    partition = FetchPartition(PARTITION, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        session_epoch=NO_SESSION,
        topics=[FetchTopic(TOPIC, partitions=[partition])],
    )
    answer = broker.call(request, FetchResponse, highest=LAST_FETCH_WITH_NAMES)
    raise_for(answer.error_code, TOPIC)
    found = answer.responses[0].partitions[0]
    _raise_if_trimmed(found, offset)
    raise_for(found.error_code, TOPIC)
    return FetchedMetadata(memoryview(found.records or b""), found.high_watermark)


def _raise_if_trimmed(found: PartitionData, offset: int) -> None:
    if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and found.snapshot_id.end_offset > 0:
        raise LogTrimmed(offset, SnapshotName(found.snapshot_id.end_offset, found.snapshot_id.epoch))


def _epoch_end(broker: Connection, epoch: int) -> tuple[int, int]:
    """Return the largest epoch at or below, and its end offset; both -1 if there is none."""
    topics = [OffsetForLeaderTopic(TOPIC, [OffsetForLeaderPartition(PARTITION, leader_epoch=epoch)])]
    answer = broker.call(OffsetForLeaderEpochRequest(CONSUMER, topics), OffsetForLeaderEpochResponse)
    found = answer.topics[0].partitions[0]
    raise_for(found.error_code, TOPIC)
    return found.leader_epoch, found.end_offset


def _snapshot_page(broker: Connection, name: SnapshotName, at: int) -> FetchSnapshotResponsePartitionSnapshot:
    wanted = FetchSnapshotRequestSnapshotId(name.end, name.epoch)
    asked = FetchSnapshotRequestPartitionSnapshot(PARTITION, -1, wanted, at)
    request = FetchSnapshotRequest(max_bytes=PAGE_BYTES, topics=[FetchSnapshotRequestTopicSnapshot(TOPIC, [asked])])
    answer = broker.call(request, FetchSnapshotResponse)
    raise_for(answer.error_code, TOPIC)
    found = answer.topics[0].partitions[0]
    raise_for(found.error_code, f"the snapshot of {TOPIC} that ends at {name.end}")
    return found
