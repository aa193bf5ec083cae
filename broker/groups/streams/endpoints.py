"""The partitions behind each user endpoint, by which instances find the owner of a key (interactive queries)."""

from collections.abc import Iterable

from broker.groups.consumer.topics import TopicsView
from broker.groups.streams.group import StreamsGroup
from broker.groups.streams.member import StreamsGroupMember, StreamsMemberAssignment
from broker.groups.streams.tasks import TaskSet, in_task_order
from protocol.messages.streams_group_heartbeat import (
    EndpointToPartitions,
    StreamsGroupHeartbeatResponseEndpoint,
    TopicPartition,
)


def partitions_by_endpoint(
    group: StreamsGroup, sender: StreamsGroupMember, assignment: StreamsMemberAssignment, topics: TopicsView
) -> list[EndpointToPartitions]:
    """Return the partitions of all members with an endpoint; `sender` has this assignment from now on, and is last."""
    others = ((each, group.current(each.member_id)) for each in group.members.values())
    members = [(each, current) for each, current in others if each.member_id != sender.member_id]
    return [
        EndpointToPartitions(
            StreamsGroupHeartbeatResponseEndpoint(each.endpoint.host, each.endpoint.port),
            list(_partitions(group, current.assigned.without_epochs().active, topics)),
            list(_partitions(group, current.assigned.standby, topics)),
        )
        for each, current in [*members, (sender, assignment)]
        if each.endpoint is not None
    ]


def _partitions(group: StreamsGroup, tasks: TaskSet, topics: TopicsView) -> Iterable[TopicPartition]:
    """Yield the partitions of the input topics that belong to the tasks."""
    subtopologies = {} if group.configured is None else group.configured.subtopologies
    for name, partitions in in_task_order(tasks):
        subtopology = subtopologies.get(name)
        if subtopology is None:
            continue
        for input_topic in (*subtopology.source_topics, *(each.name for each in subtopology.repartition_sources)):
            topic = topics.describe(input_topic)
            if topic is not None:
                yield TopicPartition(input_topic, [index for index in partitions if index < topic.partition_count])
