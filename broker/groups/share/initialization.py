"""The initialization of share partitions: the group coordinator asks the share coordinator to keep their states."""

from typing import Final, NamedTuple

from broker.groups.share.environment import ShareGroupEnvironment
from broker.groups.share.group import ShareGroup
from broker.groups.share.partitions import TopicMap, named
from broker.groups.share.records import ShareGroupRecord, share_partitions_written

START_BY_RESET: Final = -1
"""The start offset of a share partition that the partition's leader places by `share.auto.offset.reset`."""


class ShareInitialization(NamedTuple):
    """States to initialize: the partitions by topic, and the state epoch, which is the group epoch."""

    group_id: str
    state_epoch: int
    topics: TopicMap


def begin_initialization(
    group: ShareGroup,
    environment: ShareGroupEnvironment,
    names: frozenset[str],
    epoch: int,
    now_ms: float,
    records: list[ShareGroupRecord],
) -> ShareInitialization | None:
    """Return the initialization of subscribed partitions that are not initialized, and record that it begins."""
    topics = environment.topics()
    described = (topics.describe(name) for name in sorted(names))
    subscribed = named(
        (topic.topic_id, topic.name, range(topic.partition_count)) for topic in described if topic is not None
    )
    missing = group.partitions.missing(subscribed, now_ms, environment.initialize_retry_interval_ms)
    if not missing:
        group.needs_initialization = bool(group.partitions.initializing)
        return None
    records.append(share_partitions_written(group.group_id, group.partitions.with_initializing(missing)))
    return ShareInitialization(group.group_id, epoch, missing)
