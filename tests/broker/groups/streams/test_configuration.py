"""The configuration of topologies: partition counts of internal topics, and their problems."""

import pytest

from broker.groups.streams.configuration import ConfiguredTopology, StreamsStatus, configure
from broker.groups.streams.topology import topology_of
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.streams_group_heartbeat import CopartitionGroup, KeyValue, Subtopology, TopicInfo, Topology
from tests.support.harnesses.consumer_group_harness import FakeTopics


def configured(*subtopologies: Subtopology, **topics: int) -> ConfiguredTopology:
    view = FakeTopics()
    for name, count in topics.items():
        view.put(name, count)
    return configure(topology_of(Topology(0, list(subtopologies))), view)


def missing(result: ConfiguredTopology) -> dict[str, int]:
    return {topic.name: topic.partitions for topic in result.missing}


def problem(result: ConfiguredTopology) -> tuple[StreamsStatus, str]:
    assert result.problem is not None
    return result.problem.status, result.problem.detail


def reader(name: str, *sources: str, sinks: tuple[str, ...] = ()) -> Subtopology:
    return Subtopology(name, source_topics=list(sources), repartition_sink_topics=list(sinks))


def store(name: str, *sources: tuple[str, int], changelog: str = "c") -> Subtopology:
    """Return a subtopology that reads repartition topics, and has a store."""
    return Subtopology(
        name,
        repartition_source_topics=[TopicInfo(source, count, 0, []) for source, count in sources],
        state_changelog_topics=[TopicInfo(changelog, 0, 0, [KeyValue("cleanup.policy", "compact")])],
        copartition_groups=[CopartitionGroup([], [], list(range(len(sources))))],
    )


def test_internal_topics_have_the_partitions_of_the_largest_input() -> None:
    result = configured(reader("0", "a", "b", sinks=("r",)), store("1", ("r", 0)), a=3, b=5)
    assert missing(result) == {"c": 5, "r": 5}
    assert {name: each.task_count for name, each in result.subtopologies.items()} == {"0": 5, "1": 5}
    assert problem(result) == (StreamsStatus.MISSING_INTERNAL_TOPICS, "Internal topics are missing: c, r")
    assert result.missing[0].configs == (("cleanup.policy", "compact"),)


def test_partition_counts_follow_repartition_topics_through_the_topology() -> None:
    chain = [
        store("2", ("s", 0)),
        Subtopology("1", [], [], [], ["s"], [TopicInfo("r")]),
        reader("0", "a", sinks=("r",)),
    ]
    assert missing(configured(*chain, a=4)) == {"r": 4, "s": 4, "c": 4}


def test_topology_is_ready_when_its_topics_exist() -> None:
    result = configured(reader("0", "a", sinks=("r",)), store("1", ("r", 0)), a=3, r=3, c=3)
    assert (result.is_ready, result.missing) == (True, ())


def test_fixed_repartition_topic_decides_its_copartition_group() -> None:
    writers = (reader("0", "a", sinks=("r",)), reader("1", "a", sinks=("s",)))
    assert missing(configured(*writers, store("2", ("r", 7), ("s", 0)), a=3)) == {"r": 7, "s": 7, "c": 7}


def test_flexible_repartition_topics_of_a_copartition_group_have_the_largest_count() -> None:
    writers = (reader("0", "a", sinks=("r",)), reader("1", "b", sinks=("s",)))
    assert missing(configured(*writers, store("2", ("r", 0), ("s", 0)), a=3, b=6)) == {"r": 6, "s": 6, "c": 6}


def test_fixed_counts_of_another_copartition_group_do_not_matter() -> None:
    writers = (reader("0", "a", sinks=("r", "s")),)
    result = configured(*writers, store("1", ("r", 4)), store("2", ("s", 5), changelog="d"), a=3)
    assert missing(result) == {"r": 4, "c": 4, "s": 5, "d": 5}


def test_source_topics_that_are_missing_are_named() -> None:
    result = configured(reader("0", "d", "c", "b", "a", "e"), e=1)
    text = "Source topics a, b, c and 1 additional topics are missing."
    assert problem(result) == (StreamsStatus.MISSING_SOURCE_TOPICS, text)


def joined(count: int) -> Subtopology:
    return Subtopology(
        "0",
        source_topics=["a", "b"],
        repartition_source_topics=[TopicInfo("r", count)],
        repartition_sink_topics=["r"],
        copartition_groups=[CopartitionGroup([0, 1], [], [0])],
    )


@pytest.mark.parametrize(
    ("fixed", "b", "detail"),
    [
        (0, 4, "Following topics do not have the same number of partitions: [{a=3, b=4}]"),
        (
            5,
            3,
            "Number of partitions [5] of repartition topic [r] doesn't match number of partitions [3] of the source"
            " topic.",
        ),
    ],
)
def test_copartitioned_topics_have_equal_counts(fixed: int, b: int, detail: str) -> None:
    result = configured(joined(fixed), a=3, b=b)
    assert problem(result) == (StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS, detail)


def test_existing_internal_topic_has_the_expected_count() -> None:
    result = configured(reader("0", "a", sinks=("r",)), store("1", ("r", 0)), a=3, r=3, c=2)
    text = "Existing topic c has different number of partitions: expected 3, found 2"
    assert problem(result) == (StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS, text)


@pytest.mark.parametrize(
    "subtopologies",
    [
        [store("0", ("r", 0))],
        [Subtopology("0", [], [], [], ["r"], [TopicInfo("s")]), Subtopology("1", [], [], [], ["s"], [TopicInfo("r")])],
        [Subtopology("0", state_changelog_topics=[TopicInfo("c")])],
    ],
    ids=["a source that no subtopology writes", "a loop", "no sources"],
)
def test_impossible_topologies_are_invalid(subtopologies: list[Subtopology]) -> None:
    with pytest.raises(KafkaError) as caught:
        configured(*subtopologies)
    assert caught.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY
