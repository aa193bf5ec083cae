"""The leader's state of a partition: the progress of each follower, the high watermark, and the ISR.

Theory. A record is committed once every replica that could be elected has it: the ISR members, and the replicas whose
admission or removal is under way (`isr.py`). The high watermark is the least log end offset among them. It never falls
within a leader epoch, and it does not move while the ISR has fewer members than `min.insync.replicas`: such a commit
would promise more than the topic's owner accepted.

A follower's fetches are the only source of its log end offset: a fetch from offset N acknowledges everything below N.
The acknowledgement holds for the leader epoch of the fetch; a new leader starts without knowledge.

A follower is in sync by time, not by lag in records: it is caught up at a moment if its fetch reached the log end of
that moment. `caught_up_ms` is the last such moment. A follower that leaves the ISR is no longer caught up: its broker
may return within the lag time with an empty disk and copy for minutes, and acks=all must not wait. (Kafka waits.)

An incremental fetch session leaves idle partitions out, so the session's requests count as fetches of a follower that
has everything (`FollowerContact`). A silent follower keeps its place in the ISR while it lacks nothing; once the log
grows, its lag counts from its last request.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from broker.replication.epochs import UNKNOWN_EPOCH
from broker.replication.isr import CommittedIsr, IsrProposal, IsrState, PendingIsr, effective_min_isr
from protocol.errors import ErrorCode
from protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch

UNKNOWN_OFFSET = -1
UNKNOWN_BROKER_EPOCH = BrokerEpoch(-1)
NEVER_MS = -(2**62)
"""A time before any other: the clock is monotonic and may have started a second ago."""

# (broker id, broker epoch of its fetches, or -1 if unknown) -> whether the broker may join the ISR: registered with
# that epoch, unfenced, and not shutting down.
IsrEligibility = Callable[[BrokerId, BrokerEpoch], bool]


class FollowerContact(Protocol):
    """A follower's fetch session, as far as one partition is concerned (implemented by `FetchTarget`)."""

    @property
    def last_contact_ms(self) -> int:
        """The time of the session's last request that left the partition out because nothing had changed."""

    def recall(self) -> None:
        """Make the session's next request report the partition's position again."""


@dataclass(slots=True)
class FollowerProgress:
    """The leader's view of one follower.

    Times are milliseconds of the leader's monotonic clock: setting the wall clock must neither remove nor keep ISR
    members.
    """

    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    caught_up_ms: int = NEVER_MS
    last_fetch_ms: int = NEVER_MS
    leader_end_at_last_fetch: int = 0
    broker_epoch: BrokerEpoch = UNKNOWN_BROKER_EPOCH
    contact: FollowerContact | None = None

    def on_fetch(self, fetch: "FollowerFetch", leader_end_offset: int, now_ms: int) -> None:
        """Record a fetch.

        A fetch from the present log end offset makes the follower caught up now. A fetch from the log end offset of the
        previous fetch makes it caught up as of then, so a busy leader does not lose a follower that is one round trip
        behind.

        A fetch of another session may be a late request of an abandoned connection. What the session until now
        acknowledged stays counted, and its next request reports its position again, as in Kafka.
        """
        former = self.contact
        if former is not None and former is not fetch.contact:
            if self.log_end_offset == leader_end_offset:
                self.caught_up_ms = max(self.caught_up_ms, former.last_contact_ms)
            former.recall()
        if fetch.fetch_offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif fetch.fetch_offset >= self.leader_end_at_last_fetch:
            self.caught_up_ms = max(self.caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = fetch.fetch_offset
        self.log_start_offset = fetch.log_start_offset
        self.broker_epoch = fetch.broker_epoch
        self.contact = fetch.contact
        self.leader_end_at_last_fetch = max(self.leader_end_at_last_fetch, leader_end_offset)
        self.last_fetch_ms = now_ms

    def on_append(self) -> None:
        """Record that the log grows beyond what the follower has: it was caught up until its last contact."""
        if self.contact is not None:
            self.caught_up_ms = max(self.caught_up_ms, self.contact.last_contact_ms)

    def on_left_isr(self) -> None:
        """Forget that the follower was caught up, and its session's contacts; fetches show when it is again."""
        self.caught_up_ms = NEVER_MS
        self.contact = None

    def on_joined_isr(self) -> None:
        """Count the lag from the fetch that reached the high watermark, by which the follower joined."""
        self.caught_up_ms = max(self.caught_up_ms, self.last_fetch_ms)

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_time_max_ms: int) -> bool:
        return self.log_end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_time_max_ms


@dataclass(frozen=True, slots=True)
class FollowerFetch:
    """The follower's state in its fetch; epochs are -1 where the request's version lacks them.

    `contact` is the session that later leaves the partition out, if there is one.
    """

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    leader_epoch: LeaderEpoch
    fetch_offset: int
    log_start_offset: int
    contact: FollowerContact | None = None


