"""The start of a transaction on a partition, which the transaction coordinator confirms first (KIP-890)."""

from broker.runtime.partitions.partition import Partition, RecordsRefused
from protocol.records.batch import NO_SEQUENCE
from storage.errors import InvalidRecords
from storage.verification import Guard


def start_verification(
    partition: Partition, producer_id: int, epoch: int, now_ms: int, *, sequence: int = NO_SEQUENCE, adds: bool
) -> Guard | None:
    """Return the guard for the append of a transactional batch; None if the coordinator need not be asked.

    The coordinator is asked before the first batch of a transaction, if verification is enabled or the leader `adds`
    the partition for the client. Raises KafkaError if this broker does not lead, or for an outdated producer epoch.

    In transaction version 2 a transaction has its own epoch, whose first batch has sequence 0. A producer whose former
    transaction was of version 1 continues the sequence of its last batch.
    """
    partition.leader_role  # noqa: B018  raises unless this broker leads
    log = partition.log
    if not (adds or log.config.verify_transactions):
        return None
    entry = log.producers.entries.get(producer_id)
    if adds and sequence > 0 and (entry is None or not entry.batches):
        sequence = 0
    try:
        return log.start_verification(producer_id, epoch, sequence, now_ms)
    except InvalidRecords as error:
        raise RecordsRefused(error, log.log_start_offset) from error
