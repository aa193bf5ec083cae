"""The leader's view of the other replicas: end offsets, times of contact, and the offset that a majority has.

The state is in memory only; a new leader starts without it. Voters are tracked by replica key, so a replica with a
voter's id and another directory id is an observer (KIP-853). Of observers with equal ids the latest counts: the earlier
one has lost its disk and must not become a voter. Beyond `max_observers` the one with the oldest contact is forgotten.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from broker.quorum.identity import Instant, ReplicaKey
from broker.quorum.membership.voters import VoterSet
from broker.quorum.membership.votes import agreed_offset, majority
from broker.quorum.messages import UNKNOWN_OFFSET
from broker.quorum.settings import DEFAULT_MAX_OBSERVERS
from protocol.ids import BrokerId, Offset
from protocol.lazy_dataclass import lazy_dataclass


@lazy_dataclass(slots=True)
class ReplicaProgress:
    """The last fetch offset of a replica and its times.

    `tracked_ms` and `contact_ms` are monotonic: the start of tracking and the last contact. `caught_up`: the last time
    at which the replica is known to have had the whole log. `fetched_as`: the key in the last fetch, whose directory id
    a static voter's `key` lacks.
    """

    key: ReplicaKey
    tracked_ms: float
    end_offset: Offset = UNKNOWN_OFFSET
    last_fetch: Instant | None = None
    caught_up: Instant | None = None
    contact_ms: float | None = None
    leader_end_at_fetch: Offset = UNKNOWN_OFFSET
    fetched_as: ReplicaKey | None = None

    def is_live(self, since_ms: float) -> bool:
        """Whether the replica was in contact since a monotonic time, or is tracked for a shorter time."""
        return (self.tracked_ms if self.contact_ms is None else self.contact_ms) >= since_ms

    def fetched(self, offset: Offset, leader_end: Offset, now: Instant) -> None:
        """Record a fetch at `offset`, which may be lower than before: a voter may restart with an empty disk.

        The replica is caught up now if `offset` is the leader's end. It was caught up at its previous fetch if it now
        has all records that the leader had then.
        """
        if offset >= leader_end:
            self.caught_up = now
        elif offset >= self.leader_end_at_fetch > UNKNOWN_OFFSET:
            self.caught_up = self.last_fetch
        self.end_offset = offset
        self.last_fetch, self.contact_ms = now, now.monotonic_ms
        self.leader_end_at_fetch = leader_end


class LiveReplica(NamedTuple):
    """A replica whose end offset limits the log start offset; -1 is unknown."""

    key: ReplicaKey
    end_offset: Offset


class Progress:
    """The progress of all replicas except the leader, which counts with its synced end offset if it is a voter."""

    def __init__(
        self, own: ReplicaKey, voters: VoterSet, now: Instant, max_observers: int = DEFAULT_MAX_OBSERVERS
    ) -> None:
        self._own = own
        self._voters: dict[BrokerId, ReplicaProgress] = {}
        self._observers: OrderedDict[BrokerId, ReplicaProgress] = OrderedDict()
        """By replica id, the oldest contact first."""
        self._max_observers = max_observers
        self._in_contact: set[BrokerId] = set()
        self._counts_itself = False
        self._set = voters
        self.set_voters(voters, now)

    def set_voters(self, voters: VoterSet, now: Instant) -> None:
        """Replace the voters. A removed voter becomes an observer and keeps its progress."""
        former, self._voters = self._voters, {}
        self._set = voters
        self._counts_itself = voters.has(self._own)
        for voter in voters:
            if not voter.is_replica(self._own):
                self._voters[voter.key.id] = self._voter(voter.key, former, now)
        for removed in former.values():
            self._demote(removed)
        self._in_contact &= self._voters.keys()

    def _voter(self, key: ReplicaKey, former: dict[BrokerId, ReplicaProgress], now: Instant) -> ReplicaProgress:
        """Return the progress of a voter that was a voter, an observer, or a static voter without a directory id."""
        tracked: tuple[dict[BrokerId, ReplicaProgress], ...] = (former, self._observers)
        for replicas in tracked:
            progress = replicas.get(key.id)
            if progress is not None and key in (progress.key, progress.fetched_as):
                del replicas[key.id]
                progress.key = key
                return progress
        return ReplicaProgress(key, now.monotonic_ms)

    def _demote(self, removed: ReplicaProgress) -> None:
        """Track a removed voter as an observer, unless its node has had contact with another directory id since."""
        if removed.fetched_as is None or removed.contact_ms is None:
            return
        observer = self._observers.get(removed.key.id)
        if observer is None or not observer.is_live(removed.contact_ms):
            removed.key = removed.fetched_as
            self._add_observer(removed)

    def of(self, replica: ReplicaKey) -> ReplicaProgress | None:
        """Return the progress of a replica, or None."""
        if self._set.has(replica):
            return self._voters.get(replica.id)
        observer = self._observers.get(replica.id)
        return observer if observer is not None and observer.key == replica else None

    def namesake(self, voter: ReplicaKey, since_ms: float) -> ReplicaKey | None:
        """Return an observer with the id of a voter if both were in contact since a monotonic time.

        A voter whose last contact was before the observer's first one is the same node before it lost its disk.
        """
        known, other = self._voters.get(voter.id), self._observers.get(voter.id)
        if known is None or known.contact_ms is None or other is None:
            return None
        are_running = known.is_live(since_ms) and other.is_live(since_ms) and known.contact_ms > other.tracked_ms
        return other.key if are_running else None

    def fetched(self, replica: ReplicaKey, offset: Offset, leader_end: Offset, now: Instant) -> bool:
        """Record a valid fetch. Return whether the replica is a voter."""
        is_voter = self._set.has(replica)
        progress = self._voters[replica.id] if is_voter else self._observer(replica, now)
        progress.fetched(offset, leader_end, now)
        progress.fetched_as = replica
        return is_voter

    def on_snapshot_fetch(self, replica: ReplicaKey, now: Instant) -> None:
        """Record contact without log progress."""
        progress = self._voters[replica.id] if self._set.has(replica) else self._observer(replica, now)
        progress.contact_ms = now.monotonic_ms
        progress.fetched_as = replica

    def agreed(self, own_end: Offset) -> Offset:
        """Return the largest offset that a majority of the voters has, given the leader's synced end offset."""
        ends = [each.end_offset for each in self._voters.values()]
        if self._counts_itself:
            ends.append(own_end)
        return agreed_offset(ends)

    def in_contact(self, replica: ReplicaKey) -> bool:
        """Record contact. Return whether a majority has been in contact since the last such majority.

        A majority restarts the count. Contact does not imply progress.
        """
        if not self._set.has(replica):
            return False
        self._in_contact.add(replica.id)
        if len(self._in_contact) < majority(len(self._set)) - self._counts_itself:
            return False
        self._in_contact.clear()
        return True

    @property
    def needs_no_contact(self) -> bool:
        """Whether the leader alone is a majority."""
        return self._counts_itself and len(self._set) == 1

    def voters(self) -> Iterator[ReplicaProgress]:
        return iter(self._voters.values())

    def observers(self) -> Iterator[ReplicaProgress]:
        return iter(self._observers.values())

    def expire_observers(self, before_ms: float) -> None:
        """Remove observers without contact since a monotonic time."""
        for silent in [each for each, found in self._observers.items() if not found.is_live(before_ms)]:
            del self._observers[silent]

    def live(self, since_ms: float) -> list[LiveReplica]:
        """Return the voters and observers that are live since a monotonic time."""
        tracked = (*self._voters.values(), *self._observers.values())
        return [LiveReplica(each.key, each.end_offset) for each in tracked if each.is_live(since_ms)]

    def successors(self) -> tuple[ReplicaKey, ...]:
        """Return the other voters, the largest end offset first."""
        ordered = sorted(self._voters.values(), key=lambda each: (-each.end_offset, each.key))
        return tuple(each.key for each in ordered)

    def _observer(self, replica: ReplicaKey, now: Instant) -> ReplicaProgress:
        progress = self._observers.get(replica.id)
        if progress is None or progress.key != replica:
            progress = ReplicaProgress(replica, now.monotonic_ms)
        self._add_observer(progress)
        return progress

    def _add_observer(self, progress: ReplicaProgress) -> None:
        self._observers[progress.key.id] = progress
        self._observers.move_to_end(progress.key.id)
        if len(self._observers) > self._max_observers:
            self._observers.popitem(last=False)
