"""A transactional id and its transaction, as they stand in `__transaction_state`.

| state | reached from | by |
|---|---|---|
| EMPTY | EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT | InitProducerId |
| ONGOING | EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT | AddPartitionsToTxn, AddOffsetsToTxn |
| PREPARE_COMMIT | ONGOING | EndTxn |
| PREPARE_ABORT | ONGOING; with version 2 EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT | EndTxn, InitProducerId, the timeout |
| COMPLETE_COMMIT | PREPARE_COMMIT | all markers are written |
| COMPLETE_ABORT | PREPARE_ABORT | all markers are written |

The outcome of a transaction is decided when the record of PREPARE_COMMIT or PREPARE_ABORT is committed.
"""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, NamedTuple

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NOT_STARTED_MS: Final = -1
LAST_EPOCH: Final = 32_767
"""The highest producer epoch; only markers that end a transaction use it."""
EXHAUSTED_EPOCH: Final = LAST_EPOCH - 1
"""The epoch from which on a producer needs another id."""
TWO_PHASE_TIMEOUT_MS: Final = 2**31 - 1
"""The timeout that marks a two-phase commit led from outside, in records and responses (KIP-939)."""
EPOCH_PER_TRANSACTION: Final = 2
"""The transaction version from which on each transaction has a producer epoch of its own (KIP-890)."""


class TransactionState(IntEnum):
    """The state, by its number in records. Kafka's DEAD (6) and PREPARE_EPOCH_FENCE (7) are never written."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided and markers are being written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_commit(self) -> bool:
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


class ProducerIdAndEpoch(NamedTuple):
    """The identity of a producer, by which partition leaders fence former ones."""

    id: int
    epoch: int


class TransactionPartition(NamedTuple):
    """A partition that a transaction has records in."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """The state of one transactional id. Times are wall-clock ms.

    `last_epoch` is the epoch before the last bump that a producer asked for with its own epoch (KIP-360): a repeated
    request gets the same answer. `previous_producer_id` is the id before the last change, and `next_producer_id` the
    one from the end of the transaction on, if the epochs are exhausted. `version` is the transaction version of the
    client. The last epoch is not in the log: Kafka's formats have no field for it.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TransactionPartition] = frozenset()
    start_ms: int = NOT_STARTED_MS
    last_update_ms: int
    version: int = 0
    last_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def next_producer(self) -> ProducerIdAndEpoch:
        """The producer id and epoch of the next transaction."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(self.next_producer_id, 0)
        return self.producer

    @property
    def is_exhausted(self) -> bool:
        """Whether the epoch can be raised once more only, to fence."""
        return self.producer_epoch >= EXHAUSTED_EPOCH

    def has_timed_out(self, now_ms: int) -> bool:
        """Return whether the ongoing transaction lasts too long. A two-phase commit has no timeout (KIP-939)."""
        return self.timeout_ms != TWO_PHASE_TIMEOUT_MS and self.start_ms + self.timeout_ms < now_ms

    def ongoing(self, partitions: frozenset[TransactionPartition], version: int, now_ms: int) -> "Transaction":
        """Add partitions, and begin the transaction if none is ongoing."""
        is_first = self.state is not TransactionState.ONGOING
        return replace(
            self,
            state=TransactionState.ONGOING,
            partitions=partitions if is_first else self.partitions | partitions,
            start_ms=now_ms if is_first else self.start_ms,
            last_update_ms=now_ms,
            version=version if is_first else max(version, self.version),
        )

    def prepared(
        self, *, is_commit: bool, bumps_epoch: bool, next_producer_id: int, version: int, now_ms: int
    ) -> "Transaction":
        """Decide the outcome. A bumped epoch fences the requests of this transaction that arrive later."""
        epoch = self.producer_epoch + 1 if bumps_epoch else self.producer_epoch
        return replace(
            self,
            state=TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT,
            producer_epoch=epoch,
            last_epoch=self.producer_epoch if bumps_epoch else self.last_epoch,
            next_producer_id=next_producer_id,
            last_update_ms=now_ms,
            version=version,
        )

    def completed(self, now_ms: int) -> "Transaction":
        """End the transaction after all markers are written, and change to the next producer id if there is one."""
        return replace(
            self,
            state=TransactionState.COMPLETE_COMMIT if self.state.is_commit else TransactionState.COMPLETE_ABORT,
            partitions=frozenset(),
            producer_id=self.next_producer.id,
            producer_epoch=self.next_producer.epoch,
            previous_producer_id=self.producer_id if self.version >= EPOCH_PER_TRANSACTION else NO_PRODUCER_ID,
            next_producer_id=NO_PRODUCER_ID,
            last_update_ms=now_ms,
        )
