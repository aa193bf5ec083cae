"""The surroundings of consumer groups: settings, assignors, the cluster's topics and dynamic group configs."""

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum
from typing import Final, NamedTuple

from broker.groups.consumer.assignors.assignor import PartitionAssignor
from broker.groups.consumer.assignors.range import RangeAssignor
from broker.groups.consumer.assignors.uniform import UniformAssignor
from broker.groups.consumer.topics import NoTopics, TopicsView
from protocol.lazy_dataclass import lazy_dataclass

REGEX_BATCH_INTERVAL_MS: Final = 10_000
"""The least time between two look-ups of a group's regular expressions; a constant in Kafka."""


class MigrationPolicy(Enum):
    """Conversions of groups with members between the protocols (`group.consumer.migration.policy`)."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def allows_upgrade(self) -> bool:
        """Whether a classic group can become a consumer group."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def allows_downgrade(self) -> bool:
        """Whether a consumer group can become a classic group."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


class MemberIntervals(NamedTuple):
    """The times that a group gives its members (GROUP configs `consumer.*`), in milliseconds."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000


def _standard_assignors() -> Mapping[str, PartitionAssignor]:
    return {UniformAssignor.name: UniformAssignor(), RangeAssignor.name: RangeAssignor()}


@lazy_dataclass(frozen=True, slots=True)
class ConsumerGroupEnvironment:
    """Settings under Kafka's names `group.consumer.*`, and look-ups. The first of `assignors` is the default.

    `classic_max_size` is `group.max.size`. `topics` returns the latest topics, `intervals` the times of a group by its
    id.
    """

    max_size: int = 2_147_483_647
    classic_max_size: int = 2_147_483_647
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    regex_refresh_interval_ms: int = 600_000
    assignors: Mapping[str, PartitionAssignor] = field(default_factory=_standard_assignors)
    topics: Callable[[], TopicsView] = NoTopics
    intervals: Callable[[str], MemberIntervals] = lambda _: MemberIntervals()

    @property
    def default_assignor(self) -> str:
        return next(iter(self.assignors))
