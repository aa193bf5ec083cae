"""A topology as a member describes it: subtopologies, with their source and internal topics (KIP-1071)."""

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from protocol.errors import ErrorCode, KafkaError
from protocol.lazy_dataclass import lazy_dataclass


@lazy_dataclass(frozen=True, slots=True)
class InternalTopic:
    """A repartition or changelog topic. `partitions` 0: follows from other topics; `replication_factor` 0: default."""

    name: str
    partitions: int = 0
    replication_factor: int = 0
    configs: tuple[tuple[str, str], ...] = ()

    def with_partitions(self, count: int) -> "InternalTopic":
        return replace(self, partitions=count)


@lazy_dataclass(frozen=True, slots=True)
class CopartitionedTopics:
    """Source topics that must have equal partition counts, by their indexes in the subtopology's lists."""

    source_topics: tuple[int, ...] = ()
    source_patterns: tuple[int, ...] = ()
    repartition_sources: tuple[int, ...] = ()


@lazy_dataclass(frozen=True, slots=True)
class StreamsSubtopology:
    """A part of the topology whose tasks run independently of other parts."""

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    source_patterns: tuple[str, ...] = ()
    changelogs: tuple[InternalTopic, ...] = ()
    repartition_sinks: tuple[str, ...] = ()
    repartition_sources: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[CopartitionedTopics, ...] = ()

    def inputs(self) -> Iterator[str]:
        """Yield the names of all topics that the subtopology reads, except changelogs."""
        yield from self.source_topics
        yield from (topic.name for topic in self.repartition_sources)

    def copartitioned(self) -> Iterator[frozenset[str]]:
        """Yield the names of each copartition group. Raise KafkaError for an index without a topic."""
        for group in self.copartition_groups:
            try:
                sources = [self.source_topics[index] for index in group.source_topics]
                internal = [self.repartition_sources[index].name for index in group.repartition_sources]
            except IndexError as error:
                message = f"Subtopology {self.subtopology_id} has a copartition group with an unknown topic."
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message) from error
            yield frozenset((*sources, *internal))


@lazy_dataclass(frozen=True, slots=True)
class StreamsTopology:
    """The subtopologies by id, in the order of the member. A later version of a topology has a higher epoch."""

    epoch: int
    subtopologies: Mapping[str, StreamsSubtopology]
    inputs: Mapping[str, str] = field(init=False, repr=False, compare=False)
    """The subtopology id by the name of each topic that it reads."""
    required_topics: frozenset[str] = field(init=False, repr=False, compare=False)
    """The names of all topics that must exist before tasks are assigned."""

    def __post_init__(self) -> None:
        subtopologies = self.subtopologies.values()
        inputs = {topic: each.subtopology_id for each in subtopologies for topic in each.inputs()}
        changelogs = (topic.name for each in subtopologies for topic in each.changelogs)
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "required_topics", frozenset((*inputs, *changelogs)))


def topology_of(message: Any) -> StreamsTopology:
    """Return the topology in a request or record, which have fields of the same names.

    Raise KafkaError UNKNOWN_SERVER_ERROR for a negative epoch or a repeated subtopology id, as Kafka does.
    """
    subtopologies = {each.subtopology_id: _subtopology(each) for each in message.subtopologies}
    if message.epoch < 0:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "Topology epoch must be non-negative.")
    if len(subtopologies) < len(message.subtopologies):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "Two subtopologies have the same id.")
    return StreamsTopology(message.epoch, subtopologies)


def _subtopology(message: Any) -> StreamsSubtopology:
    return StreamsSubtopology(
        message.subtopology_id,
        tuple(message.source_topics),
        tuple(message.source_topic_regex),
        tuple(map(_internal_topic, message.state_changelog_topics)),
        tuple(message.repartition_sink_topics),
        tuple(map(_internal_topic, message.repartition_source_topics)),
        tuple(
            CopartitionedTopics(
                tuple(each.source_topics), tuple(each.source_topic_regex), tuple(each.repartition_source_topics)
            )
            for each in message.copartition_groups
        ),
    )


def _internal_topic(message: Any) -> InternalTopic:
    configs = tuple((config.key, config.value) for config in message.topic_configs)
    return InternalTopic(message.name, message.partitions, message.replication_factor, configs)
