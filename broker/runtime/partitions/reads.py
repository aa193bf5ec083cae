"""Reads of one partition and their results: plain data between Fetch, its sessions and the partitions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from broker.replication.epochs import UNKNOWN_EPOCH, EpochEnd
from broker.replication.leader import NEVER_MS
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import ZERO_UUID, Buffer, Uuid
from storage.local_log import LogSlice
from storage.log_snapshots import CheckpointId

UNKNOWN = -1
NO_REPLICA = BrokerId(-1)

# The key of a partition within one reader's set: topic id (Fetch 13 and later) or topic name, and index.
TargetKey = tuple[str | Uuid, int]


class FetchIsolation(Enum):
    """The offset below which a reader may read (Kafka's FetchIsolation)."""

    LOG_END = "log end"  # followers, and readers that debug
    HIGH_WATERMARK = "high watermark"  # read_uncommitted
    LAST_STABLE = "last stable offset"  # read_committed


@dataclass(slots=True, eq=False)
class SessionContact:
    """The time of a session's last request, in ms of the monotonic clock; shared by all targets of the session.

    `recall` ends the rest of a target.
    """

    last_ms: int
    recall: "Callable[[FetchTarget], None]"


@dataclass(slots=True, eq=False)
class FetchTarget:
    """One partition of a reader's fetch, with the reader's position. Compared by identity.

    `current_leader_epoch` and `last_fetched_epoch` are -1 where the request lacks them. `log_start_offset` is the
    follower's own. `sent_…` are the values in the last answer, for incremental sessions.

    Implements FollowerContact: while the target rests, every request of its session counts as contact.
    """

    topic: str
    topic_id: Uuid
    index: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: LeaderEpoch = UNKNOWN_EPOCH
    last_fetched_epoch: LeaderEpoch = UNKNOWN_EPOCH
    log_start_offset: int = UNKNOWN
    sent_high_watermark: int = UNKNOWN
    sent_log_start_offset: int = UNKNOWN
    order: int = 0
    session: SessionContact | None = None
    """The session in which the target rests; None while it is due."""
    rested_until_ms: int = NEVER_MS

    def begin_rest(self, session: SessionContact) -> None:
        """Count the requests of a session from now on."""
        self.session = session

    def end_rest(self) -> None:
        """Count requests no more: the next one reads the target."""
        if self.session is not None:
            self.rested_until_ms, self.session = self.session.last_ms, None

    def recall(self) -> None:
        """Report the position again with the session's next request."""
        if self.session is not None:
            self.session.recall(self)

    @property
    def last_contact_ms(self) -> int:
        return self.rested_until_ms if self.session is None else self.session.last_ms

    @property
    def key(self) -> TargetKey:
        return (self.topic if self.topic_id == ZERO_UUID else self.topic_id, self.index)

    def adopt(self, newer: "FetchTarget") -> None:
        """Take the position of a later request for the same partition."""
        self.fetch_offset = newer.fetch_offset
        self.max_bytes = newer.max_bytes
        self.current_leader_epoch = newer.current_leader_epoch
        self.last_fetched_epoch = newer.last_fetched_epoch
        self.log_start_offset = newer.log_start_offset


@dataclass(slots=True)
class LogReadResult:
    """The answer to a read. With an error, the offsets stay -1 and there are no records.

    `aborted` is None unless the isolation is LAST_STABLE. `is_idle`: there is no news until the partition changes.
    `is_cut_by_segment`: more records are readable, but in a later segment, so waiting would be in vain. `cold`: the
    records are not in memory; the log must warm this slice on the IO thread before they are sent. `snapshot_id`: the
    snapshot that replaces deleted records, where there is one (KIP-630).
    """

    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = UNKNOWN
    last_stable_offset: int = UNKNOWN
    log_start_offset: int = UNKNOWN
    records: Buffer = b""
    size_bytes: int = 0
    aborted: Sequence[tuple[int, int]] | None = None
    diverging: EpochEnd | None = None
    preferred_read_replica: BrokerId = NO_REPLICA
    is_idle: bool = False
    is_cut_by_segment: bool = False
    cold: LogSlice | None = None
    snapshot_id: CheckpointId | None = None

    @property
    def is_urgent(self) -> bool:
        """Whether the answer must be sent at once, however little data there is."""
        return (
            self.error is not ErrorCode.NONE
            or self.diverging is not None
            or self.preferred_read_replica != UNKNOWN
            or self.is_cut_by_segment
        )
