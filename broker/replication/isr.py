"""The in-sync replicas of a partition as its leader sees them, while the controller decides (KIP-497).

The leader proposes, the controller decides, and between the two nobody may be lost: admission (`min.insync.replicas`)
counts only the members that the controller has confirmed, while the high watermark waits for every replica that might
already be a member.

    Committed --propose_expand--> PendingExpand --confirmed--> Committed
    Committed --propose_shrink--> PendingShrink --confirmed--> Committed
    Pending… --rejected--> the Committed it came from
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommittedIsr:
    """What the controller last confirmed; nothing is in flight."""

    committed: frozenset[int]

    @property
    def maximal(self) -> frozenset[int]:
        """Everyone who may be a member."""
        return self.committed

    def propose_expand(self, broker_id: int) -> "PendingExpand":
        return PendingExpand(self.committed, broker_id)

    def propose_shrink(self, removed: frozenset[int]) -> "PendingShrink":
        return PendingShrink(self.committed, removed)


@dataclass(frozen=True, slots=True)
class PendingExpand:
    """We asked to admit `added`; it counts for the high watermark at once, for admission only when confirmed."""

    committed: frozenset[int]
    added: int

    @property
    def maximal(self) -> frozenset[int]:
        return self.committed | {self.added}

    @property
    def proposed(self) -> frozenset[int]:
        return self.committed | {self.added}


@dataclass(frozen=True, slots=True)
class PendingShrink:
    """We asked to drop `removed`; until confirmed they may still be elected, so the high watermark waits for them."""

    committed: frozenset[int]
    removed: frozenset[int]

    @property
    def maximal(self) -> frozenset[int]:
        return self.committed

    @property
    def proposed(self) -> frozenset[int]:
        return self.committed - self.removed


PendingIsr = PendingExpand | PendingShrink
IsrState = CommittedIsr | PendingExpand | PendingShrink


@dataclass(frozen=True, slots=True, eq=False)
class IsrProposal:
    """What the controller is asked for, on top of the state with these epochs.

    `members` are (broker id, broker epoch), with -1 for an epoch that is not known. `pending` waits for the answer.
    """

    pending: PendingIsr
    leader_epoch: int
    partition_epoch: int
    members: tuple[tuple[int, int], ...]


def effective_min_isr(min_insync_replicas: int, replica_count: int) -> int:
    """`min.insync.replicas`, but never more than there are replicas: otherwise nothing could ever be written."""
    return min(min_insync_replicas, replica_count)
