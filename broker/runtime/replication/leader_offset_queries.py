"""What followers ask their leader about single replicas: offsets, ends of epochs. All of one turn share a request.

Thousands of replicas begin anew at once when a broker lost its disk, and all of them ask the same things.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from broker.replication.epochs import EpochEnd
from broker.runtime.loop.waiters import Loop
from broker.runtime.replication.fetch_transport import LeaderConnection, Unanswered
from protocol.errors import ErrorCode
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


class Subject(Protocol):
    """Whom a question is about, and in whose reign."""

    @property
    def topic(self) -> str: ...

    @property
    def index(self) -> int: ...


class OffsetAnswer(NamedTuple):
    """`offset` and `epoch` are -1 where there is none."""

    code: int
    offset: int = -1
    epoch: int = -1


class EpochAnswer(NamedTuple):
    code: int
    end: EpochEnd = EpochEnd(-1, -1)


OnOffset = Callable[[OffsetAnswer], None]
OnEpochEnd = Callable[[EpochAnswer], None]

_CLOSED: Final = Unanswered("the connection was closed")

A = TypeVar("A")


class _Question(NamedTuple, Generic[A]):
    """`about` is the timestamp or the epoch that is asked for."""

    leader_epoch: int
    about: int
    done: Callable[[A], None]


_Batch = dict[tuple[str, int], _Question[A]]
"""By topic and index: a request may not name a partition twice."""


class LeaderOffsetQueries:
    """Questions to one leader, on a connection of their own, which is opened for the first: behind a waiting fetch they
    would wait too. Every question has one answer, in a later turn.
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

    def ask_offset(self, subject: Subject, leader_epoch: int, timestamp: int, done: OnOffset) -> None:
        """Which offset a special timestamp stands for."""
        _put(self._offsets, subject, _Question(leader_epoch, timestamp, done))
        self._ask_soon()

    def ask_epoch_end(self, subject: Subject, leader_epoch: int, epoch: int, done: OnEpochEnd) -> None:
        """Where an epoch, or the greatest below it, ends."""
        _put(self._epoch_ends, subject, _Question(leader_epoch, epoch, done))
        self._ask_soon()

    def close(self) -> None:
        """Hang up: what is not answered is answered with an error."""
        self._is_closed = True
        if self._connection is not None:
            self._connection.close()

    def _ask_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._ask)

    def _ask(self) -> None:
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
        for (name, index), question in asked.items():
            topic = topics.setdefault(name, ListOffsetsTopic(name))
            topic.partitions.append(ListOffsetsPartition(index, question.leader_epoch, question.about))
        return ListOffsetsRequest(replica_id=self._broker_id, topics=list(topics.values()))

    def _epochs_request(self, asked: _Batch[EpochAnswer]) -> OffsetForLeaderEpochRequest:
        topics: dict[str, OffsetForLeaderTopic] = {}
        for (name, index), question in asked.items():
            topic = topics.setdefault(name, OffsetForLeaderTopic(name))
            topic.partitions.append(OffsetForLeaderPartition(index, question.leader_epoch, question.about))
        return OffsetForLeaderEpochRequest(replica_id=self._broker_id, topics=list(topics.values()))

    def _on_offsets(self, asked: _Batch[OffsetAnswer], outcome: ListOffsetsResponse | Unanswered) -> None:
        found: dict[tuple[str, int], OffsetAnswer] = {}
        if not isinstance(outcome, Unanswered):
            for topic in outcome.topics:
                for each in topic.partitions:
                    answer = OffsetAnswer(each.error_code, each.offset, each.leader_epoch)
                    found[topic.name, each.partition_index] = answer
        _tell(asked, found, OffsetAnswer(ErrorCode.NETWORK_EXCEPTION))

    def _on_epoch_ends(self, asked: _Batch[EpochAnswer], outcome: OffsetForLeaderEpochResponse | Unanswered) -> None:
        found: dict[tuple[str, int], EpochAnswer] = {}
        if not isinstance(outcome, Unanswered):
            for topic in outcome.topics:
                for each in topic.partitions:
                    end = EpochEnd(each.leader_epoch, each.end_offset)
                    found[topic.topic, each.partition] = EpochAnswer(each.error_code, end)
        _tell(asked, found, EpochAnswer(ErrorCode.NETWORK_EXCEPTION))


def _tell(asked: _Batch[A], found: dict[tuple[str, int], A], nothing: A) -> None:
    for name, question in asked.items():
        question.done(found.get(name, nothing))


def _put(batches: list[_Batch[A]], subject: Subject, question: _Question[A]) -> None:
    """Into the first request that does not name the partition yet: a former reign of it may have asked just now."""
    name = (subject.topic, subject.index)
    for batch in batches:
        if name not in batch:
            batch[name] = question
            return
    batches.append({name: question})
