"""Raising the log start offset to the end of a snapshot (`TrimRule`, KIP-630)."""

from dataclasses import replace
from math import inf

from broker.quorum.identity import Instant, SnapshotId
from broker.quorum.messages import UNKNOWN_OFFSET, FetchSnapshotResponse
from broker.quorum.ready import PendingResponse, ReadRecords, ReadSnapshotPage, SendResponse, Trim
from broker.quorum.replica import QuorumReplica
from broker.quorum.settings import StoredSnapshot
from broker.quorum.snapshots.rules import LogFacts, SlowReplicaWait, TrimRule
from broker.quorum.state import LeaderState
from protocol.errors import ErrorCode
from protocol.ids import Offset


class Trimming:
    """The leader checks periodically and after each snapshot; others check when the leader's log start offset moves."""

    def __init__(self, replica: QuorumReplica, now: Instant) -> None:
        self._replica = replica
        self._rule = TrimRule.of(replica.settings)
        self._wait = SlowReplicaWait(replica.settings.start_offset_lag_time_max_ms)
        self._check_at = now.monotonic_ms
        self._leader_start = UNKNOWN_OFFSET

    def on_snapshot(self, snapshot: StoredSnapshot, now: Instant) -> None:
        """Add a snapshot generated on this node. A snapshot that ends below the log start offset is deleted again."""
        log = self._replica.log
        if log.add_snapshot(snapshot):
            self._check_at = now.monotonic_ms
        elif log.oldest_snapshot is not None and snapshot.id.end_offset < log.start:
            self._remove_below(log.oldest_snapshot)

    def on_leader_start(self, offset: Offset) -> None:
        """Process the log start offset in a response of the leader."""
        if offset != self._leader_start:
            self._leader_start = offset
            self._check_at = 0.0

    def poll(self, now: Instant) -> None:
        """Trim the log if a check is due and the rule permits it."""
        if now.monotonic_ms < self.deadline:
            return
        self._check_at = now.monotonic_ms + self._replica.settings.trim_interval_ms
        snapshot_id = self._start(now)
        if snapshot_id is not None:
            self._trim(snapshot_id)

    @property
    def deadline(self) -> float:
        """The time of the next check; infinite if no snapshot ends above the log start offset."""
        log = self._replica.log
        return self._check_at if log.snapshots and log.snapshots[-1].id.end_offset > log.start else inf

    def _start(self, now: Instant) -> SnapshotId | None:
        replica, log = self._replica, self._replica.log
        facts = LogFacts(log.start, log.end, log.bytes, log.snapshots)
        waited_end = self._wait.waited_end(log.snapshots, now.monotonic_ms)
        if not isinstance(replica.role, LeaderState):
            return self._rule.on_follower(facts, self._leader_start)
        since_ms = now.monotonic_ms - replica.settings.observer_session_timeout_ms
        ends = [each.end_offset for each in replica.role.progress.live(since_ms)]
        return self._rule.on_leader(facts, ends, waited_end, now.wall_ms)

    def _trim(self, snapshot_id: SnapshotId) -> None:
        replica = self._replica
        replica.log.trim(snapshot_id)
        replica.history.trim(snapshot_id.end_offset)
        self._remove_below(snapshot_id)
        replica.out.revise_responses(self._without_deleted_data)

    def _remove_below(self, snapshot_id: SnapshotId) -> None:
        self._replica.out.log.append(Trim(snapshot_id))
        self._replica.out.must_sync = True  # the sync deletes the files, also on a node that syncs nothing else

    def _without_deleted_data(self, pending: PendingResponse) -> PendingResponse:
        """Replace a response whose data is deleted before the response is executed."""
        log = self._replica.log
        match pending:
            case ReadRecords(token, response, offset) if offset < log.start:
                newest = log.newest_snapshot
                return SendResponse(token, replace(response, snapshot_id=newest, log_start_offset=log.start))
            case SendResponse(token, FetchSnapshotResponse() as page) | ReadSnapshotPage(token, page):
                if page.error is ErrorCode.NONE and log.snapshot(page.snapshot_id) is None:
                    gone = FetchSnapshotResponse(ErrorCode.SNAPSHOT_NOT_FOUND, page.leader, page.snapshot_id)
                    return SendResponse(token, gone)
        return pending
