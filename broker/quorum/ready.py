"""The output of the quorum core and the order in which the driver executes it.

Writing. One `Ready` at a time is written, strictly in this order:

1. Write `state` to quorum-state, durably.
2. Execute the `log` operations one after the other. A FinishPart only starts; it takes long, and reports later.
3. Send the messages that do not wait for an fsync (`waits_for_sync`); reads for responses see the log as of step 2.
   Notify listeners of `leader` and `high_watermark`. Call `QuorumCore.written`: the next Ready may be taken.

Syncing. Readys are synced in the order of writing; one fsync serves all Readys that were written before it began:

4. Fsync the log if `must_sync`, and with it all of the page cache below the log end.
5. Send the other messages, and start `imports`.
6. Call `QuorumCore.persisted`; only then does the leader count its own records towards the majority.

A slow disk thus delays what depends on it, and nothing else: a leader serves fetches, refuses votes, sends
BeginQuorumEpoch, and commits what a majority of the other voters has, however long its fsync takes.

A message that tells of records in this node's own log waits for the fsync of all earlier records, because its recipient
counts them: fetches of a follower, requests for votes, acknowledged voter changes. All other messages depend on
quorum-state alone, also fetch responses with records that are not synced yet (Raft thesis, 10.2.1): a leader that loses
them in a crash restarts as resigned, and writes no other records in its epoch. A crash at any point therefore loses
only messages that no other node has seen, or leaves data on disk of which no other node was informed.
"""

from typing import Final, TypeAlias

from broker.quorum.identity import NO_NODE, LeaderAndEpoch, SnapshotId, SocketAddress
from broker.quorum.messages import (
    BeginQuorumEpochRequest,
    ChangeVotersResponse,
    EndQuorumEpochRequest,
    FetchResponse,
    FetchSnapshotResponse,
    ProbeRequest,
    Request,
    Response,
)
from broker.quorum.snapshots.imports import ImportStep
from protocol.ids import EPOCH_ZERO, BrokerId, LeaderEpoch, Offset
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import ZERO_UUID, Buffer, Uuid


@lazy_dataclass(frozen=True, slots=True)
class ElectionState:
    """The content of quorum-state; -1 means none. `version` 0 belongs to kraft.version 0 and omits directory ids."""

    epoch: LeaderEpoch = EPOCH_ZERO
    leader_id: BrokerId = NO_NODE
    voted_id: BrokerId = NO_NODE
    voted_directory_id: Uuid = ZERO_UUID
    version: int = 1


@lazy_dataclass(frozen=True, slots=True)
class Append:
    """Append whole batches unchanged at the log end. `end_offset` is the log end offset afterwards."""

    batches: Buffer
    end_offset: Offset
    epoch: LeaderEpoch


@lazy_dataclass(frozen=True, slots=True)
class TruncateTo:
    """Remove all records from `offset` on, from the log and the leader epoch cache."""

    offset: Offset


@lazy_dataclass(frozen=True, slots=True)
class StartAt:
    """Empty the log; it starts and ends at the end offset of the stored snapshot. Older snapshots are deleted."""

    snapshot_id: SnapshotId


@lazy_dataclass(frozen=True, slots=True)
class Trim:
    """Raise the log start offset to a snapshot's end offset, and delete older segments and snapshots."""

    snapshot_id: SnapshotId


@lazy_dataclass(frozen=True, slots=True)
class WritePart:
    """Write bytes of a snapshot being fetched at a position of its `.part` file; position 0 truncates the file."""

    snapshot_id: SnapshotId
    position: int
    data: Buffer


@lazy_dataclass(frozen=True, slots=True)
class FinishPart:
    """Check a completely received snapshot, fsync and rename it. Report to `QuorumCore.on_snapshot_fetched`.

    The check reads the whole snapshot, so later Readys are executed meanwhile.

    `is_imported`: the snapshot comes from an object store and is in a separate file that WritePart does not touch.
    """

    snapshot_id: SnapshotId
    size: int
    is_imported: bool = False


@lazy_dataclass(frozen=True, slots=True)
class DiscardPart:
    """Delete the `.part` file of a snapshot that is no longer wanted."""

    snapshot_id: SnapshotId


LogOperation: TypeAlias = Append | TruncateTo | StartAt | Trim | WritePart | FinishPart | DiscardPart


@lazy_dataclass(frozen=True, slots=True)
class SendRequest:
    """A request to another node. Its single outcome, a response or a SendFailure, is reported under `serial`.

    `to_id` is negative for a bootstrap server, whose node id is unknown. The request fails after `timeout_ms`.
    """

    serial: int
    to_id: BrokerId
    to: SocketAddress
    request: Request
    timeout_ms: int


@lazy_dataclass(frozen=True, slots=True)
class SendResponse:
    """The complete response to the request received under `token`."""

    token: int
    response: Response


@lazy_dataclass(frozen=True, slots=True)
class ReadRecords:
    """Read up to `max_bytes` of records from `offset` on, and send the response with these records."""

    token: int
    response: FetchResponse
    offset: Offset
    max_bytes: int


@lazy_dataclass(frozen=True, slots=True)
class ReadSnapshotPage:
    """Read up to `max_bytes` of the response's snapshot from its `position` on, and send the response with the data.

    If the snapshot was deleted after the core answered, the response is SNAPSHOT_NOT_FOUND.
    """

    token: int
    response: FetchSnapshotResponse
    max_bytes: int


PendingResponse: TypeAlias = SendResponse | ReadRecords | ReadSnapshotPage


def waits_for_sync(message: SendRequest | PendingResponse) -> bool:
    """Whether a message tells of records in this node's own log, so that it must not leave before their fsync."""
    if isinstance(message, SendRequest):
        return not isinstance(message.request, BeginQuorumEpochRequest | EndQuorumEpochRequest | ProbeRequest)
    return isinstance(message.response, ChangeVotersResponse)


@lazy_dataclass(frozen=True, slots=True)
class Ready:
    """Writes, messages and notifications; see the module for the order. `leader` and `high_watermark` are None if
    unchanged.

    Listeners of the leader's own node are notified only after a record of the leader's epoch is committed.
    """

    state: ElectionState | None = None
    log: tuple[LogOperation, ...] = ()
    must_sync: bool = False
    requests: tuple[SendRequest, ...] = ()
    responses: tuple[PendingResponse, ...] = ()
    leader: LeaderAndEpoch | None = None
    high_watermark: Offset | None = None
    imports: tuple[ImportStep, ...] = ()


NOTHING: Final = Ready()
