"""A share partition with a log of equal batches, and a persister that answers when it is told to."""

from broker.share.partition import PersistedState, SharePartition, ShareUpdate, StateWrite
from broker.share.records import (
    AcknowledgementBatch,
    AcknowledgeType,
    AcquiredRecords,
    AcquireMode,
    AcquireRequest,
    DeliveryBatch,
    FetchedBatches,
    OffsetSpan,
    ShareLimits,
)
from protocol.errors import ErrorCode

LOCK_MS = 1000.0
LIMITS = ShareLimits(delivery_limit=5, max_in_flight=100)

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


def ack(first: int, last: int, *types: AcknowledgeType) -> AcknowledgementBatch:
    return AcknowledgementBatch(first, last, types or (ACCEPT,))


class SharePartitionHarness:
    """The log holds `size` records in batches of `batch_size`, without the offsets of `missing` batches."""

    def __init__(
        self,
        size: int = 50,
        batch_size: int = 10,
        *,
        limits: ShareLimits = LIMITS,
        start: int = 0,
        batches: tuple[DeliveryBatch, ...] = (),
    ) -> None:
        self.partition = SharePartition(limits, 3, PersistedState(1, start, batches))
        self.log = [OffsetSpan(first, min(first + batch_size, size) - 1) for first in range(0, size, batch_size)]
        self.aborted: list[OffsetSpan] = []
        self.now_ms = 0.0
        self.writes: list[StateWrite] = []

    def fetched(self) -> FetchedBatches:
        offset = self.partition.next_fetch_offset
        found = tuple(batch for batch in self.log if batch.last >= offset)
        return FetchedBatches(offset, found, tuple(each for each in self.aborted if each in found))

    def acquire(
        self, member: str = "m", count: int = 500, *, batch_size: int = 0, exact: bool = False
    ) -> list[AcquiredRecords]:
        mode = AcquireMode.RECORD_LIMIT if exact else AcquireMode.BATCH_OPTIMIZED
        request = AcquireRequest(member, count, batch_size, mode)
        return self.partition.acquire(request, self.fetched(), self.now_ms + LOCK_MS)

    def acknowledge(self, *batches: AcknowledgementBatch, member: str = "m") -> ShareUpdate | ErrorCode:
        return self.partition.acknowledge(member, batches, self.now_ms + LOCK_MS)

    def persist(self, error: ErrorCode = ErrorCode.NONE) -> list[ShareUpdate]:
        """Send what waits, and let the coordinator answer; return the settled updates."""
        settled: list[ShareUpdate] = []
        while (write := self.partition.take_write()) is not None:
            self.writes.append(write)
            settled += self.partition.on_written(error)
        return settled

    def states(self) -> list[tuple[int, int, str, int]]:
        return [(run.first, run.last, run.state.name, run.delivery_count) for run in self.partition.runs]
