"""Sentences about topics and partitions. Changes that one event causes in many topics become one sentence."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from broker.metadata.image.partition import PartitionRegistration
from broker.metadata.image.topic_image import TopicDelta, TopicsDelta
from broker.metadata.timeline.change import Change, count_of, listed
from protocol.primitives import uuid_to_text

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
    other: Sequence[int]


_EFFECTS: Final = {
    "leader": "have another leader",
    "shrunk": "have fewer in-sync replicas",
    "expanded": "have more in-sync replicas",
    "reassigned": "have other replicas",
    "other": "have other details",
}


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
    for field, text in _EFFECTS.items():
        count = len(getattr(effects, field))
        if count:
            yield Change(f"topic {name}: {count_of(count, 'partition')} {text}", "partition", name)


def _of_partition(name: str, then: PartitionRegistration, now: PartitionRegistration) -> Iterator[Change]:
    """Yield the main changes of a partition, or the minor ones if there are no others."""
    main = [
        ("leader", _leader(then), _leader(now)),
        ("in-sync replicas", listed(sorted(then.isr)), listed(sorted(now.isr))),
        ("replicas", listed(then.replicas), listed(now.replicas)),
    ]
    minor = [
        ("leader epoch", str(then.leader_epoch), str(now.leader_epoch)),
        ("adding replicas", listed(then.adding_replicas), listed(now.adding_replicas)),
        ("removing replicas", listed(then.removing_replicas), listed(now.removing_replicas)),
        ("eligible leader replicas", listed(then.elr), listed(now.elr)),
        ("leader recovery", then.leader_recovery_state.name.lower(), now.leader_recovery_state.name.lower()),
        ("log directories", _directories(then), _directories(now)),
        ("partition epoch", str(then.partition_epoch), str(now.partition_epoch)),
    ]
    told = [fact for fact in main if fact[1] != fact[2]] or [fact for fact in minor if fact[1] != fact[2]]
    if len(told) > 1 and told[-1][0] == "partition epoch":  # every change raises it
        told.pop()
    for fact, before, after in told:
        yield Change(f"partition {name}: {fact} {before} → {after}", "partition", name, before, after)


def _directories(registration: PartitionRegistration) -> str:
    return ", ".join(uuid_to_text(each) for each in registration.directories) or "none"


def _leader(registration: PartitionRegistration) -> str:
    return str(registration.leader) if registration.has_leader else "none"


def _summed(changed: Sequence[tuple[TopicDelta, list[_Pair]]]) -> Iterator[Change]:
    effects = [_effects(pairs) for _, pairs in changed]
    for field, text in _EFFECTS.items():
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
        [index for index, then, now in pairs if _is_minor(then, now)],
    )


def _is_minor(then: PartitionRegistration, now: PartitionRegistration) -> bool:
    return (then.leader, set(then.isr), then.replicas) == (now.leader, set(now.isr), now.replicas)
