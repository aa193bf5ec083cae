"""Deletion of a led partition's oldest records, and the low watermark (DeleteRecords, KIP-107)."""

from typing import TYPE_CHECKING

from broker.runtime.loop.waiters import OffsetWaiter, OffsetWaiters, WaitCallback
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.runtime.partitions.partition import Partition


class RecordDeletion:
    """The log start of one partition. `waiters` wait for the low watermark."""

    __slots__ = ("_partition", "waiters")

    def __init__(self, partition: "Partition") -> None:
        self.waiters = OffsetWaiters()
        self._partition = partition

    def delete_records(self, offset: int) -> int:
        """Raise the log start offset to `offset` (-1: to the high watermark); return the requested log start offset.

        Raises KafkaError: POLICY_VIOLATION, OFFSET_OUT_OF_RANGE, NOT_LEADER_OR_FOLLOWER.
        """
        partition, log = self._partition, self._partition.log
        assert partition.leader_role
        if not log.config.is_deleting:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        target = log.high_watermark if offset == -1 else offset
        if not 0 <= target <= log.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if log.maybe_increment_log_start_offset(target):
            partition.on_log_start_moved()
        return target

    def when_deleted(self, offset: int, callback: WaitCallback) -> OffsetWaiter:
        """Call back once the low watermark reaches `offset`, or with an error if the replica is no longer hosted."""
        return self.waiters.add(offset, callback)
