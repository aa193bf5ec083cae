"""Requests to the leaders of `__remote_log_metadata`: fetches, offset look-ups, and produce.

Each broker has three connections, since a long poll delays the requests behind it: one for long polls, one for fetches
that catch up and for offset look-ups, and one for records. The reader and the publisher decide what to request.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from broker.clock import Clock
from broker.net.peer import Connect, NetworkClient, Outcome, PeerError, PeerSettings, PeerUnavailable, SocketAddress
from broker.net.peer_connection import PeerLoop
from broker.runtime.controller.metadata_cache import ImageSource
from broker.runtime.remote_metadata.settings import TOPIC, RemoteMetadataSettings
from broker.runtime.replication.fetch_transport import (
    FETCH_VERSIONS,
    FRAME_SLACK_BYTES,
    LIST_OFFSETS_VERSIONS,
    Unanswered,
)
from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch
from protocol.messages import Message
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.primitives import Buffer, Uuid
from protocol.records.batch import NO_LEADER_EPOCH
from protocol.records.builder import build_value_batch

EARLIEST: Final = -2
LATEST: Final = -1
ACKS_ALL: Final = -1
_PRODUCE_VERSIONS: Final = (9, 12)
"""Versions with topic names and error messages."""


class MetadataReadPosition(NamedTuple):
    """A position to read from, with the epochs of the leader and of the last record read; -1 if none was read."""

    partition: int
    leader_epoch: LeaderEpoch
    offset: int
    last_epoch: LeaderEpoch


class MetadataReadResult(NamedTuple):
    """Whole batches up to the high watermark; `has_diverged` if the last record read is not in the log."""

    partition: int
    error: int = ErrorCode.NONE
    records: Buffer = b""
    has_diverged: bool = False


class MetadataOffsetRequest(NamedTuple):
    """A request for the start (EARLIEST) or the high watermark (LATEST) of a partition."""

    partition: int
    leader_epoch: LeaderEpoch
    which: int


class MetadataOffsetResult(NamedTuple):
    """The offset for a MetadataOffsetRequest, or an error code."""

    partition: int
    error: int
    offset: int


ReadDone: TypeAlias = Callable[[Sequence[MetadataReadResult] | Unanswered], None]
OffsetsDone: TypeAlias = Callable[[Sequence[MetadataOffsetResult] | Unanswered], None]
AppendDone: TypeAlias = Callable[[int | Unanswered], None]


class MetadataTopicClient(Protocol):
    """Calls each `done` once, in a later turn of the loop. Results omit partitions that a response omits."""

    def read(self, leader: int, positions: Sequence[MetadataReadPosition], *, waits: bool, done: ReadDone) -> None:
        """Fetch; with `waits`, wait for new records up to `fetch.max.wait.ms`."""
        ...

    def offsets(self, leader: int, questions: Sequence[MetadataOffsetRequest], done: OffsetsDone) -> None: ...

    def append(self, leader: int, partition: int, values: Sequence[bytes], done: AppendDone) -> None:
        """Produce one batch with acks=all; `done` gets the error code, or Unanswered if the outcome is unknown."""
        ...

    def close(self) -> None: ...


class NetworkMetadataClient:
    """Implements MetadataTopicClient over TCP. `listener` is the listener of the brokers to connect to."""

    def __init__(
        self,
        broker_id: int,
        metadata: ImageSource,
        settings: RemoteMetadataSettings,
        clock: Clock,
        loop: PeerLoop,
        connect: Connect,
        *,
        listener: str,
    ) -> None:
        self._metadata = metadata
        self._settings = settings
        self._clock = clock
        self._loop = loop
        self._listener = listener
        limits = PeerSettings(frame_bytes_max=min(settings.fetch_max_bytes + FRAME_SLACK_BYTES, 2**31 - 1))

        def peers(role: str) -> NetworkClient:
            return NetworkClient(loop, connect, client_id=f"{TOPIC}_client_{broker_id}_{role}", settings=limits)

        self._waiting, self._loading, self._writing = peers("consumer"), peers("loader"), peers("producer")

    def read(self, leader: int, positions: Sequence[MetadataReadPosition], *, waits: bool, done: ReadDone) -> None:
        wait_ms = self._settings.fetch_max_wait_ms if waits else 0
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=self._settings.fetch_max_bytes,
            topics=[FetchTopic(topic_id=self._topic_id(), partitions=[self._position(one) for one in positions])],
        )
        self._send(
            self._waiting if waits else self._loading,
            leader,
            request,
            FETCH_VERSIONS,
            lambda outcome: done(_read_results(outcome)),
            timeout_ms=self._settings.request_timeout_ms + wait_ms,
        )

    def offsets(self, leader: int, questions: Sequence[MetadataOffsetRequest], done: OffsetsDone) -> None:
        asked = [ListOffsetsPartition(one.partition, one.leader_epoch, one.which) for one in questions]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(TOPIC, asked)])
        self._send(
            self._loading, leader, request, LIST_OFFSETS_VERSIONS, lambda outcome: done(_offset_results(outcome))
        )

    def append(self, leader: int, partition: int, values: Sequence[bytes], done: AppendDone) -> None:
        batch = build_value_batch(values, self._clock.now_ms(), base_offset=0, leader_epoch=NO_LEADER_EPOCH)
        data = TopicProduceData(TOPIC, partition_data=[PartitionProduceData(partition, batch)])
        request = ProduceRequest(acks=ACKS_ALL, timeout_ms=self._settings.request_timeout_ms, topic_data=[data])
        self._send(self._writing, leader, request, _PRODUCE_VERSIONS, lambda outcome: done(_append_result(outcome)))

    def close(self) -> None:
        for peers in (self._waiting, self._loading, self._writing):
            peers.close()

    def _topic_id(self) -> Uuid:
        topic = self._metadata.image.topics.by_name(TOPIC)
        assert topic is not None, "requests are sent only if the topic exists"
        return topic.id

    def _position(self, position: MetadataReadPosition) -> FetchPartition:
        return FetchPartition(
            partition=position.partition,
            current_leader_epoch=position.leader_epoch,
            fetch_offset=position.offset,
            last_fetched_epoch=position.last_epoch,
            partition_max_bytes=self._settings.max_partition_fetch_bytes,
        )

    def _send(
        self,
        peers: NetworkClient,
        leader: int,
        request: Message,
        versions: tuple[int, int],
        done: Callable[[Outcome], None],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        broker = self._metadata.image.brokers.get(leader)
        found = None if broker is None else broker.endpoints.get(self._listener)
        if found is None:
            missing = PeerUnavailable(f"broker {leader} has no listener {self._listener}")
            self._loop.call_soon(lambda: done(missing))
            return
        endpoint = SocketAddress(found.host, found.port)
        limit_ms = self._settings.request_timeout_ms if timeout_ms is None else timeout_ms
        peers.send(endpoint, request, done, timeout_ms=limit_ms, versions=versions)


def error_name(code: int) -> str:
    """Return the name of an error code, or the number if it is unknown."""
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)


def _read_results(outcome: Outcome) -> Sequence[MetadataReadResult] | Unanswered:
    if isinstance(outcome, PeerError):
        return Unanswered(str(outcome))
    assert isinstance(outcome, FetchResponse)
    if outcome.error_code:
        return Unanswered(f"a fetch was refused ({error_name(outcome.error_code)})")
    return [
        MetadataReadResult(one.partition_index, one.error_code, one.records or b"", one.diverging_epoch.end_offset >= 0)
        for topic in outcome.responses
        for one in topic.partitions
    ]


def _offset_results(outcome: Outcome) -> Sequence[MetadataOffsetResult] | Unanswered:
    if isinstance(outcome, PeerError):
        return Unanswered(str(outcome))
    assert isinstance(outcome, ListOffsetsResponse)
    return [
        MetadataOffsetResult(one.partition_index, one.error_code, one.offset)
        for topic in outcome.topics
        for one in topic.partitions
    ]


def _append_result(outcome: Outcome) -> int | Unanswered:
    if isinstance(outcome, PeerError):
        return Unanswered(str(outcome))
    assert isinstance(outcome, ProduceResponse)
    for topic in outcome.responses:
        for one in topic.partition_responses:
            return one.error_code
    return Unanswered("the response names no partition")
