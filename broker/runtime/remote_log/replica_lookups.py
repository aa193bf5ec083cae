"""Look-ups by time in lost remote segments whose records another replica still has in its local log."""

from typing import NamedTuple, Protocol

from broker.runtime.partitions.partition import Partition
from storage.segment import FoundTimestamp


class ReplicaLookup(NamedTuple):
    """The result of a search; `found` is None if no record of the range has the timestamp or a later one."""

    found: FoundTimestamp | None


class ReplicaLookups(Protocol):
    """The local logs of the other replicas."""

    async def first_at_or_after(
        self, partition: Partition, timestamp: int, first: int, upper: int
    ) -> ReplicaLookup | None:
        """Search committed records at offsets [first, upper) for the first one with at least `timestamp`.

        Return None if no replica has all of them, or this broker does not lead.
        """
        ...


class NoReplicaLookups:
    """A cluster without other replicas."""

    async def first_at_or_after(
        self, partition: Partition, timestamp: int, first: int, upper: int
    ) -> ReplicaLookup | None:
        return None
