"""Local logs of followers, as the remote reads of a leader see them."""

from broker.fetch.remote_reads.replica_copies import ReplicaBatches
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.reads import FetchIsolation
from broker.runtime.remote_log.replica_lookups import ReplicaLookup
from protocol.ids import LeaderEpoch
from storage.segment import FoundTimestamp


class ScriptedReplicaCopies:
    """Implements ReplicaCopies and ReplicaLookups.

    `found` has the batches by offset, `reads` the offsets of all reads. Look-ups find the records of `held`, whose
    timestamps are 1000 times their offsets; `lookups` has the ranges of all look-ups.
    """

    def __init__(self) -> None:
        self.held = range(0)
        self.lookups: list[tuple[int, int]] = []
        self.found: dict[int, ReplicaBatches] = {}
        self.reads: list[int] = []

    async def read(
        self, partition: Partition, offset: int, max_bytes: int, isolation: FetchIsolation
    ) -> ReplicaBatches | None:
        self.reads.append(offset)
        return self.found.get(offset)

    async def first_at_or_after(
        self, partition: Partition, timestamp: int, first: int, upper: int
    ) -> ReplicaLookup | None:
        self.lookups.append((first, upper))
        if first not in self.held or upper - 1 not in self.held:
            return None
        late = (offset for offset in range(first, upper) if 1000 * offset >= timestamp)
        return ReplicaLookup(next((FoundTimestamp(1000 * each, each, LeaderEpoch(0)) for each in late), None))
