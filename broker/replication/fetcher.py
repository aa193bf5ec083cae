"""Keeps replicas up with one leader: what to ask it, and what follows from its answers. No IO, no clock.

Theory of operation
-------------------
A fetcher owns the replicas that share a leader (and a connection to it). It asks for all of them at once and waits; the
leader answers as soon as there is something, or after `replica.fetch.wait.max.ms`. An incremental session
(`fetch_session.py`) makes an idle replica free: a request names only replicas whose position has moved, an answer lists
only those with news, and nothing here ever walks over the others.

Where two logs part, the leader finds out: a request says of which epoch the replica's last record is, and the answer
names where to cut (KIP-595; every `metadata.version` that is supported has it). One cut may not be enough; then the
next request, with an older epoch, brings the next. A log without epochs is one without records: nothing to cut.

A replica that cannot be asked for now leaves the session, since the leader would go on answering for it at once. What
it waits for is its `FetchPhase` (`followed.py`).

    answer                                           reaction
    ------                                           --------
    records, marks                                   append; ask for what follows
    diverging epoch                                  cut, or start anew at the leader's start; ask again
    records that begin below the replica's end       cut where they begin, ask again; failed if that is committed
    OFFSET_OUT_OF_RANGE                              look up the leader's bounds; cut, start anew or go on
    OFFSET_MOVED_TO_TIERED_STORAGE                   begin behind what is remote, knowing it (`tier_state_machine.py`)
    FENCED_LEADER_EPOCH                              failed until the metadata names a new reign
    any other error, corrupt records                 ask again after a back-off
    disk failure                                     failed
    session lost                                     name everything anew, at once
    no answer, or one that makes no sense            the whole fetcher pauses for a back-off

Records that begin below the end: the leader's log may begin within a batch, where DeleteRecords left it, and then it
knows of no epoch before that. A replica that parted from it there is not told so, but gets that batch. (Kafka's fails.)

An answer to what is no longer asked (another reign, another position) is void.

A cut at the leader's log start or below would leave nothing of which the leader can say that both have it: it has
forgotten its epochs of before, and names its start as the end of any of them. So the replica starts anew there.
(Kafka's keeps what it has below, hidden behind its log start. But a crash may bring an older log start back, and
transactions that began there stay open where their ends are among what the leader has deleted. Who leads with such a
log serves records that nobody ever committed, or holds read_committed consumers up for ever.) What remains is the
replica whose log ends right at the leader's start. It is told of no divergence, and looks like any follower of a leader
that has deleted everything; to start all of those anew would forget what they rightly know of producers.

A cut below the start of its own disk would leave a replica without the state of the producers at that point. It begins
behind what is remote of its leader's log instead, as after OFFSET_MOVED_TO_TIERED_STORAGE.

Back-off. Kafka waits for `replica.fetch.backoff.ms` (1 s) each time. Most reasons are gone in a moment: the new leader
has yet to hear of its election, while producers wait for it. So it begins with `FIRST_BACKOFF_MS` here, and doubles up
to Kafka's.

The express. Who becomes ready while a request waits at the leader would have to wait too, half a second on an idle
cluster: a replica after a change of leaders, on which a producer with acks=all waits. Such newcomers go ahead in a
request of their own, without session, in an express lane: a connection on which nothing else waits. It is answered
before the waiting request is, so that they can join that one's successor, which for its part waits only shortly while
somebody is still on the way. Newcomers to a busy fetcher do without: its next request is due in a moment.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Generic, NamedTuple

from broker.replication.epochs import EpochEnd, truncation_point
from broker.replication.fetch_plan import FetcherSettings, Sender, fetch_request
from broker.replication.fetch_session import FetchSessionHandler, SessionOutcome
from broker.replication.fetch_state import UNKNOWN_LAG, FetchPhase, P, PartitionFetchState, PartitionKey
from broker.replication.replication_quota import ReplicationQuota
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData

FIRST_BACKOFF_MS: Final = 10
THROTTLE_RECHECK_MS: Final = 200
"""How soon a replica that was held back is looked at again; samples of the rate are a second long."""

EXPRESS_AFTER_MS: Final = 10
"""A request that has waited for so long is taken for an idle one."""
EXPRESS_LEAD_MS: Final = 20
"""An express comes back so much before the request that its passengers shall follow."""
EXPRESS_LANES: Final = 4
"""Those who come later than an express take the next. When all are under way, they wait."""
MERGING_WAIT_MS: Final = 50
"""How long a request waits at most while an express is under way."""


class FetchedPartition(NamedTuple, Generic[P]):
    """Records and marks to append to a replica."""

    followed: PartitionFetchState[P]
    data: PartitionData


class Truncation(NamedTuple, Generic[P]):
    """Records to remove from `offset` on, or all of them (`restarts`): the log is then empty and begins there."""

    followed: PartitionFetchState[P]
    offset: int
    restarts: bool = False


class AuxStateBuild(NamedTuple, Generic[P]):
    """A replica that is to begin behind what its leader has in remote storage alone, from `leader_log_start` on."""

    followed: PartitionFetchState[P]
    leader_log_start: int


class FetchFailure(NamedTuple, Generic[P]):
    """A replica whose leader does not serve it; told for the first in a row."""

    followed: PartitionFetchState[P]
    code: int


@dataclass(slots=True)
class FetchActions(Generic[P]):
    """What is to be done after an answer, in any order. `seeks` ask for both bounds of the leader's log.

    `complaint` says what is wrong with the answer as a whole.
    """

    appends: list[FetchedPartition[P]] = field(default_factory=list)
    cuts: list[Truncation[P]] = field(default_factory=list)
    builds: list[AuxStateBuild[P]] = field(default_factory=list)
    seeks: list[PartitionFetchState[P]] = field(default_factory=list)
    troubles: list[FetchFailure[P]] = field(default_factory=list)
    complaint: str = ""


class LogBound(NamedTuple):
    """One bound of the leader's log, or why it is not known."""

    code: int
    offset: int


