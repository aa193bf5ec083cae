"""What replicas say to each other and write, as lines for people. None: not worth a line."""

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
    """A replica and the how-manieth disk of it this is: 4.1; the id alone where the directory is not known."""
    return str(key.id) if key.directory_id == ZERO_UUID else f"{key.id}.{key.directory_id[-1]}"


def describe_voters(voters: VoterSet) -> str:
    return ",".join(describe_key(voter.key) for voter in voters) or "nobody"


def _position(position: LogPosition) -> str:
    return f"{position.end_offset} of epoch {position.epoch}"


def describe_request(request: Request) -> str | None:
    match request:
        case VoteRequest(epoch=epoch, last=last, pre_vote=pre_vote):
            question = "would you vote" if pre_vote else "vote"
            return f"{question} for me in epoch {epoch}, log to {_position(last)}"
        case BeginQuorumEpochRequest(leader_id=leader, epoch=epoch):
            return f"{leader} leads in epoch {epoch}"
        case EndQuorumEpochRequest(epoch=epoch, successors=successors):
            return f"I resign in epoch {epoch}, successors {','.join(map(describe_key, successors)) or 'none'}"
        case FetchSnapshotRequest(snapshot_id=snapshot_id, position=position):
            return f"fetch snapshot {snapshot_id.end_offset}-{snapshot_id.epoch} from byte {position}"
        case FetchRequest(replica=replica, fetch_offset=offset, last_fetched_epoch=epoch) if replica.id < 0:
            return f"show me record {offset} of epoch {epoch}"
        case AddVoterRequest(voter=voter):
            return f"add voter {describe_key(voter)}"
        case RemoveVoterRequest(voter=voter):
            return f"remove voter {describe_key(voter)}"
        case UpdateVoterRequest(voter=voter, versions=versions):
            return f"update voter {describe_key(voter)}, kraft.version {versions.minimum}-{versions.maximum}"
        case ProbeRequest():
            return "which kraft.version do you support"
    return None


def describe_response(request: Request, response: Response) -> str | None:
    match response:
        case FetchResponse() if isinstance(request, FetchRequest):
            return _fetch_response(request, response)
        case VoteResponse(error=ErrorCode.NONE, granted=granted, leader=leader):
            tentative = isinstance(request, VoteRequest) and request.pre_vote
            word = "yes" if granted else "no"
            return f"{word}, I would{'' if granted else ' not'}" if tentative else f"{word} in epoch {leader.epoch}"
        case FetchSnapshotResponse(error=ErrorCode.NONE):
            return f"bytes {response.position} to {response.position + len(response.data)} of {response.size}"
        case ChangeVotersResponse(error=error, message=message):
            return f"{error.name}: {message}" if message else error.name
    return None if response.error is ErrorCode.NONE else response.error.name


def _fetch_response(request: FetchRequest, response: FetchResponse) -> str | None:
    """Records are told of where they are appended, and commits where they are heard of."""
    asked, leader = f"fetch {request.fetch_offset} of epoch {request.last_fetched_epoch}", response.leader
    if response.diverging is not None:
        return f"{asked}: you diverge beyond {_position(response.diverging)}"
    if response.snapshot_id is not None:
        return f"{asked}: take snapshot {response.snapshot_id.end_offset}-{response.snapshot_id.epoch}"
    if response.error is ErrorCode.NONE or leader.leader_id < 0:
        return None
    return f"{asked}: {response.error.name}, {leader.leader_id} leads in epoch {leader.epoch}"


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
