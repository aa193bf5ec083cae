"""Leader elections: pre-votes, votes, and the requests that begin and end an epoch.

Theory (KIP-595, KIP-996). A vote is binding for an epoch and is on disk before the response leaves, so an epoch has at
most one leader. A voter grants it only to a log that is at least as long as its own (later last epoch first, then
larger end offset), so the winner has every record that a majority has. A higher epoch deposes a working leader.
Therefore a node first requests pre-votes: a follower or observer whose leader has responded within the fetch timeout
refuses, every other node compares the logs, and no node records anything. A partitioned node, or a removed node that
does not know of its removal, thus disturbs no leader, and two nodes that cannot reach each other do not depose each
other in turns.

A follower whose leader sent EndQuorumEpoch grants pre-votes again. Kafka omits this, so the first preferred successor
loses its pre-vote in quorums of more than three voters (KAFKA-20895).
"""

from typing import Final

from broker.quorum.admission import voter_error
from broker.quorum.identity import NO_NODE, Instant, Listeners, ReplicaKey
from broker.quorum.membership.votes import Ballot, Outcome
from broker.quorum.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    LeaderHint,
    VoteRequest,
    VoteResponse,
)
from broker.quorum.replica import LARGEST_EPOCH, QuorumReplica
from broker.quorum.request_manager import InFlightRequest
from broker.quorum.state import (
    CandidateState,
    FollowerState,
    LeaderState,
    ObserverState,
    ProspectiveState,
    ResignedState,
    Term,
    UnattachedState,
)
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import ZERO_UUID

_FIRST_DELAY_PERCENT: Final = 5
_NEXT_DELAY_PERCENT: Final = 15
"""Percentages of the largest back-off: time for all voters to notice the leader's end, and for one election."""