class FetcherCore(Generic[P]):
    """Feed: `add`, `remove`, the `on_…` methods. Take: `next_request`, `express_request`, each while it is its turn.

    Times are monotonic milliseconds. `is_waiting`: a request is on its way, and one only. The appends of an answer are
    done before the next request is taken.
    """

    def __init__(self, settings: FetcherSettings, quota: ReplicationQuota | None = None) -> None:
        self._settings = settings
        self._quota = quota
        self._session = FetchSessionHandler()
        self._members: dict[PartitionKey, PartitionFetchState[P]] = {}
        self._changed: dict[PartitionFetchState[P], None] = {}
        """Who is to be named in the next request."""
        self._forgotten: dict[PartitionKey, None] = {}
        """Who is to leave the session with it."""
        self._lagging: dict[PartitionFetchState[P], None] = {}
        """Who would be held back if the quota were exceeded."""
        self._throttled: dict[PartitionFetchState[P], None] = {}
        self._delayed: list[tuple[int, int, PartitionFetchState[P]]] = []
        self._order = count()
        self._fetching_count = 0
        self._asked_count = 0
        self._asked_ms = 0
        self._wait_ms = 0
        self._express: dict[int, list[PartitionFetchState[P]]] = {}
        self._paused_until_ms = 0
        self._recheck_ms = 0
        self._pauses = 0
        self.failed_count = 0
        self.is_waiting = False

    # ---- members

    def __len__(self) -> int:
        return len(self._members)

    def members(self) -> list[PartitionFetchState[P]]:
        """All that are followed, in whatever phase."""
        return list(self._members.values())

    @property
    def max_lag(self) -> int:
        """Records that the replica furthest behind lacks; 0 if nobody is known to lack any."""
        return max((followed.lag for followed in self.members() if followed.lag > 0), default=0)

    def add(self, partition: P) -> None:
        """Follow a replica's leader in the epoch that the replica names now.

        What is known of it in this epoch is kept, unless it failed. A pause ends: whoever says that there is a leader
        knows more than we do.
        """
        key = (partition.topic_id, partition.index)
        present = self._members.get(key)
        if present is not None:
            is_same = present.partition is partition and present.leader_epoch == partition.leader_epoch
            if is_same and present.phase is not FetchPhase.FAILED:
                return
            self._drop(present)
        followed = PartitionFetchState(partition, key, partition.leader_epoch, partition.fetch_position())
        followed.is_quota_bound = self._is_quota_bound(followed)
        self._members[key] = followed
        self._paused_until_ms = 0
        self._enter(followed)

    def remove(self, key: PartitionKey) -> bool:
        """Follow a replica's leader no more; whether it was followed."""
        present = self._members.get(key)
        if present is None:
            return False
        self._drop(present)
        return True

    def on_quota_changed(self) -> None:
        """Other replicas may be throttled from now on."""
        for followed in self.members():
            followed.is_quota_bound = self._is_quota_bound(followed)
            if followed in self._throttled and not followed.is_quota_bound:
                del self._throttled[followed]
                self._enter(followed)
            else:
                self._note_lag(followed, followed.lag)

    def _drop(self, followed: PartitionFetchState[P]) -> None:
        self._leave(followed, FetchPhase.GONE)
        del self._members[followed.key]

    # ---- phases

    def _enter(self, followed: PartitionFetchState[P]) -> None:
        """Ask for it from the next request on."""
        if followed.phase is not FetchPhase.FETCHING:
            followed.move(FetchPhase.FETCHING)
        if followed.key in self._forgotten:  # not out of the session yet
            del self._forgotten[followed.key]
            followed.is_listed = True
        self._fetching_count += 1
        self._changed[followed] = None
        self._note_lag(followed, followed.lag)

    def _leave(self, followed: PartitionFetchState[P], phase: FetchPhase) -> None:
        """Ask for it no more, for the reason that `phase` names."""
        if followed.phase is FetchPhase.FETCHING:
            self._fetching_count -= 1
            self._changed.pop(followed, None)
            self._lagging.pop(followed, None)
            if followed.is_listed:
                self._forgotten[followed.key] = None
                followed.is_listed = False
            followed.told = None
        elif followed.phase is FetchPhase.FAILED:
            self.failed_count -= 1
        elif followed.phase is FetchPhase.THROTTLED:
            self._throttled.pop(followed, None)
        if phase is FetchPhase.FAILED:
            self.failed_count += 1
        followed.move(phase)

    def _delay(self, followed: PartitionFetchState[P], now_ms: int) -> None:
        """Ask again in a while, the longer the more often it was in vain."""
        followed.failures += 1
        followed.due_ms = now_ms + self._backoff_ms(followed.failures)
        self._leave(followed, FetchPhase.DELAYED)
        heapq.heappush(self._delayed, (followed.due_ms, next(self._order), followed))

    def _backoff_ms(self, failures: int) -> int:
        return min(self._settings.backoff_ms, FIRST_BACKOFF_MS << min(failures - 1, 16))

    def _wake(self, now_ms: int) -> None:
        """Delays that are over."""
        while self._delayed and self._delayed[0][0] <= now_ms:
            followed = heapq.heappop(self._delayed)[2]
            if followed.phase is FetchPhase.DELAYED:
                self._enter(followed)

    # ---- the quota

    def _is_quota_bound(self, followed: PartitionFetchState[P]) -> bool:
        return self._quota is not None and self._quota.is_listed(followed.partition.topic, followed.partition.index)

    def _note_lag(self, followed: PartitionFetchState[P], lag: int) -> None:
        followed.lag = lag
        if followed.is_quota_bound and lag != 0 and followed.phase is FetchPhase.FETCHING:
            self._lagging[followed] = None
        elif self._lagging:
            self._lagging.pop(followed, None)

    def _apply_quota(self, now_ms: int) -> None:
        """Who is in sync goes on even when there is no room for others."""
        if self._quota is None or not (self._lagging or self._throttled):
            return
        if self._quota.is_exceeded(now_ms):
            self._recheck_ms = now_ms + THROTTLE_RECHECK_MS
            for followed in tuple(self._lagging):
                self._leave(followed, FetchPhase.THROTTLED)
                self._throttled[followed] = None
        else:
            held, self._throttled = self._throttled, {}
            for followed in held:
                self._enter(followed)

    # ---- asking

    def next_request(self, sender: Sender, now_ms: int) -> FetchRequest | None:
        """The next request of the session; None if there is none to send now."""
        if self.is_waiting:
            return None
        self._wake(now_ms)
        self._apply_quota(now_ms)
        if now_ms < self._paused_until_ms:
            return None
        session = self._session
        if session.is_full:
            self._forgotten.clear()
            asked = [
                each for each in self._members.values() if each.phase is FetchPhase.FETCHING and not each.is_express
            ]
        else:
            asked = list(self._changed)
        if not asked and (session.is_full or not (self._fetching_count or self._forgotten)):
            return None
        wait_ms = self._settings.wait_max_ms
        if self._express:
            wait_ms = min(wait_ms, MERGING_WAIT_MS)
        request = fetch_request(
            sender,
            self._settings,
            asked,
            self._forgotten,
            session_id=session.id,
            session_epoch=session.epoch,
            wait_ms=wait_ms,
        )
        for followed in asked:
            followed.told = followed.position
            followed.is_listed = True
        self._changed.clear()
        self._forgotten.clear()
        self._asked_count, self._asked_ms, self._wait_ms, self.is_waiting = len(asked), now_ms, wait_ms, True
        return request

    def express_request(self, sender: Sender, now_ms: int) -> tuple[int, FetchRequest] | None:
        """A lane and a request, for those who would have to wait for the waiting one; None if none is to be sent."""
        if not self._may_send_express:
            return None
        self._wake(now_ms)
        self._apply_quota(now_ms)
        waited_ms = now_ms - self._asked_ms
        wait_ms = self._wait_ms - waited_ms - EXPRESS_LEAD_MS
        newcomers = [each for each in self._changed if not each.is_listed]
        if not newcomers or waited_ms < EXPRESS_AFTER_MS or wait_ms <= 0:
            return None
        for followed in newcomers:
            followed.told = followed.position
            followed.is_express = True
            del self._changed[followed]
        lane = next(each for each in range(EXPRESS_LANES) if each not in self._express)
        self._express[lane] = newcomers
        return lane, fetch_request(sender, self._settings, newcomers, wait_ms=wait_ms)

    @property
    def _may_send_express(self) -> bool:
        return self.is_waiting and len(self._express) < EXPRESS_LANES

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """When to ask for a request again although nothing was fed."""
        while self._delayed and self._delayed[0][2].phase is not FetchPhase.DELAYED:
            heapq.heappop(self._delayed)
        moments = [self._delayed[0][0]] if self._delayed else []
        if self._throttled:
            moments.append(self._recheck_ms)
        if not self.is_waiting:
            moments.append(self._paused_until_ms)
        elif self._may_send_express and any(not each.is_listed for each in self._changed):
            moments.append(self._asked_ms + EXPRESS_AFTER_MS)
        return min((moment for moment in moments if moment > now_ms), default=None)

    # ---- answers

    def on_response(self, response: FetchResponse, now_ms: int) -> FetchActions[P]:
        """Take the answer to the request of the session."""
        self.is_waiting = False
        found = self._resolve(response)
        fits = found is not None and self._is_complete(response)
        verdict = self._session.on_answer(response.error_code, response.session_id, fits=fits)
        if verdict is SessionOutcome.FAILED:
            self._pause(now_ms)
            return FetchActions(complaint=_complaint(response.error_code))
        if verdict is SessionOutcome.ANEW or found is None:
            return FetchActions()
        self._pauses = 0
        return self._sort(found, now_ms)

    def on_failure(self, now_ms: int) -> None:
        """The request of the session has no answer."""
        self.is_waiting = False
        self._session.on_failure()
        self._pause(now_ms)

    def on_moved(self) -> None:
        """The leader is reached elsewhere now: what is on its way has no answer, and no session is left."""
        for passengers in self._express.values():
            for followed in passengers:
                followed.is_express = False
        self._express.clear()
        self._session = FetchSessionHandler()
        self._pauses, self._paused_until_ms, self.is_waiting = 0, 0, False

    def on_express(self, lane: int, response: FetchResponse | None, now_ms: int) -> FetchActions[P]:
        """Take the answer to an express, or that there is none."""
        passengers = self._express.pop(lane)
        found = None if response is None or response.error_code else _passengers_in(response, passengers)
        for followed in passengers:
            followed.is_express = False
        if found is None:
            for followed in passengers:
                if followed.awaits_answer:
                    self._delay(followed, now_ms)
            return FetchActions(complaint="" if response is None else _complaint(response.error_code))
        work = self._sort(found, now_ms)
        for followed in passengers:
            if followed.phase is FetchPhase.FETCHING and not followed.is_listed:
                self._changed[followed] = None
        return work

    def _pause(self, now_ms: int) -> None:
        self._pauses += 1
        self._paused_until_ms = now_ms + self._backoff_ms(self._pauses)

    def _resolve(self, response: FetchResponse) -> list[FetchedPartition[P]] | None:
        """Whom the answer is about, without those who left meanwhile; None if somebody was never asked for."""
        found: list[FetchedPartition[P]] = []
        members, forgotten = self._members, self._forgotten
        for topic in response.responses:
            topic_id = topic.topic_id
            for data in topic.partitions:
                key = (topic_id, data.partition_index)
                followed = members.get(key)
                if followed is not None:
                    found.append(FetchedPartition(followed, data))
                elif key not in forgotten:
                    return None
        return found

    def _is_complete(self, response: FetchResponse) -> bool:
        """A full answer lists all that was asked, or, throttled, nothing."""
        if not self._session.is_full or not (response.responses or response.session_id):
            return True
        return sum(len(topic.partitions) for topic in response.responses) == self._asked_count

    def _sort(self, found: Iterable[FetchedPartition[P]], now_ms: int) -> FetchActions[P]:
        """Say what is to be done about each."""
        work: FetchActions[P] = FetchActions()
        appends = work.appends
        for each in found:
            followed, data = each
            if not followed.awaits_answer:
                continue
            if data.error_code:
                self._on_error(each, work, now_ms)
            elif data.diverging_epoch.epoch >= 0:
                self._on_divergence(each, work, now_ms)
            else:
                appends.append(each)
        return work

    def _on_error(self, fetched: FetchedPartition[P], work: FetchActions[P], now_ms: int) -> None:
        followed, code = fetched.followed, fetched.data.error_code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._leave(followed, FetchPhase.SEEKING)
            work.seeks.append(followed)
            return
        if code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            work.builds.append(self._build(followed, fetched.data.log_start_offset))
            return
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            self._leave(followed, FetchPhase.FAILED)
        else:
            self._delay(followed, now_ms)
        if followed.failures <= 1:
            work.troubles.append(FetchFailure(followed, code))

    def _on_divergence(self, fetched: FetchedPartition[P], work: FetchActions[P], now_ms: int) -> None:
        """The leader's end of an epoch that it has, so that there always is a point to cut at."""
        followed, data = fetched
        leader_end = EpochEnd(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
        if not leader_end.is_known:
            self._delay(followed, now_ms)
            return
        end = followed.position.offset
        point = truncation_point(leader_end, followed.partition.end_for_epoch(leader_end.epoch), end, end)
        if _is_remote_only(followed, point.offset):
            work.builds.append(self._build(followed, data.log_start_offset))
            return
        self._leave(followed, FetchPhase.TRUNCATING)
        if point.offset <= data.log_start_offset:
            work.cuts.append(Truncation(followed, data.log_start_offset, restarts=True))
        else:
            work.cuts.append(Truncation(followed, point.offset))

    def _build(self, followed: PartitionFetchState[P], leader_log_start: int) -> AuxStateBuild[P]:
        """A leader that does not say where its log starts leaves the replica with its own start."""
        self._leave(followed, FetchPhase.BUILDING)
        return AuxStateBuild(
            followed, leader_log_start if leader_log_start >= 0 else followed.position.log_start_offset
        )

    # ---- what became of the work

    def on_appended(self, fetched: FetchedPartition[P], now_ms: int) -> None:
        """The replica has taken what was fetched for it."""
        followed, data = fetched
        if followed.phase is not FetchPhase.FETCHING:
            return
        size_bytes = 0 if data.records is None else len(data.records)
        if followed.refresh():
            self._changed[followed] = None
        elif size_bytes:  # it took none of it; the leader would send the same at once
            self._delay(followed, now_ms)
            return
        followed.failures = followed.builds = 0
        lag = data.high_watermark - followed.position.offset
        self._note_lag(followed, max(0, lag))
        if size_bytes:
            if followed.is_quota_bound and self._quota is not None:
                self._quota.record(size_bytes, now_ms)
            if self._session.is_full:  # no session: the order of serving is ours to turn
                del self._members[followed.key]
                self._members[followed.key] = followed

    def on_not_appended(self, followed: PartitionFetchState[P], now_ms: int) -> None:
        """The replica could not take what was fetched for it: corrupt, or not wanted any more. Ask again."""
        if followed.phase is FetchPhase.FETCHING:
            self._delay(followed, now_ms)
            followed.refresh()

    def on_parted(self, followed: PartitionFetchState[P], offset: int) -> Truncation[P]:
        """The leader's records show that the logs part at an offset, or below: what is to be cut."""
        self._leave(followed, FetchPhase.TRUNCATING)
        return Truncation(followed, offset)

    def on_broken(self, followed: PartitionFetchState[P]) -> None:
        """The replica cannot go on in this reign."""
        if followed.phase not in (FetchPhase.GONE, FetchPhase.FAILED):
            self._leave(followed, FetchPhase.FAILED)

    def on_cut(self, followed: PartitionFetchState[P], now_ms: int, *, is_done: bool) -> None:
        """Records were removed, or (`is_done` is false) the replica was not to be cut any more.

        A cut that changes nothing cannot have helped.
        """
        if followed.phase is not FetchPhase.TRUNCATING:
            return
        if followed.refresh() and is_done:
            self._note_lag(followed, UNKNOWN_LAG)
            self._enter(followed)
        else:
            self._delay(followed, now_ms)

    def on_built(self, followed: PartitionFetchState[P], now_ms: int, *, is_done: bool) -> None:
        """Its log begins behind what is remote, or (`is_done` is false) was not to be touched any more.

        Should the leader not serve it there either, it may try again, but not all the time.
        """
        if followed.phase is not FetchPhase.BUILDING:
            return
        if not followed.refresh() or not is_done:
            self._delay(followed, now_ms)
            return
        self._note_lag(followed, UNKNOWN_LAG)
        followed.failures, followed.builds = followed.builds, followed.builds + 1
        if followed.failures:
            self._delay(followed, now_ms)
        else:
            self._enter(followed)

    def on_not_built(self, followed: PartitionFetchState[P], now_ms: int) -> None:
        """Remote storage or the leader did not have, or did not say, what is needed. Fetch again, and hear it again."""
        if followed.phase is FetchPhase.BUILDING:
            self._delay(followed, now_ms)

    def on_nothing_remote(self, followed: PartitionFetchState[P], offset: int) -> Truncation[P] | None:
        """The leader's log has nothing remote any more and begins at `offset`: so does the replica's."""
        if followed.phase is not FetchPhase.BUILDING:
            return None
        self._leave(followed, FetchPhase.TRUNCATING)
        return Truncation(followed, offset, restarts=True)

    def on_bounds(
        self, followed: PartitionFetchState[P], start: LogBound, end: LogBound, now_ms: int
    ) -> Truncation[P] | AuxStateBuild[P] | None:
        """The bounds of the leader's log are known, for a replica that was out of them; what is to be done."""
        if followed.phase is not FetchPhase.SEEKING:
            return None
        if ErrorCode.FENCED_LEADER_EPOCH in (start.code, end.code):
            self._leave(followed, FetchPhase.FAILED)
            return None
        if start.code or end.code or start.offset < 0 or end.offset < 0:
            self._delay(followed, now_ms)
            return None
        own_end = followed.position.offset
        if end.offset < own_end:
            if _is_remote_only(followed, end.offset):
                return self._build(followed, start.offset)
            self._leave(followed, FetchPhase.TRUNCATING)
            return Truncation(followed, end.offset)
        if start.offset > own_end:
            self._leave(followed, FetchPhase.TRUNCATING)
            return Truncation(followed, start.offset, restarts=True)
        self._go_on(followed, now_ms)
        return None

    def _go_on(self, followed: PartitionFetchState[P], now_ms: int) -> None:
        """It is in range now: at once the first time, for the leader's log may have moved meanwhile."""
        if followed.failures:
            self._delay(followed, now_ms)
        else:
            followed.failures = 1
            self._enter(followed)


def _passengers_in(
    response: FetchResponse, passengers: Iterable[PartitionFetchState[P]]
) -> list[FetchedPartition[P]] | None:
    """Whom the answer to an express is about; None if somebody was not in it.

    Passengers may have left meanwhile, or be followed anew and asked for elsewhere: the answer is about them as they
    were.
    """
    found: list[FetchedPartition[P]] = []
    by_key = {followed.key: followed for followed in passengers}
    for topic in response.responses:
        for data in topic.partitions:
            followed = by_key.get((topic.topic_id, data.partition_index))
            if followed is None:
                return None
            found.append(FetchedPartition(followed, data))
    return found


def _is_remote_only(followed: PartitionFetchState[P], offset: int) -> bool:
    """Whether a log that would be cut at `offset` has remote records, and would have no others."""
    local_start = followed.partition.local_start_offset
    return followed.position.log_start_offset < local_start and offset < local_start


def _complaint(code: int) -> str:
    if not code:
        return "the answer does not fit the request"
    return f"error {code}" if code not in ErrorCode._value2member_map_ else ErrorCode(code).name
