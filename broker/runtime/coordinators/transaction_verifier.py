"""Driver of transaction verification: sends the questions of partition leaders to transaction coordinators (KIP-890).

The coordinator of a transactional id leads the id's partition of `__transaction_state`, and may be this node. A node
asks itself over the network like any other node, as Kafka does.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from broker.coordination.partitioner import partition_for
from broker.metadata.image.metadata_image import MetadataImage
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


@dataclass(frozen=True, slots=True)
class VerifierSettings:
    """Limits in ms: `request.timeout.ms`, and `add.partitions.to.txn.retry.backoff.ms` with its `.max.ms`."""

    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int


class TransactionVerifier:
    """Asks coordinators on behalf of this node's partitions.

    `listener` names the listener between brokers; `settings` returns the current limits.
    """

    def __init__(
        self,
        runtime: Runtime,
        peers: Peers,
        image: Callable[[], MetadataImage],
        listener: str,
        settings: Callable[[], VerifierSettings],
    ) -> None:
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

    async def confirm(self, guards: TransactionGuards, verification: Verification) -> Errors:
        """Ask until the guards are confirmed, beginning with `verification`; return the errors by partition.

        While the coordinator ends the producer's former transaction, an addition is repeated for a moment: a retry of
        the client would send its records again. The former transaction's marker voids the guards, and the next
        question has new ones.
        """
        since_ms = self._runtime.clock.monotonic_ms()
        question: Verification | None = verification
        while question is not None:
            errors = await self.verify(question)
            is_busy = ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
            if question.mode is not VerificationMode.ADD or (not is_busy and (errors or guards.are_valid)):
                return errors
            if self._runtime.clock.monotonic_ms() - since_ms >= self._retry_limit_ms():
                return dict.fromkeys(question.partitions, ErrorCode.CONCURRENT_TRANSACTIONS)
            if is_busy:
                await self._pause()
            question = guards.take()
        return {}

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
        self.figures.failures += len(verdict.errors)
        self.figures.verifications += 1
        self.figures.elapsed_ms += self._runtime.clock.monotonic_ms() - awaited.since_ms
        if not awaited.future.done():  # the client is gone
            awaited.future.set_result(verdict.errors)

    def _coordinator_of(self, transactional_id: str) -> SocketAddress | None:
        """Return the address of the coordinator; None without a live leader."""
        image = self._image()
        topic = image.topics.by_name(TRANSACTION_STATE_TOPIC)
        if topic is None:
            return None
        state = topic.partition(partition_for(transactional_id, topic.partition_count))
        broker = None if state is None else image.brokers.get(state.leader)
        if broker is None or broker.fenced or self._listener not in broker.endpoints:
            return None
        endpoint = broker.endpoints[self._listener]
        return SocketAddress(endpoint.host, endpoint.port)


@dataclass(slots=True)
class _Awaited:
    """A question of a handler, since a monotonic time."""

    future: "asyncio.Future[Errors]"
    since_ms: float
