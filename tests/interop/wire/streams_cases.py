"""Requests to the coordinator of streams groups: heartbeats of two members with an application of two subtopologies.

Internal topics are created in the background, so the scenario waits for them. Assignments have one possible result, so
that both brokers find the same.
"""

import time
from collections.abc import Callable, Generator, Mapping

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages import Message
from protocol.messages import consumer_group_heartbeat as ch
from protocol.messages import incremental_alter_configs as ia
from protocol.messages import join_group as jg
from protocol.messages import list_groups as lg
from protocol.messages import metadata as md
from protocol.messages import offset_commit as oc
from protocol.messages import offset_fetch as of
from protocol.messages import streams_group_describe as sd
from protocol.messages import streams_group_heartbeat as sh
from tests.interop.wire.harness import TIMEOUT_S, WireHarness

Scenario = Generator[tuple[str, Message], Message | None, None]

_INPUT = "many"
_PARTITIONS = 3
_GROUP_RESOURCE = 32
_NAME = "wire-app"
_REPARTITION, _CHANGELOG = f"{_NAME}-words-repartition", f"{_NAME}-counts-changelog"


def topology(
    epoch: int = 0, source: str = _INPUT, application: str = _NAME, changelog_partitions: int = 0
) -> sh.Topology:
    """Return a word count: subtopology 0 writes the repartition topic, 1 reads it and has a store."""
    repartition = f"{application}-words-repartition"
    configs = [sh.KeyValue("cleanup.policy", "compact")]
    return sh.Topology(
        epoch,
        [
            sh.Subtopology("0", source_topics=[source], repartition_sink_topics=[repartition]),
            sh.Subtopology(
                "1",
                repartition_source_topics=[sh.TopicInfo(repartition, 0, 1, [sh.KeyValue("segment.bytes", "1048576")])],
                state_changelog_topics=[
                    sh.TopicInfo(f"{application}-counts-changelog", changelog_partitions, 1, configs)
                ],
            ),
        ],
    )