@dataclass(slots=True)
class LeaderRole:
    """The leader's state for one leader epoch (`epoch`).

    `followers` are the other assigned replicas, `coming` the replicas that a reassignment adds.
    """

    broker_id: BrokerId
    epoch: LeaderEpoch
    partition_epoch: int
    epoch_start_offset: int
    replicas: tuple[int, ...]
    isr: IsrState
    followers: dict[BrokerId, FollowerProgress] = field(default_factory=dict)
    coming: tuple[int, ...] = ()
    is_reassigning: bool = False

    # ---- admission and commit

    def has_enough_replicas(self, min_insync_replicas: int) -> bool:
        """Whether the leader accepts `acks=all`: the confirmed ISR has enough members."""
        return len(self.isr.committed) >= effective_min_isr(min_insync_replicas, len(self.replicas))

    def outcome_when_committed(self, min_insync_replicas: int) -> ErrorCode:
        """Return the result of `acks=all` once the high watermark has passed its records."""
        if len(self.isr.maximal) >= effective_min_isr(min_insync_replicas, len(self.replicas)):
            return ErrorCode.NONE
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def high_watermark(self, current: int, log_end_offset: int, terms: "CommitTerms") -> int:
        """Return the high watermark by the present state; never below `current`."""
        if not self.followers:
            return max(current, log_end_offset)
        if not self.has_enough_replicas(terms.min_insync_replicas):
            return current
        held = [f.log_end_offset for b, f in self.followers.items() if self._must_hold(b, f, log_end_offset, terms)]
        return max(current, min([log_end_offset, *held]))

    def _must_hold(
        self, broker_id: BrokerId, follower: FollowerProgress, log_end_offset: int, terms: "CommitTerms"
    ) -> bool:
        """Whether the high watermark waits for a replica.

        ISR members count. A caught-up, eligible replica counts as well, or it would never reach the high watermark of a
        busy leader and could not join.
        """
        if broker_id in self.isr.maximal:
            return True
        caught_up = follower.is_caught_up(log_end_offset, terms.now_ms, terms.lag_time_max_ms)
        return caught_up and terms.is_eligible(broker_id, follower.broker_epoch)

    def low_watermark(self, log_start_offset: int, is_alive: Callable[[BrokerId], bool]) -> int:
        """Return the least log start offset of this log and the live followers."""
        starts = (f.log_start_offset for broker_id, f in self.followers.items() if is_alive(broker_id))
        return min([log_start_offset, *starts])

    def has_committed_own_epoch(self, high_watermark: int) -> bool:
        """Whether the high watermark has reached the start of this leader epoch; before, it may be below the
        predecessor's."""
        return high_watermark >= self.epoch_start_offset

    # ---- followers

    def on_append(self, previous_end_offset: int) -> None:
        """Note that the log grows; followers that had all of it until now were caught up until their last contact."""
        for follower in self.followers.values():
            if follower.log_end_offset == previous_end_offset:
                follower.on_append()

    def on_follower_fetch(
        self, fetch: FollowerFetch, log_end_offset: int, now_ms: int, registered_broker_epoch: BrokerEpoch
    ) -> ErrorCode:
        """Record a follower's fetch, or return the error for a fetch that does not count.

        A replica that is not assigned, and names an epoch, may know of a newer reassignment. A fetch of a broker's
        former registration (KIP-903) must not make the present one look caught up.
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

    def propose_expand(
        self, broker_id: BrokerId, high_watermark: int, is_eligible: IsrEligibility
    ) -> PendingIsr | None:
        """Propose to add a follower that has reached the high watermark and this leader epoch; None if it may not join.

        The high watermark alone is not enough: right after an election it may be too low, and a follower that lacks the
        start of the epoch could still have to truncate.
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
        """Propose to remove the members that have lagged for too long; None if there are none."""
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

    def proposal(self, pending: PendingIsr, own_broker_epoch: BrokerEpoch) -> IsrProposal:
        """Return the proposal to send: the wanted members, each with the broker epoch of its fetches."""
        epochs = {broker_id: follower.broker_epoch for broker_id, follower in self.followers.items()}
        epochs[self.broker_id] = own_broker_epoch
        members = tuple(
            (broker_id, epochs[BrokerId(broker_id)]) for broker_id in self.replicas if broker_id in pending.proposed
        )
        return IsrProposal(pending, self.epoch, self.partition_epoch, members)

    def on_isr_confirmed(self, leader_epoch: LeaderEpoch, partition_epoch: int, isr: frozenset[int]) -> bool:
        """Apply the controller's answer; return False if it is about another leader epoch or an older state."""
        if leader_epoch != self.epoch or partition_epoch < self.partition_epoch:
            return False
        note_members(self.followers, self.isr.committed, isr)
        self.isr = CommittedIsr(isr)
        self.partition_epoch = partition_epoch
        return True

    def on_isr_refused(self) -> None:
        """Drop the proposal: the controller did not attempt the change or found a replica ineligible."""
        self.isr = CommittedIsr(self.isr.committed)

    # ---- standing

    def standing(self, min_insync_replicas: int) -> "Standing":
        """Return the partition's state for metrics, by the confirmed ISR.

        Replicas that a reassignment adds do not count as missing yet.
        """
        members = len(self.isr.committed)
        needed = effective_min_isr(min_insync_replicas, len(self.replicas))
        is_under_replicated = members < len(self.replicas) - len(self.coming)
        return Standing(is_under_replicated, members < needed, members == needed, self.is_reassigning)


def note_members(followers: Mapping[BrokerId, FollowerProgress], before: Set[int], after: Set[int]) -> None:
    """Tell followers that they left or joined the ISR."""
    for broker_id, follower in followers.items():
        if broker_id in before and broker_id not in after:
            follower.on_left_isr()
        elif broker_id in after and broker_id not in before:
            follower.on_joined_isr()


class Standing(NamedTuple):
    """The metrics of a led partition."""

    is_under_replicated: bool
    is_under_min_isr: bool
    is_at_min_isr: bool
    is_reassigning: bool


@dataclass(frozen=True, slots=True)
class CommitTerms:
    """The inputs of the high watermark besides the leader's own state."""

    min_insync_replicas: int
    now_ms: int
    lag_time_max_ms: int
    is_eligible: IsrEligibility
