"""AddRaftVoter (80), RemoveRaftVoter (81), UpdateRaftVoter (82), and the kraft.version range in ApiVersions (18).

AddRaftVoter 1 may request a response before the commit (KIP-1186). Responses to the first two APIs name no leader;
clients find it in the cluster metadata.
"""

from typing import Final

from broker.quorum.identity import KRaftVersions, ListenerEndpoint, ReplicaKey
from broker.quorum.messages import (
    NO_VERSIONS,
    AddVoterRequest,
    ChangeVotersResponse,
    LeaderHint,
    ProbeResponse,
    RemoveVoterRequest,
    UpdateVoterRequest,
)
from broker.quorum.wire.shape import address_of, listeners_of, named_error
from protocol.ids import BrokerId, LeaderEpoch
from protocol.messages import add_raft_voter as add
from protocol.messages import api_versions, update_raft_voter
from protocol.messages import remove_raft_voter as remove

EARLY_ACK_FROM: Final = 1
KRAFT_VERSION: Final = "kraft.version"


def decode_add(message: add.AddRaftVoterRequest) -> AddVoterRequest:
    return AddVoterRequest(
        message.cluster_id,
        ReplicaKey(BrokerId(message.voter_id), message.voter_directory_id),
        listeners_of(message.listeners),
        message.ack_when_committed,
    )


def encode_add(request: AddVoterRequest, timeout_ms: int) -> add.AddRaftVoterRequest:
    """Encode a request. Without `ack_when_committed` it needs version EARLY_ACK_FROM or later."""
    return add.AddRaftVoterRequest(
        request.cluster_id,
        timeout_ms,
        request.voter.id,
        request.voter.directory_id,
        [add.Listener(*each) for each in request.listeners],
        request.ack_when_committed,
    )


def decode_remove(message: remove.RemoveRaftVoterRequest) -> RemoveVoterRequest:
    return RemoveVoterRequest(message.cluster_id, ReplicaKey(BrokerId(message.voter_id), message.voter_directory_id))


def encode_remove(request: RemoveVoterRequest) -> remove.RemoveRaftVoterRequest:
    return remove.RemoveRaftVoterRequest(request.cluster_id, request.voter.id, request.voter.directory_id)


def decode_change_response(message: add.AddRaftVoterResponse | remove.RemoveRaftVoterResponse) -> ChangeVotersResponse:
    return ChangeVotersResponse(named_error(message.error_code), LeaderHint(), message.error_message)


def encode_add_response(response: ChangeVotersResponse) -> add.AddRaftVoterResponse:
    return add.AddRaftVoterResponse(error_code=response.error, error_message=_sentence(response))


def encode_remove_response(response: ChangeVotersResponse) -> remove.RemoveRaftVoterResponse:
    return remove.RemoveRaftVoterResponse(error_code=response.error, error_message=_sentence(response))


def decode_update(message: update_raft_voter.UpdateRaftVoterRequest) -> UpdateVoterRequest:
    versions = message.kraft_version_feature
    return UpdateVoterRequest(
        message.cluster_id,
        LeaderEpoch(message.current_leader_epoch),
        ReplicaKey(BrokerId(message.voter_id), message.voter_directory_id),
        listeners_of(message.listeners),
        KRaftVersions(versions.min_supported_version, versions.max_supported_version),
    )


def encode_update(request: UpdateVoterRequest) -> update_raft_voter.UpdateRaftVoterRequest:
    return update_raft_voter.UpdateRaftVoterRequest(
        request.cluster_id,
        request.epoch,
        request.voter.id,
        request.voter.directory_id,
        [update_raft_voter.Listener(*each) for each in request.listeners],
        update_raft_voter.KRaftVersionFeature(*request.versions),
    )


def decode_update_response(message: update_raft_voter.UpdateRaftVoterResponse, listener: str) -> ChangeVotersResponse:
    leader = message.current_leader
    address = (ListenerEndpoint(listener, leader.host, leader.port),) if leader.host else ()
    known = LeaderHint(
        BrokerId(leader.leader_id), LeaderEpoch(max(0, leader.leader_epoch)), address if leader.leader_id >= 0 else ()
    )
    return ChangeVotersResponse(named_error(message.error_code), known)


def encode_update_response(response: ChangeVotersResponse, listener: str) -> update_raft_voter.UpdateRaftVoterResponse:
    leader, address = response.leader, address_of(response.leader, listener)
    current = update_raft_voter.CurrentLeader(leader.leader_id, leader.epoch)
    if address is not None:
        current.host, current.port = address
    return update_raft_voter.UpdateRaftVoterResponse(error_code=response.error, current_leader=current)


def decode_probe_response(message: api_versions.ApiVersionsResponse) -> ProbeResponse:
    """Decode the kraft.version range. A node without the feature supports version 0 only."""
    found = next((each for each in message.supported_features if each.name == KRAFT_VERSION), None)
    versions = NO_VERSIONS if found is None else KRaftVersions(found.min_version, found.max_version)
    return ProbeResponse(named_error(message.error_code), versions)


def _sentence(response: ChangeVotersResponse) -> str | None:
    """Return the error message for operators, by default the error code's own message."""
    return response.message or (response.error.message if response.error else None)
