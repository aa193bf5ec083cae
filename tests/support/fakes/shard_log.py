"""A coordinator's partition in memory, with commits and failures under the test's control."""

from collections.abc import Callable, Sequence

from broker.runtime.coordinators.shard_log import LoadedBatch, LoadedRecord, ProducerTransaction
from broker.runtime.coordinators.snapshot_store import CoordinatorSnapshot
from broker.runtime.loop.waiters import OffsetWaiter, OffsetWaiters
from broker.runtime.partitions.transaction_marker import WritableMarker
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import EPOCH_ZERO

READ_BATCHES = 3


class MemoryShardLog:
    """Stores batches. While `holds_commits`, the high watermark stays.

    `fail_next` refuses the next append, when it is checked or made; `fail_next_batch` refuses one that the check let
    through.
    """

    def __init__(self) -> None:
        self.batches: list[LoadedBatch] = []
        self.batch_sizes: list[int] = []
        self.holds_commits = False
        self.fail_next: ErrorCode | None = None
        self.fail_next_batch: ErrorCode | None = None
        self.leader_epoch = 0
        self.max_batch_bytes = 1_000_000
        self.start_offset = 0
        self.end_offset = 0
        self.high_watermark = 0
        self.reads = 0
        self.snapshot: CoordinatorSnapshot | None = None
        self._waiters = OffsetWaiters()

    @property
    def records(self) -> list[LoadedRecord]:
        """All records in the log, oldest first."""
        return [record for batch in self.batches for record in batch.records]

    def check_append(self, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        if self.fail_next is not None:
            error, self.fail_next = self.fail_next, None
            raise KafkaError(error)

    def append(
        self,
        records: Sequence[tuple[bytes, bytes | None]],
        leader_epoch: int,
        now_ms: int,
        transaction: ProducerTransaction | None = None,
    ) -> int:
        self._begin_append(leader_epoch)
        return self.add(records, producer_id=-1 if transaction is None else transaction.producer_id)

    def append_marker(self, marker: WritableMarker, leader_epoch: int, now_ms: int) -> int:
        self._begin_append(leader_epoch)
        return self.add(producer_id=marker.producer_id, committed=marker.is_commit)

    def _begin_append(self, leader_epoch: int) -> None:
        self.check_append(leader_epoch)
        if self.fail_next_batch is not None:
            error, self.fail_next_batch = self.fail_next_batch, None
            raise KafkaError(error)

    def add(
        self,
        records: Sequence[tuple[bytes, bytes | None]] = (),
        *,
        producer_id: int = -1,
        committed: bool | None = None,
    ) -> int:
        """Append a batch of any writer; a transaction marker is a batch without records."""
        first = self.end_offset
        loaded = [LoadedRecord(first + index, key, value) for index, (key, value) in enumerate(records)]
        self.end_offset = first + (len(loaded) or 1)
        self.batches.append(LoadedBatch(self.end_offset, EPOCH_ZERO, producer_id, committed, loaded))
        self.batch_sizes.append(len(loaded))
        if not self.holds_commits:
            self.commit()
        return first

    def commit(self) -> None:
        """Commit everything that was appended."""
        self.high_watermark = self.end_offset
        self._waiters.reached(self.high_watermark)

    def lose_leadership(self) -> None:
        """Fail everything that waits for a commit."""
        self._waiters.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def when_committed(self, offset: int, callback: Callable[[ErrorCode], None]) -> OffsetWaiter:
        return self._waiters.add(offset + 1, callback)

    async def newest_snapshot(self) -> CoordinatorSnapshot | None:
        return self.snapshot

    async def read(self, offset: int, max_bytes: int) -> Sequence[LoadedBatch]:
        self.reads += 1
        return [batch for batch in self.batches if batch.next_offset > offset][:READ_BATCHES]
