"""Local logs of followers, as the remote reads of a leader see them."""

from broker.fetch.remote_reads.replica_copies import ReplicaBatches
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.reads import FetchIsolation


class ScriptedReplicaCopies:
    """Implements ReplicaCopies; `found` has the batches by offset, `reads` the offsets of all reads."""

    def __init__(self) -> None:
        self.found: dict[int, ReplicaBatches] = {}
        self.reads: list[int] = []

    async def read(
        self, partition: Partition, offset: int, max_bytes: int, isolation: FetchIsolation
    ) -> ReplicaBatches | None:
        self.reads.append(offset)
        return self.found.get(offset)
