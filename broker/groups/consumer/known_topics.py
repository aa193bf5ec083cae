"""The topics of a group's subscriptions, described once for each metadata offset.

All members of a group usually subscribe to the same topics, so that each join would describe and hash them again.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.groups.consumer.topics import TopicsView, metadata_hash
from protocol.primitives import Uuid

_MOST_SUBSCRIPTIONS: Final = 64
"""Sets of names that are kept; members of most groups share one."""


class TopicCounts(NamedTuple):
    """The existing topics of some names: ids in ascending order with numbers of partitions, and their sum."""

    counts: Mapping[Uuid, int]
    partition_count: int


class KnownTopics:
    """Caches look-ups at one metadata offset, and forgets them at the next."""

    def __init__(self) -> None:
        self._offset: int | None = None
        self._counts: dict[frozenset[str], TopicCounts] = {}
        self._hash_of: frozenset[str] | None = None
        self._hash = 0

    def counts(self, topics: TopicsView, names: frozenset[str]) -> TopicCounts:
        """Return the existing topics among the names."""
        self._follow(topics)
        known = self._counts.get(names)
        if known is None:
            if len(self._counts) >= _MOST_SUBSCRIPTIONS:
                self._counts.clear()
            known = self._counts[names] = _counted(topics, names)
        return known

    def hash(self, topics: TopicsView, names: frozenset[str]) -> int:
        """Return `metadata_hash` of the names."""
        self._follow(topics)
        if names != self._hash_of:
            self._hash_of, self._hash = names, metadata_hash(topics, names)
        return self._hash

    def _follow(self, topics: TopicsView) -> None:
        if topics.offset != self._offset:
            self._offset = topics.offset
            self._counts.clear()
            self._hash_of = None


def _counted(topics: TopicsView, names: frozenset[str]) -> TopicCounts:
    described = [topic for topic in map(topics.describe, names) if topic is not None]
    counts = dict(sorted((topic.topic_id, topic.partition_count) for topic in described))
    return TopicCounts(counts, sum(counts.values()))
