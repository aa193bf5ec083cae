"""Who is who in a quorum, and where they are in the log: plain values that every part of the quorum shares."""

from typing import Final, NamedTuple

from protocol.primitives import ZERO_UUID, Uuid

NO_NODE: Final = -1


class ReplicaKey(NamedTuple):
    """A replica of the metadata log: a node and the directory that holds its log (KIP-853).

    The zero id stands for a directory that is not known (static voters, old senders) and matches any.
    """

    id: int
    directory_id: Uuid = ZERO_UUID

    def matches(self, other: "ReplicaKey") -> bool:
        """Whether both may be the same replica."""
        return self.id == other.id and (
            self.directory_id == other.directory_id or ZERO_UUID in (self.directory_id, other.directory_id)
        )


class SocketAddress(NamedTuple):
    """Where something listens."""

    host: str
    port: int


class ListenerEndpoint(NamedTuple):
    """A controller listener of a node."""

    name: str
    host: str
    port: int

    @property
    def endpoint(self) -> SocketAddress:
        return SocketAddress(self.host, self.port)


Listeners = tuple[ListenerEndpoint, ...]


class KRaftVersions(NamedTuple):
    """The range of kraft.version that a node supports."""

    minimum: int = 0
    maximum: int = 1

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.minimum <= version <= self.maximum


class LeaderAndEpoch(NamedTuple):
    """Who leads in an epoch; None if that is not known."""

    leader_id: int | None
    epoch: int


class LogPosition(NamedTuple):
    """The end of a log: the epoch of its last record and the offset after it. Later epoch wins, then later offset."""

    epoch: int
    end_offset: int


class SnapshotId(NamedTuple):
    """What a snapshot stands for: all records below `end_offset`, the last of which has `epoch` (KIP-630)."""

    end_offset: int
    epoch: int

    @property
    def position(self) -> LogPosition:
        """For comparison: ids order by epoch, then by offset."""
        return LogPosition(self.epoch, self.end_offset)


class Instant(NamedTuple):
    """A moment on both clocks: the one that never goes back, for timers, and the wall's, for what people read."""

    monotonic_ms: float
    wall_ms: int
