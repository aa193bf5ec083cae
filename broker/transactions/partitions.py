"""Partitions of a transaction: adding and verifying them (AddPartitionsToTxn; KIP-98, KIP-890)."""

from collections.abc import Iterable, Mapping

from broker.transactions.state import ProducerIdAndEpoch, Transaction, TransactionPartition, TransactionState
from protocol.errors import ErrorCode, KafkaError


def added(
    before: Transaction | None,
    producer: ProducerIdAndEpoch,
    partitions: Iterable[TransactionPartition],
    version: int,
    now_ms: int,
) -> Transaction | None:
    """Return the transaction with more partitions; None if it has them already.

    Raises KafkaError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS while markers are written.
    """
    before = checked(before, producer)
    wanted = frozenset(partitions)
    if before.state is TransactionState.ONGOING and wanted <= before.partitions:
        return None
    return before.ongoing(wanted, version, now_ms)


def verified(
    before: Transaction | None, producer: ProducerIdAndEpoch, partitions: Iterable[TransactionPartition]
) -> Mapping[TransactionPartition, ErrorCode]:
    """Return for each partition whether the ongoing transaction has it; TRANSACTION_ABORTABLE where it does not.

    A partition leader asks before it accepts the first records of a transaction, so that records that arrive after the
    end of their transaction begin no new one. Raises KafkaError as `added`.
    """
    before = checked(before, producer)
    known = before.partitions if before.state is TransactionState.ONGOING else frozenset()
    return {each: ErrorCode.NONE if each in known else ErrorCode.TRANSACTION_ABORTABLE for each in partitions}


def checked(before: Transaction | None, producer: ProducerIdAndEpoch) -> Transaction:
    """Return a transaction that a producer may go on with; raises KafkaError as `added`.

    The state is checked before the producer: the id of a producer may change while markers are written.
    """
    if before is not None and before.state.is_prepared:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if before is None or before.producer_id != producer.id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if before.producer_epoch != producer.epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    return before
