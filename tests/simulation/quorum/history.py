"""What became certain, over all nodes and for ever: the committed batches, as the first node to know told them."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from broker.quorum.identity import ReplicaKey
from broker.quorum.membership.voters import VoterSet
from tests.simulation.quorum.disk import SimulatedDisk
from tests.simulation.watched_disk import LoggedBatch


class Observed(NamedTuple):
    """A running replica between two events, as it says of itself.

    `high_watermark` is what its listeners know, `decided` what it has just found, and will tell when it has synced.
    """

    epoch: int
    leader_id: int | None
    is_leader: bool
    high_watermark: int | None
    log_start_offset: int
    log_end_offset: int
    voters: VoterSet
    kraft_version: int
    disk_version: int
    decided: int | None


class Subject(Protocol):
    """A node as the checker sees it, running or not."""

    @property
    def id(self) -> int: ...

    @property
    def key(self) -> ReplicaKey: ...

    @property
    def disk(self) -> SimulatedDisk: ...

    @property
    def can_vote(self) -> bool: ...


class Cluster(Protocol):
    """All nodes, and what is known of the past."""

    history: "History"

    def disk_of(self, key: ReplicaKey) -> SimulatedDisk | None:
        """The disk of a voter, even if it was lost since; an entry without a directory is the first of its id."""
        ...

    def subject(self, node_id: int) -> Subject: ...

    def tell_committed(self, batches: Sequence[LoggedBatch]) -> None:
        """Pass on that more became certain."""
        ...

    def observed(self, node_id: int) -> Observed | None:
        """A running node after its last event."""
        ...


class History:
    """Committed batches from offset 0 on, and in which epoch each was first known to be committed."""

    def __init__(self) -> None:
        self.batches: list[LoggedBatch] = []
        self.commit_epochs: list[int] = []

    @property
    def end(self) -> int:
        return self.batches[-1].end_offset if self.batches else 0

    def at(self, base_offset: int) -> LoggedBatch | None:
        """The committed batch that begins at an offset."""
        index = bisect_left(self.batches, base_offset, key=lambda batch: batch.base_offset)
        found = self.batches[index] if index < len(self.batches) else None
        return found if found is not None and found.base_offset == base_offset else None

    def ending_at(self, end_offset: int) -> LoggedBatch | None:
        """The committed batch that ends at an offset."""
        index = bisect_left(self.batches, end_offset, key=lambda batch: batch.end_offset)
        found = self.batches[index] if index < len(self.batches) else None
        return found if found is not None and found.end_offset == end_offset else None

    def extend(self, batches: Sequence[LoggedBatch], epoch: int) -> None:
        self.batches.extend(batches)
        self.commit_epochs.extend([epoch] * len(batches))

    def committed_before(self, epoch: int) -> LoggedBatch | None:
        """The last batch that was committed in an earlier epoch."""
        for batch, committed in zip(reversed(self.batches), reversed(self.commit_epochs), strict=True):
            if committed < epoch:
                return batch
        return None
