"""Driver of transaction verification: sends the questions of partition leaders to transaction coordinators (KIP-890).

The coordinator of a transactional id leads the id's partition of `__transaction_state`. If that is this node, `own`
answers without a request (`own_verification.py`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final, Protocol

from broker.coordination.partitioner import partition_for
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.partition import PartitionRegistration
from broker.metrics.verification import VerificationFigures
from broker.net.peer import Done, Outcome, SocketAddress, VersionMismatch
from broker.runtime.coordinators.transaction_guards import TransactionGuards
from broker.runtime.loop.runtime import Runtime
from broker.transactions.verification import (
    TopicPartition,
    Verdict,
    Verification,
    VerificationMode,
    VerificationQueue,
)
from protocol.errors import ErrorCode
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages import Message
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse

TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
_VERSIONS: Final = (4, 5)
"""Versions of AddPartitionsToTxn between brokers."""

Errors = Mapping[TopicPartition, ErrorCode]


class Peers(Protocol):
    """Sends requests to other nodes; see `broker.net.peer.NetworkClient`."""

    def send(
        self,
        endpoint: SocketAddress,
        request: Message,
        done: Done,
        *,
        timeout_ms: float,
        versions: tuple[int, int] | None = None,
    ) -> None: ...


@lazy_dataclass(frozen=True, slots=True)
class VerifierSettings:
    """Limits in ms: `request.timeout.ms`, and `add.partitions.to.txn.retry.backoff.ms` with its `.max.ms`."""

    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int


class TransactionVerifier:
    """Asks coordinators on behalf of this node's partitions.

    `listener` names the listener between brokers; `settings` returns the current limits. `broker_id` is this node's,
    which `own` answers for.
    """

    def __init__(
        self,
        runtime: Runtime,
        peers: Peers,
        image: Callable[[], MetadataImage],
        listener: str,
        settings: Callable[[], VerifierSettings],
        broker_id: int | None = None,
    ) -> None:
        self.own: Callable[[Verification], Errors | Awaitable[Errors]] | None = None
        """The answer of this node's own coordinator, which sets this attribute when it is built."""
        self._broker_id = broker_id
        self._runtime = runtime
        self._peers = peers
        self._image = image
        self._listener = listener
        self._settings = settings
        self._queues: dict[SocketAddress, VerificationQueue] = {}
        self._awaited: dict[Verification, _Awaited] = {}
        self.figures = VerificationFigures()

    def verify(self, verification: Verification) -> "asyncio.Future[Errors]":
        """Ask the coordinator; the result holds the errors of partitions that are not in the transaction."""
        now_ms = self._runtime.clock.monotonic_ms()
        future: asyncio.Future[Errors] = self._runtime.loop.create_future()
        self._awaited[verification] = _Awaited(future, now_ms)
        self._ask(verification)
        return future

    def begin(self, guards: TransactionGuards, verification: Verification) -> Errors | Awaitable[Errors]:
        """Ask as `confirm` does; return the errors at once if this node's own coordinator knows them."""
        answer = self._answer(verification)
        if not isinstance(answer, Awaitable) and not _is_pending(verification, answer, guards):
            return answer
        return self._confirmed(guards, verification, answer)

    async def confirm(self, guards: TransactionGuards, verification: Verification) -> Errors:
        """Ask until the guards are confirmed, beginning with `verification`; return the errors by partition.

        While the coordinator ends the producer's former transaction, an addition is repeated for a moment: a retry of
        the client would send its records again. The former transaction's marker voids the guards, and the next
        question has new ones.
        """
        return await self._confirmed(guards, verification, self._answer(verification))

    async def _confirmed(
        self, guards: TransactionGuards, verification: Verification, answer: Errors | Awaitable[Errors]
    ) -> Errors:
        since_ms = self._runtime.clock.monotonic_ms()
        question: Verification | None = verification
        while question is not None:
            errors = await answer if isinstance(answer, Awaitable) else answer
            if not _is_pending(question, errors, guards):
                return errors
            if self._runtime.clock.monotonic_ms() - since_ms >= self._retry_limit_ms():
                return dict.fromkeys(question.partitions, ErrorCode.CONCURRENT_TRANSACTIONS)
            if ErrorCode.CONCURRENT_TRANSACTIONS in errors.values():
                await self._pause()
            question = guards.take()
            if question is not None:
                answer = self._answer(question)
        return {}

    def _answer(self, question: Verification) -> Errors | Awaitable[Errors]:
        if self.own is None or not self._is_own(question.transactional_id):
            return self.verify(question)
        since_ms = self._runtime.clock.monotonic_ms()
        answer = self.own(question)
        if isinstance(answer, Awaitable):
            return self._counted_later(answer, since_ms)
        self._count(answer, since_ms)
        return answer

    async def _counted_later(self, answer: Awaitable[Errors], since_ms: float) -> Errors:
        errors = await answer
        self._count(errors, since_ms)
        return errors

    def _count(self, errors: Errors, since_ms: float) -> None:
        self.figures.failures += len(errors)
        self.figures.verifications += 1
        self.figures.elapsed_ms += self._runtime.clock.monotonic_ms() - since_ms

    def _retry_limit_ms(self) -> int:
        settings = self._settings()
        return min(settings.retry_backoff_max_ms, settings.request_timeout_ms)

    def _pause(self) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = self._runtime.loop.create_future()

        def end() -> None:
            if not future.done():
                future.set_result(None)

        self._runtime.deadlines.after_ms(self._settings().retry_backoff_ms, end)
        return future

    def _ask(self, verification: Verification) -> None:
        endpoint = self._coordinator_of(verification.transactional_id)
        if endpoint is None:
            self._settle([verification.failed(ErrorCode.COORDINATOR_NOT_AVAILABLE)])
            return
        queue = self._queues.get(endpoint)
        if queue is None:
            queue = self._queues[endpoint] = VerificationQueue()
        self._settle(queue.add(verification))
        self._send(endpoint, queue)

    def _send(self, endpoint: SocketAddress, queue: VerificationQueue) -> None:
        request = queue.take_request()
        if request is not None:
            done = partial(self._on_outcome, endpoint, queue)
            timeout_ms = self._settings().request_timeout_ms
            self._peers.send(endpoint, request, done, timeout_ms=timeout_ms, versions=_VERSIONS)

    def _on_outcome(self, endpoint: SocketAddress, queue: VerificationQueue, outcome: Outcome) -> None:
        if isinstance(outcome, AddPartitionsToTxnResponse):
            verdicts = queue.on_response(outcome)
        elif isinstance(outcome, VersionMismatch):
            verdicts = queue.on_unsupported()
        else:
            verdicts = queue.on_failure(ErrorCode.NETWORK_EXCEPTION)
        self._settle(verdicts)
        self._send(endpoint, queue)
        if queue.is_empty:
            self._queues.pop(endpoint, None)

    def _settle(self, verdicts: Iterable[Verdict]) -> None:
        for verdict in verdicts:
            self._deliver(verdict)

    def _deliver(self, verdict: Verdict) -> None:
        awaited = self._awaited.pop(verdict.verification)
        self._count(verdict.errors, awaited.since_ms)
        if not awaited.future.done():  # the client is gone
            awaited.future.set_result(verdict.errors)

    def _is_own(self, transactional_id: str) -> bool:
        """Whether this node is the coordinator, and not fenced."""
        image = self._image()
        state = _state_partition(image, transactional_id)
        if state is None or state.leader != self._broker_id:
            return False
        broker = image.brokers.get(state.leader)
        return broker is not None and not broker.fenced

    def _coordinator_of(self, transactional_id: str) -> SocketAddress | None:
        """Return the address of the coordinator; None without a live leader."""
        image = self._image()
        state = _state_partition(image, transactional_id)
        broker = None if state is None else image.brokers.get(state.leader)
        if broker is None or broker.fenced or self._listener not in broker.endpoints:
            return None
        endpoint = broker.endpoints[self._listener]
        return SocketAddress(endpoint.host, endpoint.port)


def _state_partition(image: MetadataImage, transactional_id: str) -> PartitionRegistration | None:
    """Return the partition of `__transaction_state` that has the transactional id."""
    topic = image.topics.by_name(TRANSACTION_STATE_TOPIC)
    return None if topic is None else topic.partition(partition_for(transactional_id, topic.partition_count))


def _is_pending(question: Verification, errors: Errors, guards: TransactionGuards) -> bool:
    """Whether an addition must be asked for again: the former transaction ends, or its marker has voided the guards."""
    if question.mode is not VerificationMode.ADD:
        return False
    return ErrorCode.CONCURRENT_TRANSACTIONS in errors.values() or not (errors or guards.are_valid)


@lazy_dataclass(slots=True)
class _Awaited:
    """A question of a handler, since a monotonic time."""

    future: "asyncio.Future[Errors]"
    since_ms: float
