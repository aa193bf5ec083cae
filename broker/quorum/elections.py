"""Who leads: votes, tentative ones first, and the messages with which leaders begin and end their epochs.

Theory (KIP-595, KIP-996). A vote binds for an epoch and is on disk before it is known, so an epoch has one leader at
most. It is given only to a log that is at least as long as the voter's own (later last epoch first, then larger end),
so whoever wins has every record that a majority has. Before a node raises the epoch, which deposes a working leader, it
asks tentatively whether it would win: a follower whose leader answers says no, everybody else says what the logs
say, and nothing is remembered. So a node that was cut off, or that was removed without knowing it, disturbs nobody,
and two nodes that cannot reach each other do not depose each other in turns.

A follower whose leader said goodbye (EndQuorumEpoch) says yes again. Kafka forgets that, and then the first of the
preferred successors loses its tentative vote in quorums of more than three (KAFKA-20895).
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
from protocol.primitives import ZERO_UUID

_FIRST_AFTER: Final = 5
_NEXT_AFTER: Final = 15
"""Per cent of the largest back-off: until all have noticed that the leader's process ended, and until one has won."""


class QuorumElections:
    """Up to victory: what a candidate whose ballot is won does next is the core's to say."""

    def __init__(self, replica: QuorumReplica) -> None:
        self._replica = replica

    # Being asked

    def on_vote_request(self, token: int, request: VoteRequest, now: Instant) -> None:
        replica = self._replica
        error = self._vote_error(request)
        granted = False
        if error is ErrorCode.NONE:
            if request.epoch > replica.term.epoch:
                replica.become_unattached(request.epoch, now)
            granted = self._grants(request)
            if granted and not request.pre_vote and replica.term.voted is None:
                replica.vote_for(request.candidate, now)
        replica.answer(token, VoteResponse(error, replica.hint, granted))

    def _vote_error(self, request: VoteRequest) -> ErrorCode:
        replica, last = self._replica, request.last
        error = voter_error(replica, request.cluster_id, request.epoch, request.candidate.id, request.voter)
        if error is not ErrorCode.NONE:
            return error
        largest = request.epoch if request.pre_vote else request.epoch - 1
        is_sound = last.end_offset >= 0 and 0 <= last.epoch <= largest
        return ErrorCode.NONE if is_sound else ErrorCode.INVALID_REQUEST

    def _grants(self, request: VoteRequest) -> bool:
        """In the request's epoch, which is this node's."""
        replica = self._replica
        if not replica.settings.can_vote or request.last < replica.position:
            return False
        if request.pre_vote:
            return self._grants_pre_vote()
        if isinstance(replica.role, LeaderState | CandidateState | ResignedState):
            return False
        voted = replica.term.voted
        if voted is not None:
            return voted.id == request.candidate.id and voted.directory_id in (
                ZERO_UUID,
                request.candidate.directory_id,
            )
        return replica.term.leader_id is None

    def _grants_pre_vote(self) -> bool:
        match self._replica.role:
            case LeaderState():
                return False
            case FollowerState() as role:
                return role.leader_ended or not role.has_fetched
            case ObserverState() as role:
                return not role.has_fetched
        return True

    def on_begin_request(self, token: int, request: BeginQuorumEpochRequest, now: Instant) -> None:
        replica = self._replica
        error = voter_error(replica, request.cluster_id, request.epoch, request.leader_id, request.voter)
        if error is ErrorCode.NONE and not self._follows(request, now):
            error = ErrorCode.INVALID_REQUEST
        replica.answer(token, BeginQuorumEpochResponse(error, replica.hint))

    def on_end_request(self, token: int, request: EndQuorumEpochRequest, now: Instant) -> None:
        """The named successors stand one after the other, the first at once; others later."""
        replica = self._replica
        error = voter_error(replica, request.cluster_id, request.epoch, request.leader_id, None)
        if error is ErrorCode.NONE and not self._follows(request, now):
            error = ErrorCode.INVALID_REQUEST
        if error is ErrorCode.NONE and isinstance(replica.role, FollowerState):
            if not replica.role.leader_ended:
                replica.role.fetch_deadline = now.monotonic_ms + self._election_backoff_ms(request.successors)
            replica.role.leader_ended = True
        replica.answer(token, EndQuorumEpochResponse(error, replica.hint))

    def on_leader_process_ended(self, role: FollowerState, now: Instant) -> None:
        """The leader's process has ended. All hear it at about the same time, and stand one after the other.

        Whose turn is first goes round with the epochs.
        """
        replica = self._replica
        if role.leader_ended:
            return
        role.leader_ended = True
        others = sorted(set(replica.voters.ids) - {replica.term.leader_id})
        place = (others.index(replica.key.id) + replica.term.epoch) % len(others) if replica.key.id in others else 0
        longest = replica.settings.election_backoff_max_ms
        delay = min(longest, (longest * _FIRST_AFTER + longest * _NEXT_AFTER * place) // 100)
        role.fetch_deadline = min(role.fetch_deadline, now.monotonic_ms + delay)

    def _election_backoff_ms(self, successors: tuple[ReplicaKey, ...]) -> int:
        """Nothing for the first; for others a share of the largest back-off that doubles from one to the next."""
        longest = self._replica.settings.election_backoff_max_ms
        place = next((i for i, key in enumerate(successors) if key.matches(self._replica.key)), None)
        if place is None:
            return longest
        return 0 if place == 0 else min(longest, (longest >> (len(successors) - 1)) << (place - 1))

    # Learning

    def learn_leader(self, hint: LeaderHint, now: Instant, *, by_leader: bool = False) -> bool:
        """A response tells who leads. Returns whether it is of this node's epoch, so that its body counts.

        `by_leader`: it says what only the leader can say, whatever address it came from. Being told that this node
        itself leads, by somebody who has not heard that it does not, is no news.
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

    def _follows(self, request: BeginQuorumEpochRequest | EndQuorumEpochRequest, now: Instant) -> bool:
        return self._follow(request.leader_id, request.epoch, request.listeners, now, by_leader=True)

    def _follow(self, leader_id: int, epoch: int, listeners: Listeners, now: Instant, *, by_leader: bool) -> bool:
        """Somebody leads in an epoch not below this node's. Returns False if another does: that cannot be."""
        replica, term = self._replica, self._replica.term
        if epoch == term.epoch and term.leader_id is not None and term.leader_id != leader_id:
            replica.protocol_violations += 1
            return False
        if isinstance(replica.role, LeaderState | ResignedState) and epoch == term.epoch:
            return leader_id == term.leader_id
        is_new = epoch > term.epoch or term.leader_id is None
        if is_new or (not replica.leader_listeners and replica.can_locate(leader_id, listeners)):
            replica.become_follower(epoch, leader_id, listeners, now)
        elif replica.leader_listeners:  # else it can be found no better than before; who waits or stands goes on
            replica.locate_leader(listeners, now, by_leader=by_leader)
        return True

    # Asking

    def on_vote_response(
        self, flight: InFlightRequest, request: VoteRequest, response: VoteResponse, now: Instant
    ) -> None:
        replica = self._replica
        if not self.learn_leader(response.leader, now) or response.error is not ErrorCode.NONE:
            replica.requests.failed(flight.to_id, now)
            return
        replica.requests.succeeded(flight.to_id)
        role = replica.role
        is_current = request.epoch == replica.term.epoch
        if is_current and isinstance(role, ProspectiveState if request.pre_vote else CandidateState):
            role.ballot.record(flight.to_id, response.granted)

    def on_vote_unsupported(self) -> None:
        """A voter cannot be asked tentatively: it runs an older version, and candidacy is the only way."""
        role = self._replica.role
        if isinstance(role, ProspectiveState):
            role.ballot.granted |= role.ballot.voters

    def on_begin_response(self, flight: InFlightRequest, response: BeginQuorumEpochResponse, now: Instant) -> None:
        if self.learn_leader(response.leader, now) and response.error is ErrorCode.NONE:
            self._replica.requests.succeeded(flight.to_id)
        else:
            self._replica.requests.failed(flight.to_id, now)

    def on_end_response(self, flight: InFlightRequest, response: EndQuorumEpochResponse, now: Instant) -> None:
        role = self._replica.role
        if not self.learn_leader(response.leader, now) or response.error is not ErrorCode.NONE:
            self._replica.requests.failed(flight.to_id, now)
        elif isinstance(role, ResignedState):
            role.unaware.discard(flight.to_id)
            role.unreachable.discard(flight.to_id)

    def on_end_failure(self, flight: InFlightRequest) -> None:
        if isinstance(self._replica.role, ResignedState):
            self._replica.role.unreachable.add(flight.to_id)

    # Acting in a role

    def wait(self, role: UnattachedState, now: Instant) -> None:
        if now.monotonic_ms >= role.election_deadline and not self._replica.is_shutting_down:
            self.become_prospective(now)

    def become_prospective(self, now: Instant) -> None:
        """Ask tentatively, in the epoch as it is."""
        replica = self._replica
        replica.become(ProspectiveState(replica.new_ballot(), replica.election_deadline(now)), replica.term)

    def prospect(self, role: ProspectiveState, now: Instant) -> None:
        replica = self._replica
        outcome = role.ballot.outcome
        if outcome is Outcome.WON and replica.term.epoch < LARGEST_EPOCH:
            self._become_candidate(now)
        elif outcome is Outcome.LOST or now.monotonic_ms >= role.election_deadline:
            self._abandon_election(now)
        else:
            self._ask(role.ballot, now, pre_vote=True)

    def _become_candidate(self, now: Instant) -> None:
        replica = self._replica
        term = Term(replica.term.epoch + 1, None, replica.key)
        replica.become(CandidateState(replica.new_ballot(), replica.election_deadline(now)), term)

    def _abandon_election(self, now: Instant) -> None:
        """Nobody wants this node: back to where it was."""
        replica, term = self._replica, self._replica.term
        if term.leader_id is not None:
            replica.become_follower(term.epoch, term.leader_id, replica.leader_listeners, now)
        else:
            replica.become_unattached(term.epoch, now)

    def stand(self, role: CandidateState, now: Instant) -> None:
        """Whoever loses waits until its time is over, and then asks tentatively again (KAFKA-18345)."""
        outcome = role.ballot.outcome
        if outcome is Outcome.OPEN:
            self._ask(role.ballot, now, pre_vote=False)
        if outcome is not Outcome.WON and now.monotonic_ms >= role.election_deadline:
            self.become_prospective(now)

    def _ask(self, ballot: Ballot, now: Instant, *, pre_vote: bool) -> None:
        replica = self._replica
        for voter_id in sorted(ballot.silent):
            endpoint, voter = replica.voter_endpoint(voter_id), replica.voters.get(voter_id)
            if endpoint is not None and voter is not None and replica.requests.is_ready(voter_id, now):
                request = VoteRequest(
                    replica.settings.cluster_id,
                    replica.term.epoch,
                    replica.key,
                    voter.key,
                    replica.position,
                    pre_vote,
                )
                replica.send(voter_id, endpoint, request)

    def resign(self, successors: tuple[ReplicaKey, ...], now: Instant) -> None:
        """A leader leads no more, and says so until everybody knows."""
        replica = self._replica
        unaware = {key.id for key in successors}
        replica.become(ResignedState(replica.election_deadline(now), successors, unaware), replica.term)

    def poll_resigned(self, role: ResignedState, now: Instant) -> None:
        """And when the time is over, be like anybody else, in a new epoch: in this one it would still be the leader.

        A lone voter has nobody to leave it to and stands again.
        """
        replica = self._replica
        if now.monotonic_ms >= role.election_deadline and not replica.is_shutting_down:
            if replica.is_only_voter:
                self.become_prospective(now)
            else:
                replica.become_unattached(replica.term.epoch + 1, now)
            return
        for voter_id in sorted(role.unaware):
            endpoint = replica.voter_endpoint(voter_id)
            if endpoint is not None and replica.requests.is_ready(voter_id, now):
                request = EndQuorumEpochRequest(
                    replica.settings.cluster_id,
                    replica.key.id,
                    replica.term.epoch,
                    role.successors,
                    replica.settings.listeners,
                )
                replica.send(voter_id, endpoint, request)
