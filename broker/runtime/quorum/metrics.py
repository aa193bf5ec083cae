"""What a replica of the metadata log counts, for `raft-metrics`: plain numbers, looked at when somebody scrapes."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Latency:
    """Durations in ms: how many, their sum, and the longest since `take_max`."""

    count: int = 0
    total_ms: float = 0.0
    max_ms: float = 0.0

    def record(self, elapsed_ms: float) -> None:
        self.count += 1
        self.total_ms += elapsed_ms
        self.max_ms = max(self.max_ms, elapsed_ms)

    def take_max(self) -> float:
        """The longest so far; the next one begins anew."""
        longest, self.max_ms = self.max_ms, 0.0
        return longest


@dataclass(slots=True)
class QuorumMetrics:
    """Records appended here as leader or fetched from one; snapshots that came from a leader or out of a store; the
    time from an append to its commit, and that without a leader from standing for election on.
    """

    appended_records: int = 0
    fetched_records: int = 0
    fetched_snapshots: int = 0
    imported_snapshots: int = 0
    commit: Latency = field(default_factory=Latency)
    election: Latency = field(default_factory=Latency)
