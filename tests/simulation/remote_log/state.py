"""The state of a history of a tiered partition: brokers, leader, written records, and its lines."""

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple, NoReturn

from broker.runtime.remote_log.settings import RemoteLogSettings
from storage.config import LogConfig
from storage.log import Log
from storage.tiered.catalog.lineage import epoch_ranges
from storage.tiered.segment_metadata import RemoteSegment
from storage.tiered.segments.reading import SegmentReader
from tests.simulation.remote_log.metadata import BrokerMetadata
from tests.simulation.remote_log.store import NAMES, Connection, Weather
from tests.simulation.remote_log.uplink import PausingPool, Uplink
from tests.simulation.simulator import Counts, Violation
from tests.support.fakes.memory_files import MemoryFileSystem, _FileNode
from tests.support.harnesses.remote_log_harness import Broker, Bucket, HarnessReplica, LoopClock

CLUSTER_ID: Final = "cluster"
SEGMENT_BYTES: Final = 1_000
"""Size of about three batches."""
RECORDS: Final = 5
"""Records per batch."""
TASK_INTERVAL_MS: Final = 60_000
_REMEMBERED: Final = 400


class RemoteStorageCounts(Counts):
    """Incidents of a tiered partition and its store."""

    NAMES = (
        "elections",
        "unclean elections",
        "leaders cut off",
        "zombie hours",
        "crashes",
        "power losses",
        "deaths in the middle of a request",
        "brokers dead for good",
        "starts from the tier",
        "clock steps",
        "copies",
        "slow copies",
        "local deletions",
        "remote deletions",
        "rotten bytes on disks",
        "logs cut at rotten bytes",
        "rotten bytes in the store",
        "outages",
        "copy lags during an outage",
        "late PUTs",
        "log starts unreadable",
        "full disks",
        "disk stalls",
        "metadata losses",
        "rival histories without metadata",
        "collections after metadata losses",
        "metadata recoveries",
        *NAMES.values(),
        "remote reads",
        "remote reads that failed",
        "corrupt data noticed",
        "audits",
        "audits that failed",
        "segments collected",
    )


def records_of(segment: RemoteSegment) -> set[tuple[int, int]]:
    """Return the records of a segment by leader epoch and offset."""
    return {(epoch, offset) for epoch, first, last in epoch_ranges(segment) for offset in range(first, last + 1)}


class SteppedClock(LoopClock):
    """A broker's clock: its wall clock is off by `offset_ms`, which steps."""

    def __init__(self) -> None:
        self.offset_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.offset_ms


class Rot(NamedTuple):
    """A flipped byte in a closed segment on a disk."""

    path: str
    node: _FileNode
    prefix: bytes
    """The content of the file up to and with the wrong byte."""
    offsets: range

    def is_deleted(self, fs: MemoryFileSystem) -> bool:
        """Whether the file is gone, possibly until a power loss undoes its deletion."""
        return fs._find(self.path) is not self.node

    def is_there(self, fs: MemoryFileSystem) -> bool:
        """Whether the file still has the wrong byte."""
        return not self.is_deleted(fs) and self.node.content.startswith(self.prefix)

    def mend(self) -> None:
        """Flip the bit back."""
        self.node.content[len(self.prefix) - 1] ^= 1


