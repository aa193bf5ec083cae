"""Metrics of the groups of one shard: plain attributes, updated with every change and read at a scrape."""

from dataclasses import dataclass, field

from broker.groups.state import GroupState


@dataclass(slots=True)
class GroupMetrics:
    """Gauges (`groups` by state, `offsets` stored) and counters since the shard was loaded."""

    groups: dict[GroupState, int] = field(default_factory=lambda: dict.fromkeys(GroupState, 0))
    offsets: int = 0
    offset_commits: int = 0
    offset_expirations: int = 0
    offset_deletions: int = 0
    completed_rebalances: int = 0

    def add(self, other: "GroupMetrics") -> None:
        """Add another shard's metrics to these."""
        for state, count in other.groups.items():
            self.groups[state] += count
        self.offsets += other.offsets
        self.offset_commits += other.offset_commits
        self.offset_expirations += other.offset_expirations
        self.offset_deletions += other.offset_deletions
        self.completed_rebalances += other.completed_rebalances
