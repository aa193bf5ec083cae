"""What a leader knows of the other replicas: how far each has got, who is in contact, what a majority has.

Nothing here is written anywhere; a new leader begins with nothing. Positions of voters are kept under the voter's key,
so a replica with a voter's id and another directory counts as an observer (KIP-853).
Of observers with the same id the last to come counts: the former lost its disk, and must not become a voter any more.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.quorum.identity import Instant, ReplicaKey
from broker.quorum.membership.voters import VoterSet
from broker.quorum.membership.votes import agreed_offset, majority
from broker.quorum.messages import UNKNOWN_OFFSET

NEVER: Final = -1


@dataclass(slots=True)
class ReplicaProgress:
    """The end offset that a replica last fetched from, and when. Times in ms: `contact_ms` monotonic, others wall.

    `caught_up_ms`: the last moment at which it is known to have had everything.
    """

    key: ReplicaKey
    end_offset: int = UNKNOWN_OFFSET
    fetched_ms: int = NEVER
    caught_up_ms: int = NEVER
    contact_ms: float | None = None
    leader_end_at_fetch: int = UNKNOWN_OFFSET

    def fetched(self, offset: int, leader_end: int, now: Instant) -> None:
        """It has everything below `offset`. That may be less than before: a voter with a new disk must come back.

        It is caught up now if that is all, and was at its last fetch if by now it has all that was there then.
        """
        if offset >= leader_end:
            self.caught_up_ms = now.wall_ms
        elif offset >= self.leader_end_at_fetch > UNKNOWN_OFFSET:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.end_offset = offset
        self.fetched_ms, self.contact_ms = now.wall_ms, now.monotonic_ms
        self.leader_end_at_fetch = leader_end


class LiveReplica(NamedTuple):
    """A replica whose needs the log start respects, and how far it has got (-1: not known)."""

    key: ReplicaKey
    end_offset: int


class Progress:
    """Of all replicas but the leader itself, which counts with its synced end wherever it is a voter."""

    def __init__(self, own: ReplicaKey, voters: VoterSet) -> None:
        self._own = own
        self._voters: dict[int, ReplicaProgress] = {}
        self._observers: dict[ReplicaKey, ReplicaProgress] = {}
        self._in_contact: set[int] = set()
        self._counts_itself = False
        self._set = voters
        self.set_voters(voters)

    def set_voters(self, voters: VoterSet) -> None:
        """From now on these count. Who stops being a voter is an observer, with what is known of it."""
        known = {each.key: each for each in self._voters.values()} | self._observers
        self._set = voters
        self._counts_itself = voters.has(self._own)
        self._voters = {}
        for voter in voters:
            if not voter.is_replica(self._own):
                self._voters[voter.key.id] = known.get(voter.key) or ReplicaProgress(voter.key)
                known.pop(voter.key, None)
        self._observers = {key: each for key, each in known.items() if each.contact_ms is not None}
        self._in_contact &= self._voters.keys()

    def of(self, replica: ReplicaKey) -> ReplicaProgress | None:
        """What is known of a replica."""
        return self._voters.get(replica.id) if self._set.has(replica) else self._observers.get(replica)

    def fetched(self, replica: ReplicaKey, offset: int, leader_end: int, now: Instant) -> bool:
        """A valid fetch came. Returns whether it was a voter's."""
        is_voter = self._set.has(replica)
        if is_voter:
            self._voters[replica.id].fetched(offset, leader_end, now)
        else:
            self._observer(replica).fetched(offset, leader_end, now)
        return is_voter

    def touched(self, replica: ReplicaKey, now: Instant) -> None:
        """It fetches a snapshot, so it lives."""
        progress = self._voters[replica.id] if self._set.has(replica) else self._observer(replica)
        progress.contact_ms = now.monotonic_ms

    def agreed(self, own_end: int) -> int:
        """The largest offset that a majority of the voters has, the leader having synced up to `own_end`."""
        ends = [each.end_offset for each in self._voters.values()]
        if self._counts_itself:
            ends.append(own_end)
        return agreed_offset(ends)

    def in_contact(self, replica: ReplicaKey) -> bool:
        """A voter has fetched. Returns whether with it a majority has, since this was last so; then they are counted
        anew. It proves contact, not progress.
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
        """Whether the leader is a majority by itself."""
        return self._counts_itself and len(self._set) == 1

    def voters(self) -> Iterator[ReplicaProgress]:
        return iter(self._voters.values())

    def observers(self) -> Iterator[ReplicaProgress]:
        return iter(self._observers.values())

    def forget_silent(self, before_ms: float) -> None:
        """Drops observers that were last in contact before a monotonic time."""
        silent = [key for key, each in self._observers.items() if (each.contact_ms or 0.0) < before_ms]
        for key in silent:
            del self._observers[key]

    def live(self, since_ms: float) -> list[LiveReplica]:
        """All voters, and the observers in contact since a monotonic time."""
        observers = [each for each in self._observers.values() if (each.contact_ms or 0.0) >= since_ms]
        return [LiveReplica(each.key, each.end_offset) for each in (*self._voters.values(), *observers)]

    def successors(self) -> tuple[ReplicaKey, ...]:
        """The other voters, the most advanced first."""
        ordered = sorted(self._voters.values(), key=lambda each: (-each.end_offset, each.key))
        return tuple(each.key for each in ordered)

    def _observer(self, replica: ReplicaKey) -> ReplicaProgress:
        progress = self._observers.get(replica)
        if progress is None:
            former = [key for key in self._observers if key.id == replica.id]
            for key in former:
                del self._observers[key]
            progress = self._observers[replica] = ReplicaProgress(replica)
        return progress
