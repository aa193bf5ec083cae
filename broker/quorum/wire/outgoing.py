"""Outgoing requests: the API key, the supported versions, and the decoder of the response."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from broker.quorum import messages as core
from broker.quorum.wire import elections, membership, replication
from protocol.api_keys import ApiKey
from protocol.messages import Message, api_versions

SOFTWARE_NAME: Final = "ottla"
SOFTWARE_VERSION: Final = "kraft"


class Outgoing(NamedTuple):
    """An encodable request. `build` encodes it for a version, which must be at least `lowest_version`.

    `read` decodes the response, given the name of the listener. It raises MalformedResponse.
    """

    key: ApiKey
    lowest_version: int
    build: Callable[[int], Message]
    read: Callable[[Any, str], core.Response]


def outgoing(request: core.Request, timeout_ms: int) -> Outgoing:
    """Return the encodable form of a request. AddRaftVoter contains `timeout_ms`, the sender's timeout."""
    match request:
        case core.VoteRequest():
            lowest = elections.PRE_VOTE_FROM if request.pre_vote else 0
            return Outgoing(
                ApiKey.VOTE, lowest, _always(elections.encode_vote(request)), elections.decode_vote_response
            )
        case core.BeginQuorumEpochRequest():
            message: Message = elections.encode_begin(request)
            return Outgoing(ApiKey.BEGIN_QUORUM_EPOCH, 0, _always(message), elections.decode_begin_response)
        case core.EndQuorumEpochRequest():
            message = elections.encode_end(request)
            return Outgoing(ApiKey.END_QUORUM_EPOCH, 0, _always(message), elections.decode_end_response)
        case core.FetchRequest():
            build = partial(replication.encode_fetch, request)
            return Outgoing(ApiKey.FETCH, replication.FETCH_FROM, build, replication.decode_fetch_response)
        case core.FetchSnapshotRequest():
            message = replication.encode_fetch_snapshot(request)
            return Outgoing(ApiKey.FETCH_SNAPSHOT, 0, _always(message), replication.decode_fetch_snapshot_response)
        case _:
            return _membership_request(request, timeout_ms)


def _membership_request(
    request: core.AddVoterRequest | core.RemoveVoterRequest | core.UpdateVoterRequest | core.ProbeRequest,
    timeout_ms: int,
) -> Outgoing:
    match request:
        case core.AddVoterRequest():
            lowest = 0 if request.ack_when_committed else membership.EARLY_ACK_FROM
            message: Message = membership.encode_add(request, timeout_ms)
            return Outgoing(ApiKey.ADD_RAFT_VOTER, lowest, _always(message), _plain(membership.decode_change_response))
        case core.RemoveVoterRequest():
            message = membership.encode_remove(request)
            return Outgoing(ApiKey.REMOVE_RAFT_VOTER, 0, _always(message), _plain(membership.decode_change_response))
        case core.UpdateVoterRequest():
            message = membership.encode_update(request)
            return Outgoing(ApiKey.UPDATE_RAFT_VOTER, 0, _always(message), membership.decode_update_response)
        case core.ProbeRequest():
            message = api_versions.ApiVersionsRequest(SOFTWARE_NAME, SOFTWARE_VERSION)
            return Outgoing(ApiKey.API_VERSIONS, 0, _always(message), _plain(membership.decode_probe_response))


def _always(message: Message) -> Callable[[int], Message]:
    return lambda _version: message


def _plain(read: Callable[[Any], core.Response]) -> Callable[[Any, str], core.Response]:
    """Adapt a decoder of responses that name no leader."""
    return lambda message, _listener: read(message)
