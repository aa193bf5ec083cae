"""Placement of new partitions: replicas spread over racks and striped over brokers.

The scheme is that of Kafka's StripedReplicaPlacer. Each rack has two rings of brokers, unfenced and fenced, entered at
a random position; the racks form a ring as well. The leader is the next unfenced broker of the first rack that has one.
The followers come from the racks in turn, skipping the leader's rack in the first lap. Each further partition starts
one position later. After one leader per unfenced broker everything is shuffled, so that patterns do not repeat.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from protocol.lazy_dataclass import lazy_dataclass


class PlacementRandom(Protocol):
    """The randomness that placement needs; `random.Random` implements it."""

    def randrange(self, stop: int, /) -> int: ...

    def shuffle(self, x: list[int], /) -> None: ...


class UsableBroker(NamedTuple):
    """A broker that may hold replicas. Fenced brokers become followers only."""

    id: int
    rack: str | None
    fenced: bool


class PlacementImpossible(Exception):
    """The usable brokers are too few; the text states what is missing."""


class Placer:
    """Places topics on the same brokers; each topic starts at random positions."""

    def __init__(self, brokers: Sequence[UsableBroker], random: PlacementRandom) -> None:
        self._count = len(brokers)
        self._unfenced_count = sum(not broker.fenced for broker in brokers)
        self._random = random
        by_rack: dict[str, _RackMembers] = {}
        for broker in sorted(brokers):
            members = by_rack.setdefault(broker.rack or "", _RackMembers([], []))
            (members.fenced if broker.fenced else members.unfenced).append(broker.id)
        self._racks = [by_rack[name] for name in sorted(by_rack)]

    def place(self, partition_count: int, replication_factor: int) -> list[list[int]]:
        """Return the replicas of `partition_count` partitions, leader first.

        Raises PlacementImpossible without an unfenced broker, or with fewer brokers than `replication_factor`.
        """
        if not self._unfenced_count:
            raise PlacementImpossible("all brokers are currently fenced")
        if replication_factor > self._count:
            raise PlacementImpossible(
                f"replication factor {replication_factor} needs {replication_factor} brokers, {self._count} are usable"
            )
        racks = _Racks(self._racks, self._unfenced_count, self._random)
        return [racks.place(replication_factor) for _ in range(partition_count)]


def place(
    brokers: Sequence[UsableBroker], partition_count: int, replication_factor: int, random: PlacementRandom
) -> list[list[int]]:
    """Place one topic as `Placer` does."""
    return Placer(brokers, random).place(partition_count, replication_factor)


class _RackMembers(NamedTuple):
    """The broker ids of a rack."""

    unfenced: list[int]
    fenced: list[int]


@lazy_dataclass(slots=True)
class _Ring:
    """Brokers in turn. Each round begins one position later than the previous one."""

    members: list[int]
    start: int
    taken: int = 0

    def next(self, round_number: int) -> int | None:
        """Return the next broker of this round, None when all are taken."""
        if self.taken >= len(self.members):
            return None
        broker = self.members[(self.start + round_number + self.taken) % len(self.members)]
        self.taken += 1
        return broker

    def shuffle(self, random: PlacementRandom) -> None:
        """Shuffle a copy of the members, which other topics share."""
        self.members = list(self.members)
        random.shuffle(self.members)


@lazy_dataclass(slots=True, eq=False)
class _Rack:
    unfenced: _Ring
    fenced: _Ring
    round: int = 0

    def begin(self, round_number: int) -> None:
        self.round = round_number
        self.unfenced.taken = self.fenced.taken = 0

    def next_unfenced(self) -> int | None:
        return self.unfenced.next(self.round)

    def next(self) -> int | None:
        broker = self.unfenced.next(self.round)
        return self.fenced.next(self.round) if broker is None else broker


class _Racks:
    def __init__(self, racks: Sequence[_RackMembers], unfenced_count: int, random: PlacementRandom) -> None:
        self._random = random
        self._racks = [_Rack(self._ring(members.unfenced), self._ring(members.fenced)) for members in racks]
        self._unfenced_count = unfenced_count
        self._start = random.randrange(len(self._racks))
        self._round = 0

    def place(self, replication_factor: int) -> list[int]:
        if self._round == self._unfenced_count and self._unfenced_count > 1:
            self._shuffle()
        for rack in self._racks:
            rack.begin(self._round)
        lap = self._lap()
        leader_rack, leader = self._leader(lap)
        replicas = [leader]
        walk = [rack for rack in lap if rack is not leader_rack]
        while len(replicas) < replication_factor:
            for rack in walk:
                follower = rack.next()
                if follower is not None:
                    replicas.append(follower)
                    if len(replicas) == replication_factor:
                        break
            walk = lap  # the leader's rack takes part from the second lap on
        self._round += 1
        self._start = (self._start + 1) % len(self._racks)
        return replicas

    @staticmethod
    def _leader(lap: list[_Rack]) -> tuple[_Rack, int]:
        """Return the first rack with an unfenced broker, and that broker."""
        for rack in lap:
            broker = rack.next_unfenced()
            if broker is not None:
                return rack, broker
        raise AssertionError("an unfenced broker exists")

    def _lap(self) -> list[_Rack]:
        return [*self._racks[self._start :], *self._racks[: self._start]]

    def _ring(self, members: list[int]) -> _Ring:
        return _Ring(members, self._random.randrange(len(members)) if members else 0)

    def _shuffle(self) -> None:
        order = list(range(len(self._racks)))
        self._random.shuffle(order)
        self._racks = [self._racks[index] for index in order]
        for rack in self._racks:
            rack.unfenced.shuffle(self._random)
            rack.fenced.shuffle(self._random)
        self._round = 0
