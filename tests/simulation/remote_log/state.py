"""The state of a history of a tiered partition: brokers, leader, written records, and its lines."""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Final, NoReturn

from storage.config import LogConfig
from storage.log import Log
from storage.tiered.segment_metadata import TopicIdPartition
from storage.tiered.segments.reading import SegmentReader
from tests.simulation.remote_log.store import NAMES, Connection, Weather
from tests.simulation.simulator import Counts, Violation
from tests.support.harnesses.remote_log_harness import TOPIC, TOPIC_ID, Broker, Bucket

PARTITION: Final = TopicIdPartition(TOPIC_ID, TOPIC, 0)
SEGMENT_BYTES: Final = 1_000
"""Size of about three batches."""
RECORDS: Final = 5
"""Records per batch."""
_REMEMBERED: Final = 400


class RemoteStorageCounts(Counts):
    """Incidents of a tiered partition and its store."""

    NAMES = (
        "elections",
        "unclean elections",
        "crashes",
        "deaths in the middle of a request",
        "starts from the tier",
        "copies",
        "local deletions",
        "remote deletions",
        "outages",
        *NAMES.values(),
        "remote reads",
        "remote reads that failed",
        "corrupt data noticed",
        "audits",
        "audits that failed",
        "segments collected",
    )


@dataclass(slots=True)
class Server:
    """A broker, its store connection, and the reader of its consumers."""

    broker: Broker
    connection: Connection
    reader: SegmentReader
    is_dying: bool = False

    @property
    def id(self) -> int:
        return self.broker.id

    @property
    def is_up(self) -> bool:
        return self.broker.is_up

    @property
    def log(self) -> Log:
        return self.broker.replica().log

    def die(self) -> None:
        """Stop its threads; the rest of the broker stops soon after."""
        self.is_dying = True
        self.broker.copy_pool.is_dead = self.broker.pool.is_dead = True


@dataclass(slots=True)
class State:
    """State of a history. `written` has the records of leaders by epoch and offset; `written_off` the records that a
    leader of a diverging log deleted remotely.

    `gone_below` is the highest log start offset of any log; `trimmed_to` the highest offset of DeleteRecords.
    `log_start_may_be_unknown`: a replica has led that may not have known the log start offset.
    """

    seed: int
    random: Random
    bucket: Bucket
    weather: Weather
    config: LogConfig
    servers: list[Server] = field(default_factory=list)
    epoch: int = -1
    leader: Server | None = None
    in_sync: set[int] = field(default_factory=set)
    written: dict[tuple[int, int], bytes] = field(default_factory=dict)
    written_off: set[tuple[int, int]] = field(default_factory=set)
    trimmed_to: int = 0
    gone_below: int = 0
    log_start_may_be_unknown: bool = False
    counts: RemoteStorageCounts = field(default_factory=RemoteStorageCounts)
    actions: int = 0
    found: Violation | None = None
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    @property
    def events(self) -> int:
        """Number of events: schedule, store requests and metadata."""
        return self.actions + len(self.weather.memory.calls) + len(self.bucket.metadata.events)

    @property
    def readable(self) -> range:
        """Return the range of the leader's log that consumers can read."""
        assert self.leader is not None
        log = self.leader.log
        first = log.log_start_offset
        if self.log_start_may_be_unknown:
            first = min(max(first, self.gone_below), log.local_log_start_offset)
        return range(first, log.high_watermark)

    def note(self, what: str) -> None:
        self.lines.append(f"{asyncio.get_running_loop().time() - 1000:8.2f} {what}")

    def violated(self, invariant: str, text: str) -> NoReturn:
        """Record a violation; only the first counts."""
        self.found = self.found or Violation(invariant, text)
        raise self.found
