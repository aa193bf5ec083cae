"""The share partitions of a group, by the progress of their initialization at the share coordinator.

| set | meaning | next |
|---|---|---|
| initializing | a request to initialize their state is on its way | initialized; again after a time without answer |
| initialized | their state exists, so that members may be assigned to them | deleting |
| deleting | requests to delete the states of these topics are on their way | forgotten; kept if a request fails |
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid

UNKNOWN_TOPIC_NAME: Final = "<UNKNOWN>"
"""The name that Kafka writes for a topic that is gone."""


class NamedPartitions(NamedTuple):
    """Partitions of a topic, with the topic's name."""

    name: str
    partitions: frozenset[int]


TopicMap = Mapping[Uuid, NamedPartitions]
_NO_TOPICS: Final[TopicMap] = MappingProxyType({})


@lazy_dataclass(frozen=True, slots=True)
class GroupSharePartitions:
    """The three sets, by topic id. `began_ms` is the time at which this node learned of the initialization."""

    initializing: TopicMap = field(default_factory=lambda: _NO_TOPICS)
    initialized: TopicMap = field(default_factory=lambda: _NO_TOPICS)
    deleting: Mapping[Uuid, str] = field(default_factory=lambda: MappingProxyType({}))
    began_ms: float = 0.0

    @property
    def is_blank(self) -> bool:
        return not (self.initializing or self.initialized or self.deleting)

    def missing(self, subscribed: TopicMap, now_ms: float, retry_ms: int) -> TopicMap:
        """Return the subscribed partitions to initialize now: new ones, and those without answer for `retry_ms`."""
        is_waiting = now_ms - self.began_ms < retry_ms
        known = _union(self.initialized, self.initializing) if is_waiting else self.initialized
        return _difference(subscribed, known)

    def with_initializing(self, topics: TopicMap) -> "GroupSharePartitions":
        """Add partitions whose initialization begins."""
        deleting = {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in topics}
        return replace(self, initializing=_union(self.initializing, topics), deleting=deleting)

    def with_initialized(self, topics: TopicMap) -> "GroupSharePartitions":
        """Move partitions whose state exists."""
        initializing = _difference(self.initializing, topics)
        return replace(self, initializing=initializing, initialized=_union(self.initialized, topics))

    def without_initializing(self, topics: TopicMap) -> "GroupSharePartitions":
        """Forget partitions whose initialization has failed; a later heartbeat begins it again."""
        return replace(self, initializing=_difference(self.initializing, topics))

    def with_deleting(self, topics: Mapping[Uuid, str]) -> "GroupSharePartitions":
        """Begin the deletion of the topics' states."""
        initialized = {each: value for each, value in self.initialized.items() if each not in topics}
        return replace(self, initialized=initialized, deleting={**self.deleting, **topics})

    def without_deleting(self, topic_ids: Collection[Uuid]) -> "GroupSharePartitions":
        """Forget topics whose states are gone."""
        return replace(self, deleting={each: name for each, name in self.deleting.items() if each not in topic_ids})

    def all_deleting(self) -> "GroupSharePartitions":
        """Begin the deletion of all states."""
        names = {each: value.name for each, value in (*self.initializing.items(), *self.initialized.items())}
        return GroupSharePartitions(deleting={**self.deleting, **names})

    def without_topics(self, topic_ids: Collection[Uuid]) -> "GroupSharePartitions":
        """Forget deleted topics."""
        return replace(
            self,
            initializing={each: value for each, value in self.initializing.items() if each not in topic_ids},
            initialized={each: value for each, value in self.initialized.items() if each not in topic_ids},
            deleting={each: name for each, name in self.deleting.items() if each not in topic_ids},
        )

    def to_delete(self, partition_count: Callable[[Uuid], int]) -> TopicMap:
        """Return the partitions with a state, or with one that is being made or deleted."""
        deleting = {
            topic_id: NamedPartitions(name, frozenset(range(partition_count(topic_id))))
            for topic_id, name in self.deleting.items()
            if partition_count(topic_id)
        }
        return _union(_union(self.initialized, self.initializing), deleting)


def named(topics: Iterable[tuple[Uuid, str, Iterable[int]]]) -> TopicMap:
    """Return partitions by topic id; topics without partitions are left out."""
    found = ((topic_id, NamedPartitions(name, frozenset(indexes))) for topic_id, name, indexes in topics)
    return {topic_id: value for topic_id, value in found if value.partitions}


def _union(one: TopicMap, other: TopicMap) -> TopicMap:
    joined = dict(one)
    for topic_id, (name, partitions) in other.items():
        present = joined.get(topic_id)
        joined[topic_id] = NamedPartitions(name, partitions if present is None else present.partitions | partitions)
    return joined


def _difference(one: TopicMap, other: TopicMap) -> TopicMap:
    rest = (
        (topic_id, NamedPartitions(name, partitions - other[topic_id].partitions if topic_id in other else partitions))
        for topic_id, (name, partitions) in one.items()
    )
    return {topic_id: value for topic_id, value in rest if value.partitions}