def beat(member: str, epoch: int, owned: Mapping[str, list[int]] | None = None, **fields: object) -> Message:
    """Return a heartbeat: a whole one to join, else with the owned active tasks if they are given."""
    request = sh.StreamsGroupHeartbeatRequest(_NAME, member, epoch, -1)
    tasks = None if owned is None else [sh.StreamsGroupHeartbeatRequestTaskIds(*each) for each in owned.items()]
    if epoch == 0:
        request.topology, request.rebalance_timeout_ms, request.process_id = topology(), 60_000, f"process-{member}"
        request.user_endpoint = sh.StreamsGroupHeartbeatRequestEndpoint(f"host-{member}", 80)
        request.client_tags, tasks = [sh.KeyValue("zone", "z")], []
    if tasks is not None:
        request.active_tasks, request.standby_tasks, request.warmup_tasks = tasks, [], []
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def wait_for_topics(harness: WireHarness, *names: str) -> None:
    """Wait until the broker knows the topics, and has applied their creation."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        answer = harness.call(md.MetadataRequest([md.MetadataRequestTopic(name=name) for name in names]), 9)
        assert isinstance(answer, md.MetadataResponse)
        if all(topic.error_code == ErrorCode.NONE for topic in answer.topics):
            harness.settle()
            return
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)


def set_delay(harness: WireHarness, group_id: str, delay_ms: int) -> None:
    """Give the group an initial rebalance delay: none, or one that does not end within the scenario."""
    change = ia.AlterableConfig("streams.initial.rebalance.delay.ms", 0, str(delay_ms))
    resource = ia.AlterConfigsResource(_GROUP_RESOURCE, group_id, [change])
    harness.call(ia.IncrementalAlterConfigsRequest([resource]), 1)
    harness.settle()


def commit(member: str, epoch: int, partition: int, topic: str = _INPUT) -> Message:
    partitions = [oc.OffsetCommitRequestPartition(partition, 5, 0, "")]
    topics = [oc.OffsetCommitRequestTopic(topic, partitions=partitions)]
    return oc.OffsetCommitRequest(_NAME, epoch, member, topics=topics)


def fetch(member: str | None, epoch: int) -> Message:
    topics = [of.OffsetFetchRequestTopics(_INPUT, partition_indexes=[0])]
    return of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup(_NAME, member, epoch, topics)])


def forms() -> Generator[tuple[str, Message], Message | None, None]:
    """Heartbeats that are refused by what they say alone."""
    some = [sh.StreamsGroupHeartbeatRequestTaskIds("0", [0])]
    yield "no member id", beat("", 0)
    yield "a blank group id", beat("m", 0, group_id=" ")
    yield "a blank rack", beat("m", 0, rack_id=" ")
    yield "a static member", beat("m", 0, instance_id="i")
    yield "a static member that leaves", beat("m", -2, instance_id="i")
    yield "epoch -2", beat("m", -2)
    yield "epoch -3", beat("m", -3)
    yield "task offsets", beat("m", 0, task_offsets=[])
    yield "task end offsets", beat("m", 0, task_end_offsets=[])
    yield "warm-up tasks", beat("m", 0, warmup_tasks=some)
    yield "no rebalance timeout", beat("m", 0, rebalance_timeout_ms=-1)
    yield "no topology", beat("m", 0, topology=None)
    yield "no tasks", beat("m", 0, active_tasks=None)
    yield "tasks of a new member", beat("m", 0, standby_tasks=some)
    yield "one kind of tasks", beat("m", 1, active_tasks=some)
    yield "a topology without joining", beat("m", 1, topology=topology())
    yield "a changelog with partitions", beat("m", 0, topology=topology(changelog_partitions=2))
    yield "a negative topology epoch", beat("m", 0, topology=topology(-1), group_id="wire-negative")
    patterns = sh.Topology(0, [sh.Subtopology("0", source_topic_regex=["m.*"])])
    yield "a pattern", beat("m", 0, topology=patterns)
    yield "an internal topic of the broker", beat("m", 0, topology=topology(source="__consumer_offsets"))
    yield "an invalid topic name", beat("m", 0, topology=topology(source="a b"))
    loop = sh.Subtopology("0", [], [], [], ["r"], [sh.TopicInfo("r")])
    yield "a topology without sources", beat("m", 0, topology=sh.Topology(0, [loop]), group_id="wire-loop")
    empty = sh.Topology(0, [sh.Subtopology("0")])
    yield "a subtopology without topics", beat("m", 0, topology=empty, group_id="wire-empty")
    yield "an unknown group", beat("m", 1, group_id="wire-unknown")
    yield "an unknown group left", beat("m", -1, group_id="wire-unknown")


def heartbeat(harness: WireHarness, _version: int) -> Scenario:
    yield from forms()
    for group_id in ("wire-missing", _NAME):
        set_delay(harness, group_id, 0)
    missing = topology(source="wire-nowhere")
    yield "a missing source topic", beat("m", 0, topology=missing, group_id="wire-missing", user_endpoint=None)
    set_delay(harness, "wire-delayed", 600_000)
    delayed = topology(application="wire-delayed")
    yield "an initial delay", beat("m", 0, topology=delayed, group_id="wire-delayed")
    wait_for_topics(harness, "wire-delayed-words-repartition", "wire-delayed-counts-changelog")
    yield "an initial delay goes on", beat("m", 1, group_id="wire-delayed")
    yield "joining", beat("a", 0)
    wait_for_topics(harness, _REPARTITION, _CHANGELOG)
    yield "internal topics exist", beat("a", 2)
    yield "nothing new", beat("a", 3, {"0": [0, 1, 2], "1": [0, 1, 2]})
    yield "a lost response", beat("a", 2, {})
    yield "a former epoch with other tasks", beat("a", 2, {"0": [7]})
    yield "a later epoch", beat("a", 9)
    yield "an unknown member", beat("x", 3)
    yield "an unknown member leaves", beat("x", -1)
    yield "an unknown subtopology", beat("a", 3, {"7": [0]})
    yield "an unknown task", beat("a", 3, {"0": [_PARTITIONS]})
    yield "another topology", beat("c", 0, topology=topology(source="plain"))
    yield "a later topology", beat("c", 0, topology=topology(1))
    yield "a member joins again", beat("a", 0)
    yield "a second member", beat("b", 0)
    yield "the first one gives up tasks", beat("a", 3, endpoint_information_epoch=0)
    yield "the second one waits", beat("b", 4)
    yield "the first one has given them up", beat("a", 3, {"0": [0, 1], "1": [0]})
    yield "the second one gets them", beat("b", 4, {})
    yield "the first one knows the endpoints", beat("a", 4, endpoint_information_epoch=5)
    yield "a commit", commit("a", 4, 0)
    yield "a commit of before", commit("a", 3, 0)
    yield "a commit of another member's task", commit("a", 3, 2)
    yield "a commit before the task", commit("b", 3, 2)
    yield "a commit of another topic", commit("a", 3, 0, "plain")
    yield "a later commit", commit("a", 9, 0)
    yield "a commit of nobody", commit("", -1, 0)
    yield "a commit of an unknown member", commit("x", 4, 0)
    yield "offsets of a member", fetch("a", 4)
    yield "offsets of before", fetch("a", 3)
    yield "offsets of an unknown member", fetch("x", 4)
    yield "offsets of nobody", fetch(None, -1)
    yield (
        "a consumer",
        ch.ConsumerGroupHeartbeatRequest(_NAME, "m", 0, None, None, 60_000, [_INPUT], topic_partitions=[]),
    )
    yield "a classic member", jg.JoinGroupRequest(_NAME, 30_000, 30_000, "", None, "consumer", [_protocol()])
    yield "streams groups", lg.ListGroupsRequest([], ["streams"])
    yield "the group is described", sd.StreamsGroupDescribeRequest([_NAME, "wire-unknown", "", "some-group"], True)
    yield "a request to shut down", beat("b", 4, shutdown_application=True)
    yield "the shutdown of the others", beat("a", 4)
    yield "leaving", beat("b", -1)
    yield "the rest", beat("a", 4)
    yield "the last one leaves", beat("a", -1)
    yield "an empty group", sd.StreamsGroupDescribeRequest([_NAME])
    yield "a commit into the empty group", commit("", -1, 1)


def describe(_harness: WireHarness, _version: int) -> Scenario:
    yield "groups with problems", sd.StreamsGroupDescribeRequest(["wire-missing", "wire-delayed"])


def _protocol() -> jg.JoinGroupRequestProtocol:
    return jg.JoinGroupRequestProtocol("range", bytes(6))


STREAMS_SCENARIOS: Mapping[ApiKey, Callable[[WireHarness, int], Scenario]] = {
    ApiKey.STREAMS_GROUP_HEARTBEAT: heartbeat,
    ApiKey.STREAMS_GROUP_DESCRIBE: describe,
}
