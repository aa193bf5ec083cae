"""The fetch state of one follower replica: its next position, and what keeps it from being fetched.

    FETCHING ----> TRUNCATING    the logs diverge: records are being removed
       |    \
       |     ---> OUT_OF_RANGE  the leader's log bounds are being looked up; may end in a truncation
       |----> BUILDING          the next records are in remote storage only: auxiliary state is being built (KIP-405)
       |----> DELAYED           the leader cannot serve the replica now: back off
       |----> THROTTLED         the replication quota is exceeded
        ----> FAILED            nothing more until the metadata names a new leader epoch

All but FAILED lead back to FETCHING. GONE: the replica is no longer followed, or has a new fetch state; work on its
behalf is void.
"""

from enum import Enum
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from broker.replication.epochs import EpochEnd
from protocol.ids import LeaderEpoch
from protocol.primitives import Uuid

UNKNOWN_LAG: Final = -1

PartitionKey = tuple[Uuid, int]
"""Topic id and partition index; a topic that is deleted and created again has another id."""


class FetchPosition(NamedTuple):
    """The position of a replica's next fetch: its log end, the epoch of its last record (-1: none), its log start."""

    offset: int
    last_epoch: LeaderEpoch
    log_start_offset: int


class FetchedReplica(Protocol):
    """A replica as the fetch rules see it; the driver changes its log."""

    @property
    def topic(self) -> str: ...

    @property
    def topic_id(self) -> Uuid: ...

    @property
    def index(self) -> int: ...

    @property
    def leader_epoch(self) -> LeaderEpoch: ...

    def fetch_position(self) -> FetchPosition: ...

    @property
    def local_start_offset(self) -> int:
        """The start of the local log; records from the log start offset up to there are in remote storage only."""
        ...

    def end_for_epoch(self, epoch: LeaderEpoch) -> EpochEnd:
        """Return the end, in this replica's log, of an epoch or of the greatest epoch below."""
        ...


class FetchPhase(Enum):
    """See the module."""

    FETCHING = "fetching"
    TRUNCATING = "truncating"
    OUT_OF_RANGE = "out of range"
    BUILDING = "building"
    DELAYED = "delayed"
    THROTTLED = "throttled"
    FAILED = "failed"
    GONE = "gone"


NEXT: Final = {
    FetchPhase.FETCHING: {
        FetchPhase.TRUNCATING,
        FetchPhase.OUT_OF_RANGE,
        FetchPhase.BUILDING,
        FetchPhase.DELAYED,
        FetchPhase.THROTTLED,
        FetchPhase.FAILED,
        FetchPhase.GONE,
    },
    FetchPhase.TRUNCATING: {FetchPhase.FETCHING, FetchPhase.DELAYED, FetchPhase.FAILED, FetchPhase.GONE},
    FetchPhase.OUT_OF_RANGE: {
        FetchPhase.FETCHING,
        FetchPhase.TRUNCATING,
        FetchPhase.BUILDING,
        FetchPhase.DELAYED,
        FetchPhase.FAILED,
        FetchPhase.GONE,
    },
    FetchPhase.BUILDING: {
        FetchPhase.FETCHING,
        FetchPhase.TRUNCATING,
        FetchPhase.DELAYED,
        FetchPhase.FAILED,
        FetchPhase.GONE,
    },
    FetchPhase.DELAYED: {FetchPhase.FETCHING, FetchPhase.GONE},
    FetchPhase.THROTTLED: {FetchPhase.FETCHING, FetchPhase.GONE},
    FetchPhase.FAILED: {FetchPhase.GONE},
    FetchPhase.GONE: set[FetchPhase](),
}

P = TypeVar("P", bound=FetchedReplica)


class PartitionFetchState(Generic[P]):
    """The fetch state of one replica in one leader epoch.

    `requested` is the position in the last request: the very object `position` while the replica has not moved since,
    None if no request named the replica. `is_in_session`: the leader's fetch session has the partition. `lag` is in
    records, behind the leader's high watermark. `failures` counts failures in a row, `builds` the builds of auxiliary
    state since the leader last served the replica.
    """

    __slots__ = (
        "builds",
        "due_ms",
        "failures",
        "is_in_session",
        "is_in_sessionless_fetch",
        "is_quota_bound",
        "key",
        "lag",
        "leader_epoch",
        "partition",
        "phase",
        "position",
        "requested",
    )

    def __init__(self, partition: P, key: PartitionKey, leader_epoch: LeaderEpoch, position: FetchPosition) -> None:
        self.partition = partition
        self.key = key
        self.leader_epoch = leader_epoch
        self.position = position
        self.phase = FetchPhase.FETCHING
        self.requested: FetchPosition | None = None
        self.is_in_session = False
        self.is_in_sessionless_fetch = False
        self.lag = UNKNOWN_LAG
        self.failures = 0
        self.builds = 0
        self.due_ms = 0
        self.is_quota_bound = False

    @property
    def awaits_answer(self) -> bool:
        """Whether the leader's answer counts: the last request named the present position."""
        return self.phase is FetchPhase.FETCHING and self.requested is self.position

    def transition(self, phase: FetchPhase) -> None:
        """Change the phase, as `NEXT` allows."""
        assert phase in NEXT[self.phase], f"{self.partition.topic}-{self.partition.index}: {self.phase} to {phase}"
        self.phase = phase

    def refresh(self) -> bool:
        """Read the replica's present position; return whether the position has changed."""
        position = self.partition.fetch_position()
        if position == self.position:
            return False
        self.position = position
        return True
