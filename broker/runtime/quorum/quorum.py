"""The interface of the quorum for its users, independent of the number of voters.

The controller's driver appends in an epoch and is notified of commits and leaders through a listener.
`broker.runtime.quorum.driver.QuorumDriver` implements `Quorum`.
"""

from asyncio import Future
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from broker.quorum.appends import Appended, BatchTooLarge, NotLeader
from broker.quorum.identity import LeaderAndEpoch, SnapshotId
from protocol.ids import LeaderEpoch
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
    """A committed batch. `frames` are framed metadata records; a control batch has none."""

    base_offset: int
    last_offset: int
    epoch: LeaderEpoch
    timestamp_ms: int
    frames: Sequence[Buffer]


class RawSnapshotReader(Protocol):
    """Reads a snapshot in chunks. The recipient closes the reader."""

    @property
    def size(self) -> int:
        """The size of the whole snapshot in bytes."""
        ...

    def next_chunk(self) -> bytes:
        """Return the next whole batches, about 1 MB; empty at the end. Blocks. Raise DamagedSnapshot, OSError."""
        ...

    def close(self) -> None: ...


class QuorumListener(Protocol):
    """Callbacks of a user of the quorum, called on the event loop in the order of offsets.

    An exception stops the node. No callback may block the loop for more than a few milliseconds; commits are delivered
    in suitably small lists of batches.
    """

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None: ...

    def on_load_snapshot(self, snapshot_id: SnapshotId, reader: RawSnapshotReader) -> "Future[None] | None":
        """Replace all state by the snapshot. The next callback follows after the future completes; None: at once."""
        ...

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Process a leader change. The leader is notified after its epoch's first commit and all batches before it."""
        ...


class Quorum(Protocol):
    """A replicated metadata log with one leader per epoch (KIP-595)."""

    @property
    def node_id(self) -> int: ...

    @property
    def leader(self) -> LeaderAndEpoch: ...

    @property
    def high_watermark(self) -> int | None:
        """The high watermark of which listeners were notified; None while unknown."""
        ...

    @property
    def log_end_offset(self) -> int:
        """The offset of the next append."""
        ...

    def append(self, epoch: LeaderEpoch, frames: Sequence[bytes]) -> Appended:
        """Append records as one batch, which is committed or lost as a whole.

        Return before the batch is written; listeners are notified of the commit only after the return. Raise NotLeader,
        BatchTooLarge.
        """
        ...

    def add_listener(self, listener: QuorumListener) -> None:
        """Deliver all batches, in a later loop iteration, from the log start or the newest snapshot on."""
        ...

    def resign(self, epoch: int) -> None:
        """Resign as leader of an epoch, because this node's state machine failed. No effect in a later epoch."""
        ...
