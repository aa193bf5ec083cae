"""What the core wants done, and in which order.

One `Ready` is under way at a time. The driver does, strictly in this order:

1. `state` is written to quorum-state, durably.
2. `log` operations are done, one after the other.
3. The log is fsynced, if `must_sync`, and with it whatever else lies in the page cache below its end.
4. `sends` and `answers` leave; reads that answers ask for see the log as step 2 left it. `imports` are begun.
5. `leader` and `high_watermark` are told to listeners.
6. The driver calls `QuorumCore.persisted(ready, now)`; only then does the leader count these records as its own.

Between taking a Ready and step 6 the core may be fed further; what follows from that is in the next Ready. So a crash
anywhere loses only messages that nobody has seen, or leaves on disk what nobody was told of.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from broker.quorum.identity import NO_NODE, LeaderAndEpoch, SnapshotId, SocketAddress
from broker.quorum.messages import Request, Response
from broker.quorum.snapshots.imports import ImportStep
from protocol.primitives import ZERO_UUID, Buffer, Uuid


@dataclass(frozen=True, slots=True)
class ElectionState:
    """The content of quorum-state; -1 is nobody. `version` 0 belongs to kraft.version 0 and forgets directories."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE
    voted_directory_id: Uuid = ZERO_UUID
    version: int = 1


@dataclass(frozen=True, slots=True)
class Append:
    """Write whole batches as they are; they continue at the log's end, `end_offset` is the end after them."""

    batches: Buffer
    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Forget all records from `offset` on, also in the epoch cache."""

    offset: int


@dataclass(frozen=True, slots=True)
class StartAt:
    """Empty the log: it starts and ends where the snapshot, which is in place, ends. Older snapshots go too."""

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class Trim:
    """Raise the log start to the end of a snapshot, and delete older segments and snapshots."""

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class WritePart:
    """Bytes of a snapshot being fetched, at a position of its `.part` file; position 0 begins the file anew."""

    snapshot_id: SnapshotId
    position: int
    data: Buffer


@dataclass(frozen=True, slots=True)
class FinishPart:
    """All of a snapshot is there: check it, fsync, rename. The outcome goes to `QuorumCore.on_snapshot_fetched`.

    `is_imported`: it came out of a store, and lies aside where no WritePart touches it.
    """

    snapshot_id: SnapshotId
    size: int
    is_imported: bool = False


@dataclass(frozen=True, slots=True)
class DiscardPart:
    """Delete the `.part` file of a snapshot that is not wanted any more."""

    snapshot_id: SnapshotId


LogOperation: TypeAlias = Append | TruncateTo | StartAt | Trim | WritePart | FinishPart | DiscardPart


@dataclass(frozen=True, slots=True)
class SendRequest:
    """A request to another node. Its one outcome, a response or a SendFailure, comes back under the same `serial`.

    `to_id` is negative for a bootstrap server, whose id nobody knows. `timeout_ms` after sending it fails.
    """

    serial: int
    to_id: int
    to: SocketAddress
    request: Request
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to the request that came in under `token`."""

    token: int
    response: Response


@dataclass(frozen=True, slots=True)
class Ready:
    """In the order in which it is done. `leader` and `high_watermark` are None if they did not change.

    A leader is told to its own node's listeners only once a record of its epoch is committed.
    """

    state: ElectionState | None = None
    log: tuple[LogOperation, ...] = ()
    must_sync: bool = False
    sends: tuple[SendRequest, ...] = ()
    answers: tuple[Answer, ...] = ()
    leader: LeaderAndEpoch | None = None
    high_watermark: int | None = None
    imports: tuple[ImportStep, ...] = ()


NOTHING: Final = Ready()
