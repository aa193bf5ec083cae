"""The in-sync replicas (ISR) of a partition as its leader sees them while the controller decides (KIP-497).

The leader proposes, the controller decides. Meanwhile, admission (`min.insync.replicas`) counts only the members that
the controller has confirmed, and the high watermark waits for every replica that might be a member.

    Committed --propose_expand--> PendingExpand --confirmed--> Committed
    Committed --propose_shrink--> PendingShrink --confirmed--> Committed
    Pending… --refused--> the Committed state before
"""

from dataclasses import dataclass

from protocol.ids import LeaderEpoch


@dataclass(frozen=True, slots=True)
class CommittedIsr:
    """The ISR that the controller confirmed last; no proposal is under way."""

    committed: frozenset[int]

    @property
    def maximal(self) -> frozenset[int]:
        """All replicas that may be members."""
        return self.committed

    def propose_expand(self, broker_id: int) -> "PendingExpand":
        return PendingExpand(self.committed, broker_id)

    def propose_shrink(self, removed: frozenset[int]) -> "PendingShrink":
        return PendingShrink(self.committed, removed)


@dataclass(frozen=True, slots=True)
class PendingExpand:
    """A proposal to add `added`, which counts for the high watermark at once, for admission only when confirmed."""

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
    """A proposal to remove `removed`; until confirmed they may be elected, so the high watermark waits for them."""

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
    """A proposed ISR on top of the partition state with these epochs.

    `members` are pairs of (broker id, broker epoch), with -1 for an unknown epoch. `pending` waits for the answer.
    """

    pending: PendingIsr
    leader_epoch: LeaderEpoch
    partition_epoch: int
    members: tuple[tuple[int, int], ...]


def effective_min_isr(min_insync_replicas: int, replica_count: int) -> int:
    """Return `min.insync.replicas`, limited to the replica count: otherwise no write could ever succeed."""
    return min(min_insync_replicas, replica_count)
