"""A replica of the metadata log, without IO: it is fed, and says what it wants done (KIP-595, 630, 853, 996).

Whatever it is fed changes memory alone. What has to be written, sent and told gathers until it is taken as a `Ready`,
which is done in the order that `ready.py` states; meanwhile it may be fed on. So no method blocks, none fails for what
a peer said, and the same inputs give the same outputs.

This is the front: it dispatches to the modules that know what to do, each about one thing, and lets the present role
act after every input. `replica.py` is the state that they share.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Final

from broker.quorum import description
from broker.quorum.appends import Appended, BatchTooLarge, NotLeader
from broker.quorum.control_history import Control
from broker.quorum.description import QuorumDescription
from broker.quorum.elections import QuorumElections
from broker.quorum.following import Following
from broker.quorum.identity import Instant, LeaderAndEpoch, SnapshotId
from broker.quorum.leadership import QuorumLeadership
from broker.quorum.membership.voter_changes import VoterChanges
from broker.quorum.membership.voters import VoterSet
from broker.quorum.membership.votes import Outcome
from broker.quorum.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    ChangeVotersResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderHint,
    ProbeRequest,
    ProbeResponse,
    RemoveVoterRequest,
    Request,
    Response,
    SendFailure,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)
from broker.quorum.ready import Ready
from broker.quorum.replica import JitterSource, QuorumReplica
from broker.quorum.reports import Reports
from broker.quorum.request_manager import InFlightRequest
from broker.quorum.serving import Serving
from broker.quorum.settings import ControlRecord, QuorumSettings, Recovered, StoredSnapshot
from broker.quorum.snapshots.fetch import SnapshotFetch
from broker.quorum.snapshots.importing import SnapshotImport
from broker.quorum.snapshots.imports import ImportOutcome
from broker.quorum.snapshots.trimming import Trimming
from broker.quorum.state import (
    CandidateState,
    FollowerState,
    LeaderState,
    ObserverState,
    ProspectiveState,
    ResignedState,
    UnattachedState,
)
from protocol.errors import ErrorCode

__all__ = ["Appended", "BatchTooLarge", "JitterSource", "NotLeader", "QuorumCore", "QuorumDescription"]

_ROLE_NAMES: Final[Mapping[type, str]] = {
    UnattachedState: "unattached",
    ProspectiveState: "prospective",
    CandidateState: "candidate",
    LeaderState: "leader",
    FollowerState: "follower",
    ObserverState: "observer",
    ResignedState: "resigned",
}


class QuorumCore:
    """Feed it, take what is ready, do that, and say so with `persisted`.

    One Ready is under way at a time. A request is answered exactly once, a send has exactly one outcome; what comes
    under an unknown token or serial is ignored.
    """

    def __init__(self, settings: QuorumSettings, recovered: Recovered, random: JitterSource, now: Instant) -> None:
        """A lone voter leads at once; everybody else waits, asks, or takes up the role that the disk tells of."""
        self._replica = QuorumReplica(settings, recovered, random)
        self._elections = QuorumElections(self._replica)
        self._leadership = QuorumLeadership(self._replica, self._elections)
        self._serving = Serving(self._replica, self._leadership)
        self._snapshot = SnapshotFetch(self._replica, self._elections)
        self._import = SnapshotImport(self._replica, self._elections, self._snapshot)
        self._reports = Reports(self._replica, self._elections)
        self._trimming = Trimming(self._replica, now)
        self._following = Following(
            self._replica, self._elections, self._snapshot, self._import, self._reports, self._trimming
        )
        self._changes = VoterChanges(self._replica, self._leadership, now)
        self._under_way: Ready | None = None
        self._now = now
        self._replica.start(recovered, now)
        self._act(now)

    # Feeding

    def on_request(self, token: int, request: Request, now: Instant) -> None:
        """A peer, a tool or a client asks; exactly one Answer with this token follows in some Ready."""
        match request:
            case FetchRequest():
                self._serving.on_fetch_request(token, request, now)
            case VoteRequest():
                self._elections.on_vote_request(token, request, now)
            case BeginQuorumEpochRequest():
                self._elections.on_begin_request(token, request, now)
            case EndQuorumEpochRequest():
                self._elections.on_end_request(token, request, now)
            case FetchSnapshotRequest():
                self._serving.on_fetch_snapshot_request(token, request, now)
            case AddVoterRequest() | RemoveVoterRequest() | UpdateVoterRequest():
                self._changes.on_request(token, request, now)
            case ProbeRequest():
                self._replica.answer(token, ProbeResponse(ErrorCode.NONE, self._replica.settings.versions))
        self._act(now)

    def on_response(self, serial: int, outcome: Response | SendFailure, now: Instant) -> None:
        """The outcome of a Send. Old ones, from before a change of role, are ignored."""
        flight = self._replica.requests.complete(serial)
        if flight is None:
            return
        if isinstance(outcome, SendFailure):
            self._on_failure(flight, outcome, now)
        else:
            self._on_outcome(flight, outcome, now)
        self._act(now)

    def _on_failure(self, flight: InFlightRequest, failure: SendFailure, now: Instant) -> None:
        self._replica.requests.failed(flight.to_id, now)
        match flight.request:
            case FetchRequest() | FetchSnapshotRequest() if failure.is_refusal:
                self._following.on_refusal(flight, now)
            case VoteRequest() if failure.error is ErrorCode.UNSUPPORTED_VERSION:
                self._elections.on_vote_unsupported()
            case EndQuorumEpochRequest():
                self._elections.on_end_failure(flight)
            case ProbeRequest():
                self._changes.on_probe(failure, now)

    def _on_outcome(self, flight: InFlightRequest, response: Response, now: Instant) -> None:
        match flight.request, response:
            case FetchRequest() as request, FetchResponse():
                self._following.on_fetch_response(flight, request, response, now)
            case FetchSnapshotRequest() as request, FetchSnapshotResponse():
                if not self._import.on_touched(flight, request, response, now):
                    self._snapshot.on_response(flight, request, response, now)
            case VoteRequest() as request, VoteResponse():
                self._elections.on_vote_response(flight, request, response, now)
            case BeginQuorumEpochRequest(), BeginQuorumEpochResponse():
                self._elections.on_begin_response(flight, response, now)
            case EndQuorumEpochRequest(), EndQuorumEpochResponse():
                self._elections.on_end_response(flight, response, now)
            case (AddVoterRequest() | RemoveVoterRequest() | UpdateVoterRequest()) as request, ChangeVotersResponse():
                self._reports.on_response(flight, request, response, now)
            case ProbeRequest(), ProbeResponse():
                self._changes.on_probe(response, now)
            case _:
                self._replica.protocol_violations += 1
                self._replica.requests.failed(flight.to_id, now)

    def tick(self, now: Instant) -> None:
        """Time has passed, `next_deadline_ms` perhaps."""
        self._act(now)

    def append(self, epoch: int, frames: Sequence[bytes], now: Instant) -> Appended:
        """Append framed records as one batch, which commits or vanishes as a whole. It promises nothing before that.

        Raises NotLeader, BatchTooLarge.
        """
        appended = self._leadership.append(epoch, frames, now)
        self._act(now)
        return appended

    def resign(self, epoch: int, now: Instant) -> None:
        """Give up leadership of an epoch. No effect if it is over."""
        if epoch == self._replica.term.epoch:
            self._leadership.resign(now)
        self._act(now)

    def shut_down(self, now: Instant) -> None:
        """Leave, a leader with goodbye; see `is_shut_down`. There is no way back."""
        self._replica.is_shutting_down = True
        self._act(now)

    def upgrade_kraft_version(self, token: int, version: int, now: Instant) -> None:
        """From configured voters to ones that may change (KAFKA-16538); the Answer is a ChangeVotersResponse."""
        self._changes.upgrade(token, version, now)
        self._act(now)

    def on_snapshot_generated(self, snapshot: StoredSnapshot, now: Instant) -> None:
        """A snapshot of this node's own making is in place, durably."""
        self._trimming.on_snapshot(snapshot, now)
        self._act(now)

    def on_snapshot_fetched(
        self,
        snapshot_id: SnapshotId,
        stored: StoredSnapshot | None,
        control: tuple[ControlRecord, ...],
        now: Instant,
    ) -> None:
        """The outcome of a FinishPart: the snapshot is in place, durably; or, None, it was no good and is gone."""
        self._snapshot.on_checked(snapshot_id, stored, control, now)
        self._act(now)

    def on_import(self, outcome: ImportOutcome, now: Instant) -> None:
        """What came of a step of an import."""
        self._import.on_outcome(outcome, now)
        self._act(now)

    # Taking

    def take_ready(self) -> Ready | None:
        """What is to be done now; None if that is nothing, or if a Ready is under way."""
        if self._under_way is None:
            self._under_way = self._replica.take_ready()
            return self._under_way
        return None

    def persisted(self, ready: Ready, now: Instant) -> None:
        """The Ready that was taken last is done."""
        assert ready is self._under_way, "a Ready that was not taken, or is done already"
        self._under_way = None
        self._replica.persisted(ready)
        self._leadership.update_high_watermark(now)
        self._act(now)

    # Acting

    def _act(self, now: Instant) -> None:
        """Lets the present role do what is due, and then the one that this leads to."""
        self._now = now
        self._trimming.look(now)
        self._import.look(now)
        role = None
        while role is not self._replica.role:
            role = self._replica.role
            match role:
                case FollowerState():
                    self._following.follow(role, now)
                case LeaderState():
                    self._leadership.lead(role, now)
                    self._serving.look(now)
                    if self._replica.role is role:
                        self._changes.go_on(now)
                case ObserverState():
                    self._following.observe(role, now)
                case UnattachedState():
                    self._elections.wait(role, now)
                    self._following.wait(now)
                case ProspectiveState():
                    self._elections.prospect(role, now)
                case CandidateState():
                    self._elections.stand(role, now)
                    if role.ballot.outcome is Outcome.WON and self._replica.role is role:
                        self._leadership.begin(frozenset(role.ballot.granted), now)
                case ResignedState():
                    self._elections.poll_resigned(role, now)

    @property
    def next_deadline_ms(self) -> float | None:
        """When `tick` is needed if nothing else happens before, as a monotonic time; None: not at all."""
        retry, resume = self._replica.requests.next_retry(self._now), self._snapshot.resume_at
        pauses = (inf if retry is None else retry, resume if resume > self._now.monotonic_ms else inf)
        deadline = min(self._role_deadline, self._import.deadline(self._now), *pauses)
        return None if deadline == inf else deadline

    @property
    def _role_deadline(self) -> float:
        role, replica = self._replica.role, self._replica
        if isinstance(role, LeaderState):
            parts = (self._serving, self._changes, self._trimming)
            return min(self._leadership.deadline(role), *(part.deadline for part in parts))
        if replica.is_shutting_down and not isinstance(role, ProspectiveState | CandidateState):
            return inf
        match role:
            case FollowerState():
                return inf if self._snapshot.is_being_checked else role.fetch_deadline
            case ObserverState():
                return role.fetch_deadline if role.fetch_deadline > self._now.monotonic_ms else inf
        return role.election_deadline

    # Reading

    @property
    def leader(self) -> LeaderAndEpoch:
        """Who leads, as far as this node knows; itself from its election on."""
        role, term = self._replica.role, self._replica.term
        return LeaderAndEpoch(None if isinstance(role, ResignedState) else term.leader_id, term.epoch)

    @property
    def leader_hint(self) -> LeaderHint:
        """The leader and where it listens, as responses say it."""
        return self._replica.hint

    @property
    def is_changing_voters(self) -> bool:
        """On the leader: whether a change of the voters is under way or not committed."""
        return isinstance(self._replica.role, LeaderState) and self._changes.is_pending

    @property
    def epoch(self) -> int:
        return self._replica.term.epoch

    @property
    def role(self) -> str:
        """For metrics and people: unattached, prospective, candidate, leader, follower, observer or resigned."""
        return _ROLE_NAMES[type(self._replica.role)]

    @property
    def high_watermark(self) -> int | None:
        """The end of what is committed, as far as this node knows; None before anybody told it."""
        return self._replica.high_watermark

    @property
    def log_start_offset(self) -> int:
        return self._replica.log.start

    @property
    def log_end_offset(self) -> int:
        """The offset that the next append gets; it may be ahead of what is written."""
        is_leader = isinstance(self._replica.role, LeaderState)
        return self._leadership.next_offset if is_leader else self._replica.log.end

    @property
    def log_end_epoch(self) -> int:
        """The epoch of the last record, maybe one that only a snapshot stands for; 0 if there never was one."""
        return self._replica.log.last_epoch

    @property
    def log_bytes(self) -> int:
        """About how large the log is."""
        return self._replica.log.bytes

    @property
    def kraft_version(self) -> int:
        """As the log has it, committed or not."""
        return self._replica.control.kraft_version

    @property
    def voters(self) -> VoterSet:
        """As the log has them, committed or not."""
        return self._replica.voters

    @property
    def ignores_static_voters(self) -> bool:
        """Whether voters are configured and a record says who they are instead: the configuration may go (KIP-853)."""
        replica = self._replica
        return bool(replica.settings.static_voters) and replica.control.voters_offset is not None

    @property
    def is_voter(self) -> bool:
        return self._replica.voters.has(self._replica.key)

    @property
    def protocol_violations(self) -> int:
        """How often peers said what no sound peer says."""
        return self._replica.protocol_violations

    @property
    def is_shut_down(self) -> bool:
        """After `shut_down`: whether the others can do without this node. A voter waits for the next leader, because
        its vote may be needed; but one that none of the others answers waits for nothing.
        """
        replica, leader_id = self._replica, self._replica.term.leader_id
        if not replica.is_shutting_down:
            return False
        if isinstance(replica.role, ResignedState) and replica.role.is_alone:
            return True
        return not replica.can_become_candidate or replica.is_only_voter or leader_id not in (None, replica.key.id)

    def epoch_before(self, offset: int) -> int | None:
        """The epoch of the record that precedes an offset; None if the log cannot tell."""
        return self._replica.log.epoch_before(offset)

    def can_snapshot_at(self, end_offset: int) -> SnapshotId | None:
        """The id of a snapshot that ends there; None if it must not be made (not committed), or one is there that
        stands for as much.
        """
        replica = self._replica
        if replica.high_watermark is None or not replica.log.start <= end_offset <= replica.high_watermark:
            return None
        newest, epoch = replica.log.newest_snapshot, replica.log.epoch_before(end_offset)
        if epoch is None or end_offset <= (0 if newest is None else newest.end_offset):
            return None
        return SnapshotId(end_offset, epoch)

    def control_before(self, end_offset: int) -> Control:
        """kraft.version and voters that a snapshot which ends there must state."""
        return self._replica.history.at(end_offset - 1)

    def describe(self, now: Instant) -> QuorumDescription:
        """For DescribeQuorum; by the leader alone."""
        return description.describe(self._replica, now)
