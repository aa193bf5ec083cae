"""What replicas of the metadata log say to each other, without the wire's nesting and versions.

`wire.py` turns these into Kafka's messages and back. A response always says who leads, as far as the sender knows, so
that whoever asked the wrong node learns whom to ask. Offsets of -1 and ids of -1 mean unknown, as on the wire.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from broker.quorum.identity import NO_NODE, KRaftVersions, Listeners, LogPosition, ReplicaKey, SnapshotId
from protocol.errors import ErrorCode
from protocol.primitives import Buffer

UNKNOWN_OFFSET: Final = -1
NO_SNAPSHOT: Final = SnapshotId(-1, -1)
NO_VERSIONS: Final = KRaftVersions(0, 0)
ANY_HIGH_WATERMARK: Final = 2**63 - 1
"""The high watermark in a Fetch of a version before 18: its sender is not waiting to hear of a newer one (KIP-1166)."""


class LeaderHint(NamedTuple):
    """The leader as the answering node knows it; the wire names the one endpoint for the listener asked."""

    leader_id: int = NO_NODE
    epoch: int = 0
    listeners: Listeners = ()


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """`voter` is whom the sender believes to ask; None in versions that do not say. `epoch` is the candidate's."""

    cluster_id: str | None
    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey | None
    last: LogPosition
    pre_vote: bool = False


@dataclass(frozen=True, slots=True)
class VoteResponse:
    error: ErrorCode
    leader: LeaderHint
    granted: bool = False


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochRequest:
    cluster_id: str | None
    leader_id: int
    epoch: int
    voter: ReplicaKey | None
    listeners: Listeners = ()


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochResponse:
    error: ErrorCode
    leader: LeaderHint


@dataclass(frozen=True, slots=True)
class EndQuorumEpochRequest:
    """`successors`: who should stand first, the most advanced first; directories are zero in old versions."""

    cluster_id: str | None
    leader_id: int
    epoch: int
    successors: tuple[ReplicaKey, ...]
    listeners: Listeners = ()


@dataclass(frozen=True, slots=True)
class EndQuorumEpochResponse:
    error: ErrorCode
    leader: LeaderHint


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """`replica.id` < 0 reads without being tracked. `epoch` is the leader's as the sender knows it, -1 for any."""

    cluster_id: str | None
    replica: ReplicaKey
    epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    max_wait_ms: int = 0
    max_bytes: int = 8 * 1024 * 1024
    high_watermark: int = ANY_HIGH_WATERMARK


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """At most one of `diverging`, `snapshot_id` and records.

    The core says where records are read (`read_from`, -1 for none, up to `max_bytes`); the driver fills in `records`.
    """

    error: ErrorCode
    leader: LeaderHint
    high_watermark: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    diverging: LogPosition | None = None
    snapshot_id: SnapshotId | None = None
    read_from: int = UNKNOWN_OFFSET
    max_bytes: int = 0
    records: Buffer = b""


@dataclass(frozen=True, slots=True)
class FetchSnapshotRequest:
    cluster_id: str | None
    replica: ReplicaKey
    epoch: int
    snapshot_id: SnapshotId
    position: int
    max_bytes: int = 2**31 - 1


@dataclass(frozen=True, slots=True)
class FetchSnapshotResponse:
    """`size` is the whole snapshot's. The driver fills in `data`, `max_bytes` at most from `position` on."""

    error: ErrorCode
    leader: LeaderHint
    snapshot_id: SnapshotId = NO_SNAPSHOT
    size: int = 0
    position: int = 0
    max_bytes: int = 0
    data: Buffer = b""


@dataclass(frozen=True, slots=True)
class AddVoterRequest:
    cluster_id: str | None
    voter: ReplicaKey
    listeners: Listeners
    ack_when_committed: bool = True


@dataclass(frozen=True, slots=True)
class RemoveVoterRequest:
    cluster_id: str | None
    voter: ReplicaKey


@dataclass(frozen=True, slots=True)
class UpdateVoterRequest:
    cluster_id: str | None
    epoch: int
    voter: ReplicaKey
    listeners: Listeners
    versions: KRaftVersions


@dataclass(frozen=True, slots=True)
class ChangeVotersResponse:
    """The answer to all three changes; `message` is a sentence for people."""

    error: ErrorCode
    leader: LeaderHint
    message: str | None = None


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """Asks a node for the kraft.version that it supports, and by that whether it can be reached (ApiVersions)."""


@dataclass(frozen=True, slots=True)
class ProbeResponse:
    error: ErrorCode
    versions: KRaftVersions = NO_VERSIONS


@dataclass(frozen=True, slots=True)
class SendFailure:
    """No answer came: no connection or too late (BROKER_NOT_AVAILABLE), no version in common (UNSUPPORTED_VERSION).

    `is_refusal`: the machine answered, and nobody listens there.
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
