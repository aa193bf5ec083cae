"""What a history of a tiered partition is made of: brokers, who leads, what was written, what is to be told."""

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
"""Some three batches."""
RECORDS: Final = 5
"""In a batch."""
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
    """A broker, its connection to the store, and what reads from there for its consumers."""

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
        """Its threads are gone; the rest of it follows soon."""
        self.is_dying = True
        self.broker.copy_pool.is_dead = self.broker.pool.is_dead = True


@dataclass(slots=True)
class State:
    """Of a history. `written` has what leaders wrote, by epoch and offset; `written_off` what a leader whose history it
    was not has deleted remotely.

    `gone_below` is the highest start that any log had; `trimmed_to` what was deleted on demand. `may_be_told_late`: a
    replica has led that may not have heard where the log begins.
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
    may_be_told_late: bool = False
    counts: RemoteStorageCounts = field(default_factory=RemoteStorageCounts)
    actions: int = 0
    found: Violation | None = None
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    @property
    def events(self) -> int:
        """What happened so far: what befell the cluster, what the store was asked, what metadata tell."""
        return self.actions + len(self.weather.memory.calls) + len(self.bucket.metadata.events)

    @property
    def readable(self) -> range:
        """The offsets that consumers are promised, of the leader's log."""
        assert self.leader is not None
        log = self.leader.log
        first = log.log_start_offset
        if self.may_be_told_late:
            first = min(max(first, self.gone_below), log.local_log_start_offset)
        return range(first, log.high_watermark)

    def note(self, what: str) -> None:
        self.lines.append(f"{asyncio.get_running_loop().time() - 1000:8.2f} {what}")

    def violated(self, invariant: str, text: str) -> NoReturn:
        """The first counts, wherever it is raised."""
        self.found = self.found or Violation(invariant, text)
        raise self.found
