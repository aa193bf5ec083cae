"""The decision of a transaction's outcome (EndTxn; KIP-98, KIP-890).

With transaction version 2 the end of each transaction raises the producer epoch. A delayed EndTxn then carries an older
epoch than the next transaction and cannot decide it. The producer gets the new epoch in the response.
"""

from typing import NamedTuple

from broker.transactions.init_producer import ProducerIdNeeded
from broker.transactions.state import (
    EPOCH_PER_TRANSACTION,
    EXHAUSTED_EPOCH,
    NO_PRODUCER_ID,
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
)
from protocol.errors import ErrorCode, KafkaError


class EndRequest(NamedTuple):
    """`version` is the transaction version of the client."""

    producer: ProducerIdAndEpoch
    is_commit: bool
    version: int


def ended(before: Transaction, request: EndRequest, fresh_id: int, now_ms: int) -> Transaction | None:
    """Return the decided transaction; None if the request repeats one that is completed already.

    `fresh_id` is a new producer id, or NO_PRODUCER_ID as long as none is allocated. Raises ProducerIdNeeded, and
    KafkaError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS while markers are written, and
    INVALID_TXN_STATE without a transaction to end, or with the other outcome.

    With version 2 a producer has its next epoch before the markers are written, and may end its next transaction, an
    empty one, in this time. The epoch is checked when it tries again.
    """
    if before.state.is_prepared and request.version >= EPOCH_PER_TRANSACTION:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    is_repetition = _check_producer(before, request)
    if before.state.is_prepared:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    outcome = TransactionState.COMPLETE_COMMIT if request.is_commit else TransactionState.COMPLETE_ABORT
    if before.state is TransactionState.ONGOING:
        return _decided(before, request, fresh_id, now_ms)
    if before.state is outcome and (is_repetition or request.version < EPOCH_PER_TRANSACTION):
        return None
    may_abort_nothing = request.version >= EPOCH_PER_TRANSACTION and not request.is_commit and not is_repetition
    if not may_abort_nothing:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    return _decided(before, request, fresh_id, now_ms)


def fenced_and_aborted(before: Transaction, fresh_id: int, version: int, now_ms: int) -> Transaction:
    """Return an ongoing transaction aborted for another producer session or after its timeout.

    The epoch is raised once, in every version: the former producer's requests are refused from now on. `version` is the
    transaction version of the cluster. Raises ProducerIdNeeded.
    """
    return before.prepared(
        is_commit=False,
        bumps_epoch=True,
        next_producer_id=_next_id(before, fresh_id, version),
        version=version,
        now_ms=now_ms,
    )


def _decided(before: Transaction, request: EndRequest, fresh_id: int, now_ms: int) -> Transaction:
    bumps_epoch = request.version >= EPOCH_PER_TRANSACTION
    return before.prepared(
        is_commit=request.is_commit,
        bumps_epoch=bumps_epoch,
        next_producer_id=_next_id(before, fresh_id, request.version),
        version=request.version,
        now_ms=now_ms,
    )


def _next_id(before: Transaction, fresh_id: int, version: int) -> int:
    """Return the producer id that replaces an exhausted one, which only version 2 does at the end of a transaction."""
    if version < EPOCH_PER_TRANSACTION or not before.is_exhausted:
        return NO_PRODUCER_ID
    if fresh_id == NO_PRODUCER_ID:
        raise ProducerIdNeeded
    return fresh_id


def _check_producer(before: Transaction, request: EndRequest) -> bool:
    """Check the producer of a request; return whether it repeats the request that ended the transaction.

    The version of the stored transaction counts: only an end with version 2 has raised the epoch. An epoch that is one
    lower than the stored one otherwise belongs to a former producer.
    """
    producer, is_v2 = request.producer, before.version >= EPOCH_PER_TRANSACTION
    is_complete = before.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    was_replaced = before.producer_epoch == 0 and producer == (before.previous_producer_id, EXHAUSTED_EPOCH)
    if is_v2 and is_complete and was_replaced and producer.id != before.producer_id:
        return True  # the end of that transaction replaced the producer id
    if producer.id != before.producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_raised = is_v2 and before.producer_epoch == producer.epoch + 1
    if is_raised and (is_complete or before.state.is_prepared):
        return True
    if producer.epoch != before.producer_epoch or (is_v2 and before.state.is_prepared):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    return False
