"""The quorum as its users see it, whoever of one node or several agrees behind it.

`Quorum` is the seam: the controller's driver appends at an epoch and hears of commits and leaders through a listener.
`broker.runtime.quorum.driver.QuorumDriver` is one.
"""

from asyncio import Future
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from broker.quorum.appends import Appended, BatchTooLarge, NotLeader
from broker.quorum.identity import LeaderAndEpoch, SnapshotId
from protocol.primitives import Buffer

__all__ = [
    "METADATA_LOG_NAME",
    "VOTERS_CHECKPOINT",
    "Appended",
    "BatchTooLarge",
    "CommittedBatch",
    "LeaderAndEpoch",
    "NotLeader",
    "Quorum",
    "QuorumListener",
    "RawSnapshotReader",
]

METADATA_LOG_NAME: Final = "__cluster_metadata-0"
VOTERS_CHECKPOINT: Final = "00000000000000000000-0000000000.checkpoint"


class CommittedBatch(NamedTuple):
    """A batch that cannot vanish any more. `frames` are framed metadata records; a control batch has none."""

    base_offset: int
    last_offset: int
    epoch: int
    timestamp_ms: int
    frames: Sequence[Buffer]


class RawSnapshotReader(Protocol):
    """A snapshot as a listener loads it, in pieces; whoever was given it closes it."""

    @property
    def size(self) -> int:
        """Bytes of the whole snapshot."""
        ...

    def next_chunk(self) -> bytes:
        """The next whole batches, about a megabyte; empty at the end. Blocks. Raises DamagedSnapshot, OSError."""
        ...

    def close(self) -> None: ...


class QuorumListener(Protocol):
    """What a user of the quorum is told, on the event loop and in the order of offsets.

    An exception out of any of these ends the node. None of them may hold the loop for more than a few milliseconds;
    what is committed comes in pieces that are small enough, as long as its writer's batches are.
    """

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None: ...

    def on_load_snapshot(self, snapshot_id: SnapshotId, reader: RawSnapshotReader) -> "Future[None] | None":
        """Forget everything, and load this instead. Nothing else is told before the future is done; None: it is."""
        ...

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """To the leader itself only after its own epoch's first commit; every batch before that was handed over."""
        ...


class Quorum(Protocol):
    """A replicated metadata log with one leader per epoch (KIP-595)."""

    @property
    def node_id(self) -> int: ...

    @property
    def leader(self) -> LeaderAndEpoch: ...

    @property
    def high_watermark(self) -> int | None:
        """The end of what is committed, as listeners were told; None before anybody knew."""
        ...

    @property
    def log_end_offset(self) -> int:
        """The offset that the next append gets."""
        ...

    def append(self, epoch: int, frames: Sequence[bytes]) -> Appended:
        """Append records as one batch, which commits or vanishes as a whole.

        Returns before anything is written, and never tells of the commit before it has returned. Raises NotLeader,
        BatchTooLarge.
        """
        ...

    def add_listener(self, listener: QuorumListener) -> None:
        """Tell everything from the log's start or its newest snapshot on, soon, then what comes."""
        ...

    def resign(self, epoch: int) -> None:
        """Give up leadership of an epoch, because this node's state machine cannot go on. No effect if it is over."""
        ...
