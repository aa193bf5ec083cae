"""Index of partitions by broker, and of partitions that are leaderless, imbalanced or under reassignment.

The index follows metadata changes, so that fencing a broker costs its own partitions only. It derives from images
alone: topic deltas can be applied and reverted. Mutable; owned by the controller.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from broker.metadata.image.partition import NO_LEADER, PartitionRegistration
from broker.metadata.image.slices import Steps, finish, sorted_in_steps
from broker.metadata.image.topic_image import TopicImage, TopicsDelta, TopicsImage
from protocol.primitives import Uuid

_TOPICS_PER_STEP: Final = 64  # a millisecond for some ten partitions each


class PartitionId(NamedTuple):
    """A partition by topic id and partition index."""

    topic_id: Uuid
    partition: int


class PartitionIndex:
    """An index over `TopicsDelta`s. Sets are dicts, so that their order depends on history and not on hashing."""

    def __init__(self) -> None:
        self._replicas: dict[int, dict[Uuid, int]] = {}  # broker -> topic -> bit set of partitions
        self._leader_counts: dict[int, int] = {}
        self._leaderless: dict[PartitionId, None] = {}
        self._imbalanced: dict[PartitionId, None] = {}
        self._reassigning: dict[PartitionId, None] = {}
        self._names_by_metric: dict[str, dict[str, None]] = {}  # only names with a dot or an underscore

    @classmethod
    def of(cls, topics: TopicsImage) -> "PartitionIndex":
        """Return the index of an image."""
        return finish(cls.of_in_steps(topics))

    @classmethod
    def of_in_steps(cls, topics: TopicsImage) -> Steps["PartitionIndex"]:
        """Return the index of an image, in steps."""
        index = cls()
        for count, topic_id in enumerate((yield from sorted_in_steps(topics.ids()))):
            topic = topics.by_id(topic_id)
            assert topic is not None
            index._add_topic(topic)
            if count % _TOPICS_PER_STEP == 0:
                yield
        return index

    def apply(self, delta: TopicsDelta) -> None:
        """Apply a delta on top of the image that the index reflects."""
        for topic in delta.deleted.values():
            self._remove_topic(topic)
        for topic_id, change in delta.changed.items():
            if change.before is None:
                self._add(change.name, topic_id, change.changed_partitions.items())
                continue
            known = change.before.partitions
            for partition, after in change.changed_partitions.items():
                self._change(topic_id, partition, known.get(partition), after)

    def revert(self, delta: TopicsDelta) -> None:
        """Undo `apply` of the same delta; undo the last delta first."""
        for topic_id, change in delta.changed.items():
            if change.is_new:
                self._remove_name(change.name)
            for partition, after in change.changed_partitions.items():
                before = None if change.before is None else change.before.partitions.get(partition)
                self._change(topic_id, partition, after, before)
        for topic in delta.deleted.values():
            self._add_topic(topic)

    def partitions_of(self, broker: int) -> Iterator[PartitionId]:
        """Yield the partitions with a replica on the broker, in sync or not."""
        for topic_id, bits in list(self._replicas.get(broker, {}).items()):
            yield from (PartitionId(topic_id, partition) for partition in _set_bits(bits))

    def leader_count(self, broker: int) -> int:
        """Return how many partitions the broker leads."""
        return self._leader_counts.get(broker, 0)

    def leaderless(self) -> list[PartitionId]:
        """Return the partitions without a leader."""
        return list(self._leaderless)

    @property
    def leaderless_count(self) -> int:
        return len(self._leaderless)

    def imbalanced(self) -> list[PartitionId]:
        """Return the partitions not led by their preferred replica."""
        return list(self._imbalanced)

    @property
    def imbalanced_count(self) -> int:
        return len(self._imbalanced)

    def reassigning(self) -> list[PartitionId]:
        """Return the partitions under reassignment."""
        return list(self._reassigning)

    def colliding_name(self, name: str) -> str | None:
        """Return an existing topic, other than `name`, with the same metric name."""
        if not _has_collision_character(name):
            return None
        others = self._names_by_metric.get(metric_name(name), {})
        return next((other for other in others if other != name), None)

    def _add_topic(self, topic: TopicImage) -> None:
        self._add(topic.name, topic.id, topic.in_order())

    def _add(self, name: str, topic_id: Uuid, partitions: Iterable[tuple[int, PartitionRegistration]]) -> None:
        """Add partitions as `_change` would, in a third of the time: a snapshot may hold a million."""
        self._add_name(name)
        leader_counts = self._leader_counts
        held: dict[int, int] = {}
        for partition, registration in partitions:
            replicas, leader, bit = registration.replicas, registration.leader, 1 << partition
            for broker in replicas:
                held[broker] = held.get(broker, 0) | bit
            if leader >= 0:
                leader_counts[leader] = leader_counts.get(leader, 0) + 1
            else:
                self._leaderless[PartitionId(topic_id, partition)] = None
            if leader != (replicas[0] if replicas else NO_LEADER):
                self._imbalanced[PartitionId(topic_id, partition)] = None
            if registration.adding_replicas or registration.removing_replicas:
                self._reassigning[PartitionId(topic_id, partition)] = None
        for broker, bits in held.items():
            topics = self._replicas.get(broker)
            if topics is None:
                topics = self._replicas[broker] = {}
            topics[topic_id] = bits

    def _remove_topic(self, topic: TopicImage) -> None:
        self._remove_name(topic.name)
        for partition, registration in topic.in_order():
            self._change(topic.id, partition, registration, None)

    def _add_name(self, name: str) -> None:
        if _has_collision_character(name):
            self._names_by_metric.setdefault(metric_name(name), {})[name] = None

    def _remove_name(self, name: str) -> None:
        if _has_collision_character(name):
            names = self._names_by_metric[metric_name(name)]
            del names[name]
            if not names:
                del self._names_by_metric[metric_name(name)]

    def _change(
        self, topic_id: Uuid, partition: int, before: PartitionRegistration | None, after: PartitionRegistration | None
    ) -> None:
        old, new = (() if side is None else side.replicas for side in (before, after))
        if old != new:
            self._change_replicas(topic_id, partition, old, new)
        leader_before = NO_LEADER if before is None else before.leader
        leader_after = NO_LEADER if after is None else after.leader
        if leader_before != leader_after:
            self._change_leader(leader_before, leader_after)
        here = PartitionId(topic_id, partition)
        _keep(self._leaderless, here, after is not None and not after.has_leader)
        _keep(self._imbalanced, here, after is not None and not after.has_preferred_leader)
        _keep(self._reassigning, here, after is not None and after.is_reassigning)

    def _change_leader(self, old: int, new: int) -> None:
        if old >= 0:
            self._leader_counts[old] -= 1
        if new >= 0:
            self._leader_counts[new] = self._leader_counts.get(new, 0) + 1

    def _change_replicas(self, topic_id: Uuid, partition: int, old: Iterable[int], new: Iterable[int]) -> None:
        bit = 1 << partition
        for broker in set(old).difference(new):
            topics = self._replicas[broker]
            topics[topic_id] &= ~bit
            if not topics[topic_id]:
                del topics[topic_id]
        for broker in set(new).difference(old):
            topics = self._replicas.setdefault(broker, {})
            topics[topic_id] = topics.get(topic_id, 0) | bit


def metric_name(topic: str) -> str:
    """Return a topic's name in metrics, where dots become underscores."""
    return topic.replace(".", "_")


def _has_collision_character(name: str) -> bool:
    return "." in name or "_" in name


def _keep(members: dict[PartitionId, None], member: PartitionId, belongs: bool) -> None:
    if belongs:
        members[member] = None
    else:
        members.pop(member, None)


def _set_bits(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
