"""Offset queries of followers to their leader: ListOffsets and OffsetForLeaderEpoch, batched per loop iteration.

Thousands of replicas restart at once when a broker has lost its disk, and all of them send the same queries.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from broker.replication.epochs import UNKNOWN_EPOCH, EpochEnd
from broker.runtime.loop.waiters import Loop
from broker.runtime.replication.fetch_transport import LeaderConnection, Unanswered
from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


class QueriedPartition(Protocol):
    """The partition of a query."""

    @property
    def topic(self) -> str: ...

    @property
    def index(self) -> int: ...


class OffsetAnswer(NamedTuple):
    """`offset` and `epoch` are -1 where there is none."""

    code: int
    offset: int = -1
    epoch: LeaderEpoch = UNKNOWN_EPOCH


class EpochAnswer(NamedTuple):
    code: int
    end: EpochEnd = EpochEnd(UNKNOWN_EPOCH, -1)


OnOffset = Callable[[OffsetAnswer], None]
OnEpochEnd = Callable[[EpochAnswer], None]

_CLOSED: Final = Unanswered("the connection was closed")

A = TypeVar("A")


class _Query(NamedTuple, Generic[A]):
    """`subject` is the timestamp or the epoch."""

    leader_epoch: LeaderEpoch
    subject: int
    done: Callable[[A], None]


_Batch = dict[tuple[str, int], _Query[A]]
"""Queries by topic and index: a request must not name a partition twice."""


class LeaderOffsetQueries:
    """Queries to one leader on a separate connection, opened with the first query.

    Behind a waiting fetch on the same connection, a query would wait as well. Every query has one answer, in a later
    loop iteration.
    """

    def __init__(self, broker_id: int, loop: Loop, connect: Callable[[], LeaderConnection]) -> None:
        self._broker_id = broker_id
        self._loop = loop
        self._connect = connect
        self._connection: LeaderConnection | None = None
        self._offsets: list[_Batch[OffsetAnswer]] = []
        self._epoch_ends: list[_Batch[EpochAnswer]] = []
        self._is_due = False
        self._is_closed = False

    def query_offset(
        self, partition: QueriedPartition, leader_epoch: LeaderEpoch, timestamp: int, done: OnOffset
    ) -> None:
        """Query the offset of a special timestamp."""
        _put(self._offsets, partition, _Query(leader_epoch, timestamp, done))
        self._send_soon()

    def query_epoch_end(
        self, partition: QueriedPartition, leader_epoch: LeaderEpoch, epoch: LeaderEpoch, done: OnEpochEnd
    ) -> None:
        """Query the end of an epoch or of the greatest epoch below."""
        _put(self._epoch_ends, partition, _Query(leader_epoch, epoch, done))
        self._send_soon()

    def close(self) -> None:
        """Close the connection: open queries are answered with an error."""
        self._is_closed = True
        if self._connection is not None:
            self._connection.close()

    def _send_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        self._is_due = False
        offsets, self._offsets = self._offsets, []
        epoch_ends, self._epoch_ends = self._epoch_ends, []
        connection = self._open()
        for asked in offsets:
            if connection is None:
                self._on_offsets(asked, _CLOSED)
            else:
                connection.list_offsets(self._offsets_request(asked), partial(self._on_offsets, asked))
        for wanted in epoch_ends:
            if connection is None:
                self._on_epoch_ends(wanted, _CLOSED)
            else:
                connection.epoch_ends(self._epochs_request(wanted), partial(self._on_epoch_ends, wanted))

    def _open(self) -> LeaderConnection | None:
        if self._is_closed:
            return None
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _offsets_request(self, asked: _Batch[OffsetAnswer]) -> ListOffsetsRequest:
        topics: dict[str, ListOffsetsTopic] = {}
        for (name, index), query in asked.items():
            topic = topics.setdefault(name, ListOffsetsTopic(name))
            topic.partitions.append(ListOffsetsPartition(index, query.leader_epoch, query.subject))
        return ListOffsetsRequest(replica_id=self._broker_id, topics=list(topics.values()))

    def _epochs_request(self, asked: _Batch[EpochAnswer]) -> OffsetForLeaderEpochRequest:
        topics: dict[str, OffsetForLeaderTopic] = {}
        for (name, index), query in asked.items():
            topic = topics.setdefault(name, OffsetForLeaderTopic(name))
            topic.partitions.append(OffsetForLeaderPartition(index, query.leader_epoch, query.subject))
        return OffsetForLeaderEpochRequest(replica_id=self._broker_id, topics=list(topics.values()))

    def _on_offsets(self, asked: _Batch[OffsetAnswer], outcome: ListOffsetsResponse | Unanswered) -> None:
        found: dict[tuple[str, int], OffsetAnswer] = {}
        if not isinstance(outcome, Unanswered):
            for topic in outcome.topics:
                for each in topic.partitions:
                    answer = OffsetAnswer(each.error_code, each.offset, LeaderEpoch(each.leader_epoch))
                    found[topic.name, each.partition_index] = answer
        _answer_all(asked, found, OffsetAnswer(ErrorCode.NETWORK_EXCEPTION))

    def _on_epoch_ends(self, asked: _Batch[EpochAnswer], outcome: OffsetForLeaderEpochResponse | Unanswered) -> None:
        found: dict[tuple[str, int], EpochAnswer] = {}
        if not isinstance(outcome, Unanswered):
            for topic in outcome.topics:
                for each in topic.partitions:
                    end = EpochEnd(LeaderEpoch(each.leader_epoch), each.end_offset)
                    found[topic.topic, each.partition] = EpochAnswer(each.error_code, end)
        _answer_all(asked, found, EpochAnswer(ErrorCode.NETWORK_EXCEPTION))


def _answer_all(asked: _Batch[A], found: dict[tuple[str, int], A], nothing: A) -> None:
    for name, query in asked.items():
        query.done(found.get(name, nothing))


def _put(batches: list[_Batch[A]], partition: QueriedPartition, query: _Query[A]) -> None:
    """Add to the first request without that partition: a former leader epoch may have queried just now."""
    name = (partition.topic, partition.index)
    for batch in batches:
        if name not in batch:
            batch[name] = query
            return
    batches.append({name: query})
