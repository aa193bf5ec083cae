"""The replicas of one fetcher by phase: the next request's changes, back-off, and the replication quota.

Back-off. Kafka waits for `replica.fetch.backoff.ms` (1 s) each time. Most causes pass at once: the new leader has yet
to learn of its election while producers wait. So the back-off starts at `FIRST_BACKOFF_MS` and doubles up to Kafka's
value.
"""

import heapq
from itertools import count
from typing import Final, Generic

from broker.replication.fetch_state import FetchPhase, P, PartitionFetchState, PartitionKey
from broker.replication.replication_quota import ReplicationQuota

FIRST_BACKOFF_MS: Final = 10
THROTTLE_RECHECK_MS: Final = 200
"""The interval of checks whether throttled replicas may fetch again; the quota's samples are one second long."""


class FollowedReplicas(Generic[P]):
    """All replicas of a fetcher. Nothing here iterates over idle replicas when a request is built.

    `changed` are the replicas to name in the next request, `forgotten` the partitions to remove from the session.
    `by_key` is in the order in which the leader serves them where there is no session.
    """

    def __init__(self, backoff_max_ms: int, quota: ReplicationQuota | None) -> None:
        self.by_key: dict[PartitionKey, PartitionFetchState[P]] = {}
        self.changed: dict[PartitionFetchState[P], None] = {}
        self.forgotten: dict[PartitionKey, None] = {}
        self.fetching_count = 0
        self.failed_count = 0
        self._backoff_max_ms = backoff_max_ms
        self._quota = quota
        self._lagging: dict[PartitionFetchState[P], None] = {}
        """The replicas to hold back when the quota is exceeded."""
        self._throttled: dict[PartitionFetchState[P], None] = {}
        self._recheck_ms = 0
        self._delayed: list[tuple[int, int, PartitionFetchState[P]]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self.by_key)

    def all(self) -> list[PartitionFetchState[P]]:
        """Return the fetch states of all replicas, in whatever phase."""
        return list(self.by_key.values())

    @property
    def max_lag(self) -> int:
        """The greatest lag of a replica in records; 0 if no replica is known to lag."""
        return max((followed.lag for followed in self.all() if followed.lag > 0), default=0)

    # ---- membership and phases

    def add(self, partition: P, key: PartitionKey) -> None:
        """Fetch for a replica from the next request on."""
        followed = PartitionFetchState(partition, key, partition.leader_epoch, partition.fetch_position())
        followed.is_quota_bound = self._is_quota_bound(followed)
        self.by_key[key] = followed
        self.enter(followed)

    def drop(self, followed: PartitionFetchState[P]) -> None:
        """Fetch no more for a replica."""
        self.leave(followed, FetchPhase.GONE)
        del self.by_key[followed.key]

    def enter(self, followed: PartitionFetchState[P]) -> None:
        """Enter FETCHING: name the replica in the next request."""
        if followed.phase is not FetchPhase.FETCHING:
            followed.transition(FetchPhase.FETCHING)
        if followed.key in self.forgotten:  # the session still has the partition
            del self.forgotten[followed.key]
            followed.is_in_session = True
        self.fetching_count += 1
        self.changed[followed] = None
        self.note_lag(followed, followed.lag)

    def leave(self, followed: PartitionFetchState[P], phase: FetchPhase) -> None:
        """Leave the present phase for `phase`, which is not FETCHING."""
        if followed.phase is FetchPhase.FETCHING:
            self.fetching_count -= 1
            self.changed.pop(followed, None)
            self._lagging.pop(followed, None)
            if followed.is_in_session:
                self.forgotten[followed.key] = None
                followed.is_in_session = False
            followed.requested = None
        elif followed.phase is FetchPhase.FAILED:
            self.failed_count -= 1
        elif followed.phase is FetchPhase.THROTTLED:
            self._throttled.pop(followed, None)
        if phase is FetchPhase.FAILED:
            self.failed_count += 1
        followed.transition(phase)

    # ---- back-off

    def delay(self, followed: PartitionFetchState[P], now_ms: int) -> None:
        """Fetch again after a back-off that grows with the failures in a row."""
        followed.failures += 1
        followed.due_ms = now_ms + self.backoff_ms(followed.failures)
        self.leave(followed, FetchPhase.DELAYED)
        heapq.heappush(self._delayed, (followed.due_ms, next(self._order), followed))

    def backoff_ms(self, failures: int) -> int:
        return min(self._backoff_max_ms, FIRST_BACKOFF_MS << min(failures - 1, 16))

    def wake_delayed(self, now_ms: int) -> None:
        """Fetch for the replicas whose back-off is over."""
        while self._delayed and self._delayed[0][0] <= now_ms:
            followed = heapq.heappop(self._delayed)[2]
            if followed.phase is FetchPhase.DELAYED:
                self.enter(followed)

    def deadlines_ms(self) -> list[int]:
        """Return the moments at which delayed or throttled replicas are due."""
        while self._delayed and self._delayed[0][2].phase is not FetchPhase.DELAYED:
            heapq.heappop(self._delayed)
        moments = [self._delayed[0][0]] if self._delayed else []
        if self._throttled:
            moments.append(self._recheck_ms)
        return moments

    # ---- quota

    def _is_quota_bound(self, followed: PartitionFetchState[P]) -> bool:
        return self._quota is not None and self._quota.is_listed(followed.partition.topic, followed.partition.index)

    def note_lag(self, followed: PartitionFetchState[P], lag: int) -> None:
        followed.lag = lag
        if followed.is_quota_bound and lag != 0 and followed.phase is FetchPhase.FETCHING:
            self._lagging[followed] = None
        elif self._lagging:
            self._lagging.pop(followed, None)

    def record_traffic(self, followed: PartitionFetchState[P], size_bytes: int, now_ms: int) -> None:
        """Count fetched bytes against the quota, if the quota lists the replica."""
        if followed.is_quota_bound and self._quota is not None:
            self._quota.record(size_bytes, now_ms)

    def on_quota_changed(self) -> None:
        """Apply a changed list of throttled replicas."""
        for followed in self.all():
            followed.is_quota_bound = self._is_quota_bound(followed)
            if followed in self._throttled and not followed.is_quota_bound:
                del self._throttled[followed]
                self.enter(followed)
            else:
                self.note_lag(followed, followed.lag)

    def apply_quota(self, now_ms: int) -> None:
        """Hold lagging replicas back while the quota is exceeded. Replicas without lag keep fetching."""
        if self._quota is None or not (self._lagging or self._throttled):
            return
        if self._quota.is_exceeded(now_ms):
            self._recheck_ms = now_ms + THROTTLE_RECHECK_MS
            for followed in tuple(self._lagging):
                self.leave(followed, FetchPhase.THROTTLED)
                self._throttled[followed] = None
        else:
            throttled, self._throttled = self._throttled, {}
            for followed in throttled:
                self.enter(followed)
