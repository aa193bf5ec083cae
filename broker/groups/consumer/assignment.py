"""Assignments: partitions by topic id, immutable, compared by value."""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, Protocol

from protocol.primitives import Uuid

Assignment = Mapping[Uuid, frozenset[int]]
"""The partitions of each topic; no topic has an empty set."""

NO_PARTITIONS: Final[Assignment] = MappingProxyType({})


class TopicPartitionList(Protocol):
    """The form of assignments in all messages and records."""

    topic_id: Uuid
    partitions: list[int]


def assignment_of(topics: Iterable[TopicPartitionList]) -> Assignment:
    """Return the assignment in a message or record."""
    found: dict[Uuid, frozenset[int]] = {}
    for topic in topics:
        if topic.partitions:
            found[topic.topic_id] = found.get(topic.topic_id, frozenset()).union(topic.partitions)
    return found


def assignment_from(partitions: Iterable[tuple[Uuid, int]]) -> Assignment:
    """Return the assignment of single partitions."""
    found: dict[Uuid, set[int]] = {}
    for topic_id, partition in partitions:
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(indexes) for topic_id, indexes in found.items()}


def in_order(assignment: Assignment) -> Iterator[tuple[Uuid, list[int]]]:
    """Yield each topic id with its partitions in ascending order."""
    for topic_id, partitions in assignment.items():
        yield topic_id, sorted(partitions)


def each_partition(assignment: Assignment) -> Iterator[tuple[Uuid, int]]:
    """Yield every partition as (topic id, index)."""
    for topic_id, partitions in assignment.items():
        for partition in partitions:
            yield topic_id, partition


def overlap(one: Assignment, other: Assignment) -> bool:
    """Whether a partition is in both."""
    return any(not partitions.isdisjoint(other.get(topic_id, ())) for topic_id, partitions in one.items())


def is_subset(one: Assignment, other: Assignment) -> bool:
    """Whether every partition of `one` is in `other`."""
    return all(partitions <= other.get(topic_id, frozenset()) for topic_id, partitions in one.items())


def without(one: Assignment, other: Assignment) -> Assignment:
    """Return the partitions of `one` that are not in `other`."""
    rest: dict[Uuid, frozenset[int]] = {}
    for topic_id, partitions in one.items():
        common = other.get(topic_id)
        left = partitions if common is None else partitions - common
        if left:
            rest[topic_id] = left
    return rest


def union(one: Assignment, other: Assignment) -> Assignment:
    """Return the partitions that are in either."""
    joined = dict(one)
    for topic_id, partitions in other.items():
        joined[topic_id] = joined.get(topic_id, frozenset()) | partitions
    return joined
