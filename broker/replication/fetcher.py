"""Fetching from one leader for all replicas that share it: requests, and the actions that follow from the answers.

No IO, no clock.

Theory of operation
-------------------
A fetcher owns the replicas that share a leader (and a connection to it). One request names all of them; the leader
answers as soon as it has news, or after `replica.fetch.wait.max.ms`. An incremental session (`fetch_session.py`) makes
an idle replica free: a request names only replicas whose position has moved, an answer lists only those with news, and
nothing here iterates over the others. Many new replicas, e.g. after a restart, are added by several requests, all but
the last of which do not wait at the leader: a leader's event loop must not spend half a second on one request.

The leader detects divergence: a request names the epoch of the replica's last record, and the answer names the offset
to truncate to (KIP-595; every supported `metadata.version` has it). One truncation may not be enough; then the next
request, with an older epoch, brings the next one. A log without epochs has no records and nothing to truncate.

A replica that cannot be fetched for now leaves the session, or the leader would answer for it at once, again and again.
`FetchPhase` (`fetch_state.py`) names the reason.

    answer                                           reaction
    ------                                           --------
    records, high watermark, log start               append; fetch what follows
    diverging epoch                                  truncate, or restart at the leader's log start; fetch again
    records that begin below the replica's end       truncate where they begin, fetch again; failed if committed
    OFFSET_OUT_OF_RANGE                              look up the leader's bounds; truncate, restart, or fetch again
    OFFSET_MOVED_TO_TIERED_STORAGE                   build auxiliary state from remote storage
                                                     (`remote_log_aux_state_machine.py`)
    FENCED_LEADER_EPOCH                              failed until the metadata names a new leader epoch
    any other error, corrupt records                 fetch again after a back-off
    disk failure                                     failed
    session lost                                     name every replica again, at once
    no answer, or an invalid answer                  the whole fetcher backs off

Records that begin below the end: the leader's log may start within a batch, where DeleteRecords left it; the leader
then knows no epoch before that. A replica whose log diverges there gets that batch instead of a diverging epoch.
(Kafka's follower fails.)

An answer to an outdated request (another leader epoch, another position) is void.

A truncation to the leader's log start or below would leave no records that both logs are known to share: the leader has
forgotten its earlier epochs and names its log start as the end of any of them. So the replica restarts there. (Kafka's
follower keeps its records below, hidden by its log start offset. But a crash may restore an older log start offset, and
transactions that began there stay open if the leader has deleted their markers. A leader with such a log serves records
that were never committed, or blocks read_committed consumers for ever.) One case remains: a replica whose log ends
exactly at the leader's log start. The leader reports no divergence, and the replica looks like any follower of a leader
that has deleted everything; restarting all of those would lose valid producer state.

A truncation below the local log start would leave a replica without producer state at that point. The replica builds
auxiliary state from remote storage instead, as after OFFSET_MOVED_TO_TIERED_STORAGE.

Sessionless fetches. A replica that becomes ready while a request waits at the leader would have to wait as well, half a
second on an idle cluster, e.g. after a leader change, with acks=all producers waiting. Such replicas are fetched for in
a request of their own, without session, on a separate connection. Its answer comes before the waiting request's, so the
replicas join the next request of the session, which waits only shortly while sessionless fetches are under way. A busy
fetcher needs none: its next request is due soon.
"""

from collections.abc import Iterable
from math import ceil
from typing import Final, Generic

from broker.replication.epochs import EpochEnd, truncation_point
from broker.replication.fetch_actions import (
    AuxStateBuild,
    FetchActions,
    FetchedPartition,
    FetchFailure,
    LogBound,
    Truncation,
    complaint_about,
)
from broker.replication.fetch_plan import FetcherSettings, Sender, fetch_request
from broker.replication.fetch_session import FetchSessionHandler, SessionOutcome
from broker.replication.fetch_state import UNKNOWN_LAG, FetchPhase, P, PartitionFetchState, PartitionKey
from broker.replication.followed_replicas import FollowedReplicas
from broker.replication.replication_quota import ReplicationQuota
from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch
from protocol.messages.fetch import FetchRequest, FetchResponse

SESSIONLESS_AFTER_MS: Final = 10
"""A request that has waited for so long counts as idle."""
SESSIONLESS_LEAD_MS: Final = 20
"""A sessionless fetch returns so much earlier than the waiting request."""
MAX_SESSIONLESS_FETCHES: Final = 4
"""The limit of sessionless fetches under way, each on its own connection; further replicas wait."""
MERGE_WAIT_MS: Final = 50
"""The longest wait of a session request while a sessionless fetch is under way."""


