"""The state shared by all roles of a replica: term, role, log and voters, and the transitions between roles.

Elections, leading and following are behaviour over this state in separate modules; none of them keeps a copy.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from broker.quorum.control_history import ControlHistory
from broker.quorum.identity import NO_NODE, Instant, LeaderAndEpoch, Listeners, ReplicaKey, SocketAddress
from broker.quorum.leader_endpoints import LeaderEndpoints
from broker.quorum.log_view import LogView
from broker.quorum.membership.voters import VoterSet
from broker.quorum.membership.votes import Ballot
from broker.quorum.messages import UNKNOWN_OFFSET, LeaderHint, Request
from broker.quorum.ready import ElectionState, StartAt, TruncateTo
from broker.quorum.ready_builder import ReadyBuilder
from broker.quorum.request_manager import RequestManager
from broker.quorum.settings import ControlRecord, QuorumSettings, Recovered, StoredSnapshot
from broker.quorum.state import (
    CandidateState,
    FollowerState,
    LeaderState,
    ObserverState,
    ProspectiveState,
    ResignedState,
    Role,
    Term,
    UnattachedState,
    check_transition,
)
from broker.quorum.timeouts import JitterSource, Timeouts
from protocol.ids import EPOCH_ZERO, BrokerId, LeaderEpoch, Offset
from protocol.primitives import ZERO_UUID

LARGEST_EPOCH: Final = LeaderEpoch(2**30)
"""The largest accepted epoch. The limit keeps a faulty peer from exhausting the 31 bits of an epoch."""


class QuorumReplica:
    """A replica of the metadata log.

    The callbacks in `on_leaving` run with the old role after a change of the role or to a later epoch.
    """

    def __init__(self, settings: QuorumSettings, recovered: Recovered, random: JitterSource) -> None:
        self.settings = settings
        self.key: ReplicaKey = settings.key
        self.random = random
        self.timeouts = Timeouts(settings, random)
        self.log = LogView(recovered)
        self.history = ControlHistory(
            VoterSet.of_static(settings.static_voters, settings.default_listener), recovered.control
        )
        self.control = self.history.latest
        self.out = ReadyBuilder()
        self.requests = RequestManager(settings.request_timeout_ms, settings.retry_backoff_ms)
        self.term = Term()
        self.role: Role = UnattachedState(inf)
        self.leader = LeaderEndpoints(settings.default_listener)
        self.high_watermark: Offset | None = None
        self.is_shutting_down = False
        self.protocol_violations = 0
        """Messages that no correct peer sends; the replica refused or ignored them."""
        self.on_leaving: list[Callable[[Role], None]] = []
        self._saved = recovered.election
        self._announced = LeaderAndEpoch(None, EPOCH_ZERO)

    # Reading

    @property
    def voters(self) -> VoterSet:
        """The voters in force, committed or not."""
        return self.control.voters

    @property
    def can_become_candidate(self) -> bool:
        """Whether this node may lead: it is a voter, or its removal is not known to be committed.

        A node outside the latest voter set of its own log need not lead, provided that this set stays in force. But
        suppose that a leader removes itself from {1, 3} and crashes before 3 has the record: 3 needs the vote of 1,
        which refuses because its log is longer. If 1 did not stand, no leader could ever be elected. So 1 stands until
        the record is committed, requests votes from the remaining voters, and does not count itself (Ongaro's thesis,
        4.2.2). Kafka makes the node an observer at once and has that gap.
        """
        return self.settings.can_vote and (self.control.voters.has(self.key) or self._is_removal_uncommitted)

    @property
    def _is_removal_uncommitted(self) -> bool:
        offset = self.control.voters_offset
        if offset is None or offset < 0 or (self.high_watermark is not None and self.high_watermark > offset):
            return False
        return self.history.at(Offset(offset - 1)).voters.has(self.key)

    @property
    def is_only_voter(self) -> bool:
        return self.settings.can_vote and self.control.voters.is_only(self.key)

    @property
    def hint(self) -> LeaderHint:
        """The leader for responses. A resigned leader names no leader, so that requesters do not return to it."""
        leader_id = self.term.leader_id
        if leader_id is None or isinstance(self.role, ResignedState):
            return LeaderHint(NO_NODE, self.term.epoch)
        listeners = self.settings.listeners if leader_id == self.key.id else self.leader.listeners
        return LeaderHint(leader_id, self.term.epoch, listeners)

    @property
    def committed(self) -> Offset:
        """The leader's high watermark; -1 before a record of its epoch is committed, and in all other roles."""
        if not isinstance(self.role, LeaderState) or self.high_watermark is None:
            return UNKNOWN_OFFSET
        return self.high_watermark if self.high_watermark > self.role.start_offset else UNKNOWN_OFFSET

    def send(self, to_id: BrokerId, to: SocketAddress, request: Request) -> None:
        """Send a request; the destination is busy until its outcome arrives."""
        self.out.requests.append(self.requests.send(to_id, to, request))

    # Timers

    def election_deadline(self, now: Instant) -> float:
        """Return the deadline of an election that starts now. The only voter does not wait."""
        return now.monotonic_ms if self.is_only_voter else self.timeouts.election_deadline(now)

    def on_leader_response(self, now: Instant) -> None:
        """Restart the fetch timer. After EndQuorumEpoch, earlier responses of the leader no longer count."""
        role = self.role
        if isinstance(role, FollowerState | ObserverState) and not role.leader_ended:
            role.fetch_deadline = self.timeouts.fetch_deadline(now)
            role.has_fetched = True

    def restart_fetch_timer(self, now: Instant) -> None:
        """Give the leader a whole fetch timeout without contact: until its next response pre-votes are granted."""
        role = self.role
        if isinstance(role, FollowerState | ObserverState) and not role.leader_ended:
            role.fetch_deadline = self.timeouts.fetch_deadline(now)
            role.has_fetched = False

    # Changing roles

    def start(self, recovered: Recovered, now: Instant) -> None:
        """Take the role recorded in quorum-state. A leader of the previous run starts as resigned."""
        state = recovered.election or ElectionState()
        if state.epoch < self.log.last_epoch:
            state = ElectionState(self.log.last_epoch)
        voted = None if state.voted_id == NO_NODE else ReplicaKey(state.voted_id, state.voted_directory_id)
        leader_id = None if state.leader_id == NO_NODE else state.leader_id
        self.term = Term(state.epoch, leader_id, voted)
        self.role = self._first_role(now)
        self._save()
        self._announce()

    def _first_role(self, now: Instant) -> Role:
        term = self.term
        if term.leader_id == self.key.id:
            others = tuple(voter.key for voter in self.voters if voter.key.id != self.key.id)
            return ResignedState(self.election_deadline(now), others, {key.id for key in others})
        if term.leader_id is not None:
            self.leader.listeners = self.voters.listeners_of(term.leader_id)
        if not self.can_become_candidate:
            return self._new_observer(now)
        if term.leader_id is None and term.voted is not None and term.voted.matches(self.key):
            return CandidateState(self.new_ballot(), self.election_deadline(now))
        if self.leader.listeners:
            return self._new_follower(now)
        return UnattachedState(self.election_deadline(now))

    def _new_observer(self, now: Instant) -> ObserverState:
        return ObserverState(self.timeouts.fetch_deadline(now), self.timeouts.update_voter_deadline(now))

    def _new_follower(self, now: Instant) -> FollowerState:
        return FollowerState(self.timeouts.fetch_deadline(now), self.timeouts.update_voter_deadline(now))

    def new_ballot(self) -> Ballot:
        """Return a ballot among the current voters. This node grants its own vote if it is a voter."""
        return Ballot(frozenset(self.voters.ids), granted={self.key.id} if self.voters.has(self.key) else set())

    def become_unattached(self, epoch: LeaderEpoch, now: Instant, leader_id: BrokerId | None = None) -> None:
        """Become unattached in a later epoch, or in the current epoch after a failed election.

        A running election timer is kept, so that candidates which cannot win do not keep this node from standing.
        """
        before = self.role
        deadline = self.election_deadline(now)
        was_electing = isinstance(before, ProspectiveState | CandidateState)
        keeps_timer = isinstance(before, UnattachedState) or (was_electing and epoch > self.term.epoch)
        if keeps_timer and isinstance(before, UnattachedState | ProspectiveState | CandidateState):
            deadline = min(deadline, before.election_deadline)
        role: Role = UnattachedState(deadline) if self.can_become_candidate else self._new_observer(now)
        self._become(role, self._term_of(epoch, leader_id))

    def become_follower(self, epoch: LeaderEpoch, leader_id: BrokerId, listeners: Listeners, now: Instant) -> None:
        """Follow a leader. If its address is unknown, record the leader and stay unattached."""
        listeners = listeners or self.voters.listeners_of(leader_id)
        if not listeners:
            self.become_unattached(epoch, now, leader_id)
            return
        role: Role = self._new_follower(now) if self.can_become_candidate else self._new_observer(now)
        self._become(role, self._term_of(epoch, leader_id), listeners)

    def locate_leader(self, listeners: Listeners, now: Instant, *, by_leader: bool) -> None:
        """Merge listeners of the current leader.

        The leader itself is authoritative, and does not move while it leads. Information from other nodes may be as
        old as the own; it only fills gaps, unless requests to the leader fail.
        """
        leader_id = self.term.leader_id
        is_failing = leader_id is not None and self.requests.is_failing(leader_id)
        has_moved = self.leader.merge(listeners, overrides=by_leader or is_failing)
        if leader_id is not None and has_moved:
            self.requests.on_address_changed(leader_id)
            if isinstance(self.role, ObserverState):
                self.restart_fetch_timer(now)

    def become(self, role: Role, term: Term) -> None:
        """Make any other role change."""
        self._become(role, term, self.leader.listeners if term.leader_id == self.term.leader_id else ())

    def _become(self, role: Role, term: Term, listeners: Listeners = ()) -> None:
        before, old = self.role, self.term
        check_transition(before, role, old.epoch, term.epoch)
        self.role, self.term, self.leader.listeners = role, term, listeners
        self.requests.reset()
        self.out.requests.clear()
        self._save()
        self._announce()
        for callback in self.on_leaving:
            callback(before)

    def vote_for(self, candidate: ReplicaKey, now: Instant) -> None:
        """Grant the vote of this epoch, and give the candidate a whole election timeout to win."""
        self.term = self.term._replace(voted=candidate)
        if isinstance(self.role, UnattachedState | ProspectiveState):
            self.role.election_deadline = self.election_deadline(now)
        self._save()

    def control_changed(self, now: Instant) -> None:
        """Apply appended or truncated voter records: this node may have become a voter or an observer.

        A change of kraft.version changes the format of quorum-state with the next transition: a leader that wrote it
        now would answer nobody until a slow disk is done.
        """
        self.control = self.history.latest
        self._adapt_role(now)

    def _adapt_role(self, now: Instant) -> None:
        can_become_candidate = self.can_become_candidate
        match self.role:
            case FollowerState() as role if not can_become_candidate:
                update_at = self.timeouts.update_voter_deadline(now)
                self.role = ObserverState(role.fetch_deadline, update_at, role.has_fetched, role.leader_ended)
            case ObserverState() as role if can_become_candidate and self.leader.listeners:
                self.role = self._new_follower(now)
                self.role.has_fetched, self.role.leader_ended = role.has_fetched, role.leader_ended
            case ObserverState() if can_become_candidate:
                self.role = UnattachedState(self.election_deadline(now))
            case UnattachedState() if not can_become_candidate:
                self.role = self._new_observer(now)

    def _term_of(self, epoch: LeaderEpoch, leader_id: BrokerId | None) -> Term:
        if epoch > self.term.epoch:
            return Term(epoch, leader_id)
        return self.term._replace(leader_id=leader_id if leader_id is not None else self.term.leader_id)

    # The log

    def truncate_to(self, offset: Offset) -> None:
        """Remove the records from `offset` on, and the voter changes among them."""
        self.log.truncate_to(offset)
        self.history.truncate_to(offset)
        self.out.log.append(TruncateTo(offset))

    def start_at(self, snapshot: StoredSnapshot, control: Sequence[ControlRecord]) -> None:
        """Replace the log by a stored snapshot. Raise IncompatibleVoters without a change if its voters are invalid."""
        self.history.restart(control)
        self.log.start_at(snapshot)
        self.out.log.append(StartAt(snapshot.id))

    # Durable state, and notifications to listeners

    def _save(self) -> None:
        """Schedule a write of the term in the format of kraft.version, unless the same content was written last."""
        epoch, leader_id, voted = self.term
        version = min(self.control.kraft_version, 1)
        state = ElectionState(
            epoch,
            NO_NODE if leader_id is None else leader_id,
            NO_NODE if voted is None else voted.id,
            ZERO_UUID if voted is None or version == 0 else voted.directory_id,
            version,
        )
        if state != self._saved:
            self.out.state = self._saved = state

    def _announce(self) -> None:
        """Notify listeners of a changed leader. A leader announces itself after the first commit of its epoch."""
        known = LeaderAndEpoch(self._announced_leader_id, self.term.epoch)
        if known != self._announced:
            self.out.leader = self._announced = known

    @property
    def _announced_leader_id(self) -> BrokerId | None:
        match self.role:
            case ResignedState():
                return None
            case LeaderState():
                return self.key.id if self.committed >= 0 else None
        return self.term.leader_id

    def raise_high_watermark(self, offset: Offset, now: Instant) -> bool:
        """Raise the high watermark; a smaller offset has no effect. Return whether it rose."""
        if self.high_watermark is not None and offset <= self.high_watermark:
            return False
        self.high_watermark = self.out.high_watermark = offset
        self._announce()
        if not self.control.voters.has(self.key):
            self._adapt_role(now)
        return True