@dataclass(slots=True, eq=False)
class Server:
    """A broker, its store connection, and the reader of its consumers."""

    broker: Broker
    connection: Connection
    clock: SteppedClock
    reader: SegmentReader = field(init=False)
    uplink: Uplink = field(init=False)
    copy_pool: PausingPool = field(init=False)
    is_dying: bool = False
    cut_off_until_s: float | None = None
    """End of the isolation from the controllers, if there is one."""
    cut_off_since_s: float = 0.0
    started_s: float = 0.0
    rotten: list[Rot] = field(default_factory=list)

    @property
    def id(self) -> int:
        return self.broker.id

    @property
    def is_up(self) -> bool:
        return self.broker.is_up

    @property
    def is_reachable(self) -> bool:
        """Whether the controllers see the broker."""
        return self.is_up and self.cut_off_until_s is None

    @property
    def replica(self) -> HarnessReplica:
        return self.broker.replica()

    @property
    def log(self) -> Log:
        return self.broker.replica().log

    def die(self) -> None:
        """Stop its threads; the rest of the broker stops soon after."""
        self.is_dying = True
        metadata = self.broker.metadata
        assert isinstance(metadata, BrokerMetadata)
        metadata.is_dead = True
        self.copy_pool.is_dead = self.broker.pool.is_dead = True

    @property
    def has_disk(self) -> bool:
        """Whether the log directory is online."""
        return all(directory.is_online for directory in self.broker.dirs.directories)

    def present_rot(self) -> list[Rot]:
        """Return the wrong bytes that the disk still has."""
        fs = self.broker.fs
        self.rotten = [rot for rot in self.rotten if rot.is_deleted(fs) or rot.is_there(fs)]
        return [rot for rot in self.rotten if rot.is_there(fs)]

    def is_rotten_at(self, offset: int) -> bool:
        return any(offset in rot.offsets and rot.is_there(self.broker.fs) for rot in self.rotten)


@dataclass(slots=True)
class State:
    """State of a history. `written` has the records of leaders by epoch and offset; `written_off` the records that a
    leader of a diverging log deleted remotely.

    `gone_below` is the highest log start offset of any log; `trimmed_to` the highest offset of
    DeleteRecords, at `trimmed_s`.
    `log_start_may_be_unknown`: a replica leads that may not know the log start offset. `unrecorded` are segments
    without metadata, which an operator can recover.
    """

    seed: int
    random: Random
    bucket: Bucket
    weather: Weather
    config: LogConfig
    settings: RemoteLogSettings
    servers: list[Server] = field(default_factory=list)
    epoch: int = -1
    leader: Server | None = None
    in_sync: set[int] = field(default_factory=set)
    written: dict[tuple[int, int], bytes] = field(default_factory=dict)
    written_off: set[tuple[int, int]] = field(default_factory=set)
    deleted: set[tuple[int, int]] = field(default_factory=set)
    """Records, by epoch and offset, of finished segments that brokers have begun to delete."""
    trimmed_to: int = 0
    trimmed_s: float = 0.0
    gone_below: int = 0
    log_start_may_be_unknown: bool = False
    unrecorded: list[RemoteSegment] = field(default_factory=list)
    is_recovered: bool = False
    """Whether an operator has recovered all metadata, after the last fault."""
    has_clock_steps: bool = False
    zombie_s: float = 0.0
    counts: RemoteStorageCounts = field(default_factory=RemoteStorageCounts)
    actions: int = 0
    found: Violation | None = None
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    @property
    def grace_s(self) -> float:
        return self.settings.grace_ms / 1000

    @property
    def events(self) -> int:
        """Number of events: schedule, store requests and metadata."""
        return self.actions + len(self.weather.memory.calls) + len(self.bucket.metadata.events)

    @property
    def alive(self) -> list[Server]:
        return [server for server in self.servers if server.broker.is_up]

    @property
    def reachable(self) -> list[Server]:
        return [server for server in self.servers if server.broker.is_up and server.cut_off_until_s is None]

    @property
    def followers(self) -> list[Server]:
        leader = self.leader
        return [
            server
            for server in self.servers
            if server is not leader and server.broker.is_up and server.cut_off_until_s is None
        ]

    @property
    def zombies(self) -> Iterator[Server]:
        """Yield the brokers that are cut off from the controllers."""
        return (server for server in self.alive if not server.is_reachable)

    @property
    def readable(self) -> range:
        """Return the range of the leader's log that consumers can read."""
        assert self.leader is not None
        log = self.leader.log
        first = log.log_start_offset
        if self.log_start_may_be_unknown:
            first = min(max(first, self.gone_below), log.local_log_start_offset)
            self.log_start_may_be_unknown = log.log_start_offset < self.gone_below
        return range(first, log.high_watermark)

    def server(self, broker_id: int) -> Server:
        return self.servers[broker_id - 1]

    def note(self, what: str) -> None:
        self.lines.append(f"{asyncio.get_running_loop().time() - 1000:8.2f} {what}")

    def violated(self, invariant: str, text: str) -> NoReturn:
        """Record a violation; only the first counts."""
        self.found = self.found or Violation(invariant, text)
        raise self.found
