"""A node across restarts: its disk (until it is wiped), its addresses, and its processes."""

from asyncio import Future
from collections.abc import Callable
from random import Random
from typing import Protocol

from broker.quorum.identity import KRaftVersions, ListenerEndpoint, ReplicaKey, SocketAddress
from broker.quorum.messages import Request, Response
from protocol.ids import BrokerId
from protocol.primitives import Uuid
from tests.simulation.quorum.disk import SimulatedDisk
from tests.simulation.quorum.history import Observed
from tests.simulation.quorum.offers import Offered
from tests.simulation.quorum.state_machine import State
from tests.simulation.world import Process

LISTENER = "CONTROLLER"


class Replica(Protocol):
    """A running node: the system under test."""

    @property
    def process(self) -> Process: ...

    @property
    def state(self) -> State:
        """The state of its state machine."""
        ...

    def observe(self) -> Observed: ...

    def receive(self, request: Request, answer: Callable[[Response], None]) -> None: ...

    def append(self, frames: list[bytes]) -> None:
        """Append in the epoch in which this node believes to be leader."""
        ...

    def snapshot(self) -> None:
        """Generate a snapshot now, if there is a new one."""
        ...

    def imagine(self, random: Random) -> Offered | None:
        """Return a snapshot at the end of some batch that the node has applied, or has at least in its log."""
        ...

    def resign(self) -> None: ...

    def stall_disk(self, until_ms: float) -> None:
        """Let the disk complete nothing until a moment of true time."""
        ...

    def shut_down(self) -> "Future[None]":
        """Shut down gracefully; the process may end when this is done."""
        ...

    def close(self) -> None:
        """Close the node after `shut_down`."""
        ...

    def upgrade(self) -> "Future[Response] | None":
        """Request kraft.version 1."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether appends or voter changes are pending."""
        ...


class Node:
    """A node. Implements Subject. `replica` is None while the node is down."""

    def __init__(self, node_id: int, *, can_vote: bool, disk: SimulatedDisk, rate: float, wall_offset_ms: int) -> None:
        self.id = node_id
        self.can_vote = can_vote
        self.disk = disk
        self.rate = rate
        self.wall_offset_ms = wall_offset_ms
        self.lives = 1
        """Number of disks so far."""
        self.starts = 0
        self.moves = 0
        """Number of address changes so far."""
        self.replica: Replica | None = None
        self.is_leaving = False
        """Whether a graceful shutdown is in progress."""
        self.rotten_bytes = 0
        """Number of rotten bytes on the disk."""
        self.has_rotten_log = False
        """Whether a record rots that was synced, so that the node must not start."""
        self.is_dead = False
        """Whether the node stays down until it is revived."""
        self.key = ReplicaKey(BrokerId(node_id), directory_id_of(node_id, self.lives))

    @property
    def endpoint(self) -> SocketAddress:
        """Return the present address, or the next one while the node is down."""
        return SocketAddress(f"node-{self.id}", 9000 + self.moves)

    @property
    def listeners(self) -> tuple[ListenerEndpoint, ...]:
        return (ListenerEndpoint(LISTENER, *self.endpoint),) if self.can_vote else ()

    @property
    def bootstrap(self) -> SocketAddress:
        """Return a name that always resolves to the node."""
        return SocketAddress(f"node-{self.id}", 1)

    @property
    def endpoints(self) -> tuple[SocketAddress, SocketAddress]:
        """Return all addresses at which requests reach the node."""
        return self.endpoint, self.bootstrap

    @property
    def monotonic_ms(self) -> float:
        """Return the time by the monotonic clock of the running process; 0 while the node is down."""
        return 0.0 if self.replica is None else self.replica.process.monotonic_ms()

    @property
    def versions(self) -> KRaftVersions:
        """Return a range of supported versions that no other node has, so that ranges cannot be confused unseen."""
        return KRaftVersions(0, self.id)

    @property
    def is_up(self) -> bool:
        return self.replica is not None

    def lose_disk(self, disk: SimulatedDisk) -> None:
        """Replace the disk by an empty one with another directory id."""
        self.lives += 1
        self.rotten_bytes = 0
        self.has_rotten_log = False
        self.disk = disk
        self.key = ReplicaKey(BrokerId(self.id), directory_id_of(self.id, self.lives))


def directory_id_of(node_id: int, life: int) -> Uuid:
    return Uuid(Random(f"directory {node_id} {life}").randbytes(16))
