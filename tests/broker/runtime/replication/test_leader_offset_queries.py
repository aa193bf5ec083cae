"""Offset queries of followers, batched into requests (`leader_offset_queries.py`)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from broker.replication.epochs import EpochEnd
from broker.runtime.replication.fetch_transport import Unanswered
from broker.runtime.replication.leader_offset_queries import EpochAnswer, LeaderOffsetQueries, OffsetAnswer
from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch
from protocol.messages.fetch import FetchRequest
from protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tests.support.fakes.manual_loop import ManualLoop

BROKER_ID = 9


@dataclass(frozen=True)
class Subject:
    topic: str
    index: int


@dataclass
class Wire:
    """A LeaderConnection that keeps requests for the test to answer."""

    requests: list[tuple[Any, Callable[[Any], None]]] = field(default_factory=list)
    is_closed: bool = False

    def fetch(self, request: FetchRequest, done: Callable[[Any], None]) -> None:
        raise AssertionError("unexpected fetch")

    def list_offsets(self, request: ListOffsetsRequest, done: Callable[[Any], None]) -> None:
        self.requests.append((request, done))

    def epoch_ends(self, request: OffsetForLeaderEpochRequest, done: Callable[[Any], None]) -> None:
        self.requests.append((request, done))

    def close(self) -> None:
        self.is_closed = True
        for _, done in self.requests:
            done(Unanswered("closed"))


class Follower:
    """A follower with queries; `answers` are its answers in order."""

    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.wires: list[Wire] = []
        self.answers: list[tuple[str, OffsetAnswer | EpochAnswer]] = []
        self.questions = LeaderOffsetQueries(BROKER_ID, self.loop, self._connect)

    def _connect(self) -> Wire:
        self.wires.append(Wire())
        return self.wires[-1]

    def query_offset(self, topic: str, index: int, timestamp: int = -4, leader_epoch: int = 5) -> None:
        self.questions.query_offset(
            Subject(topic, index), LeaderEpoch(leader_epoch), timestamp, self._note(f"{topic}-{index}")
        )

    def query_epoch_end(self, topic: str, index: int, epoch: int, leader_epoch: int = 5) -> None:
        self.questions.query_epoch_end(
            Subject(topic, index), LeaderEpoch(leader_epoch), LeaderEpoch(epoch), self._note(f"{topic}-{index}")
        )

    def _note(self, name: str) -> Callable[[OffsetAnswer | EpochAnswer], None]:
        return lambda answer: self.answers.append((name, answer))

    def run(self) -> list[Any]:
        """Return the requests that were sent."""
        self.loop.run_soon()
        return [request for wire in self.wires for request, _ in wire.requests]


@pytest.fixture
def follower() -> Follower:
    return Follower()


def offsets(topic: str, *answers: ListOffsetsPartitionResponse) -> ListOffsetsResponse:
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(topic, list(answers))])


def test_connection_opens_with_the_first_query(follower: Follower) -> None:
    assert follower.run() == []
    assert follower.wires == []


def test_offset_queries_of_one_iteration_share_a_request(follower: Follower) -> None:
    follower.query_offset("t", 0)
    follower.query_offset("u", 0, timestamp=-6)
    follower.query_offset("t", 1, leader_epoch=7)
    (request,) = follower.run()
    assert request.replica_id == BROKER_ID
    assert [
        (t.name, p.partition_index, p.current_leader_epoch, p.timestamp) for t in request.topics for p in t.partitions
    ] == [
        ("t", 0, 5, -4),
        ("t", 1, 7, -4),
        ("u", 0, 5, -6),
    ]


def test_epoch_end_queries_of_one_iteration_share_a_request(follower: Follower) -> None:
    follower.query_epoch_end("t", 0, 3)
    follower.query_epoch_end("t", 1, 4, leader_epoch=7)
    (request,) = follower.run()
    assert request.replica_id == BROKER_ID
    ((first, second),) = (topic.partitions for topic in request.topics)
    assert (first.partition, first.current_leader_epoch, first.leader_epoch) == (0, 5, 3)
    assert (second.partition, second.current_leader_epoch, second.leader_epoch) == (1, 7, 4)


def test_request_names_a_partition_once(follower: Follower) -> None:
    follower.query_offset("t", 0, leader_epoch=5)
    follower.query_offset("t", 0, leader_epoch=6)
    first, second = follower.run()
    assert [request.topics[0].partitions[0].current_leader_epoch for request in (first, second)] == [5, 6]


def test_each_query_gets_its_own_answer(follower: Follower) -> None:
    follower.query_offset("t", 0)
    follower.query_offset("t", 1)
    follower.query_epoch_end("t", 0, 3)
    follower.run()
    (_, on_offsets), (_, on_epochs) = follower.wires[0].requests
    on_offsets(
        offsets(
            "t",
            ListOffsetsPartitionResponse(1, ErrorCode.FENCED_LEADER_EPOCH),
            ListOffsetsPartitionResponse(0, offset=8, leader_epoch=2),
        )
    )
    on_epochs(OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult("t", [EpochEndOffset(0, 0, 2, 40)])]))
    assert follower.answers == [
        ("t-0", OffsetAnswer(0, 8, LeaderEpoch(2))),
        ("t-1", OffsetAnswer(ErrorCode.FENCED_LEADER_EPOCH, -1, LeaderEpoch(-1))),
        ("t-0", EpochAnswer(0, EpochEnd(LeaderEpoch(2), 40))),
    ]


def test_query_missing_from_the_response_fails(follower: Follower) -> None:
    follower.query_offset("t", 0)
    follower.query_epoch_end("t", 0, 3)
    follower.run()
    (_, on_offsets), (_, on_epochs) = follower.wires[0].requests
    on_offsets(ListOffsetsResponse())
    on_epochs(Unanswered("lost"))
    assert [answer.code for _, answer in follower.answers] == [ErrorCode.NETWORK_EXCEPTION] * 2


def test_connection_is_reused(follower: Follower) -> None:
    for index in range(3):
        follower.query_offset("t", index)
        follower.run()
    assert len(follower.wires) == 1
    assert len(follower.wires[0].requests) == 3


def test_closing_fails_open_queries(follower: Follower) -> None:
    follower.query_offset("t", 0)
    follower.run()
    follower.query_offset("t", 1)
    follower.query_epoch_end("t", 1, 3)
    follower.questions.close()
    follower.run()
    assert follower.wires[0].is_closed
    assert [(name, answer.code) for name, answer in follower.answers] == [
        ("t-0", ErrorCode.NETWORK_EXCEPTION),
        ("t-1", ErrorCode.NETWORK_EXCEPTION),
        ("t-1", ErrorCode.NETWORK_EXCEPTION),
    ]


def test_closed_queries_open_no_connection(follower: Follower) -> None:
    follower.questions.close()
    follower.query_offset("t", 0)
    follower.run()
    assert follower.wires == []
    assert len(follower.answers) == 1
