"""The producer id and epoch of a new producer session (InitProducerId; KIP-98, KIP-360)."""

from dataclasses import replace
from typing import NamedTuple

from broker.transactions.config import TransactionConfig
from broker.transactions.state import (
    EXHAUSTED_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NOT_STARTED_MS,
    TWO_PHASE_TIMEOUT_MS,
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
)
from protocol.errors import ErrorCode, KafkaError


class ProducerIdNeeded(Exception):
    """A decision needs a producer id that was never allocated before: allocate one, and decide again."""


class InitRequest(NamedTuple):
    """`known` is the producer id and epoch that the producer has, None for a new producer.

    `is_two_phase` asks for transactions without timeout, whose outcome another coordinator decides; `keeps_prepared`
    asks to leave a prepared transaction open (KIP-939).
    """

    timeout_ms: int
    known: ProducerIdAndEpoch | None
    is_two_phase: bool = False
    keeps_prepared: bool = False


def checked_request(request: InitRequest, config: TransactionConfig) -> InitRequest:
    """Return the request with the timeout of its transactions: a two-phase commit has none.

    Raises KafkaError: TRANSACTIONAL_ID_AUTHORIZATION_FAILED for a two-phase commit where the configuration has none,
    UNSUPPORTED_VERSION to keep a prepared transaction, as Kafka 4.2, and INVALID_TRANSACTION_TIMEOUT.
    """
    if request.is_two_phase and not config.transaction_two_phase_commit_enable:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.keeps_prepared:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if request.is_two_phase:
        return request._replace(timeout_ms=TWO_PHASE_TIMEOUT_MS)
    if not 0 < request.timeout_ms <= config.transaction_max_timeout_ms:
        raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    return request


def new_session(before: Transaction | None, request: InitRequest, fresh_id: int, now_ms: int) -> Transaction:
    """Return the state that begins a producer session.

    `fresh_id` is a new producer id, or NO_PRODUCER_ID as long as none is allocated. No transaction may be ongoing.
    Raises ProducerIdNeeded, and KafkaError: PRODUCER_FENCED if a newer session exists, CONCURRENT_TRANSACTIONS while
    markers are written.
    """
    if before is None:
        return _of_new_id(request, fresh_id, now_ms)
    check_producer(before, request.known)
    if before.state.is_prepared:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert before.state is not TransactionState.ONGOING, "an ongoing transaction is aborted first"
    known_epoch = None if request.known is None else request.known.epoch
    session = replace(
        before,
        state=TransactionState.EMPTY,
        partitions=frozenset(),
        timeout_ms=request.timeout_ms,
        start_ms=NOT_STARTED_MS,
        last_update_ms=now_ms,
    )
    if before.is_exhausted and known_epoch in (None, before.producer_epoch):
        if fresh_id == NO_PRODUCER_ID:
            raise ProducerIdNeeded
        return replace(
            session,
            producer_id=fresh_id,
            producer_epoch=0,
            previous_producer_id=before.producer_id,
            last_epoch=NO_PRODUCER_EPOCH if known_epoch is None else before.producer_epoch,
        )
    if known_epoch is None:
        return replace(session, producer_epoch=before.producer_epoch + 1, last_epoch=NO_PRODUCER_EPOCH)
    if known_epoch == before.producer_epoch:
        return replace(session, producer_epoch=before.producer_epoch + 1, last_epoch=before.producer_epoch)
    if known_epoch == before.last_epoch:
        return session  # the repetition of a request whose response was lost
    raise KafkaError(ErrorCode.PRODUCER_FENCED)


def check_producer(before: Transaction, known: ProducerIdAndEpoch | None) -> None:
    """Raise PRODUCER_FENCED if a producer's id is not that of its transactional id.

    A producer whose epochs are exhausted may not know yet that its id was replaced.
    """
    if known is None or known.id == before.producer_id:
        return
    if known.id != before.previous_producer_id or known.epoch < EXHAUSTED_EPOCH:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)


def _of_new_id(request: InitRequest, fresh_id: int, now_ms: int) -> Transaction:
    """Return the state of a transactional id that is unknown, or has expired."""
    if fresh_id == NO_PRODUCER_ID:
        raise ProducerIdNeeded
    return Transaction(producer_id=fresh_id, producer_epoch=0, timeout_ms=request.timeout_ms, last_update_ms=now_ms)
