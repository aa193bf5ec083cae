"""Which brokers get the replicas of new partitions: spread over racks, striped over brokers.

The scheme (Kafka's striped placer): per rack two rings of brokers, unfenced and fenced, each entered at a random
place; racks form a ring as well. A partition's leader is the next unfenced broker of the first rack that has one; its
followers walk the racks from the same rack, skipping the leader's the first time. Each further partition starts one
place on.
After one leader per unfenced broker everything is shuffled, so that patterns do not repeat.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class PlacementRandom(Protocol):
    """The randomness that placement needs; `random.Random` has it."""

    def randrange(self, stop: int, /) -> int: ...

    def shuffle(self, x: list[int], /) -> None: ...


class UsableBroker(NamedTuple):
    """A broker that may hold replicas. Fenced ones follow, but do not lead."""

    id: int
    rack: str | None
    fenced: bool


class PlacementImpossible(Exception):
    """There are not enough brokers; the text says what is missing."""


class Placer:
    """Places topic after topic on the same brokers; each begins anew at random places."""

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
        """Replica lists for `partition_count` partitions, leader first.

        Raises PlacementImpossible without an unfenced broker or with fewer brokers than the factor asks for.
        """
        if not self._unfenced_count:
            raise PlacementImpossible("all brokers are currently fenced")
        if replication_factor > self._count:
            raise PlacementImpossible(
                f"a replication factor of {replication_factor} needs as many brokers; {self._count} can be used"
            )
        racks = _Racks(self._racks, self._unfenced_count, self._random)
        return [racks.place(replication_factor) for _ in range(partition_count)]


def place(
    brokers: Sequence[UsableBroker], partition_count: int, replication_factor: int, random: PlacementRandom
) -> list[list[int]]:
    """One topic, as `Placer` does it."""
    return Placer(brokers, random).place(partition_count, replication_factor)


class _RackMembers(NamedTuple):
    """The brokers of a rack by id."""

    unfenced: list[int]
    fenced: list[int]


@dataclass(slots=True)
class _Ring:
    """Brokers in turn. A round begins one place further than the one before."""

    members: list[int]
    start: int
    taken: int = 0

    def next(self, round_number: int) -> int | None:
        """The next broker of this round, None when all were taken."""
        if self.taken >= len(self.members):
            return None
        broker = self.members[(self.start + round_number + self.taken) % len(self.members)]
        self.taken += 1
        return broker

    def shuffle(self, random: PlacementRandom) -> None:
        """The members are those of other topics as well: theirs keep their order."""
        self.members = list(self.members)
        random.shuffle(self.members)


@dataclass(slots=True, eq=False)
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
            walk = lap  # the leader's rack has its turn from the second lap on
        self._round += 1
        self._start = (self._start + 1) % len(self._racks)
        return replicas

    @staticmethod
    def _leader(lap: list[_Rack]) -> tuple[_Rack, int]:
        """The first rack from the start on that has an unfenced broker, and that broker."""
        for rack in lap:
            broker = rack.next_unfenced()
            if broker is not None:
                return rack, broker
        raise AssertionError("it was checked that a broker is unfenced")

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
