"""A partition as its leader keeps it: how far each follower has come, what is committed, who belongs to the ISR.

Theory. A record is committed once every replica that could be elected holds it. Those are the members of the ISR, and
also the ones whose admission or removal is on its way (`isr.py`). The high watermark is the least log end among them;
it never falls within a leader's reign, and it stands still while fewer members than `min.insync.replicas` remain, since
then a commit would promise more than the topic's owner accepted.

What a follower holds is known only from its fetches: asking for offset N says "I have everything below N". That holds
for the reign in which it was said; a new leader starts without knowledge and learns.

Followers are in sync by time, not by count: one is caught up at a moment if its fetch reached the log end of that
moment. `caught_up_ms` is the last such moment.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.replication.epochs import UNKNOWN_EPOCH
from broker.replication.isr import CommittedIsr, IsrProposal, IsrState, PendingIsr, effective_min_isr
from protocol.errors import ErrorCode

UNKNOWN_OFFSET = -1
UNKNOWN_BROKER_EPOCH = -1
NEVER_MS = -(2**62)
"""Long before any moment: the clock of these rules is monotonic, and may have begun a second ago."""

# (broker id, broker epoch it fetched with, or -1 from followers that do not tell) -> may it join the ISR?
# True for a registered, unfenced broker that is not shutting down and whose registration has that epoch.
IsrEligibility = Callable[[int, int], bool]


@dataclass(slots=True)
class FollowerProgress:
    """What this leader knows of one follower. Times are milliseconds of the leader's monotonic clock: a wall clock that
    is set must not drop members, or keep them."""

    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    caught_up_ms: int = NEVER_MS
    last_fetch_ms: int = NEVER_MS
    leader_end_at_last_fetch: int = 0
    broker_epoch: int = UNKNOWN_BROKER_EPOCH

    def on_fetch(self, fetch: "FollowerFetch", leader_end_offset: int, now_ms: int) -> None:
        """Take note of a fetch. Reaching the present log end makes it caught up now; reaching the end of the previous
        fetch makes it caught up as of then, so a busy leader does not lose a follower that is one round trip behind."""
        if fetch.fetch_offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif fetch.fetch_offset >= self.leader_end_at_last_fetch:
            self.caught_up_ms = max(self.caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = fetch.fetch_offset
        self.log_start_offset = fetch.log_start_offset
        self.broker_epoch = fetch.broker_epoch
        self.leader_end_at_last_fetch = max(self.leader_end_at_last_fetch, leader_end_offset)
        self.last_fetch_ms = now_ms

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_time_max_ms: int) -> bool:
        return self.log_end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_time_max_ms


@dataclass(frozen=True, slots=True)
class FollowerFetch:
    """What a fetch of a follower says about it; epochs are -1 where its version does not tell them."""

    broker_id: int
    broker_epoch: int
    leader_epoch: int
    fetch_offset: int
    log_start_offset: int


@dataclass(slots=True)
class LeaderRole:
    """The leader's state for one reign (`epoch`). `followers` are the other assigned replicas, `coming` those that a
    reassignment adds."""

    broker_id: int
    epoch: int
    partition_epoch: int
    epoch_start_offset: int
    replicas: tuple[int, ...]
    isr: IsrState
    followers: dict[int, FollowerProgress] = field(default_factory=dict)
    coming: tuple[int, ...] = ()
    is_reassigning: bool = False

    # ---- admission and commit

    def has_enough_replicas(self, min_insync_replicas: int) -> bool:
        """Whether `acks=all` may be accepted: enough confirmed members."""
        return len(self.isr.committed) >= effective_min_isr(min_insync_replicas, len(self.replicas))

    def outcome_when_committed(self, min_insync_replicas: int) -> ErrorCode:
        """How to answer `acks=all` once the high watermark passed its records."""
        if len(self.isr.maximal) >= effective_min_isr(min_insync_replicas, len(self.replicas)):
            return ErrorCode.NONE
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def high_watermark(self, current: int, log_end_offset: int, terms: "CommitTerms") -> int:
        """The high watermark that the present knowledge allows; never below `current`."""
        if not self.followers:
            return max(current, log_end_offset)
        if not self.has_enough_replicas(terms.min_insync_replicas):
            return current
        held = [f.log_end_offset for b, f in self.followers.items() if self._must_hold(b, f, log_end_offset, terms)]
        return max(current, min([log_end_offset, *held]))

    def _must_hold(self, broker_id: int, follower: FollowerProgress, log_end_offset: int, terms: "CommitTerms") -> bool:
        """Members must; so must a caught-up replica that may join, or it would never find the moment to."""
        if broker_id in self.isr.maximal:
            return True
        caught_up = follower.is_caught_up(log_end_offset, terms.now_ms, terms.lag_time_max_ms)
        return caught_up and terms.is_eligible(broker_id, follower.broker_epoch)

    def low_watermark(self, log_start_offset: int, is_alive: Callable[[int], bool]) -> int:
        """The least log start over this log and the live followers: below it, nobody has records any more."""
        starts = (f.log_start_offset for broker_id, f in self.followers.items() if is_alive(broker_id))
        return min([log_start_offset, *starts])

    def has_committed_own_epoch(self, high_watermark: int) -> bool:
        """Whether the high watermark has reached this reign: before that it may lie behind what a predecessor told."""
        return high_watermark >= self.epoch_start_offset

    # ---- followers

    def on_append(self, previous_end_offset: int, now_ms: int) -> None:
        """The log grows: a follower that held all of it until now was caught up until now.

        Incremental fetch sessions leave idle partitions out, so this is how time passes for them.
        """
        for follower in self.followers.values():
            if follower.log_end_offset == previous_end_offset:
                follower.caught_up_ms = max(follower.caught_up_ms, now_ms)

    def on_follower_fetch(
        self, fetch: FollowerFetch, log_end_offset: int, now_ms: int, registered_broker_epoch: int
    ) -> ErrorCode:
        """Take note of a follower's fetch, or say why it does not count.

        A replica that is not assigned may know of a reassignment that we have yet to hear of, if it named an epoch. A
        fetch of an earlier life of the broker (KIP-903) must not make its successor look caught up.
        """
        follower = self.followers.get(fetch.broker_id)
        if follower is None:
            named_epoch = fetch.leader_epoch != UNKNOWN_EPOCH
            return ErrorCode.UNKNOWN_LEADER_EPOCH if named_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if fetch.broker_epoch != UNKNOWN_BROKER_EPOCH and fetch.broker_epoch < registered_broker_epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        follower.on_fetch(fetch, log_end_offset, now_ms)
        return ErrorCode.NONE

    # ---- changes of the ISR

    def propose_expand(self, broker_id: int, high_watermark: int, is_eligible: IsrEligibility) -> PendingIsr | None:
        """Admit a follower that has reached both the high watermark and this reign; None if there is nothing to ask.

        Reaching the high watermark alone is not enough: it may lie behind the truth right after an election, and a
        follower without the reign's start could still have to truncate.
        """
        follower = self.followers.get(broker_id)
        if follower is None or not isinstance(self.isr, CommittedIsr) or broker_id in self.isr.committed:
            return None
        if follower.log_end_offset < max(high_watermark, self.epoch_start_offset):
            return None
        if not is_eligible(broker_id, follower.broker_epoch):
            return None
        self.isr = self.isr.propose_expand(broker_id)
        return self.isr

    def propose_shrink(self, log_end_offset: int, now_ms: int, lag_time_max_ms: int) -> PendingIsr | None:
        """Drop the members that have lagged for longer than allowed; None if there is nothing to ask."""
        if not isinstance(self.isr, CommittedIsr):
            return None
        lagging = frozenset(
            broker_id
            for broker_id, follower in self.followers.items()
            if broker_id in self.isr.committed and not follower.is_caught_up(log_end_offset, now_ms, lag_time_max_ms)
        )
        if not lagging:
            return None
        self.isr = self.isr.propose_shrink(lagging)
        return self.isr

    def proposal(self, pending: PendingIsr, own_broker_epoch: int) -> IsrProposal:
        """What to tell the controller of a change: the members wanted, each in the life in which it was seen."""
        epochs = {broker_id: follower.broker_epoch for broker_id, follower in self.followers.items()}
        epochs[self.broker_id] = own_broker_epoch
        members = tuple((broker_id, epochs[broker_id]) for broker_id in self.replicas if broker_id in pending.proposed)
        return IsrProposal(pending, self.epoch, self.partition_epoch, members)

    def on_isr_confirmed(self, leader_epoch: int, partition_epoch: int, isr: frozenset[int]) -> bool:
        """The controller's answer to a proposal; false if it speaks of another reign or of an older state."""
        if leader_epoch != self.epoch or partition_epoch < self.partition_epoch:
            return False
        self.isr = CommittedIsr(isr)
        self.partition_epoch = partition_epoch
        return True

    def on_isr_refused(self) -> None:
        """The controller did not attempt the change or found the replica ineligible: as if it was never asked."""
        self.isr = CommittedIsr(self.isr.committed)

    # ---- standing

    def standing(self, min_insync_replicas: int) -> "Standing":
        """How the partition fares, by what the controller has confirmed. A replica on its way is not missing yet."""
        members = len(self.isr.committed)
        needed = effective_min_isr(min_insync_replicas, len(self.replicas))
        is_under_replicated = members < len(self.replicas) - len(self.coming)
        return Standing(is_under_replicated, members < needed, members == needed, self.is_reassigning)


class Standing(NamedTuple):
    """What operators watch of a led partition."""

    is_under_replicated: bool
    is_under_min_isr: bool
    is_at_min_isr: bool
    is_reassigning: bool


@dataclass(frozen=True, slots=True)
class CommitTerms:
    """What the high watermark depends on besides the leader's own state."""

    min_insync_replicas: int
    now_ms: int
    lag_time_max_ms: int
    is_eligible: IsrEligibility
