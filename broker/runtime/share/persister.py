"""Driver of share states: reads and writes them at the share coordinators of share partitions (KIP-932).

The requests of one group to one coordinator share a queue: one request is in flight, and carries all share partitions
that waited for it. A share partition has one request at a time, so its writes arrive in their order. A node asks itself
over the network like any other node, as Kafka does.
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from typing import Final, NamedTuple

from broker.coordination.partitioner import partition_for
from broker.coordination.share_partition_key import SharePartitionKey
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topic_names import SHARE_STATE_TOPIC
from broker.net.peer import Outcome, SocketAddress, VersionMismatch
from broker.runtime.coordinators.transaction_verifier import Peers
from broker.runtime.loop.runtime import Runtime
from broker.share.partition import StateWrite
from broker.share.state_requests import (
    RETRIED,
    Answers,
    StateAnswer,
    failed_answers,
    read_answers,
    read_request,
    write_answers,
    write_request,
)
from protocol.errors import ErrorCode
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages import Message
from protocol.messages.read_share_group_state import ReadShareGroupStateResponse
from protocol.messages.write_share_group_state import WriteShareGroupStateResponse

_FIRST_PAUSE_MS: Final = 100
_LONGEST_PAUSE_MS: Final = 1_000
_PATIENCE_MS: Final = 15_000
"""Time after which an unreachable coordinator is an error; about that of Kafka's five attempts."""

AnswerTaker = Callable[[StateAnswer], None]


@lazy_dataclass(slots=True, eq=False)
class _Question:
    """A read (a leader epoch) or a write, asked since a monotonic time."""

    key: SharePartitionKey
    content: int | StateWrite
    done: AnswerTaker
    since_ms: float
    pause_ms: int = _FIRST_PAUSE_MS


class _LaneKey(NamedTuple):
    """Requests of one kind from one group to one coordinator."""

    endpoint: SocketAddress
    group_id: str
    is_write: bool


@lazy_dataclass(slots=True, eq=False)
class _Lane:
    """The questions that wait for the request in flight."""

    waiting: list[_Question] = field(default_factory=list)
    is_busy: bool = False


class SharePersister:
    """Asks share coordinators. `image` returns the latest metadata, `listener` is that of requests between brokers."""

    def __init__(
        self,
        runtime: Runtime,
        peers: Peers,
        image: Callable[[], MetadataImage],
        listener: str,
        timeout_ms: Callable[[], int],
    ) -> None:
        self._runtime = runtime
        self._peers = peers
        self._image = image
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._lanes: dict[_LaneKey, _Lane] = {}

    def read(self, key: SharePartitionKey, leader_epoch: int, done: AnswerTaker) -> None:
        """Read a share partition's state as the leader of an epoch; `done` is called in a later turn of the loop."""
        self._ask(_Question(key, leader_epoch, done, self._runtime.clock.monotonic_ms()))

    def write(self, key: SharePartitionKey, write: StateWrite, done: AnswerTaker) -> None:
        """Write a share partition's state; `done` is called in a later turn of the loop."""
        self._ask(_Question(key, write, done, self._runtime.clock.monotonic_ms()))

    def _ask(self, question: _Question) -> None:
        endpoint = self._coordinator_of(question.key)
        if endpoint is None:
            answer = StateAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self._runtime.loop.call_soon(partial(self._settle, question, answer))
            return
        lane_key = _LaneKey(endpoint, question.key.group_id, isinstance(question.content, StateWrite))
        lane = self._lanes.get(lane_key)
        if lane is None:
            lane = self._lanes[lane_key] = _Lane()
            self._runtime.loop.call_soon(partial(self._send, lane_key, lane))  # with what else this turn asks for
        lane.waiting.append(question)

    def _send(self, lane_key: _LaneKey, lane: _Lane) -> None:
        if lane.is_busy:
            return
        if not lane.waiting:
            self._lanes.pop(lane_key, None)
            return
        asked: dict[SharePartitionKey, _Question] = {}
        later = [question for question in lane.waiting if asked.setdefault(question.key, question) is not question]
        lane.waiting, lane.is_busy = later, True
        request = _request(lane_key.group_id, asked)
        done = partial(self._on_outcome, lane_key, lane, asked)
        self._peers.send(lane_key.endpoint, request, done, timeout_ms=self._timeout_ms())

    def _on_outcome(
        self, lane_key: _LaneKey, lane: _Lane, asked: Mapping[SharePartitionKey, _Question], outcome: Outcome
    ) -> None:
        lane.is_busy = False
        answers = _answers(lane_key.group_id, asked, outcome)
        unanswered = StateAnswer(ErrorCode.UNKNOWN_SERVER_ERROR)
        for key, question in asked.items():
            self._settle(question, answers.get(key, unanswered))
        self._send(lane_key, lane)

    def _settle(self, question: _Question, answer: StateAnswer) -> None:
        """Deliver an answer, or ask again after an error that may pass."""
        waited_ms = self._runtime.clock.monotonic_ms() - question.since_ms
        if answer.error not in RETRIED or waited_ms >= _PATIENCE_MS:
            question.done(answer)
            return
        self._runtime.deadlines.after_ms(question.pause_ms, partial(self._ask, question))
        question.pause_ms = min(2 * question.pause_ms, _LONGEST_PAUSE_MS)

    def _coordinator_of(self, key: SharePartitionKey) -> SocketAddress | None:
        """Return the address of the coordinator; None without a live leader."""
        image = self._image()
        topic = image.topics.by_name(SHARE_STATE_TOPIC)
        if topic is None:
            return None
        state = topic.partition(partition_for(key.coordinator_key, topic.partition_count))
        broker = None if state is None else image.brokers.get(state.leader)
        if broker is None or broker.fenced or self._listener not in broker.endpoints:
            return None
        endpoint = broker.endpoints[self._listener]
        return SocketAddress(endpoint.host, endpoint.port)


def _request(group_id: str, asked: Mapping[SharePartitionKey, _Question]) -> Message:
    writes = {key: each.content for key, each in asked.items() if isinstance(each.content, StateWrite)}
    if writes:
        return write_request(group_id, writes)
    return read_request(group_id, {key: each.content for key, each in asked.items() if isinstance(each.content, int)})


def _answers(group_id: str, asked: Mapping[SharePartitionKey, _Question], outcome: Outcome) -> Answers:
    if isinstance(outcome, ReadShareGroupStateResponse):
        return read_answers(group_id, outcome)
    if isinstance(outcome, WriteShareGroupStateResponse):
        return write_answers(group_id, outcome)
    is_old = isinstance(outcome, VersionMismatch)
    return failed_answers(asked, ErrorCode.COORDINATOR_NOT_AVAILABLE if is_old else ErrorCode.NETWORK_EXCEPTION)
