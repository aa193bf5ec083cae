"""The delivery of markers: one request for each partition, repeated until the partition has its marker."""

from collections.abc import Callable
from typing import Final

from broker.transactions.state import EPOCH_PER_TRANSACTION, Transaction, TransactionPartition
from protocol.errors import ErrorCode
from protocol.records.control import ControlType
from storage.producer_state import EndTransactionMarker
from tests.simulation.transactions.network import Answer, Network
from tests.simulation.transactions.partitions import DataPartition
from tests.simulation.world import World

_RETRY_MS: Final = 80.0
_FENCED: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)


class MarkerDelivery:
    """A MarkerSender of one coordinator leader, over the simulated network."""

    def __init__(
        self,
        world: World,
        network: Network,
        coordinator_epoch: int,
        find: Callable[[TransactionPartition], DataPartition],
        complete: Callable[[str, Transaction], None],
    ) -> None:
        self._world = world
        self._network = network
        self._epoch = coordinator_epoch
        self._find = find
        self._complete = complete
        self._missing: dict[str, tuple[Transaction, set[TransactionPartition]]] = {}

    def send(self, transactional_id: str, transaction: Transaction) -> None:
        """Write the markers of a decided transaction."""
        missing = set(transaction.partitions)
        self._missing[transactional_id] = transaction, missing
        if not missing:
            self._world.schedule(0.0, self._end, transactional_id, transaction)
        for partition in sorted(missing):
            self._try(transactional_id, transaction, partition)

    def clear(self) -> None:
        """Forget all markers."""
        self._missing.clear()

    def _is_due(self, transactional_id: str, transaction: Transaction) -> bool:
        return self._missing.get(transactional_id, (None,))[0] is transaction

    def _try(self, transactional_id: str, transaction: Transaction, partition: TransactionPartition) -> None:
        if not self._is_due(transactional_id, transaction):
            return
        type = ControlType.COMMIT if transaction.state.is_commit else ControlType.ABORT
        marker = EndTransactionMarker(type, self._epoch)

        def serve(respond: Callable[[Answer[None]], None]) -> None:
            self._find(partition).write_marker(transaction.producer, marker, transaction.version, respond)

        def on_answer(answer: Answer[None]) -> None:
            self._on_answer(transactional_id, transaction, partition, answer)

        self._network.send(serve, on_answer, may_be_late=transaction.version >= EPOCH_PER_TRANSACTION)

    def _on_answer(
        self, transactional_id: str, transaction: Transaction, partition: TransactionPartition, answer: Answer[None]
    ) -> None:
        if not self._is_due(transactional_id, transaction):
            return
        if answer is None:
            missing = self._missing[transactional_id][1]
            missing.discard(partition)
            if not missing:
                self._end(transactional_id, transaction)
        elif answer in _FENCED:
            del self._missing[transactional_id]
        else:
            self._world.schedule(_RETRY_MS, self._try, transactional_id, transaction, partition)

    def _end(self, transactional_id: str, transaction: Transaction) -> None:
        if self._is_due(transactional_id, transaction):
            del self._missing[transactional_id]
            self._complete(transactional_id, transaction)
