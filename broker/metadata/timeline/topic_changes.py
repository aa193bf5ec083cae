"""Sentences about topics and partitions. Changes that one event causes in many topics become one sentence."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from broker.metadata.image.partition import PartitionRegistration
from broker.metadata.image.topic_image import TopicDelta, TopicsDelta
from broker.metadata.timeline.change import Change, count_of, listed

TOPICS_MAX: Final = 20
"""Topics with sentences of their own; changes of leaders and in-sync replicas in more topics are summed up."""
PARTITIONS_MAX: Final = 4
"""Partitions of a topic with sentences of their own."""

_Pair = tuple[int, PartitionRegistration, PartitionRegistration]


class _Effects(NamedTuple):
    """Partitions of one topic by what changed."""

    leader: Sequence[int]
    shrunk: Sequence[int]
    expanded: Sequence[int]
    reassigned: Sequence[int]


def describe_topics(delta: TopicsDelta) -> Iterator[Change]:
    """Yield the changes of all topics."""
    for deleted in sorted(delta.deleted.values(), key=lambda topic: topic.name):
        size = count_of(len(deleted.partitions), "partition")
        yield Change(f"topic {deleted.name}: deleted, with {size}", "topic", deleted.name, size, None)
    changed: list[tuple[TopicDelta, list[_Pair]]] = []
    for topic in sorted(delta.changed.values(), key=lambda topic: topic.name):
        yield from _growth(topic)
        before = topic.before
        if before is not None:
            pairs = [
                (index, before.partitions[index], now)
                for index, now in sorted(topic.changed_partitions.items())
                if index in before.partitions and before.partitions[index] != now
            ]
            if pairs:
                changed.append((topic, pairs))
    if len(changed) > TOPICS_MAX:
        yield from _summed(changed)
    else:
        for topic, pairs in changed:
            yield from _of_topic(topic.name, pairs)


def _growth(topic: TopicDelta) -> Iterator[Change]:
    """Yield the creation of a topic, or of partitions."""
    if topic.before is None:
        count = len(topic.changed_partitions)
        factor = max((len(each.replicas) for each in topic.changed_partitions.values()), default=0)
        size = count_of(count, "partition")
        yield Change(
            f"topic {topic.name}: created with {size}, replication factor {factor}", "topic", topic.name, None, size
        )
        return
    former = len(topic.before.partitions)
    added = sum(index not in topic.before.partitions for index in topic.changed_partitions)
    if added:
        sentence = f"topic {topic.name}: {count_of(added, 'partition')} added, {former + added:,} in all"
        yield Change(sentence, "topic", topic.name, str(former), str(former + added))


def _of_topic(name: str, pairs: Sequence[_Pair]) -> Iterator[Change]:
    if len(pairs) <= PARTITIONS_MAX:
        for index, then, now in pairs:
            yield from _of_partition(f"{name}-{index}", then, now)
        return
    effects = _effects(pairs)
    for count, text in (
        (len(effects.leader), "have another leader"),
        (len(effects.shrunk), "have fewer in-sync replicas"),
        (len(effects.expanded), "have more in-sync replicas"),
        (len(effects.reassigned), "have other replicas"),
    ):
        if count:
            yield Change(f"topic {name}: {count_of(count, 'partition')} {text}", "partition", name)


def _of_partition(name: str, then: PartitionRegistration, now: PartitionRegistration) -> Iterator[Change]:
    if then.leader != now.leader:
        before, after = _leader(then), _leader(now)
        yield Change(f"partition {name}: leader {before} → {after}", "partition", name, before, after)
    elif then.leader_epoch != now.leader_epoch:
        sentence = f"partition {name}: leader epoch {then.leader_epoch} → {now.leader_epoch}"
        yield Change(sentence, "partition", name, str(then.leader_epoch), str(now.leader_epoch))
    if set(then.isr) != set(now.isr):
        before, after = listed(then.isr), listed(now.isr)
        yield Change(f"partition {name}: in-sync replicas {before} → {after}", "partition", name, before, after)
    if then.replicas != now.replicas:
        before, after = listed(then.replicas), listed(now.replicas)
        yield Change(f"partition {name}: replicas {before} → {after}", "partition", name, before, after)
    elif then.elr != now.elr and then.leader == now.leader and set(then.isr) == set(now.isr):
        before, after = listed(then.elr), listed(now.elr)
        yield Change(f"partition {name}: eligible leader replicas {before} → {after}", "partition", name, before, after)


def _leader(registration: PartitionRegistration) -> str:
    return str(registration.leader) if registration.has_leader else "none"


def _summed(changed: Sequence[tuple[TopicDelta, list[_Pair]]]) -> Iterator[Change]:
    effects = [_effects(pairs) for _, pairs in changed]
    for field, text in (
        ("leader", "have another leader"),
        ("shrunk", "have fewer in-sync replicas"),
        ("expanded", "have more in-sync replicas"),
        ("reassigned", "have other replicas"),
    ):
        counts = [len(getattr(each, field)) for each in effects]
        if any(counts):
            topics = count_of(sum(map(bool, counts)), "topic")
            yield Change(f"{count_of(sum(counts), 'partition')} of {topics} {text}", "partition", "")


def _effects(pairs: Sequence[_Pair]) -> _Effects:
    return _Effects(
        [index for index, then, now in pairs if then.leader != now.leader],
        [index for index, then, now in pairs if set(then.isr) - set(now.isr)],
        [index for index, then, now in pairs if set(now.isr) - set(then.isr)],
        [index for index, then, now in pairs if then.replicas != now.replicas],
    )
