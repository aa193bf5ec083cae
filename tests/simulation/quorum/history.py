"""The committed batches of all nodes, as reported by the first node that knew each of them."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from broker.quorum.identity import KRaftVersions, ReplicaKey
from broker.quorum.membership.voters import VoterSet
from tests.simulation.quorum.disk import SimulatedDisk
from tests.simulation.quorum.scenario import Scenario
from tests.simulation.watched_disk import LoggedBatch


class Observed(NamedTuple):
    """The state that a running replica reports after an event.

    `high_watermark` is the value known to its listeners, `decided` the value just computed, which is announced after a
    sync. `written_end` and `synced_end` are the ends of the log in the core's memory and of its part known to be
    synced. `decided_start` is the start of the log in the core's memory, which the disk follows. `trusts_leader` says
    whether the node refuses pre-votes because of a leader's response in this epoch, and `leads_durably` whether the
    node leads and its listeners know.
    """

    epoch: int
    leader_id: int | None
    is_leader: bool
    high_watermark: int | None
    log_start_offset: int
    log_end_offset: int
    log_end_epoch: int
    voters: VoterSet
    kraft_version: int
    disk_version: int
    decided: int | None
    written_end: int = 0
    synced_end: int = 0
    decided_start: int = 0
    trusts_leader: bool = False
    tracked_observers: int = 0
    leads_durably: bool = False


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

    @property
    def monotonic_ms(self) -> float: ...

    @property
    def versions(self) -> KRaftVersions: ...


class Cluster(Protocol):
    """All nodes and the committed history."""

    history: "History"

    @property
    def scenario(self) -> Scenario: ...

    def disk_of(self, key: ReplicaKey) -> SimulatedDisk | None:
        """Return the disk of a voter, even if it was wiped since; a voter without a directory id means the first disk
        of its id.
        """
        ...

    def subject(self, node_id: int) -> Subject: ...

    def report_committed(self, batches: Sequence[LoggedBatch]) -> None:
        """Report newly committed batches."""
        ...

    def observed(self, node_id: int) -> Observed | None:
        """Return a running node after its last event."""
        ...


class History:
    """Committed batches from offset 0 on, and the epoch in which each was first known to be committed."""

    def __init__(self) -> None:
        self.batches: list[LoggedBatch] = []
        self.commit_epochs: list[int] = []

    @property
    def end(self) -> int:
        return self.batches[-1].end_offset if self.batches else 0

    def at(self, base_offset: int) -> LoggedBatch | None:
        """Return the committed batch that begins at an offset."""
        index = bisect_left(self.batches, base_offset, key=lambda batch: batch.base_offset)
        found = self.batches[index] if index < len(self.batches) else None
        return found if found is not None and found.base_offset == base_offset else None

    def ending_at(self, end_offset: int) -> LoggedBatch | None:
        """Return the committed batch that ends at an offset."""
        index = bisect_left(self.batches, end_offset, key=lambda batch: batch.end_offset)
        found = self.batches[index] if index < len(self.batches) else None
        return found if found is not None and found.end_offset == end_offset else None

    def extend(self, batches: Sequence[LoggedBatch], epoch: int) -> None:
        self.batches.extend(batches)
        self.commit_epochs.extend([epoch] * len(batches))

    def committed_before(self, epoch: int) -> LoggedBatch | None:
        """Return the last batch that was committed in an earlier epoch."""
        for batch, committed in zip(reversed(self.batches), reversed(self.commit_epochs), strict=True):
            if committed < epoch:
                return batch
        return None
