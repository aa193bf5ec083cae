"""Configuration of a topology: partition counts of internal topics, and the topics that are missing (KIP-1071).

1. Every source topic must exist.
2. A repartition topic has a fixed count, or the largest count among the inputs of the subtopology that writes it.
3. The topics of a copartition group have equal counts: that of the source topics, or of the repartition topics that
   are fixed, or the largest one.
4. A changelog has one partition per task of its subtopology.
5. Internal topics that exist must have these counts; the others are to be created.

A violation does not fail the heartbeat. Members get a status, and no tasks, until the topics are as they should be.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from typing import Final

from broker.groups.consumer.topics import TopicsView
from broker.groups.streams.topology import InternalTopic, StreamsSubtopology, StreamsTopology
from protocol.errors import ErrorCode, KafkaError
from protocol.lazy_dataclass import lazy_dataclass

_NAMES_IN_A_STATUS: Final = 3


class StreamsStatus(IntEnum):
    """A problem of the group that members are told with each heartbeat, by its number in responses."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class TopicProblem(Exception):
    """The topics of a topology do not allow tasks; `status` and the text go to the members."""

    def __init__(self, status: StreamsStatus, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


@lazy_dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    """A subtopology with the number of its tasks. Its internal topics have partition counts."""

    task_count: int
    source_topics: tuple[str, ...]
    repartition_sinks: tuple[str, ...]
    repartition_sources: tuple[InternalTopic, ...]
    changelogs: tuple[InternalTopic, ...]

    @property
    def is_stateful(self) -> bool:
        return bool(self.changelogs)

    def internal_topics(self) -> Iterable[InternalTopic]:
        return (*self.repartition_sources, *self.changelogs)


@lazy_dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """A topology with its tasks, by subtopology id in order; no subtopologies where a topic problem prevents them."""

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology]
    missing: tuple[InternalTopic, ...] = ()
    problem: TopicProblem | None = None

    @property
    def is_ready(self) -> bool:
        """Whether tasks can be assigned."""
        return self.problem is None


def configure(topology: StreamsTopology, topics: TopicsView) -> ConfiguredTopology:
    """Return the topology with tasks. Raise KafkaError STREAMS_INVALID_TOPOLOGY for one that can never work."""
    try:
        return _configure(topology, topics)
    except TopicProblem as problem:
        return ConfiguredTopology(topology.epoch, {}, problem=problem)


def _configure(topology: StreamsTopology, topics: TopicsView) -> ConfiguredTopology:
    _check_sources(topology, topics)
    counts = _Counts(topics)
    subtopologies = [topology.subtopologies[each] for each in sorted(topology.subtopologies)]
    counts.decided |= _repartition_counts(subtopologies, counts)
    _enforce_copartitioning(subtopologies, counts)
    for each in subtopologies:
        counts.decided.update(dict.fromkeys((topic.name for topic in each.changelogs), _task_count(each, counts)))
    configured = {each.subtopology_id: _configured(each, counts) for each in subtopologies}
    missing = _missing(configured.values(), topics)
    problem = None
    if missing:
        detail = f"Internal topics are missing: {_summary([topic.name for topic in missing])}"
        problem = TopicProblem(StreamsStatus.MISSING_INTERNAL_TOPICS, detail)
    return ConfiguredTopology(topology.epoch, configured, missing, problem)


class _Counts:
    """Partition counts: of topics that exist, else those decided so far."""

    def __init__(self, topics: TopicsView) -> None:
        self._topics = topics
        self.decided: dict[str, int] = {}

    def get(self, name: str) -> int | None:
        topic = self._topics.describe(name)
        return self.decided.get(name) if topic is None else topic.partition_count

    def of(self, name: str) -> int:
        count = self.get(name)
        if count is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Number of partitions is not set for topic: {name}")
        return count


def _check_sources(topology: StreamsTopology, topics: TopicsView) -> None:
    names = {name for each in topology.subtopologies.values() for name in each.source_topics}
    missing = [name for name in names if topics.describe(name) is None]
    if missing:
        detail = f"Source topics {_summary(missing)} are missing."
        raise TopicProblem(StreamsStatus.MISSING_SOURCE_TOPICS, detail)


