"""StreamsGroupDescribe and ListGroups: the administrator's view of streams groups."""

from collections.abc import Iterable

from broker.groups.streams.configuration import ConfiguredSubtopology
from broker.groups.streams.group import StreamsGroup
from broker.groups.streams.member import StreamsGroupMember
from broker.groups.streams.tasks import Tasks, TaskSet, in_task_order
from broker.groups.streams.topology import InternalTopic, StreamsSubtopology, StreamsTopology
from protocol.messages import streams_group_describe as messages
from protocol.messages.list_groups import ListedGroup

STREAMS_GROUP_TYPE = "streams"


def listed_streams_group(group: StreamsGroup) -> ListedGroup:
    """Return the group's entry in ListGroups."""
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=STREAMS_GROUP_TYPE,
        group_state=group.state.value,
        group_type=STREAMS_GROUP_TYPE,
    )


def describe_streams_group(group: StreamsGroup) -> messages.DescribedGroup:
    """Return the group with its topology and members; internal topics have partition counts once they are decided."""
    return messages.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        topology=None if group.topology is None else _topology(group, group.topology),
        members=[_member(group, member) for member in group.members.values()],
    )


def _topology(group: StreamsGroup, topology: StreamsTopology) -> messages.Topology:
    configured = group.configured
    subtopologies: Iterable[tuple[str, StreamsSubtopology | ConfiguredSubtopology]] = topology.subtopologies.items()
    if configured is not None and configured.is_ready:
        subtopologies = configured.subtopologies.items()
    described = [
        messages.Subtopology(
            subtopology_id=name,
            source_topics=sorted(each.source_topics),
            repartition_sink_topics=sorted(each.repartition_sinks),
            state_changelog_topics=_internal_topics(each.changelogs),
            repartition_source_topics=_internal_topics(each.repartition_sources),
        )
        for name, each in sorted(subtopologies, key=lambda item: item[0])
    ]
    return messages.Topology(topology.epoch, described)


def _internal_topics(topics: Iterable[InternalTopic]) -> list[messages.TopicInfo]:
    return [
        messages.TopicInfo(
            topic.name,
            topic.partitions,
            topic.replication_factor,
            [messages.KeyValue(*config) for config in topic.configs],
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]


def _member(group: StreamsGroup, member: StreamsGroupMember) -> messages.Member:
    current = group.current(member.member_id)
    endpoint = member.endpoint
    return messages.Member(
        member_id=member.member_id,
        member_epoch=current.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else messages.Endpoint(endpoint.host, endpoint.port),
        client_tags=[messages.KeyValue(*tag) for tag in member.client_tags],
        assignment=_assignment(current.assigned.without_epochs()),
        target_assignment=_assignment(group.target(member.member_id)),
    )


def _assignment(tasks: Tasks) -> messages.Assignment:
    return messages.Assignment(_task_ids(tasks.active), _task_ids(tasks.standby), _task_ids(tasks.warmup))


def _task_ids(tasks: TaskSet) -> list[messages.TaskIds]:
    return [messages.TaskIds(*each) for each in in_task_order(tasks)]