class FetcherCore(Generic[P]):
    """Feed: `add`, `remove`, the `on_…` methods. Take: `next_request`, then `sessionless_request`.

    Times are monotonic milliseconds. `is_waiting`: the session's request is under way; there is at most one. The driver
    performs the appends of an answer before it takes the next request.
    """

    def __init__(self, settings: FetcherSettings, quota: ReplicationQuota | None = None) -> None:
        self.replicas: FollowedReplicas[P] = FollowedReplicas(settings.backoff_ms, quota)
        self.is_waiting = False
        self._settings = settings
        self._session = FetchSessionHandler()
        self._asked_count = 0
        self._asked_ms = 0
        self._wait_ms = 0
        self._sessionless: dict[int, list[PartitionFetchState[P]]] = {}
        """The replicas of each sessionless fetch under way, by connection number."""
        self._paused_until_ms = 0
        self._pauses = 0

    # ---- replicas

    def add(self, partition: P) -> None:
        """Follow the leader in the replica's present leader epoch.

        Keep the fetch state of this epoch, unless the replica failed. A pause of the fetcher ends: the metadata says
        that the leader is available.
        """
        key = (partition.topic_id, partition.index)
        present = self.replicas.by_key.get(key)
        if present is not None:
            is_same = present.partition is partition and present.leader_epoch == partition.leader_epoch
            if is_same and present.phase is not FetchPhase.FAILED:
                return
            self.replicas.drop(present)
        self._paused_until_ms = 0
        self.replicas.add(partition, key)

    def remove(self, key: PartitionKey) -> bool:
        """Fetch no more for a replica; return whether it was followed."""
        present = self.replicas.by_key.get(key)
        if present is None:
            return False
        self.replicas.drop(present)
        return True

    # ---- requests

    def next_request(self, sender: Sender, now_ms: int) -> FetchRequest | None:
        """Return the next request of the session; None if there is nothing to send now."""
        if self.is_waiting:
            return None
        replicas, session = self.replicas, self._session
        replicas.wake_delayed(now_ms)
        replicas.apply_quota(now_ms)
        if now_ms < self._paused_until_ms:
            return None
        asked, left = self._full() if session.is_full else self._incremental()
        if not asked and (session.is_full or not (replicas.fetching_count or replicas.forgotten)):
            return None
        wait_ms = self._settings.wait_max_ms
        if self._sessionless:
            wait_ms = min(wait_ms, MERGE_WAIT_MS)
        if left:
            wait_ms = 0
        request = fetch_request(
            sender,
            self._settings,
            asked,
            replicas.forgotten,
            session_id=session.id,
            session_epoch=session.epoch,
            wait_ms=wait_ms,
        )
        for followed in asked:
            followed.requested = followed.position
            followed.is_in_session = True
        replicas.changed.clear()
        replicas.changed.update(dict.fromkeys(left))
        replicas.forgotten.clear()
        self._asked_count, self._asked_ms, self._wait_ms, self.is_waiting = len(asked), now_ms, wait_ms, True
        return request

    def _full(self) -> tuple[list[PartitionFetchState[P]], list[PartitionFetchState[P]]]:
        """Return the replicas for a request that opens a session, and those left to later requests of the session.

        A leader without room for the session must get all replicas in every request.
        """
        self.replicas.forgotten.clear()
        fetching = [each for each in self.replicas.by_key.values() if each.phase is FetchPhase.FETCHING]
        free = [each for each in fetching if not each.is_in_sessionless_fetch]
        limit = len(free) if self._session.is_declined else self._settings.new_replicas_max
        for each in free[limit:]:
            each.is_in_session, each.requested = False, None
        return free[:limit], free[limit:]

    def _incremental(self) -> tuple[list[PartitionFetchState[P]], list[PartitionFetchState[P]]]:
        """Return the replicas for a request of an open session, and the new ones left to later requests."""
        changed, limit = self.replicas.changed, self._settings.new_replicas_max
        if len(changed) <= limit:
            return list(changed), []
        new = [each for each in changed if not each.is_in_session]
        return [each for each in changed if each.is_in_session] + new[:limit], new[limit:]

    def sessionless_request(self, sender: Sender, now_ms: int) -> tuple[int, FetchRequest] | None:
        """Return a connection number and a request for replicas that the session's request does not name yet.

        None if there is nothing to send. Call until then: many replicas are spread over the free connections.
        """
        if not self._may_send_sessionless:
            return None
        replicas = self.replicas
        replicas.wake_delayed(now_ms)
        replicas.apply_quota(now_ms)
        waited_ms = now_ms - self._asked_ms
        wait_ms = self._wait_ms - waited_ms - SESSIONLESS_LEAD_MS
        unnamed = [each for each in replicas.changed if not each.is_in_session]
        if not unnamed or waited_ms < SESSIONLESS_AFTER_MS or wait_ms <= 0:
            return None
        numbers = [each for each in range(MAX_SESSIONLESS_FETCHES) if each not in self._sessionless]
        asked = unnamed[: max(self._settings.new_replicas_max, ceil(len(unnamed) / len(numbers)))]
        for followed in asked:
            followed.requested = followed.position
            followed.is_in_sessionless_fetch = True
            del replicas.changed[followed]
        self._sessionless[numbers[0]] = asked
        return numbers[0], fetch_request(sender, self._settings, asked, wait_ms=wait_ms)

    @property
    def _may_send_sessionless(self) -> bool:
        return self.is_waiting and len(self._sessionless) < MAX_SESSIONLESS_FETCHES

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """Return when to take a request again although no event was fed."""
        moments = self.replicas.deadlines_ms()
        if not self.is_waiting:
            moments.append(self._paused_until_ms)
        elif self._may_send_sessionless and any(not each.is_in_session for each in self.replicas.changed):
            moments.append(self._asked_ms + SESSIONLESS_AFTER_MS)
        return min((moment for moment in moments if moment > now_ms), default=None)

    # ---- answers

    def on_response(self, response: FetchResponse, now_ms: int) -> FetchActions[P]:
        """Process the answer to the session's request."""
        self.is_waiting = False
        found = self._resolve(response)
        fits = found is not None and self._is_complete(response)
        outcome = self._session.on_answer(response.error_code, response.session_id, fits=fits)
        if outcome is SessionOutcome.FAILED:
            self._pause(now_ms)
            return FetchActions(complaint=complaint_about(response.error_code))
        if outcome is SessionOutcome.LOST or found is None:
            return FetchActions()
        self._pauses = 0
        return self._sort(found, now_ms)

    def on_failure(self, now_ms: int) -> None:
        """Note that the session's request has no answer."""
        self.is_waiting = False
        self._session.on_failure()
        self._pause(now_ms)

    def on_endpoint_changed(self) -> None:
        """Note that the leader has a new endpoint: requests under way have no answer, and no session is left."""
        for fetched in self._sessionless.values():
            for followed in fetched:
                followed.is_in_sessionless_fetch = False
        self._sessionless.clear()
        self._session = FetchSessionHandler()
        self._pauses, self._paused_until_ms, self.is_waiting = 0, 0, False

    def on_sessionless_response(self, number: int, response: FetchResponse | None, now_ms: int) -> FetchActions[P]:
        """Process the answer to a sessionless fetch, None if there is none."""
        fetched = self._sessionless.pop(number)
        found = None if response is None or response.error_code else _resolve_sessionless(response, fetched)
        for followed in fetched:
            followed.is_in_sessionless_fetch = False
        if found is None:
            for followed in fetched:
                if followed.awaits_answer:
                    self.replicas.delay(followed, now_ms)
            return FetchActions(complaint="" if response is None else complaint_about(response.error_code))
        actions = self._sort(found, now_ms)
        for followed in fetched:
            if followed.phase is FetchPhase.FETCHING and not followed.is_in_session:
                self.replicas.changed[followed] = None
        return actions

    def _pause(self, now_ms: int) -> None:
        self._pauses += 1
        self._paused_until_ms = now_ms + self.replicas.backoff_ms(self._pauses)

    def _resolve(self, response: FetchResponse) -> list[FetchedPartition[P]] | None:
        """Return the answer by replica, without replicas that have left; None if a partition was not requested."""
        found: list[FetchedPartition[P]] = []
        by_key, forgotten = self.replicas.by_key, self.replicas.forgotten
        for topic in response.responses:
            topic_id = topic.topic_id
            for data in topic.partitions:
                key = (topic_id, data.partition_index)
                followed = by_key.get(key)
                if followed is not None:
                    found.append(FetchedPartition(followed, data))
                elif key not in forgotten:
                    return None
        return found

    def _is_complete(self, response: FetchResponse) -> bool:
        """Whether a full answer lists every requested partition; a throttled answer lists none."""
        if not self._session.is_full or not (response.responses or response.session_id):
            return True
        return sum(len(topic.partitions) for topic in response.responses) == self._asked_count

    def _sort(self, found: Iterable[FetchedPartition[P]], now_ms: int) -> FetchActions[P]:
        """Decide on the action for each replica."""
        actions: FetchActions[P] = FetchActions()
        appends = actions.appends
        for each in found:
            followed, data = each
            if not followed.awaits_answer:
                continue
            if data.error_code:
                self._on_error(each, actions, now_ms)
            elif data.diverging_epoch.epoch >= 0:
                self._on_divergence(each, actions, now_ms)
            else:
                appends.append(each)
        return actions

    def _on_error(self, fetched: FetchedPartition[P], actions: FetchActions[P], now_ms: int) -> None:
        followed, code = fetched.followed, fetched.data.error_code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.replicas.leave(followed, FetchPhase.OUT_OF_RANGE)
            actions.out_of_range.append(followed)
            return
        if code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            actions.builds.append(self._build(followed, fetched.data.log_start_offset))
            return
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            self.replicas.leave(followed, FetchPhase.FAILED)
        else:
            self.replicas.delay(followed, now_ms)
        if followed.failures <= 1:
            actions.failures.append(FetchFailure(followed, code))

    def _on_divergence(self, fetched: FetchedPartition[P], actions: FetchActions[P], now_ms: int) -> None:
        """Truncate to the leader's end of an epoch. The leader has that epoch, so there is always an offset."""
        followed, data = fetched
        leader_end = EpochEnd(LeaderEpoch(data.diverging_epoch.epoch), data.diverging_epoch.end_offset)
        if not leader_end.is_known:
            self.replicas.delay(followed, now_ms)
            return
        end = followed.position.offset
        point = truncation_point(leader_end, followed.partition.end_for_epoch(leader_end.epoch), end, end)
        if _is_remote_only(followed, point.offset):
            actions.builds.append(self._build(followed, data.log_start_offset))
        elif point.offset <= data.log_start_offset:
            actions.truncations.append(self._truncate(followed, data.log_start_offset, is_full=True))
        else:
            actions.truncations.append(self._truncate(followed, point.offset))

    def _truncate(self, followed: PartitionFetchState[P], offset: int, *, is_full: bool = False) -> Truncation[P]:
        self.replicas.leave(followed, FetchPhase.TRUNCATING)
        return Truncation(followed, offset, is_full)

    def _build(self, followed: PartitionFetchState[P], leader_log_start: int) -> AuxStateBuild[P]:
        """Build with the replica's own log start offset where the leader does not name its own."""
        self.replicas.leave(followed, FetchPhase.BUILDING)
        return AuxStateBuild(
            followed, leader_log_start if leader_log_start >= 0 else followed.position.log_start_offset
        )

    # ---- outcomes of actions

    def on_appended(self, fetched: FetchedPartition[P], now_ms: int) -> None:
        """Note that the replica has appended the fetched records."""
        followed, data = fetched
        if followed.phase is not FetchPhase.FETCHING:
            return
        replicas = self.replicas
        size_bytes = 0 if data.records is None else len(data.records)
        if followed.refresh():
            replicas.changed[followed] = None
        elif size_bytes:  # nothing was appended; the leader would send the same at once
            replicas.delay(followed, now_ms)
            return
        followed.failures = followed.builds = 0
        lag = data.high_watermark - followed.position.offset
        replicas.note_lag(followed, max(0, lag))
        if size_bytes:
            replicas.record_traffic(followed, size_bytes, now_ms)
            if self._session.is_full:  # without session, the follower rotates the order of serving
                del replicas.by_key[followed.key]
                replicas.by_key[followed.key] = followed

    def on_not_appended(self, followed: PartitionFetchState[P], now_ms: int) -> None:
        """Note that the replica has not appended the fetched records, e.g. corrupt ones. Fetch again."""
        if followed.phase is FetchPhase.FETCHING:
            self.replicas.delay(followed, now_ms)
            followed.refresh()

    def on_out_of_order(self, followed: PartitionFetchState[P], offset: int) -> Truncation[P]:
        """Truncate at the offset at which the fetched records show the logs to diverge at the latest."""
        return self._truncate(followed, offset)

    def on_broken(self, followed: PartitionFetchState[P]) -> None:
        """Note that the replica cannot continue in this leader epoch."""
        if followed.phase not in (FetchPhase.GONE, FetchPhase.FAILED):
            self.replicas.leave(followed, FetchPhase.FAILED)

    def on_truncated(self, followed: PartitionFetchState[P], now_ms: int, *, is_done: bool) -> None:
        """Note that records were removed, or (`is_done` is false) that the truncation was refused.

        A truncation that changes nothing cannot have helped, so the replica backs off.
        """
        if followed.phase is not FetchPhase.TRUNCATING:
            return
        if followed.refresh() and is_done:
            self.replicas.note_lag(followed, UNKNOWN_LAG)
            self.replicas.enter(followed)
        else:
            self.replicas.delay(followed, now_ms)

    def on_built(self, followed: PartitionFetchState[P], now_ms: int, *, is_done: bool) -> None:
        """Note that the log starts behind the remote records, or (`is_done` is false) that the change was refused.

        A replica that the leader does not serve there either builds again, after a back-off.
        """
        if followed.phase is not FetchPhase.BUILDING:
            return
        if not followed.refresh() or not is_done:
            self.replicas.delay(followed, now_ms)
            return
        self.replicas.note_lag(followed, UNKNOWN_LAG)
        followed.failures, followed.builds = followed.builds, followed.builds + 1
        if followed.failures:
            self.replicas.delay(followed, now_ms)
        else:
            self.replicas.enter(followed)

    def on_build_failed(self, followed: PartitionFetchState[P], now_ms: int) -> None:
        """Note that remote storage or the leader could not provide the state. Fetch again, and get the same error."""
        if followed.phase is FetchPhase.BUILDING:
            self.replicas.delay(followed, now_ms)

    def on_nothing_remote(self, followed: PartitionFetchState[P], offset: int) -> Truncation[P] | None:
        """Restart the log at `offset`, where the leader's log starts without remote records."""
        if followed.phase is not FetchPhase.BUILDING:
            return None
        return self._truncate(followed, offset, is_full=True)

    def on_bounds(
        self, followed: PartitionFetchState[P], start: LogBound, end: LogBound, now_ms: int
    ) -> Truncation[P] | AuxStateBuild[P] | None:
        """Decide on the action for a replica that was out of range, by the bounds of the leader's log."""
        if followed.phase is not FetchPhase.OUT_OF_RANGE:
            return None
        if ErrorCode.FENCED_LEADER_EPOCH in (start.code, end.code):
            self.replicas.leave(followed, FetchPhase.FAILED)
            return None
        if start.code or end.code or start.offset < 0 or end.offset < 0:
            self.replicas.delay(followed, now_ms)
            return None
        own_end = followed.position.offset
        if end.offset < own_end:
            if _is_remote_only(followed, end.offset):
                return self._build(followed, start.offset)
            return self._truncate(followed, end.offset)
        if start.offset > own_end:
            return self._truncate(followed, start.offset, is_full=True)
        self._fetch_in_range(followed, now_ms)
        return None

    def _fetch_in_range(self, followed: PartitionFetchState[P], now_ms: int) -> None:
        """Fetch again; at once the first time, since the leader's log may have moved meanwhile."""
        if followed.failures:
            self.replicas.delay(followed, now_ms)
        else:
            followed.failures = 1
            self.replicas.enter(followed)


def _resolve_sessionless(
    response: FetchResponse, fetched: Iterable[PartitionFetchState[P]]
) -> list[FetchedPartition[P]] | None:
    """Return the answer to a sessionless fetch by replica; None if a partition was not requested.

    Replicas may have left meanwhile or have a new fetch state: the answer is about their former state.
    """
    found: list[FetchedPartition[P]] = []
    by_key = {followed.key: followed for followed in fetched}
    for topic in response.responses:
        for data in topic.partitions:
            followed = by_key.get((topic.topic_id, data.partition_index))
            if followed is None:
                return None
            found.append(FetchedPartition(followed, data))
    return found


def _is_remote_only(followed: PartitionFetchState[P], offset: int) -> bool:
    """Whether a log truncated at `offset` would have remote records only."""
    local_start = followed.partition.local_start_offset
    return followed.position.log_start_offset < local_start and offset < local_start