def _repartition_counts(subtopologies: Collection[StreamsSubtopology], counts: _Counts) -> dict[str, int]:
    """Return the counts of repartition topics, from topic to topic along the topology."""
    found = {topic.name: topic.partitions for each in subtopologies for topic in each.repartition_sources}
    found = {name: count for name, count in found.items() if count}
    open_sinks = {(sink, each) for each in subtopologies for sink in each.repartition_sinks if sink not in found}
    while open_sinks:
        for sink, writer in sorted(open_sinks, key=lambda pair: (pair[1].subtopology_id, pair[0])):
            inputs = [found.get(topic.name) for topic in writer.repartition_sources]
            known = [count for count in (*inputs, *map(counts.get, writer.source_topics)) if count is not None]
            if known and sink not in found:
                found[sink] = max(known)
        remaining = {pair for pair in open_sinks if pair[0] not in found}
        if len(remaining) == len(open_sinks):
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics. There may be loops in the topology"
                " that cannot be resolved."
            )
        open_sinks = remaining
    if any(topic.name not in found for each in subtopologies for topic in each.repartition_sources):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic is"
            " never used as a sink topic."
        )
    return found


def _enforce_copartitioning(subtopologies: Collection[StreamsSubtopology], counts: _Counts) -> None:
    fixed = {topic.name: bool(topic.partitions) for each in subtopologies for topic in each.repartition_sources}
    for each in subtopologies:
        for group in each.copartitioned():
            if group:
                _enforce_equal_counts(group, fixed, counts)


def _enforce_equal_counts(group: frozenset[str], fixed: Mapping[str, bool], counts: _Counts) -> None:
    internal = {name: counts.of(name) for name in sorted(group) if name in fixed}
    sources = {name: counts.of(name) for name in sorted(group) if name not in fixed}
    deciding = sources or {name: count for name, count in internal.items() if fixed[name]}
    if len(set(deciding.values())) > 1:
        text = ", ".join(f"{name}={count}" for name, count in (sources or internal).items())
        raise TopicProblem(
            StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{text}}}]",
        )
    count = next(iter(deciding.values()), None) or max(internal.values())
    for name, own in internal.items():
        if fixed[name] and own != count:
            raise TopicProblem(
                StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{own}] of repartition topic [{name}] doesn't match number of partitions"
                f" [{count}] of the source topic.",
            )
        counts.decided[name] = count


def _task_count(subtopology: StreamsSubtopology, counts: _Counts) -> int:
    inputs = [counts.of(name) for name in subtopology.inputs()]
    if not inputs:
        raise _invalid(f"No source topics found for subtopology {subtopology.subtopology_id}")
    return max(inputs)


def _configured(subtopology: StreamsSubtopology, counts: _Counts) -> ConfiguredSubtopology:
    def sized(topics: Iterable[InternalTopic]) -> tuple[InternalTopic, ...]:
        return tuple(topic.with_partitions(topic.partitions or counts.decided[topic.name]) for topic in topics)

    return ConfiguredSubtopology(
        _task_count(subtopology, counts),
        subtopology.source_topics,
        subtopology.repartition_sinks,
        sized(subtopology.repartition_sources),
        sized(subtopology.changelogs),
    )


def _missing(subtopologies: Iterable[ConfiguredSubtopology], topics: TopicsView) -> tuple[InternalTopic, ...]:
    expected = {topic.name: topic for each in subtopologies for topic in each.internal_topics()}
    missing = []
    for name in sorted(expected):
        found, count = topics.describe(name), expected[name].partitions
        if found is None:
            missing.append(expected[name])
        elif found.partition_count != count:
            raise TopicProblem(
                StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected {count},"
                f" found {found.partition_count}",
            )
    return tuple(missing)


def _summary(names: Collection[str]) -> str:
    shown = ", ".join(sorted(names)[:_NAMES_IN_A_STATUS])
    hidden = len(names) - _NAMES_IN_A_STATUS
    return f"{shown} and {hidden} additional topics" if hidden > 0 else shown


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
