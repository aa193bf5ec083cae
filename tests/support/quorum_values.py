"""Builders of the quorum's values and messages from plain integers."""

from collections.abc import Callable

from broker.quorum.identity import LeaderAndEpoch, LogPosition, ReplicaKey, SnapshotId
from broker.quorum.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    LeaderHint,
    UpdateVoterRequest,
    VoteRequest,
)
from broker.quorum.ready import Append, ElectionState
from broker.quorum.settings import ControlRecord, EpochEntry, Recovered, StaticVoter
from protocol.ids import BrokerId, LeaderEpoch, Offset
from protocol.primitives import ZERO_UUID, Uuid


def replica_key(replica_id: int, directory_id: Uuid = ZERO_UUID) -> ReplicaKey:
    return ReplicaKey(BrokerId(replica_id), directory_id)


def leader_and_epoch(leader_id: int | None, epoch: int) -> LeaderAndEpoch:
    return LeaderAndEpoch(None if leader_id is None else BrokerId(leader_id), LeaderEpoch(epoch))


def log_position(epoch: int, end_offset: int) -> LogPosition:
    return LogPosition(LeaderEpoch(epoch), Offset(end_offset))


def make_snapshot_id(end_offset: int, epoch: int) -> SnapshotId:
    return SnapshotId(Offset(end_offset), LeaderEpoch(epoch))


make_append: Callable[..., Append] = Append
make_begin_request: Callable[..., BeginQuorumEpochRequest] = BeginQuorumEpochRequest
make_control_record: Callable[..., ControlRecord] = ControlRecord
make_election_state: Callable[..., ElectionState] = ElectionState
make_end_request: Callable[..., EndQuorumEpochRequest] = EndQuorumEpochRequest
make_epoch_entry: Callable[..., EpochEntry] = EpochEntry
make_fetch_request: Callable[..., FetchRequest] = FetchRequest
make_fetch_response: Callable[..., FetchResponse] = FetchResponse
make_fetch_snapshot_request: Callable[..., FetchSnapshotRequest] = FetchSnapshotRequest
make_leader_hint: Callable[..., LeaderHint] = LeaderHint
make_recovered: Callable[..., Recovered] = Recovered
make_static_voter: Callable[..., StaticVoter] = StaticVoter
make_update_voter_request: Callable[..., UpdateVoterRequest] = UpdateVoterRequest
make_vote_request: Callable[..., VoteRequest] = VoteRequest
