"""Requests and responses between replicas of the metadata log, without the wire format's nesting and versions.

The `wire` package translates them to and from Kafka's messages. Every response carries the leader and epoch known to
the sender, so a requester that reached the wrong node can find the leader. Offsets and ids of -1 mean unknown, as on
the wire.
"""

from typing import Final, NamedTuple, TypeAlias

from broker.quorum.identity import NO_EPOCH, NO_NODE, KRaftVersions, Listeners, LogPosition, ReplicaKey, SnapshotId
from protocol.errors import ErrorCode
from protocol.ids import EPOCH_ZERO, BrokerId, LeaderEpoch, Offset
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Buffer

UNKNOWN_OFFSET: Final = Offset(-1)
NO_SNAPSHOT: Final = SnapshotId(UNKNOWN_OFFSET, NO_EPOCH)
NO_VERSIONS: Final = KRaftVersions(0, 0)
ANY_HIGH_WATERMARK: Final = Offset(2**63 - 1)
"""The high watermark in a Fetch before version 18: a newer high watermark does not complete the fetch (KIP-1166)."""


class LeaderHint(NamedTuple):
    """The leader known to the responding node. The wire names one endpoint, for the listener of the request."""

    leader_id: BrokerId = NO_NODE
    epoch: LeaderEpoch = EPOCH_ZERO
    listeners: Listeners = ()


@lazy_dataclass(frozen=True, slots=True)
class VoteRequest:
    """`voter` is the intended receiver, None in versions without the field. `epoch` is the candidate's."""

    cluster_id: str | None
    epoch: LeaderEpoch
    candidate: ReplicaKey
    voter: ReplicaKey | None
    last: LogPosition
    pre_vote: bool = False


@lazy_dataclass(frozen=True, slots=True)
class VoteResponse:
    error: ErrorCode
    leader: LeaderHint
    granted: bool = False


@lazy_dataclass(frozen=True, slots=True)
class BeginQuorumEpochRequest:
    cluster_id: str | None
    leader_id: BrokerId
    epoch: LeaderEpoch
    voter: ReplicaKey | None
    listeners: Listeners = ()


@lazy_dataclass(frozen=True, slots=True)
class BeginQuorumEpochResponse:
    error: ErrorCode
    leader: LeaderHint


@lazy_dataclass(frozen=True, slots=True)
class EndQuorumEpochRequest:
    """`successors`: preferred candidates, the largest log first; directory ids are zero in old versions."""

    cluster_id: str | None
    leader_id: BrokerId
    epoch: LeaderEpoch
    successors: tuple[ReplicaKey, ...]
    listeners: Listeners = ()


@lazy_dataclass(frozen=True, slots=True)
class EndQuorumEpochResponse:
    error: ErrorCode
    leader: LeaderHint


@lazy_dataclass(frozen=True, slots=True)
class FetchRequest:
    """`replica.id` < 0 is a consumer without tracked progress, which may set `epoch` to -1: any leader epoch."""

    cluster_id: str | None
    replica: ReplicaKey
    epoch: LeaderEpoch
    fetch_offset: Offset
    last_fetched_epoch: LeaderEpoch
    max_wait_ms: int = 0
    max_bytes: int = 8 * 1024 * 1024
    high_watermark: Offset = ANY_HIGH_WATERMARK


@lazy_dataclass(frozen=True, slots=True)
class FetchResponse:
    """At most one of `diverging`, `snapshot_id` and `records` is set. See `ReadRecords` for reading the records."""

    error: ErrorCode
    leader: LeaderHint
    high_watermark: Offset = UNKNOWN_OFFSET
    log_start_offset: Offset = UNKNOWN_OFFSET
    diverging: LogPosition | None = None
    snapshot_id: SnapshotId | None = None
    records: Buffer = b""


@lazy_dataclass(frozen=True, slots=True)
class FetchSnapshotRequest:
    cluster_id: str | None
    replica: ReplicaKey
    epoch: LeaderEpoch
    snapshot_id: SnapshotId
    position: int
    max_bytes: int = 2**31 - 1


@lazy_dataclass(frozen=True, slots=True)
class FetchSnapshotResponse:
    """`size` is that of the whole snapshot; `data` starts at `position` (see `ReadSnapshotPage`)."""

    error: ErrorCode
    leader: LeaderHint
    snapshot_id: SnapshotId = NO_SNAPSHOT
    size: int = 0
    position: int = 0
    data: Buffer = b""


@lazy_dataclass(frozen=True, slots=True)
class AddVoterRequest:
    cluster_id: str | None
    voter: ReplicaKey
    listeners: Listeners
    ack_when_committed: bool = True


@lazy_dataclass(frozen=True, slots=True)
class RemoveVoterRequest:
    cluster_id: str | None
    voter: ReplicaKey


@lazy_dataclass(frozen=True, slots=True)
class UpdateVoterRequest:
    cluster_id: str | None
    epoch: LeaderEpoch
    voter: ReplicaKey
    listeners: Listeners
    versions: KRaftVersions


@lazy_dataclass(frozen=True, slots=True)
class ChangeVotersResponse:
    """The response to AddVoter, RemoveVoter and UpdateVoter; `message` is a sentence for operators."""

    error: ErrorCode
    leader: LeaderHint
    message: str | None = None


@lazy_dataclass(frozen=True, slots=True)
class ProbeRequest:
    """Ask a node for its supported kraft.version range, which also proves that the node is reachable (ApiVersions)."""


@lazy_dataclass(frozen=True, slots=True)
class ProbeResponse:
    error: ErrorCode
    versions: KRaftVersions = NO_VERSIONS


@lazy_dataclass(frozen=True, slots=True)
class SendFailure:
    """A request without a response.

    BROKER_NOT_AVAILABLE: no connection, or a timeout. UNSUPPORTED_VERSION: no common version. `is_refusal`: the host
    refused the connection, so no process listens on the port.
    """

    error: ErrorCode
    is_refusal: bool = False


Request: TypeAlias = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | AddVoterRequest
    | RemoveVoterRequest
    | UpdateVoterRequest
    | ProbeRequest
)
Response: TypeAlias = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | ChangeVotersResponse
    | ProbeResponse
)
