"""Transaction markers: the appends by which a transaction coordinator ends a transaction on a partition (KIP-98)."""

from typing import NamedTuple

from broker.runtime.partitions.partition import ACKS_ALL, Partition, RecordsRefused
from protocol.records.control import ControlType, end_transaction_marker
from storage.errors import InvalidRecords
from storage.producer_state import Origin
from storage.straight_append import AppendInfo

EPOCH_BUMP_FROM = 2
"""The first transaction version whose markers carry a raised producer epoch (KIP-890)."""


class WritableMarker(NamedTuple):
    """The end of one producer's transaction. `coordinator_epoch` is the leader epoch of the coordinator's log."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int = 0


def append_marker(partition: Partition, marker: WritableMarker, now_ms: int) -> AppendInfo:
    """Append a marker as the leader, for acks=all. Raises KafkaError.

    INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED refuse the marker of a deposed coordinator.
    """
    partition.leader_role  # noqa: B018  raises unless this broker leads
    if marker.transaction_version >= EPOCH_BUMP_FROM:
        try:
            partition.log.producers.check_raised_epoch(marker.producer_id, marker.producer_epoch)
        except InvalidRecords as error:
            raise RecordsRefused(error, partition.log.log_start_offset) from error
    batch = end_transaction_marker(
        ControlType.COMMIT if marker.is_commit else ControlType.ABORT,
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        now_ms,
    )
    return partition.append(batch, ACKS_ALL, Origin.COORDINATOR)
