"""APIs of the metadata quorum (KIP-595, KIP-630, KIP-853): request decoded, handled by the replica, response encoded.

Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot and UpdateRaftVoter are served on controller listeners
alone; AddRaftVoter and RemoveRaftVoter are forwarded by brokers. Every API has the same handler.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar

from broker.api.pipeline.permission import ALTER_CLUSTER, CLUSTER_ACTION, Requirement
from broker.api.serving.context import RequestContext
from broker.api.serving.quorum_peer import QuorumPeer
from broker.api.serving.route import Forwarding, Route, route
from broker.quorum import messages as core
from broker.quorum.wire.elections import (
    decode_begin,
    decode_end,
    decode_vote,
    encode_begin_response,
    encode_end_response,
    encode_vote_response,
)
from broker.quorum.wire.membership import (
    decode_add,
    decode_remove,
    decode_update,
    encode_add_response,
    encode_remove_response,
    encode_update_response,
)
from broker.quorum.wire.replication import (
    FETCH_FROM,
    answer_other_partitions,
    decode_fetch,
    decode_fetch_snapshot,
    encode_fetch_response,
    encode_fetch_snapshot_response,
)
from broker.quorum.wire.shape import WrongPartition
from protocol.api_keys import ApiKey
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages import Message
from protocol.messages.add_raft_voter import AddRaftVoterRequest
from protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.fetch_snapshot import FetchSnapshotRequest
from protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from protocol.messages.vote import VoteRequest

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=core.Response)


@lazy_dataclass(frozen=True, slots=True)
class QuorumRequest(Generic[Q, R]):
    """One API of the quorum.

    `decode` gets the request and its version and may raise WrongPartition; `encode` gets the replica's response and the
    name of the listener that the request arrived on, whose endpoints the response names. `complete` answers the
    parts of the request that the replica does not handle.
    """

    request: type[Q]
    decode: Callable[[Q, int], core.Request]
    response: type[R]
    encode: Callable[[R, str], Message]
    permission: Requirement = CLUSTER_ACTION
    forwarding: Forwarding = Forwarding.LOCAL
    min_version: int | None = None
    complete: Callable[[Q, Any], Message] = lambda _request, response: response

    @property
    def key(self) -> ApiKey:
        """The API key."""
        return ApiKey(self.request.API_KEY)


# Versions 0-2: 1 names both replicas by directory and the leader's endpoint (KIP-853); 2 has pre-votes (KIP-996). The
# replica grants a vote only once the vote is on disk.
VOTE: Final = QuorumRequest(
    VoteRequest, lambda message, _version: decode_vote(message), core.VoteResponse, encode_vote_response
)
# Versions 0-1, sent by a new leader: 1 names the voter that is addressed and the leader's endpoints (KIP-853).
BEGIN_QUORUM_EPOCH: Final = QuorumRequest(
    BeginQuorumEpochRequest,
    lambda message, _version: decode_begin(message),
    core.BeginQuorumEpochResponse,
    encode_begin_response,
)
# Versions 0-1, sent by a leader that resigns: 1 names preferred successors by directory too, and the leader's endpoints
# (KIP-853).
END_QUORUM_EPOCH: Final = QuorumRequest(
    EndQuorumEpochRequest,
    lambda message, _version: decode_end(message),
    core.EndQuorumEpochResponse,
    encode_end_response,
)
# Versions 12-18, as replicas of the metadata log fetch: 13 topics by id; 16 the leader's endpoint; 17 the replica's
# directory (KIP-853); 18 the high watermark that the replica knows (KIP-1166). A replica that has reached the log end
# waits in the quorum's core for records, at most as long as the request allows. Records are views of the log.
RAFT_FETCH: Final = QuorumRequest(
    FetchRequest, decode_fetch, core.FetchResponse, encode_fetch_response, min_version=FETCH_FROM
)
# Versions 0-1 (KIP-630): a page of a snapshot, by byte position; 1 the replica's directory and the leader's endpoint
# (KIP-853). Only the metadata log has snapshots; other partitions in the request are unknown.
FETCH_SNAPSHOT: Final = QuorumRequest(
    FetchSnapshotRequest,
    lambda message, _version: decode_fetch_snapshot(message),
    core.FetchSnapshotResponse,
    encode_fetch_snapshot_response,
    complete=answer_other_partitions,
)
# Version 0 (KIP-853): a voter's endpoints and supported range of kraft.version. The response does not wait for the
# commit, because the voter's own fetches commit the change.
UPDATE_RAFT_VOTER: Final = QuorumRequest(
    UpdateRaftVoterRequest,
    lambda message, _version: decode_update(message),
    core.ChangeVotersResponse,
    encode_update_response,
)
# Versions 0-1 (KIP-853): 1 can ask for the response before the commit (KIP-1186). The request's timeout is ignored: a
# change that the quorum does not commit within its own time is answered with REQUEST_TIMED_OUT and may still happen.
ADD_RAFT_VOTER: Final = QuorumRequest(
    AddRaftVoterRequest,
    lambda message, _version: decode_add(message),
    core.ChangeVotersResponse,
    lambda response, _listener: encode_add_response(response),
    ALTER_CLUSTER,
    Forwarding.TO_CONTROLLER,
)
# Version 0 (KIP-853).
REMOVE_RAFT_VOTER: Final = QuorumRequest(
    RemoveRaftVoterRequest,
    lambda message, _version: decode_remove(message),
    core.ChangeVotersResponse,
    lambda response, _listener: encode_remove_response(response),
    ALTER_CLUSTER,
    Forwarding.TO_CONTROLLER,
)

REPLICA_REQUESTS: Final[tuple[QuorumRequest[Any, Any], ...]] = (
    RAFT_FETCH,
    FETCH_SNAPSHOT,
    VOTE,
    BEGIN_QUORUM_EPOCH,
    END_QUORUM_EPOCH,
    UPDATE_RAFT_VOTER,
)
"""Requests of other replicas of the metadata log."""

VOTER_CHANGES: Final[tuple[QuorumRequest[Any, Any], ...]] = (ADD_RAFT_VOTER, REMOVE_RAFT_VOTER)
"""Requests of administrators, answered by the leader of the quorum, which is the active controller."""


class QuorumRequestHandler(Generic[Q, R]):
    """Answers requests of one API with the replica's response."""

    def __init__(self, api: QuorumRequest[Q, R], replica: QuorumPeer) -> None:
        self._api = api
        self._replica = replica

    async def __call__(self, request: Q, context: RequestContext) -> Message:
        try:
            decoded = self._api.decode(request, context.api_version)
        except WrongPartition as wrong:
            return wrong.response
        response = await self._replica.handle(decoded)
        assert isinstance(response, self._api.response)
        return self._api.complete(request, self._api.encode(response, context.listener))


def quorum_routes(requests: Iterable[QuorumRequest[Any, Any]], replica: QuorumPeer) -> Iterable[Route]:
    """Yield one row per API."""
    for api in requests:
        yield route(
            api.key,
            QuorumRequestHandler(api, replica),
            api.permission,
            forwarding=api.forwarding,
            min_version=api.min_version,
        )
