"""Counters and latencies of a replica of the metadata log, for `raft-metrics`."""

from dataclasses import field

from protocol.lazy_dataclass import lazy_dataclass


@lazy_dataclass(slots=True)
class Latency:
    """Durations in ms: their count, sum, and maximum since `take_max`."""

    count: int = 0
    total_ms: float = 0.0
    max_ms: float = 0.0

    def record(self, elapsed_ms: float) -> None:
        self.count += 1
        self.total_ms += elapsed_ms
        self.max_ms = max(self.max_ms, elapsed_ms)

    def take_max(self) -> float:
        """Return and reset the maximum."""
        longest, self.max_ms = self.max_ms, 0.0
        return longest


@lazy_dataclass(slots=True)
class QuorumMetrics:
    """Records appended as leader or fetched, snapshots fetched from the leader or imported from an object store.

    `commit` is the time from append to commit; `election` the time from becoming candidate to a known leader; `busy_ms`
    the time spent on timers and on Readys, up to the hand-over to the IO thread.
    """

    appended_records: int = 0
    fetched_records: int = 0
    fetched_snapshots: int = 0
    imported_snapshots: int = 0
    busy_ms: float = 0.0
    commit: Latency = field(default_factory=Latency)
    election: Latency = field(default_factory=Latency)
