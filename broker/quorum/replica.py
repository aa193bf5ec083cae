"""What all roles of a replica share: the term, the role, the log, the voters; and the changes from role to role.

Elections, leading and following are behaviour over this state, in modules of their own; none of them keeps a copy.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Final, Protocol

from broker.quorum.control_history import ControlHistory
from broker.quorum.identity import (
    NO_NODE,
    Instant,
    LeaderAndEpoch,
    Listeners,
    LogPosition,
    ReplicaKey,
    SocketAddress,
)
from broker.quorum.log_view import LogView
from broker.quorum.membership.voters import VoterSet
from broker.quorum.membership.votes import Ballot
from broker.quorum.messages import UNKNOWN_OFFSET, LeaderHint, Request, Response
from broker.quorum.ready import ElectionState, Ready, StartAt, TruncateTo
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
from protocol.primitives import ZERO_UUID

LARGEST_EPOCH: Final = 2**30
"""No quorum elects so often. An epoch beyond it is refused, so that nobody can drive it out of its 31 bits."""

REPORT_TIMEOUTS: Final = 3
"""After so many fetch timeouts a follower compares its entry among the voters with what it is."""


class JitterSource(Protocol):
    def randrange(self, stop: int, /) -> int: ...


class QuorumReplica:
    """`on_leaving` is called with the old role, after a change from one role to another or to a later epoch."""

    def __init__(self, settings: QuorumSettings, recovered: Recovered, random: JitterSource) -> None:
        self.settings = settings
        self.key: ReplicaKey = settings.key
        self.random = random
        self.log = LogView(recovered)
        self.history = ControlHistory(
            VoterSet.of_static(settings.static_voters, settings.default_listener), recovered.control
        )
        self.control = self.history.latest
        self.out = ReadyBuilder()
        self.requests = RequestManager(settings.request_timeout_ms, settings.retry_backoff_ms)
        self.term = Term()
        self.role: Role = UnattachedState(inf)
        self.leader_listeners: Listeners = ()
        self.high_watermark: int | None = None
        self.synced_end = recovered.log_end_offset
        self.is_shutting_down = False
        self.protocol_violations = 0
        """What peers said that no sound peer says; it was refused or ignored."""
        self.on_leaving: list[Callable[[Role], None]] = []
        self._saved = recovered.election
        self._syncing_end = 0
        self._announced = LeaderAndEpoch(None, 0)

    # Reading

    @property
    def voters(self) -> VoterSet:
        return self.control.voters

    @property
    def can_become_candidate(self) -> bool:
        """Whether this node may lead: it is a voter, or was one until a record that is not known to be committed.

        Whoever is not in the latest set of its own log could do without leading, if that set were sure to stay. But
        take a leader that removes itself from {1, 3} and crashes before 3 has the record: 3 needs the vote of 1, whose
        log is longer and refuses, and if 1 does not stand, there is never a leader again. So it stands until the
        record is committed, asks the voters that are left, and does not count itself (Ongaro's thesis, 4.2.2). Kafka
        makes it an observer at once and has that gap.
        """
        return self.settings.can_vote and (self.control.voters.has(self.key) or self._is_removal_uncommitted)

    @property
    def _is_removal_uncommitted(self) -> bool:
        offset = self.control.voters_offset
        if offset is None or offset < 0 or (self.high_watermark is not None and self.high_watermark > offset):
            return False
        return self.history.at(offset - 1).voters.has(self.key)

    @property
    def is_only_voter(self) -> bool:
        return self.settings.can_vote and self.control.voters.is_only(self.key)

    @property
    def position(self) -> LogPosition:
        return self.log.position

    @property
    def hint(self) -> LeaderHint:
        """Who leads, for responses. Who has resigned does not send others back to itself."""
        leader_id = self.term.leader_id
        if leader_id is None or isinstance(self.role, ResignedState):
            return LeaderHint(NO_NODE, self.term.epoch)
        listeners = self.settings.listeners if leader_id == self.key.id else self.leader_listeners
        return LeaderHint(leader_id, self.term.epoch, listeners)

    @property
    def committed(self) -> int:
        """The high watermark as a leader has established it; -1 before anything of its epoch is committed."""
        if not isinstance(self.role, LeaderState) or self.high_watermark is None:
            return UNKNOWN_OFFSET
        return self.high_watermark if self.high_watermark > self.role.start_offset else UNKNOWN_OFFSET

    @property
    def leader_endpoint(self) -> SocketAddress | None:
        """Where the leader, another node, takes requests."""
        listeners = self.leader_listeners
        default = self.settings.default_listener
        named = next((each.endpoint for each in listeners if each.name == default), None)
        return named or (listeners[0].endpoint if listeners else None)

    def voter_endpoint(self, voter_id: int) -> SocketAddress | None:
        voter = self.voters.get(voter_id)
        if voter is None or not voter.listeners:
            return None
        return voter.endpoint(self.settings.default_listener) or voter.listeners[0].endpoint

    # Saying

    def answer(self, token: int, response: Response) -> None:
        self.out.answer(token, response)

    def send(self, to_id: int, to: SocketAddress, request: Request) -> None:
        self.out.sends.append(self.requests.send(to_id, to, request))

    # Timers

    def election_deadline(self, now: Instant) -> float:
        """Random, so that nodes which begin to wait together do not stand together. Who is alone need not wait."""
        if self.is_only_voter:
            return now.monotonic_ms
        timeout = self.settings.election_timeout_ms
        return now.monotonic_ms + timeout + self.random.randrange(timeout)

    def fetch_deadline(self, now: Instant) -> float:
        """A little random for the same reason: all followers lose a leader at the same moment."""
        timeout = self.settings.fetch_timeout_ms
        return now.monotonic_ms + timeout + self.random.randrange(max(1, timeout // 4))

    def report_deadline(self, now: Instant) -> float:
        return now.monotonic_ms + REPORT_TIMEOUTS * self.settings.fetch_timeout_ms

    def on_leader_response(self, now: Instant) -> None:
        """The leader is there. Once it has said goodbye, nothing that it said before counts."""
        role = self.role
        if isinstance(role, ObserverState) or (isinstance(role, FollowerState) and not role.leader_ended):
            role.fetch_deadline = self.fetch_deadline(now)
            role.has_fetched = True

    # Changing roles

    def start(self, recovered: Recovered, now: Instant) -> None:
        """Takes the role that the disk tells of. What a leader of the last run had begun is over."""
        state = recovered.election or ElectionState()
        if state.epoch < self.log.last_epoch:
            state = ElectionState(self.log.last_epoch)
        voted = None if state.voted_id == NO_NODE else ReplicaKey(state.voted_id, state.voted_directory_id)
        leader_id = None if state.leader_id == NO_NODE else state.leader_id
        self.term = Term(state.epoch, leader_id, voted)
        self.role = self._first_role(now)
        self.save()
        self.announce()

    def _first_role(self, now: Instant) -> Role:
        term = self.term
        if term.leader_id == self.key.id:
            others = tuple(voter.key for voter in self.voters if voter.key.id != self.key.id)
            return ResignedState(self.election_deadline(now), others, {key.id for key in others})
        if term.leader_id is not None:
            self.leader_listeners = self._listeners_of(term.leader_id)
        if not self.can_become_candidate:
            return ObserverState(self.fetch_deadline(now), self.report_deadline(now))
        if term.leader_id is None and term.voted is not None and term.voted.matches(self.key):
            return CandidateState(self.new_ballot(), self.election_deadline(now))
        if self.leader_listeners:
            return FollowerState(self.fetch_deadline(now), self.report_deadline(now))
        return UnattachedState(self.election_deadline(now))

    def new_ballot(self) -> Ballot:
        """Among the voters as they are now; this node is for itself, if it is one."""
        return Ballot(frozenset(self.voters.ids), granted={self.key.id} if self.voters.has(self.key) else set())

    def become_unattached(self, epoch: int, now: Instant, leader_id: int | None = None) -> None:
        """Of a later epoch, or of this one if candidacy failed. Who waits for its turn already goes on waiting, so that
        hopeless candidates cannot keep it from standing.
        """
        before = self.role
        deadline = self.election_deadline(now)
        if isinstance(before, UnattachedState) or (
            isinstance(before, ProspectiveState | CandidateState) and epoch > self.term.epoch
        ):
            deadline = min(deadline, before.election_deadline)
        role = (
            UnattachedState(deadline)
            if self.can_become_candidate
            else ObserverState(self.fetch_deadline(now), self.report_deadline(now))
        )
        self._become(role, self._term_of(epoch, leader_id))

    def become_follower(self, epoch: int, leader_id: int, listeners: Listeners, now: Instant) -> None:
        """Of a leader; if nobody knows where it listens, it is only remembered."""
        listeners = listeners or self._listeners_of(leader_id)
        if not listeners:
            self.become_unattached(epoch, now, leader_id)
            return
        kind = FollowerState if self.can_become_candidate else ObserverState
        role = kind(self.fetch_deadline(now), self.report_deadline(now))
        self._become(role, self._term_of(epoch, leader_id), listeners)

    def can_locate(self, leader_id: int, listeners: Listeners) -> bool:
        """Whether a leader that is said to listen there, or nowhere, can be asked."""
        return bool(listeners or self._listeners_of(leader_id))

    def locate_leader(self, listeners: Listeners, now: Instant, *, by_leader: bool) -> None:
        """Somebody says where the leader of this epoch listens.

        It knows itself, and does not move while it leads. What others say may be old, like what this node believes; it
        is believed where nothing is known, or where the leader does not answer.
        """
        leader_id, before = self.term.leader_id, self.leader_endpoint
        said, known = ({each.name: each for each in entries} for entries in (listeners, self.leader_listeners))
        is_better = by_leader or (leader_id is not None and self.requests.is_failing(leader_id))
        self.leader_listeners = tuple(({**known, **said} if is_better else {**said, **known}).values())
        if leader_id is not None and self.leader_endpoint != before:
            self.requests.moved(leader_id)
            if isinstance(self.role, ObserverState):
                self.role.fetch_deadline = self.fetch_deadline(now)

    def become(self, role: Role, term: Term) -> None:
        """Any other change."""
        self._become(role, term, self.leader_listeners if term.leader_id == self.term.leader_id else ())

    def _become(self, role: Role, term: Term, listeners: Listeners = ()) -> None:
        before, old = self.role, self.term
        check_transition(before, role, old.epoch, term.epoch)
        self.role, self.term, self.leader_listeners = role, term, listeners
        self.requests.forget()
        self.out.sends.clear()
        self.save()
        self.announce()
        for callback in self.on_leaving:
            callback(before)

    def vote_for(self, candidate: ReplicaKey, now: Instant) -> None:
        """Binding for the epoch. The candidate gets a whole election timeout."""
        self.term = self.term._replace(voted=candidate)
        if isinstance(self.role, UnattachedState | ProspectiveState):
            self.role.election_deadline = self.election_deadline(now)
        self.save()

    def control_changed(self, now: Instant) -> None:
        """Records were appended or cut that say who votes: this node may be a voter now, or none any more."""
        self.control = self.history.latest
        self.save()
        self._adapt_role(now)

    def _adapt_role(self, now: Instant) -> None:
        can_become_candidate = self.can_become_candidate
        match self.role:
            case FollowerState() as role if not can_become_candidate:
                self.role = ObserverState(role.fetch_deadline, self.report_deadline(now), role.has_fetched)
            case ObserverState() as role if can_become_candidate and self.leader_listeners:
                self.role = FollowerState(self.fetch_deadline(now), self.report_deadline(now), role.has_fetched)
            case ObserverState() if can_become_candidate:
                self.role = UnattachedState(self.election_deadline(now))
            case UnattachedState() if not can_become_candidate:
                self.role = ObserverState(self.fetch_deadline(now), self.report_deadline(now))

    def _term_of(self, epoch: int, leader_id: int | None) -> Term:
        if epoch > self.term.epoch:
            return Term(epoch, leader_id)
        return self.term._replace(leader_id=leader_id if leader_id is not None else self.term.leader_id)

    def _listeners_of(self, voter_id: int) -> Listeners:
        voter = self.voters.get(voter_id)
        return () if voter is None else voter.listeners

    # The log

    def truncate_to(self, offset: int) -> None:
        """What the leader does not have goes, with the voters that it named."""
        self.log.truncate_to(offset)
        self.history.truncate_to(offset)
        self.out.log.append(TruncateTo(offset))
        self.synced_end = min(self.synced_end, offset)
        self._syncing_end = min(self._syncing_end, offset)

    def start_at(self, snapshot: StoredSnapshot, control: Sequence[ControlRecord]) -> None:
        """The log is nothing but a snapshot, which is on disk. Raises IncompatibleVoters; then nothing has changed."""
        self.history.restart(control)
        self.log.start_at(snapshot)
        self.out.log.append(StartAt(snapshot.id))
        self.synced_end = self.log.end
        self._syncing_end = 0

    def take_ready(self) -> Ready | None:
        ready = self.out.take()
        if ready is not None and ready.must_sync:
            self._syncing_end = self.log.end
        return ready

    def persisted(self, ready: Ready) -> None:
        """What was handed out is synced, but for what has been cut since."""
        if ready.must_sync:
            self.synced_end = max(self.synced_end, self._syncing_end)

    # What must survive, and what listeners hear

    def save(self) -> None:
        """Has the term written, unless it is what was written last."""
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

    def announce(self) -> None:
        """Has listeners told of the leader, unless they know. Of itself a leader tells only once its epoch counts."""
        known = LeaderAndEpoch(self._announced_leader_id, self.term.epoch)
        if known != self._announced:
            self.out.leader = self._announced = known

    @property
    def _announced_leader_id(self) -> int | None:
        match self.role:
            case ResignedState():
                return None
            case LeaderState():
                return self.key.id if self.committed >= 0 else None
        return self.term.leader_id

    def raise_high_watermark(self, offset: int, now: Instant) -> bool:
        """Everything below is committed. Never falls. Returns whether it rose."""
        if self.high_watermark is not None and offset <= self.high_watermark:
            return False
        self.high_watermark = self.out.high_watermark = offset
        self.announce()
        if not self.control.voters.has(self.key):
            self._adapt_role(now)
        return True
