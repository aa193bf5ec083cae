"""Handling of Fetch and FetchSnapshot requests on the leader (KIP-595, KIP-630).

The sender of a fetch has all records below the fetch offset on disk, so the leader counts the offset as progress if it
lies on the leader's log. A fetch at the log end offset waits for records or for a newer high watermark (KIP-1166).
"""

from math import inf

from broker.quorum.admission import reader_error
from broker.quorum.fetch_purgatory import FetchPurgatory
from broker.quorum.identity import Instant, LogPosition, SnapshotId
from broker.quorum.leadership import QuorumLeadership
from broker.quorum.log_view import Diverging, NeedsSnapshot, Valid
from broker.quorum.messages import FetchRequest, FetchResponse, FetchSnapshotRequest, FetchSnapshotResponse
from broker.quorum.ready import PendingResponse, ReadRecords, ReadSnapshotPage, SendResponse
from broker.quorum.replica import QuorumReplica
from broker.quorum.settings import StoredSnapshot
from broker.quorum.snapshots.rules import position_error
from broker.quorum.state import LeaderState, Role
from protocol.errors import ErrorCode


class Serving:
    """Serves fetches while the replica is leader, and refuses them in all other roles."""

    def __init__(self, replica: QuorumReplica, leadership: QuorumLeadership) -> None:
        self._replica = replica
        self._leadership = leadership
        self._purgatory = FetchPurgatory()
        replica.on_leaving.append(self._on_leaving)
        leadership.on_progress.append(self._complete_satisfied)

    # Fetch

    def on_fetch_request(self, token: int, request: FetchRequest, now: Instant) -> None:
        replica = self._replica
        if error := self._fetch_error(request):
            replica.out.respond(token, FetchResponse(error, replica.hint))
            return
        match replica.log.validate(request.fetch_offset, request.last_fetched_epoch):
            case Valid():
                self._on_valid_fetch(token, request, now)
            case Diverging(position):
                replica.out.respond(token, self._fetch_response(diverging=position))
            case NeedsSnapshot(snapshot_id):
                replica.out.respond(token, self._fetch_response(snapshot_id=snapshot_id))

    def _fetch_error(self, request: FetchRequest) -> ErrorCode:
        if error := reader_error(self._replica, request.cluster_id, request.replica, request.epoch):
            return error
        is_valid = (
            request.max_wait_ms >= 0
            and request.fetch_offset >= 0
            and 0 <= request.last_fetched_epoch <= self._replica.term.epoch
            and request.replica.id != self._replica.key.id
        )
        return ErrorCode.NONE if is_valid else ErrorCode.INVALID_REQUEST

    def _on_valid_fetch(self, token: int, request: FetchRequest, now: Instant) -> None:
        """Count the sender's progress, then complete the fetch or add it to the purgatory."""
        replica, role = self._replica, self._replica.role
        if request.replica.id >= 0 and isinstance(role, LeaderState):
            is_voter = role.progress.fetched(request.replica, request.fetch_offset, replica.log.end, now)
            self._leadership.on_replica_contact(request.replica, now)
            if is_voter:
                self._leadership.update_high_watermark(now)
        is_satisfied = request.fetch_offset < replica.log.end or request.high_watermark < self._replica.committed
        if is_satisfied or request.max_wait_ms == 0:
            self._complete_fetch(token, request)
        else:
            self._purgatory.add(token, request, now.monotonic_ms + request.max_wait_ms)

    def _complete_fetch(self, token: int, request: FetchRequest) -> None:
        replica, response = self._replica, self._fetch_response()
        if request.fetch_offset < replica.log.end:
            max_bytes = max(1, min(request.max_bytes, replica.settings.fetch_max_bytes))
            replica.out.responses.append(ReadRecords(token, response, request.fetch_offset, max_bytes))
        else:
            replica.out.respond(token, response)

    def _fetch_response(
        self, diverging: LogPosition | None = None, snapshot_id: SnapshotId | None = None
    ) -> FetchResponse:
        replica = self._replica
        return FetchResponse(ErrorCode.NONE, replica.hint, replica.committed, replica.log.start, diverging, snapshot_id)

    def _complete_satisfied(self) -> None:
        for delayed in self._purgatory.take_satisfied(self._replica.log.end, self._replica.committed):
            self._complete_fetch(delayed.token, delayed.request)

    # FetchSnapshot

    def on_fetch_snapshot_request(self, token: int, request: FetchSnapshotRequest, now: Instant) -> None:
        replica, role = self._replica, self._replica.role
        snapshot = replica.log.snapshot(request.snapshot_id)
        error = self._snapshot_error(request, snapshot)
        if error or snapshot is None or not isinstance(role, LeaderState):
            replica.out.respond(token, FetchSnapshotResponse(error, replica.hint, request.snapshot_id))
            return
        if request.replica.id >= 0:
            role.progress.on_snapshot_fetch(request.replica, now)
            self._leadership.on_replica_contact(request.replica, now)
        max_bytes = min(request.max_bytes, replica.settings.fetch_snapshot_max_bytes, snapshot.size - request.position)
        page = FetchSnapshotResponse(ErrorCode.NONE, replica.hint, snapshot.id, snapshot.size, request.position)
        if max_bytes > 0:
            replica.out.responses.append(ReadSnapshotPage(token, page, max_bytes))
        else:
            replica.out.respond(token, page)

    def _snapshot_error(self, request: FetchSnapshotRequest, snapshot: StoredSnapshot | None) -> ErrorCode:
        if error := reader_error(self._replica, request.cluster_id, request.replica, request.epoch):
            return error
        if request.replica.id == self._replica.key.id:
            return ErrorCode.INVALID_REQUEST
        if snapshot is None:
            return ErrorCode.SNAPSHOT_NOT_FOUND
        return position_error(request.position, snapshot.size)

    # Timeouts, and the end of the leadership

    def poll(self, now: Instant) -> None:
        """Complete delayed fetches whose wait time has elapsed."""
        for delayed in self._purgatory.take_expired(now.monotonic_ms):
            self._complete_fetch(delayed.token, delayed.request)

    @property
    def deadline(self) -> float:
        """The time at which `poll` must run next."""
        deadline = self._purgatory.deadline
        return inf if deadline is None else deadline

    def _on_leaving(self, before: Role) -> None:
        """Complete all delayed fetches with NOT_LEADER_OR_FOLLOWER."""
        if not isinstance(before, LeaderState):
            return
        replica = self._replica
        replica.out.revise_responses(self._withdrawn)
        for delayed in self._purgatory.take_all():
            replica.out.respond(delayed.token, FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, replica.hint))

    def _withdrawn(self, pending: PendingResponse) -> PendingResponse:
        """Replace a successful fetch response that was not taken yet: the log may be truncated before it is read."""
        hint, token = self._replica.hint, pending.token
        match pending.response:
            case FetchResponse(error=ErrorCode.NONE):
                return SendResponse(token, FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, hint))
            case FetchSnapshotResponse(error=ErrorCode.NONE):
                return SendResponse(token, FetchSnapshotResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, hint))
        return pending
