"""Metrics of the groups of one shard: plain attributes, updated with every change and read at a scrape.

The shard counts its consumer groups when it is asked, because their states follow from their members.
"""

from collections import Counter
from dataclasses import field

from broker.groups.consumer.group import ConsumerGroupState
from broker.groups.share.group import ShareGroupState
from broker.groups.state import GroupState
from broker.groups.streams.group import StreamsGroupState
from protocol.lazy_dataclass import lazy_dataclass


@lazy_dataclass(slots=True)
class GroupMetrics:
    """Gauges (`groups` by state, `offsets` stored) and counters since the shard was loaded."""

    groups: dict[GroupState, int] = field(default_factory=lambda: dict.fromkeys(GroupState, 0))
    offsets: int = 0
    offset_commits: int = 0
    offset_expirations: int = 0
    offset_deletions: int = 0
    completed_rebalances: int = 0
    consumer_groups: Counter[ConsumerGroupState] = field(default_factory=Counter)
    consumer_group_rebalances: int = 0
    streams_groups: Counter[StreamsGroupState] = field(default_factory=Counter)
    streams_group_rebalances: int = 0
    share_groups: Counter[ShareGroupState] = field(default_factory=Counter)
    share_group_rebalances: int = 0

    def add(self, other: "GroupMetrics") -> None:
        """Add another shard's metrics to these."""
        for state, count in other.groups.items():
            self.groups[state] += count
        self.offsets += other.offsets
        self.offset_commits += other.offset_commits
        self.offset_expirations += other.offset_expirations
        self.offset_deletions += other.offset_deletions
        self.completed_rebalances += other.completed_rebalances
        self.consumer_groups += other.consumer_groups
        self.consumer_group_rebalances += other.consumer_group_rebalances
        self.streams_groups += other.streams_groups
        self.streams_group_rebalances += other.streams_group_rebalances
        self.share_groups += other.share_groups
        self.share_group_rebalances += other.share_group_rebalances

    def groups_by_protocol(self) -> dict[str, int]:
        """Return the number of groups by Kafka's name of their protocol."""
        return {
            "classic": sum(self.groups.values()),
            "consumer": self.consumer_groups.total(),
            "streams": self.streams_groups.total(),
            "share": self.share_groups.total(),
        }

    def consumer_groups_by_state(self) -> dict[str, int]:
        """Return the number of consumer groups in each state, by its name in Kafka's metrics."""
        return {state.value.lower(): self.consumer_groups[state] for state in ConsumerGroupState}

    def share_groups_by_state(self) -> dict[str, int]:
        """Return the number of share groups in each state, by its name in Kafka's metrics."""
        return {state.value.lower(): self.share_groups[state] for state in ShareGroupState}

    def streams_groups_by_state(self) -> dict[str, int]:
        """Return the number of streams groups in each state, by its name in Kafka's metrics."""
        names = {StreamsGroupState.NOT_READY: "not_ready"}
        return {names.get(state, state.value.lower()): self.streams_groups[state] for state in StreamsGroupState}
