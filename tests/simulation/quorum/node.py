"""A node through its lives: one disk (until it is wiped), one address after the other, processes that come and go."""

from asyncio import Future
from collections.abc import Callable
from random import Random
from typing import Protocol

from broker.quorum.identity import ListenerEndpoint, ReplicaKey, SocketAddress
from broker.quorum.messages import Request, Response
from protocol.primitives import Uuid
from tests.simulation.quorum.disk import SimulatedDisk
from tests.simulation.quorum.history import Observed
from tests.simulation.quorum.offers import Offered
from tests.simulation.quorum.state_machine import State
from tests.simulation.world import Process

LISTENER = "CONTROLLER"


class Replica(Protocol):
    """A running node: whatever is under test."""

    @property
    def process(self) -> Process: ...

    @property
    def state(self) -> State:
        """What its state machine holds."""
        ...

    def observe(self) -> Observed: ...

    def receive(self, request: Request, answer: Callable[[Response], None]) -> None: ...

    def append(self, frames: list[bytes]) -> None:
        """As the leader that this node believes to be."""
        ...

    def snapshot(self) -> None:
        """Generate one now, if there is anything new."""
        ...

    def imagine(self, random: Random) -> Offered | None:
        """A snapshot at the end of some batch that it has applied, or has at least in its log."""
        ...

    def resign(self) -> None: ...

    def shut_down(self) -> "Future[None]":
        """Leave in order; the process may end when this is done."""
        ...

    def close(self) -> None:
        """What a process does last, after `shut_down`."""
        ...

    def upgrade(self) -> "Future[Response] | None":
        """Ask for kraft.version 1."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether appends or changes of voters are pending."""
        ...


class Node:
    """Implements Subject. `replica` is None while the node is down."""

    def __init__(self, node_id: int, *, can_vote: bool, disk: SimulatedDisk, rate: float, wall_offset_ms: int) -> None:
        self.id = node_id
        self.can_vote = can_vote
        self.disk = disk
        self.rate = rate
        self.wall_offset_ms = wall_offset_ms
        self.lives = 1
        """Disks so far."""
        self.starts = 0
        self.moves = 0
        """Changes of address so far."""
        self.replica: Replica | None = None
        self.is_leaving = False
        """Shutting down in order."""
        self.key = ReplicaKey(node_id, directory_id_of(node_id, self.lives))

    @property
    def endpoint(self) -> SocketAddress:
        """Where it listens now, or will when it is up."""
        return SocketAddress(f"node-{self.id}", 9000 + self.moves)

    @property
    def listeners(self) -> tuple[ListenerEndpoint, ...]:
        return (ListenerEndpoint(LISTENER, *self.endpoint),) if self.can_vote else ()

    @property
    def bootstrap(self) -> SocketAddress:
        """A name that always leads to it."""
        return SocketAddress(f"node-{self.id}", 1)

    @property
    def endpoints(self) -> tuple[SocketAddress, SocketAddress]:
        """Wherever requests reach it."""
        return self.endpoint, self.bootstrap

    @property
    def is_up(self) -> bool:
        return self.replica is not None

    def lose_disk(self, disk: SimulatedDisk) -> None:
        """A new disk in the place of the old one; the directory is another."""
        self.lives += 1
        self.disk = disk
        self.key = ReplicaKey(self.id, directory_id_of(self.id, self.lives))


def directory_id_of(node_id: int, life: int) -> Uuid:
    return Uuid(Random(f"directory {node_id} {life}").randbytes(16))
