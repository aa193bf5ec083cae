"""Invariants about the logs on the disks of restarted nodes."""

from collections.abc import Sequence
from typing import Final

from broker.quorum.identity import ReplicaKey
from tests.simulation.quorum.history import Cluster, Observed, Subject
from tests.simulation.quorum.invariants import Invariant
from tests.simulation.watched_disk import LoggedBatch


class SyncedRecordsStay(Invariant):
    """A process starts with all records that its predecessor knew to be synced, or with a snapshot instead."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._ends: dict[ReplicaKey, int] = {}

    def on_event(self, node: Subject, before: Observed | None, now: Observed) -> None:
        end = self._ends.get(node.key, 0)
        is_replaced = now.log_start_offset == now.log_end_offset > 0
        if before is None and now.log_end_offset < end and not is_replaced:
            self.fail(f"the log of node {node.id} ends at {now.log_end_offset}, although it was synced up to {end}")
        self._ends[node.key] = now.synced_end

    def on_removed(self, node: Subject, batches: Sequence[LoggedBatch]) -> None:
        """Follow a truncation: a node that shuts down may truncate its log after its last event."""
        end = self._ends.get(node.key, 0)
        if batches[-1].end_offset >= end:
            self._ends[node.key] = min(end, batches[0].base_offset)


LOG_INVARIANTS: Final[tuple[type[Invariant], ...]] = (SyncedRecordsStay,)
