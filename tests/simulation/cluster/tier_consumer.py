"""A consumer of the tiered topic, which goes back to former positions: most of its records are in remote storage."""

from random import Random
from typing import Final, Protocol

from protocol.errors import ErrorCode
from protocol.messages.fetch import PartitionData
from protocol.records.batch import BatchHeader, crc_is_valid, iter_headers
from tests.simulation.replication.clients import ClientWitness, Cluster
from tests.simulation.replication.consumers import Consumer
from tests.simulation.replication.disk import ReplicaName

_GOING_BACK: Final = 0.6
"""Share of responses after which the consumer goes back."""


class TieredWitness(ClientWitness, Protocol):
    """Checker of a tiered topic's consumer."""

    def on_skip(self, consumer: int, position: int, header: BatchHeader) -> None:
        """Check a batch that begins above the consumer's position."""
        ...

    def on_damaged(self, consumer: int, header: BatchHeader) -> None:
        """Report a batch whose checksum does not match."""
        ...


class TieredConsumer(Consumer):
    """A consumer that goes back to a batch it has read, until the faults end."""

    retried = Consumer.retried | {ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.CORRUPT_MESSAGE}

    def __init__(
        self,
        cluster: Cluster,
        witness: TieredWitness,
        node_id: int,
        name: ReplicaName,
        random: Random,
        timeout_ms: float,
    ) -> None:
        super().__init__(cluster, witness, node_id, name, random, timeout_ms=timeout_ms, rate=1.0)
        self._tiered_witness = witness
        self.goes_back = True

    def begin_again(self) -> None:
        """Read everything once more; responses under way belong to former positions."""
        self.goes_back = False
        self._life += 1
        self._go_back_to(0)
        self.look()

    def _take(self, data: PartitionData) -> None:
        records = memoryview(data.records or b"")
        for position, header in iter_headers(records):
            if not crc_is_valid(records, position, header.size):
                self._tiered_witness.on_damaged(self._id, header)
        super()._take(data)
        if self.goes_back and self._read and self.random.random() < _GOING_BACK:
            self._go_back_to(int(len(self._read) * self.random.random() ** 2))

    def _take_batch(self, header: BatchHeader) -> None:
        if header.base_offset > self.position:
            self._tiered_witness.on_skip(self._id, self.position, header)
        super()._take_batch(header)

    def _go_back_to(self, index: int) -> None:
        """Continue at the batch that was read at `index`."""
        if index < len(self._read):
            self.position = self._read[index].base_offset
            self._read = self._read[:index]
            self._last_epoch = self._read[-1].epoch if self._read else -1
