"""The transport of ISR proposals to the controller and of its answers to the partitions (AlterPartition).

`broker.replication.isr_changes` holds the rules. One request is under way at a time; the proposals of one loop
iteration go together. A failed request is repeated after 50 ms, without limit: a leader that cannot reach the
controller keeps its ISR and waits.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from itertools import groupby
from typing import Final, Protocol

from broker.logs import EventLog
from broker.replication.isr import IsrProposal
from broker.replication.isr_changes import IsrAnswer, IsrChanges, Outcome, PartitionKey, Retried
from broker.runtime.controller.broker_lifecycle import RegisteredBroker
from broker.runtime.controller.controller_router import ControllerUnavailable
from broker.runtime.loop.waiters import Loop
from broker.runtime.partitions.partition_services import IsrProposer
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerId, LeaderEpoch
from protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from protocol.primitives import Uuid

RETRY_MS: Final = 50

_log: Final = EventLog("broker.isr")


class AlterPartitionChannel(Protocol):
    """The channel to the active controller. Raises KafkaError, ControllerUnavailable."""

    def alter_partitions(self, request: AlterPartitionRequest) -> Awaitable[AlterPartitionResponse]: ...


class AlterPartitionManager:
    """The proposals of this broker."""

    def __init__(
        self, broker_id: BrokerId, channel: AlterPartitionChannel, broker: RegisteredBroker, loop: Loop
    ) -> None:
        self._broker_id = broker_id
        self._channel = channel
        self._broker = broker
        self._loop = loop
        self._changes = IsrChanges()
        self._proposers: dict[PartitionKey, IsrProposer] = {}
        self._next_send: asyncio.Handle | None = None
        self._sending: asyncio.Future[AlterPartitionResponse] | None = None
        self._is_closed = False

    @property
    def pending_count(self) -> int:
        """The number of proposals without an answer."""
        return len(self._changes)

    def propose(self, proposer: IsrProposer, proposal: IsrProposal) -> None:
        """Send a proposal; the proposer gets the outcome unless it withdraws."""
        key = _key(proposer)
        self._proposers[key] = proposer
        self._changes.submit(key, proposal)
        self._send_soon()

    def withdraw(self, proposer: IsrProposer) -> None:
        """Drop a proposal: the partition's role has changed, or the partition is gone."""
        key = _key(proposer)
        self._changes.withdraw(key)
        self._proposers.pop(key, None)

    def close(self) -> None:
        """Stop sending proposals."""
        self._is_closed = True
        if self._next_send is not None:
            self._next_send.cancel()
        if self._sending is not None:
            self._sending.cancel()

    def _send_soon(self) -> None:
        if self._next_send is None and self._sending is None and not self._is_closed:
            self._next_send = self._loop.call_soon(self._send)

    def _send_later(self) -> None:
        if not self._is_closed:
            self._next_send = self._loop.call_at(self._loop.time() + RETRY_MS / 1000, self._send)

    def _send(self) -> None:
        self._next_send = None
        changes = self._changes.next_request()
        if changes is None:
            return
        request = AlterPartitionRequest(self._broker_id, self._broker.epoch, _topics(changes))
        try:
            self._sending = asyncio.ensure_future(self._channel.alter_partitions(request))
        except KafkaError as error:
            self._fail(error)
        else:
            self._sending.add_done_callback(self._on_answer)

    def _on_answer(self, done: "asyncio.Future[AlterPartitionResponse]") -> None:
        self._sending = None
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, KafkaError | ControllerUnavailable):
            self._fail(error)
        elif error is not None:
            raise error
        else:
            self._on_response(done.result())

    def _fail(self, error: KafkaError | ControllerUnavailable) -> None:
        self._changes.on_failure()
        self._send_later()
        _log.info("retrying ISR proposals", reason=str(error), in_ms=RETRY_MS, count=len(self._changes))

    def _on_response(self, response: AlterPartitionResponse) -> None:
        answers = {
            (topic.topic_id, answer.partition_index): _answer(answer)
            for topic in response.topics
            for answer in topic.partitions
        }
        outcomes = self._changes.on_response(answers)
        if any(isinstance(outcome, Retried) for _, outcome in outcomes):
            self._send_later()
        elif len(self._changes):
            self._send_soon()
        for key, outcome in outcomes:
            self._report(key, outcome)

    def _report(self, key: PartitionKey, outcome: Outcome) -> None:
        proposer = self._proposers[key] if isinstance(outcome, Retried) else self._proposers.pop(key)
        proposer.on_isr_outcome(outcome)


def _key(proposer: IsrProposer) -> PartitionKey:
    return proposer.topic_id, proposer.index


def _topics(changes: Iterable[tuple[PartitionKey, IsrProposal]]) -> list[AlterPartitionRequestTopicData]:
    def topic_of(change: tuple[PartitionKey, IsrProposal]) -> Uuid:
        return change[0][0]

    return [
        AlterPartitionRequestTopicData(topic_id, [_partition(key[1], proposal) for key, proposal in of_topic])
        for topic_id, of_topic in groupby(sorted(changes, key=topic_of), key=topic_of)
    ]


def _partition(index: int, proposal: IsrProposal) -> AlterPartitionRequestPartitionData:
    """Build the request's entry. An unclean leader counts as recovered at once: recovery from an unclean election does
    not exist yet."""
    return AlterPartitionRequestPartitionData(
        partition_index=index,
        leader_epoch=proposal.leader_epoch,
        new_isr_with_epochs=[BrokerState(broker_id, epoch) for broker_id, epoch in proposal.members],
        partition_epoch=proposal.partition_epoch,
    )


def _answer(answer: AlterPartitionResponsePartitionData) -> IsrAnswer:
    known = answer.error_code in ErrorCode._value2member_map_
    error = ErrorCode(answer.error_code) if known else ErrorCode.UNKNOWN_SERVER_ERROR
    return IsrAnswer(error, LeaderEpoch(answer.leader_epoch), answer.partition_epoch, frozenset(answer.isr))
