"""Transactions with offsets: their partition of `__consumer_offsets` joins them before the first offsets (KIP-890)."""

from broker.clock import Clock
from broker.runtime.coordinators.transaction_guards import TransactionGuards
from broker.runtime.coordinators.transaction_verifier import TransactionVerifier
from broker.runtime.partitions.registry import Partitions
from broker.transactions.verification import VerificationMode
from protocol.errors import KafkaError
from protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from protocol.records.batch import NO_SEQUENCE
from storage.verification import Guard

ABORTABLE_ERRORS_FROM = 4
IMPLICIT_PARTITIONS_FROM = 5


class OffsetTransactions:
    """Asks transaction coordinators for the transactions of TxnOffsetCommit requests."""

    def __init__(self, topic: str, partitions: Partitions, verifier: TransactionVerifier, clock: Clock) -> None:
        self._topic = topic
        self._partitions = partitions
        self._verifier = verifier
        self._clock = clock

    async def begin(self, index: int, request: TxnOffsetCommitRequest, api_version: int) -> Guard | None:
        """Return the guard for the append to a partition; None if the transaction has offsets there already.

        Raise KafkaError when this node does not lead the partition, or the coordinator does not confirm it.
        """
        mode = _mode_of(api_version)
        partition = self._partitions.hosted(self._topic, index)
        guards = TransactionGuards(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            mode,
            {partition: NO_SEQUENCE},
            self._clock,
        )
        question = guards.take()
        if question is not None:
            for code in (await self._verifier.confirm(guards, question)).values():
                raise KafkaError(code)
        if partition in guards.errors:
            raise guards.errors[partition]
        return guards.guards.get(partition)


def _mode_of(api_version: int) -> VerificationMode:
    if api_version >= IMPLICIT_PARTITIONS_FROM:
        return VerificationMode.ADD
    return VerificationMode.VERIFY if api_version >= ABORTABLE_ERRORS_FROM else VerificationMode.VERIFY_FOR_OLD_CLIENT
