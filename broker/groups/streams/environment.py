"""The surroundings of streams groups: settings, the cluster's topics and dynamic group configs."""

from collections.abc import Callable
from typing import NamedTuple

from broker.groups.consumer.topics import NoTopics, TopicsView
from protocol.lazy_dataclass import lazy_dataclass


class StreamsGroupSettings(NamedTuple):
    """The settings of a group (GROUP configs `streams.*`); times are in milliseconds."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    initial_rebalance_delay_ms: int = 3_000
    num_standby_replicas: int = 0


@lazy_dataclass(frozen=True, slots=True)
class StreamsGroupEnvironment:
    """Settings under Kafka's names `group.streams.*`, and look-ups.

    `topics` returns the latest topics, `settings` the settings of a group by its id.
    """

    max_size: int = 2_147_483_647
    topics: Callable[[], TopicsView] = NoTopics
    settings: Callable[[str], StreamsGroupSettings] = lambda _: StreamsGroupSettings()
