"""The link between the leader and the voter change operations in `reconfiguration.py`."""

from broker.quorum import batches
from broker.quorum.admission import leader_error
from broker.quorum.identity import Instant, ReplicaKey, SocketAddress
from broker.quorum.leadership import QuorumLeadership
from broker.quorum.membership.reconfiguration import Reconfiguration
from broker.quorum.membership.voters import VoterNode, VoterSet
from broker.quorum.messages import (
    AddVoterRequest,
    ChangeVotersResponse,
    ProbeRequest,
    ProbeResponse,
    RemoveVoterRequest,
    SendFailure,
    UpdateVoterRequest,
)
from broker.quorum.replica import QuorumReplica
from broker.quorum.state import LeaderState, Role
from broker.quorum.timeouts import UPDATE_VOTER_FETCH_TIMEOUTS
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, Offset


class VoterChanges:
    """Implements `ChangingLeader`. A change in progress ends with the leadership."""

    def __init__(self, replica: QuorumReplica, leadership: QuorumLeadership, now: Instant) -> None:
        self._replica = replica
        self._leadership = leadership
        self._now = now
        self._changes = self._new_changes()
        replica.on_leaving.append(self._on_leaving)

    def _new_changes(self) -> Reconfiguration:
        return Reconfiguration(self, self._replica.settings.request_timeout_ms)

    # Requests

    def on_request(
        self, token: int, request: AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest, now: Instant
    ) -> None:
        self._now = now
        epoch = request.epoch if isinstance(request, UpdateVoterRequest) else None
        if error := leader_error(self._replica, request.cluster_id, epoch):
            self.respond(token, error, None)
            return
        match request:
            case AddVoterRequest():
                self._changes.add(token, request, now.monotonic_ms)
            case RemoveVoterRequest():
                self._changes.remove(token, request, now.monotonic_ms)
            case UpdateVoterRequest():
                self._changes.update(token, request)

    def upgrade(self, token: int, version: int, now: Instant) -> None:
        """Upgrade kraft.version."""
        self._now = now
        if error := leader_error(self._replica, None, None):
            self.respond(token, error, None)
        else:
            self._changes.upgrade(token, version, now.monotonic_ms)

    def on_probe(self, replica_id: BrokerId, outcome: ProbeResponse | SendFailure, now: Instant) -> None:
        self._now = now
        self._changes.on_probe(replica_id, outcome)

    # Progress

    def poll(self, now: Instant) -> None:
        """Complete or time out the change in progress, on the leader."""
        self._now = now
        self._changes.on_committed()
        self._changes.tick(now.monotonic_ms)
        if self._changes.has_removed_leader:
            self._leadership.resign(now)

    @property
    def deadline(self) -> float:
        return self._changes.deadline

    @property
    def is_pending(self) -> bool:
        """Whether a change is in progress, or appended and not committed."""
        offset = self.voters_offset
        return self._changes.is_pending or (offset is not None and offset >= self.committed)

    def _on_leaving(self, before: Role) -> None:
        if isinstance(before, LeaderState):
            self._changes.abandon()
            self._changes = self._new_changes()

    # ChangingLeader

    @property
    def own(self) -> VoterNode:
        settings = self._replica.settings
        return VoterNode(settings.key, settings.listeners, settings.versions)

    @property
    def default_listener(self) -> str:
        return self._replica.settings.default_listener

    @property
    def voters(self) -> VoterSet:
        return self._replica.voters

    @property
    def voters_offset(self) -> Offset | None:
        return self._replica.control.voters_offset

    @property
    def kraft_version(self) -> int:
        return self._replica.control.kraft_version

    @property
    def committed(self) -> Offset:
        return self._replica.committed

    def is_caught_up(self, replica: ReplicaKey) -> bool:
        role = self._replica.role
        known = role.progress.of(replica) if isinstance(role, LeaderState) else None
        if known is None or known.caught_up is None:
            return False
        return known.caught_up.monotonic_ms > self._now.monotonic_ms - self._replica.settings.fetch_timeout_ms

    def namesake(self, voter: ReplicaKey) -> ReplicaKey | None:
        role, window_ms = self._replica.role, UPDATE_VOTER_FETCH_TIMEOUTS * self._replica.settings.fetch_timeout_ms
        if not isinstance(role, LeaderState):
            return None
        return role.progress.namesake(voter, self._now.monotonic_ms - window_ms)

    def probe(self, replica: ReplicaKey, endpoint: SocketAddress) -> bool:
        if not self._replica.requests.is_ready(replica.id, self._now):
            return False
        self._replica.send(replica.id, endpoint, ProbeRequest())
        return True

    def append_voters(self, kraft_version: int | None, voters: VoterSet) -> Offset:
        records = [] if kraft_version is None else [batches.kraft_version(kraft_version)]
        return self._leadership.append_control([*records, batches.voters(voters)], self._now)

    def respond(self, token: int, error: ErrorCode, message: str | None) -> None:
        self._replica.out.respond(token, ChangeVotersResponse(error, self._replica.hint, message))