class QuorumElections:
    """Handles elections up to a won ballot; the core then starts the leadership."""

    def __init__(self, replica: QuorumReplica) -> None:
        self._replica = replica

    # Requests of other voters

    def on_vote_request(self, token: int, request: VoteRequest, now: Instant) -> None:
        replica = self._replica
        error = self._vote_error(request)
        granted = False
        if error is ErrorCode.NONE:
            if request.epoch > replica.term.epoch:
                replica.become_unattached(request.epoch, now)
            granted = self._grants(request, now)
            if granted and not request.pre_vote and replica.term.voted is None:
                replica.vote_for(request.candidate, now)
        replica.out.respond(token, VoteResponse(error, replica.hint, granted))

    def _vote_error(self, request: VoteRequest) -> ErrorCode:
        replica, last = self._replica, request.last
        error = voter_error(replica, request.cluster_id, request.epoch, request.candidate.id, request.voter)
        if error is not ErrorCode.NONE:
            return error
        largest = request.epoch if request.pre_vote else request.epoch - 1
        is_sound = last.end_offset >= 0 and 0 <= last.epoch <= largest
        return ErrorCode.NONE if is_sound else ErrorCode.INVALID_REQUEST

    def _grants(self, request: VoteRequest, now: Instant) -> bool:
        """Whether to grant the vote. The epoch of the request equals this node's epoch."""
        replica = self._replica
        if not replica.settings.can_vote or request.last < replica.log.position:
            return False
        if request.pre_vote:
            return self._grants_pre_vote(now)
        if isinstance(replica.role, LeaderState | CandidateState | ResignedState):
            return False
        voted = replica.term.voted
        if voted is not None:
            return voted.id == request.candidate.id and voted.directory_id in (
                ZERO_UUID,
                request.candidate.directory_id,
            )
        return replica.term.leader_id is None

    def _grants_pre_vote(self, now: Instant) -> bool:
        """Whether the election would not disturb a leader that responds to this node (KIP-996).

        An observer never leaves its role when its leader is silent, and a follower only after the check of a snapshot,
        so the time decides: the voters in the candidate's log may include either, and need its vote.
        """
        match self._replica.role:
            case LeaderState():
                return False
            case FollowerState() | ObserverState() as role:
                return role.leader_ended or not role.has_fetched or now.monotonic_ms >= role.fetch_deadline
        return True

    def on_begin_request(self, token: int, request: BeginQuorumEpochRequest, now: Instant) -> None:
        replica = self._replica
        error = voter_error(replica, request.cluster_id, request.epoch, request.leader_id, request.voter)
        if error is ErrorCode.NONE and not self._follow_sender(request, now):
            error = ErrorCode.INVALID_REQUEST
        replica.out.respond(token, BeginQuorumEpochResponse(error, replica.hint))

    def on_end_request(self, token: int, request: EndQuorumEpochRequest, now: Instant) -> None:
        """Stand for election after a delay by this node's rank among the preferred successors; the first at once.

        An observer searches for the next leader instead.
        """
        replica = self._replica
        error = voter_error(replica, request.cluster_id, request.epoch, request.leader_id, None)
        if error is ErrorCode.NONE and not self._follow_sender(request, now):
            error = ErrorCode.INVALID_REQUEST
        role = replica.role
        if error is ErrorCode.NONE and isinstance(role, FollowerState | ObserverState):
            if not role.leader_ended:
                role.fetch_deadline = now.monotonic_ms + self._election_backoff_ms(request.successors)
            role.leader_ended = True
        replica.out.respond(token, EndQuorumEpochResponse(error, replica.hint))

    def on_leader_process_ended(self, role: FollowerState, now: Instant) -> None:
        """Stand for election soon, because the leader's host refuses connections.

        All followers notice at about the same time, so each waits by its rank, which rotates with the epoch.
        """
        replica = self._replica
        if role.leader_ended:
            return
        role.leader_ended = True
        others = sorted(set(replica.voters.ids) - {replica.term.leader_id})
        place = (others.index(replica.key.id) + replica.term.epoch) % len(others) if replica.key.id in others else 0
        longest = replica.settings.election_backoff_max_ms
        delay = min(longest, (longest * _FIRST_DELAY_PERCENT + longest * _NEXT_DELAY_PERCENT * place) // 100)
        role.fetch_deadline = min(role.fetch_deadline, now.monotonic_ms + delay)

    def _election_backoff_ms(self, successors: tuple[ReplicaKey, ...]) -> int:
        """Return 0 for the first successor, and for each next one twice the previous share of the largest back-off."""
        longest = self._replica.settings.election_backoff_max_ms
        place = next((i for i, key in enumerate(successors) if key.matches(self._replica.key)), None)
        if place is None:
            return longest
        return 0 if place == 0 else min(longest, (longest >> (len(successors) - 1)) << (place - 1))

    # Leaders named by other nodes

    def learn_leader(self, hint: LeaderHint, now: Instant, *, by_leader: bool = False) -> bool:
        """Process the leader and epoch of a response. Return whether its epoch is this node's, so its body is valid.

        `by_leader`: only the leader can send this response, whatever its address. A response that names this node
        itself is outdated and names no leader.
        """
        replica = self._replica
        if hint.epoch < replica.term.epoch or hint.epoch > LARGEST_EPOCH:
            return False
        leader_id = NO_NODE if hint.leader_id == replica.key.id else hint.leader_id
        if hint.epoch > replica.term.epoch:
            if leader_id == NO_NODE:
                replica.become_unattached(hint.epoch, now)
            else:
                replica.become_follower(hint.epoch, leader_id, hint.listeners, now)
            return False
        if leader_id >= 0:
            self._follow(leader_id, hint.epoch, hint.listeners, now, by_leader=by_leader)
        return True

    def _follow_sender(self, request: BeginQuorumEpochRequest | EndQuorumEpochRequest, now: Instant) -> bool:
        return self._follow(request.leader_id, request.epoch, request.listeners, now, by_leader=True)

    def _follow(
        self, leader_id: BrokerId, epoch: LeaderEpoch, listeners: Listeners, now: Instant, *, by_leader: bool
    ) -> bool:
        """Follow the leader of an epoch not below this node's. Return False if the epoch has a different leader."""
        replica, term = self._replica, self._replica.term
        if epoch == term.epoch and term.leader_id is not None and term.leader_id != leader_id:
            replica.protocol_violations += 1
            return False
        if isinstance(replica.role, LeaderState | ResignedState) and epoch == term.epoch:
            return leader_id == term.leader_id
        is_new = epoch > term.epoch or term.leader_id is None
        if is_new or (not replica.leader.listeners and (listeners or replica.voters.listeners_of(leader_id))):
            replica.become_follower(epoch, leader_id, listeners, now)
        elif replica.leader.listeners:  # without an address the replica keeps its role and timer
            replica.locate_leader(listeners, now, by_leader=by_leader)
        return True

    # Responses

    def on_vote_response(
        self, in_flight: InFlightRequest, request: VoteRequest, response: VoteResponse, now: Instant
    ) -> None:
        replica = self._replica
        if not self.learn_leader(response.leader, now) or response.error is not ErrorCode.NONE:
            replica.requests.failed(in_flight.to_id, now)
            return
        replica.requests.succeeded(in_flight.to_id)
        role = replica.role
        is_current = request.epoch == replica.term.epoch
        if is_current and isinstance(role, ProspectiveState if request.pre_vote else CandidateState):
            role.ballot.record(in_flight.to_id, response.granted)

    def on_vote_unsupported(self) -> None:
        """Count the pre-vote as won: a voter runs a version without pre-votes, so only a real election is possible."""
        role = self._replica.role
        if isinstance(role, ProspectiveState):
            role.ballot.granted |= role.ballot.voters

    def on_begin_response(self, in_flight: InFlightRequest, response: BeginQuorumEpochResponse, now: Instant) -> None:
        if self.learn_leader(response.leader, now) and response.error is ErrorCode.NONE:
            self._replica.requests.succeeded(in_flight.to_id)
        else:
            self._replica.requests.failed(in_flight.to_id, now)

    def on_end_response(self, in_flight: InFlightRequest, response: EndQuorumEpochResponse, now: Instant) -> None:
        role = self._replica.role
        if not self.learn_leader(response.leader, now) or response.error is not ErrorCode.NONE:
            self._replica.requests.failed(in_flight.to_id, now)
        elif isinstance(role, ResignedState):
            role.unconfirmed.discard(in_flight.to_id)
            role.unreachable.discard(in_flight.to_id)

    def on_end_failure(self, in_flight: InFlightRequest) -> None:
        if isinstance(self._replica.role, ResignedState):
            self._replica.role.unreachable.add(in_flight.to_id)

    # Roles

    def poll_unattached(self, role: UnattachedState, now: Instant) -> None:
        if now.monotonic_ms >= role.election_deadline and not self._replica.is_shutting_down:
            self.become_prospective(now)

    def become_prospective(self, now: Instant) -> None:
        """Request pre-votes in the current epoch."""
        replica = self._replica
        replica.become(ProspectiveState(replica.new_ballot(), replica.election_deadline(now)), replica.term)

    def poll_prospective(self, role: ProspectiveState, now: Instant) -> None:
        replica = self._replica
        outcome = role.ballot.outcome
        if outcome is Outcome.WON and replica.term.epoch < LARGEST_EPOCH:
            self._become_candidate(now)
        elif outcome is Outcome.LOST or now.monotonic_ms >= role.election_deadline:
            self._abandon_election(now)
        else:
            self._request_votes(role.ballot, now, pre_vote=True)

    def _become_candidate(self, now: Instant) -> None:
        replica = self._replica
        term = Term(LeaderEpoch(replica.term.epoch + 1), None, replica.key)
        replica.become(CandidateState(replica.new_ballot(), replica.election_deadline(now)), term)

    def _abandon_election(self, now: Instant) -> None:
        """Return to the former leader, or to the unattached role."""
        replica, term = self._replica, self._replica.term
        if term.leader_id is not None:
            replica.become_follower(term.epoch, term.leader_id, replica.leader.listeners, now)
        else:
            replica.become_unattached(term.epoch, now)

    def poll_candidate(self, role: CandidateState, now: Instant) -> None:
        """Request votes. A lost candidate waits for its election timeout and then requests pre-votes (KAFKA-18345)."""
        outcome = role.ballot.outcome
        if outcome is Outcome.OPEN:
            self._request_votes(role.ballot, now, pre_vote=False)
        if outcome is not Outcome.WON and now.monotonic_ms >= role.election_deadline:
            self.become_prospective(now)

    def _request_votes(self, ballot: Ballot, now: Instant, *, pre_vote: bool) -> None:
        replica = self._replica
        for voter_id in sorted(ballot.pending):
            endpoint, voter = (
                replica.voters.address(voter_id, replica.settings.default_listener),
                replica.voters.get(voter_id),
            )
            if endpoint is not None and voter is not None and replica.requests.is_ready(voter_id, now):
                request = VoteRequest(
                    replica.settings.cluster_id,
                    replica.term.epoch,
                    replica.key,
                    voter.key,
                    replica.log.position,
                    pre_vote,
                )
                replica.send(voter_id, endpoint, request)

    def resign(self, successors: tuple[ReplicaKey, ...], now: Instant) -> None:
        """Resign as leader. `poll_resigned` sends EndQuorumEpoch until every successor has confirmed it."""
        replica = self._replica
        unconfirmed = {key.id for key in successors}
        replica.become(ResignedState(replica.election_deadline(now), successors, unconfirmed), replica.term)

    def poll_resigned(self, role: ResignedState, now: Instant) -> None:
        """Send EndQuorumEpoch. After the election timeout leave the role in a new epoch: this one already had a leader.

        The only voter has no successor and stands again.
        """
        replica = self._replica
        if now.monotonic_ms >= role.election_deadline and not replica.is_shutting_down:
            if replica.is_only_voter:
                self.become_prospective(now)
            else:
                replica.become_unattached(LeaderEpoch(replica.term.epoch + 1), now)
            return
        for voter_id in sorted(role.unconfirmed):
            endpoint = replica.voters.address(voter_id, replica.settings.default_listener)
            if endpoint is not None and replica.requests.is_ready(voter_id, now):
                request = EndQuorumEpochRequest(
                    replica.settings.cluster_id,
                    replica.key.id,
                    replica.term.epoch,
                    role.successors,
                    replica.settings.listeners,
                )
                replica.send(voter_id, endpoint, request)
