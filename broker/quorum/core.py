"""A replica of the metadata log without IO: input in, `Ready` out (KIP-595, 630, 853, 996).

Input changes memory only. Writes, messages and notifications accumulate until the driver takes them as a `Ready` and
executes them in the order of `ready.py`; the core accepts further input meanwhile. No method blocks or fails because of
a peer's message, and equal inputs give equal outputs.

This module dispatches input to modules with one responsibility each, and polls the present role after every input.
`replica.py` is their shared state.
"""

from collections import deque
from collections.abc import Sequence
from math import inf

from broker.quorum import description
from broker.quorum.appends import Appended, BatchTooLarge, NotLeader
from broker.quorum.control_history import Control
from broker.quorum.description import QuorumDescription
from broker.quorum.elections import QuorumElections
from broker.quorum.facts import QuorumFacts
from broker.quorum.following import Following
from broker.quorum.identity import Instant, SnapshotId
from broker.quorum.leadership import QuorumLeadership
from broker.quorum.membership.voter_changes import VoterChanges
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
from broker.quorum.replica import QuorumReplica
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
from broker.quorum.timeouts import JitterSource
from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch, Offset

__all__ = ["Appended", "BatchTooLarge", "JitterSource", "NotLeader", "QuorumCore", "QuorumDescription"]


