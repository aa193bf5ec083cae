"""Plain values shared by all parts of the quorum: replica keys, addresses, epochs and log positions."""

from typing import Final, NamedTuple

from protocol.ids import BrokerId, LeaderEpoch, Offset
from protocol.primitives import ZERO_UUID, Uuid

NO_NODE: Final = BrokerId(-1)
NO_EPOCH: Final = LeaderEpoch(-1)


class ReplicaKey(NamedTuple):
    """A replica of the metadata log: a node and the directory that holds its log (KIP-853).

    The zero id is an unknown directory (static voters, old request versions) and matches any directory.
    """

    id: BrokerId
    directory_id: Uuid = ZERO_UUID

    def matches(self, other: "ReplicaKey") -> bool:
        """Whether both keys may name the same replica."""
        return self.id == other.id and (
            self.directory_id == other.directory_id or ZERO_UUID in (self.directory_id, other.directory_id)
        )


class SocketAddress(NamedTuple):
    """A host and port to connect to."""

    host: str
    port: int


class ListenerEndpoint(NamedTuple):
    """A named controller listener of a node."""

    name: str
    host: str
    port: int

    @property
    def endpoint(self) -> SocketAddress:
        return SocketAddress(self.host, self.port)


Listeners = tuple[ListenerEndpoint, ...]


class KRaftVersions(NamedTuple):
    """The kraft.version range that a node supports."""

    minimum: int = 0
    maximum: int = 1

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.minimum <= version <= self.maximum


class LeaderAndEpoch(NamedTuple):
    """An epoch and its leader; None if the leader is unknown."""

    leader_id: BrokerId | None
    epoch: LeaderEpoch


class LogPosition(NamedTuple):
    """The end of a log: the epoch of its last record and its end offset. Ordered by epoch, then by offset."""

    epoch: LeaderEpoch
    end_offset: Offset


class SnapshotId(NamedTuple):
    """A snapshot of all records below `end_offset`, the last of which has `epoch` (KIP-630)."""

    end_offset: Offset
    epoch: LeaderEpoch

    @property
    def position(self) -> LogPosition:
        """The id for comparison: by epoch, then by offset."""
        return LogPosition(self.epoch, self.end_offset)


class Instant(NamedTuple):
    """A moment on both clocks: the monotonic clock for timers, the wall clock for record timestamps and reports."""

    monotonic_ms: float
    wall_ms: int
