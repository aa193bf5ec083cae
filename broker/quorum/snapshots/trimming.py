"""Letting go of the log's beginning, once a snapshot stands for it (`TrimRule`, KIP-630)."""

from dataclasses import replace
from math import inf

from broker.quorum.identity import Instant, SnapshotId
from broker.quorum.messages import UNKNOWN_OFFSET, FetchResponse, FetchSnapshotResponse, Response
from broker.quorum.ready import Trim
from broker.quorum.replica import QuorumReplica
from broker.quorum.settings import StoredSnapshot
from broker.quorum.snapshots.rules import LogFacts, TrimRule
from broker.quorum.state import LeaderState
from protocol.errors import ErrorCode


class Trimming:
    """The leader looks every now and then, and when there is a new snapshot; others when the leader's start moved."""

    def __init__(self, replica: QuorumReplica, now: Instant) -> None:
        self._replica = replica
        self._rule = TrimRule.of(replica.settings)
        self._look_at = now.monotonic_ms
        self._leader_start = UNKNOWN_OFFSET

    def on_snapshot(self, snapshot: StoredSnapshot, now: Instant) -> None:
        """One was generated here. What ends below the log's start came too late, and goes like all others there."""
        log = self._replica.log
        if log.add_snapshot(snapshot):
            self._look_at = now.monotonic_ms
        elif log.oldest_snapshot is not None and snapshot.id.end_offset < log.start:
            self._remove_below(log.oldest_snapshot)

    def on_leader_start(self, offset: int) -> None:
        """The leader said where its log starts."""
        if offset != self._leader_start:
            self._leader_start = offset
            self._look_at = 0.0

    def look(self, now: Instant) -> None:
        """Trims if it may be."""
        if now.monotonic_ms < self.deadline:
            return
        self._look_at = now.monotonic_ms + self._replica.settings.trim_interval_ms
        snapshot_id = self._start(now)
        if snapshot_id is not None:
            self._trim(snapshot_id)

    @property
    def deadline(self) -> float:
        """When to look; infinite if no snapshot stands for a part of the log."""
        log = self._replica.log
        return self._look_at if log.snapshots and log.snapshots[-1].id.end_offset > log.start else inf

    def _start(self, now: Instant) -> SnapshotId | None:
        replica, log = self._replica, self._replica.log
        facts = LogFacts(log.start, log.end, log.bytes, log.snapshots)
        if not isinstance(replica.role, LeaderState):
            return self._rule.on_follower(facts, self._leader_start)
        since_ms = now.monotonic_ms - replica.settings.observer_session_timeout_ms
        ends = [each.end_offset for each in replica.role.progress.live(since_ms)]
        return self._rule.on_leader(facts, ends, now.wall_ms)

    def _trim(self, snapshot_id: SnapshotId) -> None:
        replica = self._replica
        replica.log.trim(snapshot_id)
        replica.history.trim(snapshot_id.end_offset)
        self._remove_below(snapshot_id)
        replica.out.revise_responses(self._without_what_is_gone)

    def _remove_below(self, snapshot_id: SnapshotId) -> None:
        self._replica.out.log.append(Trim(snapshot_id))
        self._replica.out.must_sync = True  # with it the files go, also where nothing else is synced

    def _without_what_is_gone(self, response: Response) -> Response:
        """An answer that has not left and would be read from what is deleted before it is."""
        log = self._replica.log
        match response:
            case FetchResponse(read_from=offset) if 0 <= offset < log.start:
                newest = log.newest_snapshot
                return replace(
                    response, read_from=UNKNOWN_OFFSET, max_bytes=0, snapshot_id=newest, log_start_offset=log.start
                )
            case FetchSnapshotResponse(error=ErrorCode.NONE, snapshot_id=wanted) if log.snapshot(wanted) is None:
                return FetchSnapshotResponse(ErrorCode.SNAPSHOT_NOT_FOUND, response.leader, wanted)
        return response
