"""Serving: what a leader answers to those who fetch its log and its snapshots (KIP-595, KIP-630).

A fetch is a statement, too: its sender has everything below the offset on its disk. It is counted if the position lies
on the leader's log. A fetch at the end of the log waits for records, or for news of the high watermark (KIP-1166).
"""

from math import inf

from broker.quorum.admission import leader_error
from broker.quorum.fetch_purgatory import DelayedFetch, FetchPurgatory
from broker.quorum.identity import Instant, LogPosition, SnapshotId
from broker.quorum.leadership import QuorumLeadership
from broker.quorum.log_view import Diverging, NeedsSnapshot, Valid
from broker.quorum.messages import (
    UNKNOWN_OFFSET,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Response,
)
from broker.quorum.replica import QuorumReplica
from broker.quorum.settings import StoredSnapshot
from broker.quorum.snapshots.rules import distribute, position_error
from broker.quorum.state import LeaderState, Role
from protocol.errors import ErrorCode


class Serving:
    """Acts while the replica's role is Leader; others are told that this is no leader."""

    def __init__(self, replica: QuorumReplica, leadership: QuorumLeadership) -> None:
        self._replica = replica
        self._leadership = leadership
        self._parked = FetchPurgatory()
        replica.on_leaving.append(self._on_leaving)
        leadership.on_progress.append(self._wake)

    def on_fetch_request(self, token: int, request: FetchRequest, now: Instant) -> None:
        replica = self._replica
        if error := self._fetch_error(request):
            replica.answer(token, FetchResponse(error, replica.hint))
            return
        match replica.log.validate(request.fetch_offset, request.last_fetched_epoch):
            case Valid():
                self._on_valid_fetch(token, request, now)
            case Diverging(position):
                replica.answer(token, self._fetch_response(diverging=position))
            case NeedsSnapshot(snapshot_id):
                replica.answer(token, self._fetch_response(snapshot_id=snapshot_id))

    def _fetch_error(self, request: FetchRequest) -> ErrorCode:
        if error := leader_error(self._replica, request.cluster_id, request.epoch):
            return error
        is_sound = (
            request.max_wait_ms >= 0
            and request.fetch_offset >= 0
            and 0 <= request.last_fetched_epoch <= self._replica.term.epoch
            and request.replica.id != self._replica.key.id
        )
        return ErrorCode.NONE if is_sound else ErrorCode.INVALID_REQUEST

    def _on_valid_fetch(self, token: int, request: FetchRequest, now: Instant) -> None:
        """Everything below its offset is on the sender's disk: count it, then answer or let it wait."""
        replica, role = self._replica, self._replica.role
        if request.replica.id >= 0 and isinstance(role, LeaderState):
            is_voter = role.progress.fetched(request.replica, request.fetch_offset, replica.log.end, now)
            self._leadership.on_replica_contact(request.replica, now)
            if is_voter:
                self._leadership.update_high_watermark(now)
        is_news = request.fetch_offset < replica.log.end or request.high_watermark < self._replica.committed
        if is_news or request.max_wait_ms == 0:
            self._answer_fetch(token, request)
        else:
            self._parked.park(token, request, now.monotonic_ms + request.max_wait_ms)

    def _answer_fetch(self, token: int, request: FetchRequest) -> None:
        if request.fetch_offset < self._replica.log.end:
            max_bytes = max(1, min(request.max_bytes, self._replica.settings.fetch_max_bytes))
            self._replica.answer(token, self._fetch_response(read_from=request.fetch_offset, max_bytes=max_bytes))
        else:
            self._replica.answer(token, self._fetch_response())

    def _fetch_response(
        self,
        diverging: LogPosition | None = None,
        snapshot_id: SnapshotId | None = None,
        read_from: int = UNKNOWN_OFFSET,
        max_bytes: int = 0,
    ) -> FetchResponse:
        replica = self._replica
        hint, start = replica.hint, replica.log.start
        return FetchResponse(
            ErrorCode.NONE, hint, self._replica.committed, start, diverging, snapshot_id, read_from, max_bytes
        )

    def _wake(self) -> None:
        for parked in self._parked.woken(self._replica.log.end, self._replica.committed):
            self._answer_parked(parked)

    def _answer_parked(self, parked: DelayedFetch) -> None:
        self._answer_fetch(parked.token, parked.request)

    def on_fetch_snapshot_request(self, token: int, request: FetchSnapshotRequest, now: Instant) -> None:
        replica, role = self._replica, self._replica.role
        snapshot = replica.log.snapshot(request.snapshot_id)
        error = self._snapshot_error(request, snapshot)
        if error or snapshot is None or not isinstance(role, LeaderState):
            replica.answer(token, FetchSnapshotResponse(error, replica.hint, request.snapshot_id))
            return
        if request.replica.id >= 0:
            role.progress.touched(request.replica, now)
            self._leadership.on_replica_contact(request.replica, now)
        most = min(request.max_bytes, replica.settings.fetch_snapshot_max_bytes)
        (max_bytes,) = distribute(most, [snapshot.size - request.position])
        page = FetchSnapshotResponse(
            ErrorCode.NONE, replica.hint, snapshot.id, snapshot.size, request.position, max_bytes
        )
        replica.answer(token, page)

    def _snapshot_error(self, request: FetchSnapshotRequest, snapshot: StoredSnapshot | None) -> ErrorCode:
        if error := leader_error(self._replica, request.cluster_id, request.epoch):
            return error
        if request.replica.id == self._replica.key.id:
            return ErrorCode.INVALID_REQUEST
        if snapshot is None:
            return ErrorCode.SNAPSHOT_NOT_FOUND
        return position_error(request.position, snapshot.size)

    # Time, and the end

    def look(self, now: Instant) -> None:
        """Answers those whose time is over."""
        for parked in self._parked.expired(now.monotonic_ms):
            self._answer_parked(parked)

    @property
    def deadline(self) -> float:
        """When `look` has something to do."""
        deadline = self._parked.deadline
        return inf if deadline is None else deadline

    def _on_leaving(self, before: Role) -> None:
        """Those who wait are told that this is no leader."""
        if not isinstance(before, LeaderState):
            return
        replica = self._replica
        replica.out.revise_responses(self._withdrawn)
        for parked in self._parked.all():
            replica.answer(parked.token, FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, replica.hint))

    def _withdrawn(self, response: Response) -> Response:
        """An answer that has not left and would be read from a log which may be cut before it is."""
        hint = self._replica.hint
        match response:
            case FetchResponse(error=ErrorCode.NONE):
                return FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, hint)
            case FetchSnapshotResponse(error=ErrorCode.NONE):
                return FetchSnapshotResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, hint)
        return response
