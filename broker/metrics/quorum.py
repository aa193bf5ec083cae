"""Metrics of the metadata log's replica, under the names of Kafka's raft-metrics (KIP-595, KIP-853)."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from broker.metrics.family import Family, Sample, counter, gauge
from protocol.ids import BrokerId, LeaderEpoch

_RAFT = "kafka_server_raftmetrics_"
RATE_WINDOW_MS = 30_000.0
"""Kafka's `metrics.sample.window.ms`."""


class QuorumFigures(NamedTuple):
    """A replica at one moment; -1 means unknown or none.

    `state` is one of Kafka's, see `kafka_state`. Only the leader knows `voters`, `observers` and `is_changing_voters`.
    """

    state: str
    leader_id: BrokerId
    epoch: LeaderEpoch
    voted_id: int
    high_watermark: int
    log_end_offset: int
    log_end_epoch: LeaderEpoch
    ignores_static_voters: bool
    voters: int = -1
    observers: int = -1
    is_changing_voters: bool = False


def kafka_state(role: str, *, has_leader: bool, has_voted: bool) -> str:
    """Return Kafka's name of a role: leader, candidate, prospective, follower, observer or unattached.

    A replica that has resigned, or an observer without a leader, is unattached. A vote is appended to the name of the
    roles that may have one: prospective-voted, unattached-voted.
    """
    if role == "resigned" or (role == "observer" and not has_leader):
        role = "unattached"
    return f"{role}-voted" if has_voted and role in ("prospective", "unattached") else role


class RecentRate:
    """The rate of a counter per second, over the last one to two windows, or since the last look if that is longer."""

    def __init__(self, count: Callable[[], float], monotonic_ms: Callable[[], float]) -> None:
        self._count = count
        self._monotonic_ms = monotonic_ms
        self._earlier = self._latest = (monotonic_ms(), count())

    def read(self) -> float:
        """Return the rate; begin a new window if the current one has passed."""
        now_ms, count = self._monotonic_ms(), self._count()
        since_ms, before = self._earlier
        if now_ms - self._latest[0] >= RATE_WINDOW_MS:
            self._earlier, self._latest = self._latest, (now_ms, count)
        return 1000 * (count - before) / (now_ms - since_ms) if now_ms > since_ms else 0.0


class Durations(Protocol):
    """Durations in ms since the start."""

    count: int
    total_ms: float

    def take_max(self) -> float:
        """Return the longest duration since the last call."""
        ...


class QuorumCounts(Protocol):
    """Counts of a replica; see `broker.runtime.quorum.metrics.QuorumMetrics`."""

    appended_records: int
    fetched_records: int
    fetched_snapshots: int
    imported_snapshots: int

    busy_ms: float

    @property
    def commit(self) -> Durations: ...

    @property
    def election(self) -> Durations: ...


def quorum_families(
    figures: Callable[[], QuorumFigures], counts: QuorumCounts, monotonic_ms: Callable[[], float]
) -> list[Family]:
    """Return all families of a replica."""
    appends = RecentRate(lambda: counts.appended_records, monotonic_ms)
    fetches = RecentRate(lambda: counts.fetched_records, monotonic_ms)
    busy = RecentRate(lambda: counts.busy_ms / 1000, monotonic_ms)
    return [
        gauge(f"{_RAFT}append_records_rate", "Records appended as leader per second", appends.read),
        gauge(f"{_RAFT}fetch_records_rate", "Records fetched from leaders per second", fetches.read),
        gauge(
            f"{_RAFT}poll_idle_ratio_avg",
            "Part of the time in which the replica has nothing to do",
            lambda: max(0.0, 1.0 - busy.read()),
        ),
        gauge(
            f"{_RAFT}number_unknown_voter_connections",
            "Voters whose address is unknown; 0, as in Kafka: voters are configured or recorded with their addresses",
            lambda: 0,
        ),
        Family(_RAFT.rstrip("_"), "1 for the state that the replica is in", "gauge", lambda: _state(figures())),
        gauge(f"{_RAFT}current_leader", "Id of the leader; -1 if unknown", lambda: figures().leader_id),
        gauge(f"{_RAFT}current_epoch", "The epoch of the quorum", lambda: figures().epoch),
        gauge(
            f"{_RAFT}current_vote",
            "Id of the candidate that this node voted for in the epoch; -1 if none",
            lambda: figures().voted_id,
        ),
        gauge(f"{_RAFT}high_watermark", "The high watermark", lambda: figures().high_watermark),
        gauge(f"{_RAFT}log_end_offset", "The end of the log", lambda: figures().log_end_offset),
        gauge(f"{_RAFT}log_end_epoch", "The epoch of the last record", lambda: figures().log_end_epoch),
        gauge(f"{_RAFT}number_of_voters", "Voters, on the leader; else -1", lambda: figures().voters),
        gauge(f"{_RAFT}number_of_observers", "Observers, on the leader; else -1", lambda: figures().observers),
        gauge(
            f"{_RAFT}uncommitted_voter_change",
            "1 while a change of the voters is not committed, on the leader",
            lambda: int(figures().is_changing_voters),
        ),
        gauge(
            f"{_RAFT}ignored_static_voters",
            "1 if voters are configured, and others or the same are in the log and count",
            lambda: int(figures().ignores_static_voters),
        ),
        *_latency("commit_latency", "Time from an append to its commit in ms", counts.commit),
        *_latency("election_latency", "Time from becoming a candidate to a known leader in ms", counts.election),
        counter(
            f"{_RAFT}append_records_total", "Records that this node appended as leader", lambda: counts.appended_records
        ),
        counter(f"{_RAFT}fetch_records_total", "Records fetched from leaders", lambda: counts.fetched_records),
        Family(
            "ottla_metadata_snapshots_received_total",
            "Snapshots that replaced the log, by source",
            "counter",
            lambda: [
                Sample(counts.fetched_snapshots, {"source": "leader"}),
                Sample(counts.imported_snapshots, {"source": "store"}),
            ],
        ),
    ]


def _state(figures: QuorumFigures) -> Iterable[Sample]:
    return [Sample(1, {"current_state": figures.state})]


def _latency(name: str, text: str, durations: Durations) -> list[Family]:
    def samples() -> Iterable[Sample]:
        return [Sample(durations.count, suffix="_count"), Sample(durations.total_ms, suffix="_sum")]

    return [
        Family(f"{_RAFT}{name}", text, "summary", samples),
        gauge(f"{_RAFT}{name}_max", f"{text}, the longest since the last look", durations.take_max),
        gauge(
            f"{_RAFT}{name}_avg",
            f"{text}, the average since the start",
            lambda: durations.total_ms / durations.count if durations.count else 0.0,
        ),
    ]
