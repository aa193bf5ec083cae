"""The settings of share groups, and their view of the cluster."""

from collections.abc import Callable
from dataclasses import field

from broker.groups.consumer.environment import MemberIntervals
from broker.groups.consumer.topics import NoTopics, TopicsView
from broker.groups.share.assignor import ShareAssignor, SimpleAssignor
from protocol.lazy_dataclass import lazy_dataclass


@lazy_dataclass(frozen=True, slots=True)
class ShareGroupEnvironment:
    """Settings under Kafka's names `group.share.*`, and look-ups.

    `topics` returns the latest topics, `intervals` the times of a group by its id.
    """

    max_size: int = 200
    initialize_retry_interval_ms: int = 30_000
    topics: Callable[[], TopicsView] = NoTopics
    intervals: Callable[[str], MemberIntervals] = lambda _: MemberIntervals()
    assignor: ShareAssignor = field(default_factory=SimpleAssignor)
