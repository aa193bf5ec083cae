"""Descriptions of requests, responses and batches of a quorum, as lines of a transcript; None for no line."""

from broker.quorum.control_records import read_control_records
from broker.quorum.identity import LogPosition, ReplicaKey
from broker.quorum.membership.voters import VoterSet
from broker.quorum.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    ChangeVotersResponse,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    ProbeRequest,
    RemoveVoterRequest,
    Request,
    Response,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)
from protocol.errors import ErrorCode
from protocol.primitives import ZERO_UUID
from protocol.records.batch import iter_headers
from protocol.records.control import ControlType, control_type
from protocol.records.reader import iter_records


def describe_key(key: ReplicaKey) -> str:
    """Return the node id and the number of its disk, such as 4.1; the id alone for an unknown directory."""
    return str(key.id) if key.directory_id == ZERO_UUID else f"{key.id}.{key.directory_id[-1]}"


def describe_voters(voters: VoterSet) -> str:
    return ",".join(describe_key(voter.key) for voter in voters) or "none"


def _position(position: LogPosition) -> str:
    return f"{position.end_offset} of epoch {position.epoch}"


def describe_request(request: Request) -> str | None:
    match request:
        case VoteRequest(epoch=epoch, last=last, pre_vote=pre_vote):
            return f"{'PreVote' if pre_vote else 'Vote'} in epoch {epoch}, log end {_position(last)}"
        case BeginQuorumEpochRequest(leader_id=leader, epoch=epoch):
            return f"BeginQuorumEpoch: leader {leader} in epoch {epoch}"
        case EndQuorumEpochRequest(epoch=epoch, successors=successors):
            return f"EndQuorumEpoch in epoch {epoch}, successors {','.join(map(describe_key, successors)) or 'none'}"
        case FetchSnapshotRequest(snapshot_id=snapshot_id, position=position):
            return f"FetchSnapshot {snapshot_id.end_offset}-{snapshot_id.epoch} from byte {position}"
        case FetchRequest(replica=replica, fetch_offset=offset, last_fetched_epoch=epoch) if replica.id < 0:
            return f"Fetch as a consumer: record {offset} after epoch {epoch}"
        case AddVoterRequest(voter=voter):
            return f"AddVoter {describe_key(voter)}"
        case RemoveVoterRequest(voter=voter):
            return f"RemoveVoter {describe_key(voter)}"
        case UpdateVoterRequest(voter=voter, versions=versions):
            return f"UpdateVoter {describe_key(voter)}, kraft.version {versions.minimum}-{versions.maximum}"
        case ProbeRequest():
            return "ApiVersions"
    return None


def describe_response(request: Request, response: Response) -> str | None:
    match response:
        case FetchResponse() if isinstance(request, FetchRequest):
            return _fetch_response(request, response)
        case VoteResponse(error=ErrorCode.NONE, granted=granted, leader=leader):
            kind = "PreVote" if isinstance(request, VoteRequest) and request.pre_vote else "Vote"
            return f"{kind} {'granted' if granted else 'refused'} in epoch {leader.epoch}"
        case FetchSnapshotResponse(error=ErrorCode.NONE):
            return f"bytes {response.position} to {response.position + len(response.data)} of {response.size}"
        case ChangeVotersResponse(error=error, message=message):
            return f"{error.name}: {message}" if message else error.name
    return None if response.error is ErrorCode.NONE else response.error.name


def _fetch_response(request: FetchRequest, response: FetchResponse) -> str | None:
    """Describe a response without records; appends and commits have lines of their own."""
    fetch, leader = f"Fetch {request.fetch_offset} of epoch {request.last_fetched_epoch}", response.leader
    if response.diverging is not None:
        return f"{fetch}: diverging beyond {_position(response.diverging)}"
    if response.snapshot_id is not None:
        return f"{fetch}: snapshot {response.snapshot_id.end_offset}-{response.snapshot_id.epoch}"
    if response.error is ErrorCode.NONE or leader.leader_id < 0:
        return None
    return f"{fetch}: {response.error.name}, leader {leader.leader_id} in epoch {leader.epoch}"


def describe_batches(data: bytes) -> str:
    return "; ".join(_batch(data, position) for position, _ in iter_headers(data))


def _batch(data: bytes, position: int) -> str:
    header = next(iter_headers(data, position))[1]
    if not header.is_control:
        values = " ".join(bytes(record.value or b"").decode() for record in iter_records(data, position))
        return f"{header.base_offset}: {values} (epoch {header.leader_epoch})"
    voters = [each.voters for each in read_control_records(data, position) if each.voters is not None]
    names = []
    for record in iter_records(data, position):
        kind = control_type(record.key)
        name = "?" if kind is None else _CONTROL_NAMES.get(kind, kind.name)
        if kind is ControlType.KRAFT_VOTERS and voters[0] is not None:
            name += f" {describe_voters(VoterSet.of_record(voters[0]))}"
        names.append(name)
    return f"{header.base_offset}: {', '.join(names)} (epoch {header.leader_epoch})"


_CONTROL_NAMES = {
    ControlType.LEADER_CHANGE: "leader change",
    ControlType.KRAFT_VERSION: "kraft.version",
    ControlType.KRAFT_VOTERS: "voters",
}
