"""The guards of one request for the first batches of a transaction on this broker's partitions (KIP-890)."""

from collections.abc import Mapping

from broker.clock import Clock
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.transaction_start import start_verification
from broker.transactions.verification import TopicPartition, Verification, VerificationMode
from protocol.errors import KafkaError
from storage.verification import Guard


class TransactionGuards:
    """The guards by partition, and the errors of partitions that cannot begin a transaction.

    `sequences` holds the base sequence of each partition's batch. A guard is void once the marker of the producer's
    former transaction arrives, which may be after the question to the coordinator: `take` then begins anew.
    """

    def __init__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        mode: VerificationMode,
        sequences: Mapping[Partition, int],
        clock: Clock,
    ) -> None:
        self.guards: dict[Partition, Guard] = {}
        self.errors: dict[Partition, KafkaError] = {}
        self._transactional_id = transactional_id
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._mode = mode
        self._sequences = sequences
        self._clock = clock

    @property
    def partitions(self) -> dict[TopicPartition, Partition]:
        """The partitions with a guard, by name."""
        return {(partition.topic, partition.index): partition for partition in self.guards}

    @property
    def are_valid(self) -> bool:
        """Whether the log would accept all guards."""
        return all(partition.log.accepts(self._producer_id, guard) for partition, guard in self.guards.items())

    def take(self) -> Verification | None:
        """Take new guards; return the question to the coordinator, None if no partition needs it."""
        self.guards.clear()
        self.errors.clear()
        for partition, sequence in self._sequences.items():
            try:
                guard = self._start(partition, sequence)
            except KafkaError as error:
                self.errors[partition] = error
            else:
                if guard is not None:
                    self.guards[partition] = guard
        if not self.guards:
            return None
        names = tuple(self.partitions)
        return Verification(self._transactional_id, self._producer_id, self._producer_epoch, names, self._mode)

    def _start(self, partition: Partition, sequence: int) -> Guard | None:
        return start_verification(
            partition,
            self._producer_id,
            self._producer_epoch,
            self._clock.now_ms(),
            sequence=sequence,
            adds=self._mode is VerificationMode.ADD,
        )
