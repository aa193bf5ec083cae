"""Which brokers get the replicas of new partitions: spread over racks, striped over brokers.

The scheme (Kafka's striped placer): per rack two rings of brokers, unfenced and fenced, each entered at a random
place; racks form a ring as well. A partition's leader is the next unfenced broker of the first rack that has one; its
followers walk the racks from the same rack, skipping the leader's the first time. Each further partition starts one
place on.
After one leader per unfenced broker everything is shuffled, so that patterns do not repeat.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class RandomSource(Protocol):
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


def place(
    brokers: Sequence[UsableBroker], partition_count: int, replication_factor: int, random: RandomSource
) -> list[list[int]]:
    """Replica lists for `partition_count` partitions, leader first.

    Raises PlacementImpossible without an unfenced broker or with fewer brokers than the factor asks for.
    """
    if not any(not broker.fenced for broker in brokers):
        raise PlacementImpossible("all brokers are currently fenced")
    if replication_factor > len(brokers):
        raise PlacementImpossible(
            f"a replication factor of {replication_factor} needs as many brokers; {len(brokers)} can be used"
        )
    racks = _Racks(brokers, random)
    return [racks.place(replication_factor) for _ in range(partition_count)]


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


@dataclass(slots=True)
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
    def __init__(self, brokers: Sequence[UsableBroker], random: RandomSource) -> None:
        self._random = random
        names = sorted({broker.rack or "" for broker in brokers})
        self._racks = [self._rack([b for b in brokers if (b.rack or "") == name]) for name in names]
        self._unfenced_count = sum(not broker.fenced for broker in brokers)
        self._start = random.randrange(len(self._racks))
        self._round = 0

    def place(self, replication_factor: int) -> list[int]:
        if self._round == self._unfenced_count and self._unfenced_count > 1:
            self._shuffle()
        for rack in self._racks:
            rack.begin(self._round)
        leader_rack, leader = self._leader()
        replicas = [leader]
        for rack in self._walk(leader_rack):
            if len(replicas) == replication_factor:
                break
            follower = rack.next()
            if follower is not None:
                replicas.append(follower)
        self._round += 1
        self._start = (self._start + 1) % len(self._racks)
        return replicas

    def _leader(self) -> tuple[int, int]:
        """The first rack from the start on that has an unfenced broker, and that broker."""
        for index in self._lap():
            broker = self._racks[index].next_unfenced()
            if broker is not None:
                return index, broker
        raise AssertionError("it was checked that a broker is unfenced")

    def _walk(self, leader_rack: int) -> Iterator[_Rack]:
        """Where followers are looked for: one lap without the leader's rack, then laps without end."""
        yield from (self._racks[index] for index in self._lap() if index != leader_rack)
        while True:
            yield from (self._racks[index] for index in self._lap())

    def _lap(self) -> list[int]:
        count = len(self._racks)
        return [(self._start + step) % count for step in range(count)]

    def _rack(self, brokers: Sequence[UsableBroker]) -> _Rack:
        return _Rack(self._ring(brokers, fenced=False), self._ring(brokers, fenced=True))

    def _ring(self, brokers: Sequence[UsableBroker], *, fenced: bool) -> _Ring:
        members = sorted(broker.id for broker in brokers if broker.fenced is fenced)
        return _Ring(members, self._random.randrange(len(members)) if members else 0)

    def _shuffle(self) -> None:
        order = list(range(len(self._racks)))
        self._random.shuffle(order)
        self._racks = [self._racks[index] for index in order]
        for rack in self._racks:
            self._random.shuffle(rack.unfenced.members)
            self._random.shuffle(rack.fenced.members)
        self._round = 0