class QuorumCore:
    """Accepts input, emits a `Ready`, and expects `written` and `persisted` as the Ready is executed.

    One Ready is written at a time, and any number of written Readys may wait for an fsync. Every request gets exactly
    one response, and every sent request has exactly one outcome. Outcomes with an unknown token or serial are ignored.
    """

    def __init__(self, settings: QuorumSettings, recovered: Recovered, random: JitterSource, now: Instant) -> None:
        """Start in the role recorded on disk. The only voter becomes leader at once."""
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
        self.facts = QuorumFacts(self._replica, self._leadership, self._changes)
        self._writing: Ready | None = None
        self._unsynced: deque[Ready] = deque()
        """The Readys that were taken and not persisted, in order."""
        self._now = now
        self._replica.start(recovered, now)
        self._poll(now)

    # Input

    def on_request(self, token: int, request: Request, now: Instant) -> None:
        """Process a request of a peer or client; exactly one response with this token follows in a Ready."""
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
                self._replica.out.respond(token, ProbeResponse(ErrorCode.NONE, self._replica.settings.versions))
        self._poll(now)

    def on_response(self, serial: int, outcome: Response | SendFailure, now: Instant) -> None:
        """Process the outcome of a sent request. Outcomes of requests from before a role change are ignored."""
        in_flight = self._replica.requests.complete(serial)
        if in_flight is None:
            return
        if isinstance(outcome, SendFailure):
            self._on_failure(in_flight, outcome, now)
        else:
            self._on_outcome(in_flight, outcome, now)
        self._poll(now)

    def _on_failure(self, in_flight: InFlightRequest, failure: SendFailure, now: Instant) -> None:
        if not isinstance(in_flight.request, ProbeRequest):  # the probed node need not be a voter ever
            self._replica.requests.failed(in_flight.to_id, now)
        match in_flight.request:
            case FetchRequest() | FetchSnapshotRequest() if failure.is_refusal:
                self._following.on_refusal(in_flight, now)
            case VoteRequest() if failure.error is ErrorCode.UNSUPPORTED_VERSION:
                self._elections.on_vote_unsupported()
            case EndQuorumEpochRequest():
                self._elections.on_end_failure(in_flight)
            case ProbeRequest():
                self._changes.on_probe(in_flight.to_id, failure, now)

    def _on_outcome(self, in_flight: InFlightRequest, response: Response, now: Instant) -> None:
        match in_flight.request, response:
            case FetchRequest() as request, FetchResponse():
                self._following.on_fetch_response(in_flight, request, response, now)
            case FetchSnapshotRequest() as request, FetchSnapshotResponse():
                if not self._import.on_contact_response(in_flight, request, response, now):
                    self._snapshot.on_response(in_flight, request, response, now)
            case VoteRequest() as request, VoteResponse():
                self._elections.on_vote_response(in_flight, request, response, now)
            case BeginQuorumEpochRequest(), BeginQuorumEpochResponse():
                self._elections.on_begin_response(in_flight, response, now)
            case EndQuorumEpochRequest(), EndQuorumEpochResponse():
                self._elections.on_end_response(in_flight, response, now)
            case (AddVoterRequest() | RemoveVoterRequest() | UpdateVoterRequest()) as request, ChangeVotersResponse():
                self._reports.on_response(in_flight, request, response, now)
            case ProbeRequest(), ProbeResponse():
                self._changes.on_probe(in_flight.to_id, response, now)
            case _:
                self._replica.protocol_violations += 1
                self._replica.requests.failed(in_flight.to_id, now)

    def tick(self, now: Instant) -> None:
        """Process elapsed time, usually at `next_deadline_ms`."""
        self._poll(now)

    def append(self, epoch: LeaderEpoch, frames: Sequence[bytes], now: Instant) -> Appended:
        """Append framed records as one batch, which is committed or lost as a whole. The batch is not committed yet.

        Raise NotLeader, BatchTooLarge.
        """
        appended = self._leadership.append(epoch, frames, now)
        self._poll(now)
        return appended

    def resign(self, epoch: LeaderEpoch, now: Instant) -> None:
        """Resign as leader of an epoch. No effect in a later epoch."""
        if epoch == self._replica.term.epoch:
            self._leadership.resign(now)
        self._poll(now)

    def shut_down(self, now: Instant) -> None:
        """Begin to leave the quorum for good; a leader resigns. `is_shut_down` reports the end."""
        self._replica.is_shutting_down = True
        self._poll(now)

    def upgrade_kraft_version(self, token: int, version: int, now: Instant) -> None:
        """Upgrade from static to dynamic voters (KAFKA-16538); the response is a ChangeVotersResponse."""
        self._changes.upgrade(token, version, now)
        self._poll(now)

    def on_snapshot_generated(self, snapshot: StoredSnapshot, now: Instant) -> None:
        """Add a snapshot generated on this node, which is durably on disk."""
        self._trimming.on_snapshot(snapshot, now)
        self._poll(now)

    def on_snapshot_fetched(
        self,
        snapshot_id: SnapshotId,
        stored: StoredSnapshot | None,
        control: tuple[ControlRecord, ...],
        now: Instant,
    ) -> None:
        """Process the outcome of a FinishPart: the snapshot is durably on disk, or (None) was invalid and deleted."""
        self._snapshot.on_checked(snapshot_id, stored, control, now)
        self._poll(now)

    def on_import(self, outcome: ImportOutcome, now: Instant) -> None:
        """Process the outcome of an import step."""
        self._import.on_outcome(outcome, now)
        self._poll(now)

    # Output

    def take_ready(self) -> Ready | None:
        """Return the next Ready; None if there is nothing to do or a Ready is being written."""
        if self._writing is not None:
            return None
        ready = self._replica.out.take()
        if ready is not None:
            self._writing = ready
            self._unsynced.append(ready)
            if ready.must_sync:
                self._replica.log.begin_sync()
        return ready

    def written(self, ready: Ready) -> None:
        """Note that the election state and the log operations of the Ready that was taken last are written."""
        assert ready is self._writing, "written() needs the Ready that was taken last, once"
        self._writing = None

    def persisted(self, ready: Ready, now: Instant) -> None:
        """Complete the oldest Ready, which is written and, if it must be, synced."""
        assert self._unsynced, "persisted() needs a Ready that was taken"
        oldest = self._unsynced.popleft()
        assert ready is oldest, "persisted() needs Readys in the order of take_ready()"
        if ready is self._writing:
            self._writing = None
        if ready.must_sync:
            self._replica.log.complete_sync()
            self._following.on_synced(now)
        self._leadership.update_high_watermark(now)
        self._poll(now)

    # Roles

    def _poll(self, now: Instant) -> None:
        """Run the present role, and after a transition the next role."""
        self._now = now
        self._trimming.poll(now)
        self._import.poll(now)
        role = None
        while role is not self._replica.role:
            role = self._replica.role
            match role:
                case FollowerState():
                    self._following.poll_follower(role, now)
                case LeaderState():
                    self._leadership.poll_leader(role, now)
                    self._serving.poll(now)
                    if self._replica.role is role:
                        self._changes.poll(now)
                case ObserverState():
                    self._following.poll_observer(role, now)
                case UnattachedState():
                    self._elections.poll_unattached(role, now)
                    self._following.poll_unattached(now)
                case ProspectiveState():
                    self._elections.poll_prospective(role, now)
                case CandidateState():
                    self._elections.poll_candidate(role, now)
                    if role.ballot.outcome is Outcome.WON and self._replica.role is role:
                        self._leadership.begin(frozenset(role.ballot.granted), now)
                case ResignedState():
                    self._elections.poll_resigned(role, now)

    @property
    def next_deadline_ms(self) -> float | None:
        """The monotonic time at which `tick` is needed if there is no other input; None for no deadline."""
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
                return inf if self._snapshot.is_being_checked or self._following.awaits_sync else role.fetch_deadline
            case ObserverState():
                return role.fetch_deadline if role.fetch_deadline > self._now.monotonic_ms else inf
        return role.election_deadline

    # Queries

    @property
    def is_shut_down(self) -> bool:
        """Whether the quorum no longer needs this node, after `shut_down`.

        A voter waits for the next leader, whose election may need its vote, unless no other voter is reachable.
        """
        replica, leader_id = self._replica, self._replica.term.leader_id
        if not replica.is_shutting_down:
            return False
        if isinstance(replica.role, ResignedState) and replica.role.is_alone:
            return True
        return not replica.can_become_candidate or replica.is_only_voter or leader_id not in (None, replica.key.id)

    def can_snapshot_at(self, end_offset: Offset) -> SnapshotId | None:
        """Return the id of a snapshot with this end offset.

        None if the records are not committed, or an existing snapshot already covers them.
        """
        replica = self._replica
        if replica.high_watermark is None or not replica.log.start <= end_offset <= replica.high_watermark:
            return None
        newest, epoch = replica.log.newest_snapshot, replica.log.epoch_before(end_offset)
        if epoch is None or end_offset <= (0 if newest is None else newest.end_offset):
            return None
        return SnapshotId(end_offset, epoch)

    def control_before(self, end_offset: Offset) -> Control:
        """Return the kraft.version and voters that a snapshot with this end offset contains."""
        return self._replica.history.at(Offset(end_offset - 1))

    def describe(self, now: Instant) -> QuorumDescription:
        """Return the content of a DescribeQuorum response; only the leader knows it."""
        return description.describe(self._replica, now)
