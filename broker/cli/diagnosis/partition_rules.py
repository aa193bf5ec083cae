"""Rules about partitions and topics: availability, redundancy, and the spread of leaders. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from broker.cli.diagnosis.facts import ClusterFacts, PartitionFacts
from broker.cli.diagnosis.finding import ClusterFinding, Severity, counted, listed

IMBALANCE_RATIO_MAX: Final = 0.1
"""Share of a broker's preferred partitions that others may lead; leader.imbalance.per.broker.percentage of Kafka."""
UNEVEN_RATIO_MAX: Final = 1.5
"""Greatest number of preferred partitions of a broker, in relation to the average."""
UNEVEN_PARTITIONS_MIN: Final = 5
"""Excess of preferred partitions over the average below which a broker is not uneven."""


def partition_findings(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    """Yield the findings about partitions, those of the same kind in one finding."""
    yield from _offline(facts)
    yield from _under_min_isr(facts)
    yield from _under_replicated(facts)
    yield from _without_spare(facts)
    yield from _single_replicas(facts)
    yield from _imbalanced(facts)
    yield from _uneven(facts)


def effective_min_isr(facts: ClusterFacts, partition: PartitionFacts) -> int:
    """Return the in-sync replicas that acks=all needs: at most all replicas, as brokers count it."""
    return min(facts.min_isr.get(partition.topic, 1), len(partition.replicas))


def absent_brokers(facts: ClusterFacts) -> frozenset[int]:
    """Return the brokers in replica sets that serve nothing: fenced, silent, or not registered."""
    serving = {broker.id for broker in facts.brokers if not broker.is_fenced and broker.failure is None}
    return frozenset(replica for each in facts.partitions for replica in each.replicas if replica not in serving)


def _offline(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    found = [each for each in facts.partitions if each.leader < 0]
    if not found:
        return
    holders = sorted({replica for each in found for replica in (each.isr or each.replicas)})
    verb = "has" if len(found) == 1 else "have"
    yield ClusterFinding(
        Severity.CRITICAL,
        "offline-partitions",
        _subject(found),
        f"{counted(len(found), 'partition')} {verb} no leader: {_names(found)}. Reads and writes fail.",
        f"Start the brokers with their last in-sync replicas: {listed(holders)}. If these are lost for good, an "
        "unclean election makes another replica the leader, and the records that it lacks are lost.",
        "ottla topics --describe --unavailable-partitions",
        len(found),
        [each.name for each in found],
    )


def _under_min_isr(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    found = [each for each in facts.partitions if each.leader >= 0 and len(each.isr) < effective_min_isr(facts, each)]
    if not found:
        return
    missing = sorted({replica for each in found for replica in each.missing})
    verb = "has" if len(found) == 1 else "have"
    yield ClusterFinding(
        Severity.CRITICAL,
        "under-min-isr",
        _subject(found),
        f"{counted(len(found), 'partition')} {verb} fewer in-sync replicas than min.insync.replicas: {_names(found)}. "
        "Producers with acks=all are refused.",
        f"Bring back the missing replicas on brokers {listed(missing)}.",
        "ottla topics --describe --under-min-isr-partitions",
        len(found),
        [each.name for each in found],
    )


def _under_replicated(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    """Yield partitions that lack replicas of serving brokers; the finding about an absent broker counts the others."""
    absent = absent_brokers(facts)
    found = [each for each in facts.partitions if each.leader >= 0 and set(each.missing) - absent]
    if not found:
        return
    lagging = Counter(replica for each in found for replica in each.missing if replica not in absent)
    verb = "is" if len(found) == 1 else "are"
    yield ClusterFinding(
        Severity.WARNING,
        "under-replicated",
        _subject(found),
        f"{counted(len(found), 'partition')} {verb} under-replicated: {_names(found)}. The replicas on "
        f"{_by_broker(lagging)} are not in sync although their brokers serve.",
        "Look at the log and the load of these brokers: a full or offline disk, a replication throttle, or a network "
        "that is too slow keeps followers behind.",
        "ottla topics --describe --under-replicated-partitions",
        len(found),
        [each.name for each in found],
    )


def _without_spare(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    """Yield topics whose writes with acks=all stop at the loss of any one broker."""
    found, excessive = [], []
    for topic, partitions in facts.topics.items():
        factor = min(len(each.replicas) for each in partitions)
        wanted = facts.min_isr.get(topic, 1)
        if factor >= 2 and wanted >= factor:
            found.append(topic)
            if wanted > factor:
                excessive.append(topic)
    if not found:
        return
    more = f" In {listed(excessive)} the setting even exceeds the replicas, and counts as their number."
    verb = "needs" if len(found) == 1 else "need"
    yield ClusterFinding(
        Severity.WARNING,
        "no-spare-replica",
        _topics(found),
        f"{counted(len(found), 'topic')} {verb} every replica in sync, because min.insync.replicas is the replication "
        f"factor: {listed(found)}. Writes with acks=all stop when any one broker stops.{more if excessive else ''}",
        "Lower min.insync.replicas to one less than the replication factor, or add a replica with "
        "`ottla reassign-partitions`.",
        f"ottla configs --alter --entity-type topics --entity-name {found[0]} --add-config min.insync.replicas="
        f"{max(1, min(len(each.replicas) for each in facts.topics[found[0]]) - 1)}",
        len(found),
        found,
    )


def _single_replicas(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    """Yield topics with a single replica in a cluster that has room for more. Offline ones have a finding already."""
    if len(facts.brokers) < 2:
        return
    found = [
        topic
        for topic, partitions in facts.topics.items()
        if any(len(each.replicas) == 1 for each in partitions) and all(each.leader >= 0 for each in partitions)
    ]
    if found:
        verb = "has" if len(found) == 1 else "have"
        yield ClusterFinding(
            Severity.INFO,
            "single-replica",
            _topics(found),
            f"{counted(len(found), 'topic')} {verb} partitions with a single replica: {listed(found)}. Each is "
            "unavailable while its broker is down, and lost with the disk of the broker.",
            "Add replicas with `ottla reassign-partitions`, and raise default.replication.factor for topics to come.",
            f"ottla topics --describe --topic {found[0]}",
            len(found),
            found,
        )


def _imbalanced(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    """Yield brokers whose preferred partitions are led by others although the broker is in sync."""
    preferred: Counter[int] = Counter()
    away: dict[int, list[PartitionFacts]] = {}
    for each in facts.partitions:
        first = each.replicas[0] if each.replicas else -1
        preferred[first] += 1
        if each.leader >= 0 and each.leader != first and first in each.isr:
            away.setdefault(first, []).append(each)
    skewed = {id: found for id, found in away.items() if len(found) > IMBALANCE_RATIO_MAX * preferred[id]}
    if not skewed:
        return
    found = [each for id in sorted(skewed) for each in skewed[id]]
    brokers = ", ".join(f"broker {id} ({len(skewed[id])} of {preferred[id]})" for id in sorted(skewed))
    verb = "is" if len(found) == 1 else "are"
    yield ClusterFinding(
        Severity.INFO,
        "leader-imbalance",
        _subject(found),
        f"{counted(len(found), 'partition')} {verb} not led by the preferred replica, which is in sync: {brokers}. The "
        "load is not spread as assigned.",
        "Elect the preferred leaders. With auto.leader.rebalance.enable the controller does so every "
        "leader.imbalance.check.interval.seconds.",
        "ottla leader-election --election-type preferred --all-topic-partitions",
        len(found),
        [each.name for each in found],
    )


def _uneven(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    """Yield brokers that are the preferred leader of many more partitions than the others."""
    counts = Counter({broker.id: 0 for broker in facts.brokers})
    counts.update(each.replicas[0] for each in facts.partitions if each.replicas)
    if len(counts) < 2:
        return
    average = sum(counts.values()) / len(counts)
    heavy = [
        id
        for id, count in sorted(counts.items())
        if count > UNEVEN_RATIO_MAX * average and count - average >= UNEVEN_PARTITIONS_MIN
    ]
    if heavy:
        shares = ", ".join(f"{id}: {count}" for id, count in sorted(counts.items()))
        yield ClusterFinding(
            Severity.INFO,
            "uneven-leaders",
            f"broker {listed(heavy)}" if len(heavy) == 1 else f"brokers {listed(heavy)}",
            f"The preferred leaders are spread unevenly over the brokers ({shares}).",
            "Generate an even assignment, and execute it.",
            "ottla reassign-partitions --generate --topics-to-move-json-file FILE --broker-list "
            + ",".join(str(id) for id in sorted(counts)),
            len(heavy),
            [str(id) for id in heavy],
        )


def _by_broker(counts: Counter[int]) -> str:
    return ", ".join(f"broker {id} ({count})" for id, count in sorted(counts.items()))


def _names(partitions: Iterable[PartitionFacts]) -> str:
    return listed([each.name for each in partitions])


def _subject(partitions: Sequence[PartitionFacts]) -> str:
    return f"partition {partitions[0].name}" if len(partitions) == 1 else counted(len(partitions), "partition")


def _topics(names: Sequence[str]) -> str:
    return f'topic "{names[0]}"' if len(names) == 1 else counted(len(names), "topic")
