"""One replica that is being kept up with its leader: what is asked for next, and what keeps it from being asked.

    FETCHING ----> TRUNCATING   the logs part: records are being cut
       |    \
       |     ---> SEEKING       out of the leader's range: its bounds are being looked up; may end in a cut
       |----> BUILDING          what it needs is remote: state is being fetched to begin behind that (KIP-405)
       |----> DELAYED           the leader cannot serve it now: for a while
       |----> THROTTLED         it may not take more at the moment
        ----> FAILED            nothing more, until the metadata names a new reign

All but FAILED lead back to FETCHING. GONE: it is followed no longer, or under a new state; what was under way is void.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from broker.replication.epochs import EpochEnd
from protocol.primitives import Uuid

UNKNOWN_LAG: Final = -1

PartitionKey = tuple[Uuid, int]
"""Topic id and index: a topic that is created anew under its old name is another one."""


class FetchPosition(NamedTuple):
    """The position of a replica's next fetch: its log end, the epoch of its last record (-1: none), its log start."""

    offset: int
    last_epoch: int
    log_start_offset: int


class FetchedReplica(Protocol):
    """What the rules of fetching look at. What changes a replica is its driver's to do."""

    @property
    def topic(self) -> str: ...

    @property
    def topic_id(self) -> Uuid: ...

    @property
    def index(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    def fetch_position(self) -> FetchPosition: ...

    @property
    def local_start_offset(self) -> int:
        """Where its own disk begins. From the log's start up to there, records are in remote storage alone."""
        ...

    def end_for_epoch(self, epoch: int) -> EpochEnd:
        """Where an epoch, or the greatest below it, ends in this replica's own log."""
        ...


class FetchPhase(Enum):
    """What is going on."""

    FETCHING = "fetching"
    TRUNCATING = "truncating"
    SEEKING = "seeking"
    BUILDING = "building"
    DELAYED = "delayed"
    THROTTLED = "throttled"
    FAILED = "failed"
    GONE = "gone"


NEXT: Final = {
    FetchPhase.FETCHING: {
        FetchPhase.TRUNCATING,
        FetchPhase.SEEKING,
        FetchPhase.BUILDING,
        FetchPhase.DELAYED,
        FetchPhase.THROTTLED,
        FetchPhase.FAILED,
        FetchPhase.GONE,
    },
    FetchPhase.TRUNCATING: {FetchPhase.FETCHING, FetchPhase.DELAYED, FetchPhase.FAILED, FetchPhase.GONE},
    FetchPhase.SEEKING: {
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


@dataclass(slots=True, eq=False)
class PartitionFetchState(Generic[P]):
    """The state of one replica in one reign of its leader.

    `told` is the position that the leader answers to: the very object `position` while nothing has changed since, None
    if the leader was not told. `is_listed`: the leader's session has the partition. `lag` is in records, behind the
    leader's high watermark. `failures` counts those in a row, `builds` how often it began anew behind what is remote
    since the leader last served it.
    """

    partition: P
    key: PartitionKey
    leader_epoch: int
    position: FetchPosition
    phase: FetchPhase = FetchPhase.FETCHING
    told: FetchPosition | None = None
    is_listed: bool = False
    is_express: bool = False
    lag: int = UNKNOWN_LAG
    failures: int = 0
    builds: int = 0
    due_ms: int = 0
    is_quota_bound: bool = False

    @property
    def awaits_answer(self) -> bool:
        """Whether what the leader says counts: it was asked for what is wanted now."""
        return self.phase is FetchPhase.FETCHING and self.told is self.position

    def move(self, phase: FetchPhase) -> None:
        """Change the phase, as the table allows."""
        assert phase in NEXT[self.phase], f"{self.partition.topic}-{self.partition.index}: {self.phase} to {phase}"
        self.phase = phase

    def refresh(self) -> bool:
        """Look where the replica stands now; whether that is elsewhere."""
        position = self.partition.fetch_position()
        if position == self.position:
            return False
        self.position = position
        return True
