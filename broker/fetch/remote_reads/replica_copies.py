"""Records that a lost remote segment held and that another replica still has in its local log.

Local retention runs on each replica by itself, and a replica that was down for a while deletes nothing. The leader
therefore asks the other replicas before a consumer has to wait for an operator.
"""

from typing import NamedTuple, Protocol

from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.reads import FetchIsolation


class ReplicaBatches(NamedTuple):
    """Whole batches, at least one, the first of them with the requested offset.

    `aborted` has the aborted transactions as (producer id, first offset); None for read_uncommitted.
    """

    data: memoryview
    aborted: list[tuple[int, int]] | None


class ReplicaCopies(Protocol):
    """The local logs of the other replicas."""

    async def read(
        self, partition: Partition, offset: int, max_bytes: int, isolation: FetchIsolation
    ) -> ReplicaBatches | None:
        """Return committed batches from `offset` on; None if no replica has the offset, or this one does not lead."""
        ...


class NoReplicaCopies:
    """A cluster without other replicas."""

    async def read(
        self, partition: Partition, offset: int, max_bytes: int, isolation: FetchIsolation
    ) -> ReplicaBatches | None:
        return None
