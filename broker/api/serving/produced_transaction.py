"""The transaction of a produce request, whose partitions the coordinator confirms first (KIP-890)."""

from collections.abc import Awaitable, Iterable, Mapping
from typing import NamedTuple

from broker.api.serving.produced_batch import is_transactional
from broker.clock import Clock
from broker.runtime.coordinators.transaction_guards import TransactionGuards
from broker.runtime.coordinators.transaction_verifier import Errors, TransactionVerifier
from broker.runtime.partitions.partition import Partition
from broker.transactions.verification import Verification, VerificationMode
from protocol.errors import ErrorCode, KafkaError
from protocol.primitives import Buffer
from protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, BatchHeader, parse_header
from protocol.records.errors import MalformedBatch
from storage.verification import Guard

ABORTABLE_ERRORS_FROM = 11
IMPLICIT_PARTITIONS_FROM = 12

# Retried by every client, without a metadata refresh.
_RETRIABLE_AS = ErrorCode.NOT_ENOUGH_REPLICAS
_UNVERIFIED = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Unverified(KafkaError):
    """The coordinator did not confirm the partition; unlike other errors, the producer gets a message with the code."""


class TransactionalBatch(NamedTuple):
    """A batch of a produce request; `partition` is None unless hosted."""

    partition: Partition | None
    header: BatchHeader


def mode_of(version: int) -> VerificationMode:
    """Return the question to the coordinator for a Produce version."""
    if version >= IMPLICIT_PARTITIONS_FROM:
        return VerificationMode.ADD
    return VerificationMode.VERIFY if version >= ABORTABLE_ERRORS_FROM else VerificationMode.VERIFY_FOR_OLD_CLIENT


def transactional_batch(partition: Partition | None, records: Buffer | None) -> TransactionalBatch | None:
    """Return the batch if it belongs to a transaction; None as well for data that the log will refuse."""
    if records is None or not is_transactional(records):
        return None
    try:
        header = parse_header(records)
    except MalformedBatch:
        return None
    return TransactionalBatch(partition, header) if header.producer_id >= 0 else None


class ProducedTransaction:
    """The transactional batches of one request, which must come from one producer.

    `guards` and `errors` are by partition. The coordinator must be asked with `question` first, unless it is None.
    """

    def __init__(
        self, transactional_id: str, version: int, batches: Iterable[TransactionalBatch], clock: Clock
    ) -> None:
        """Raises KafkaError INVALID_PRODUCER_ID_MAPPING."""
        found = list(batches)
        producers = {(header.producer_id, header.producer_epoch) for _, header in found}
        if len(producers) > 1:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        producer_id, epoch = next(iter(producers), (NO_PRODUCER_ID, NO_PRODUCER_EPOCH))
        sequences = {partition: header.base_sequence for partition, header in found if partition is not None}
        self._mode = mode_of(version)
        self._taken = TransactionGuards(transactional_id, producer_id, epoch, self._mode, sequences, clock)
        self.question = self._taken.take()

    @property
    def guards(self) -> Mapping[Partition, Guard]:
        """The guards for the appends."""
        return self._taken.guards

    @property
    def errors(self) -> Mapping[Partition, KafkaError]:
        """The errors of partitions that cannot take their batch."""
        return self._taken.errors

    def verify(self, question: Verification, verifier: TransactionVerifier) -> Awaitable[None] | None:
        """Ask the coordinator. Return None if this node's own coordinator has answered."""
        errors = verifier.begin(self._taken, question)
        if isinstance(errors, Awaitable):
            return self._verified_later(errors)
        self._note(errors)
        return None

    async def _verified_later(self, errors: Awaitable[Errors]) -> None:
        self._note(await errors)

    def _note(self, errors: Errors) -> None:
        if not errors:
            return
        for name, partition in self._taken.partitions.items():
            if name in errors:
                self._taken.errors[partition] = unverified(errors[name], self._mode)


def unverified(code: ErrorCode, mode: VerificationMode) -> KafkaError:
    """Return the producer's error for the coordinator's."""
    if code in _UNVERIFIED or (code is ErrorCode.CONCURRENT_TRANSACTIONS and mode is not VerificationMode.ADD):
        text = f"The transaction coordinator did not verify the transaction ({code.name}); retry"
        return Unverified(_RETRIABLE_AS, text)
    if code is ErrorCode.INVALID_TXN_STATE:
        return Unverified(code, "The partition was not added to the transaction")
    return KafkaError(code)
