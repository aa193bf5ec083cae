"""The records of streams groups in `__consumer_offsets`, in Kafka's formats, and their events (KIP-1071).

| type | record | written when |
|---|---|---|
| 17 | group epoch, hash of the required topics, validated topology epoch, assignment configs | the group epoch is incremented |
| 19 | member | the member is new or has changed |
| 20 | epoch of the target assignment | a target assignment is computed; follows its members' records |
| 21 | target assignment of a member | it has changed |
| 22 | current assignment of a member | a reconciliation step |
| 23 | topology | the first member brings it |

Keys name the group, and where there is one, the member. A replay applies each record on its own, because compaction may
have removed the others of its batch.
"""  # noqa: E501  rows of a table

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from broker.coordination.shard import CoordinatorRecord
from broker.groups.record_format import decode_key, decode_value, group_record
from broker.groups.streams.member import (
    StreamsGroupMember,
    StreamsMemberAssignment,
    TaskReconciliationState,
    UserEndpoint,
)
from broker.groups.streams.tasks import ActiveTasks, AssignedTasks, Tasks, TaskSet, in_task_order, task_set
from broker.groups.streams.topology import InternalTopic, StreamsTopology, topology_of
from protocol.errors import DecodeError, KafkaError
from protocol.messages import group_records as messages


class StreamsEpochWritten(NamedTuple):
    group_id: str
    epoch: int
    metadata_hash: int
    validated_topology_epoch: int
    assignment_configs: tuple[tuple[str, str], ...]


class StreamsGroupRemoved(NamedTuple):
    group_id: str


class StreamsTopologyWritten(NamedTuple):
    group_id: str
    topology: StreamsTopology


class StreamsTopologyRemoved(NamedTuple):
    group_id: str


class StreamsMemberWritten(NamedTuple):
    group_id: str
    member: StreamsGroupMember


class StreamsMemberRemoved(NamedTuple):
    group_id: str
    member_id: str


class StreamsTargetEpochWritten(NamedTuple):
    group_id: str
    epoch: int


class StreamsTargetEpochRemoved(NamedTuple):
    group_id: str


class StreamsTargetWritten(NamedTuple):
    group_id: str
    member_id: str
    target: Tasks


class StreamsTargetRemoved(NamedTuple):
    group_id: str
    member_id: str


class StreamsCurrentWritten(NamedTuple):
    group_id: str
    member_id: str
    assignment: StreamsMemberAssignment


class StreamsCurrentRemoved(NamedTuple):
    group_id: str
    member_id: str


CREATING_EVENTS: Final = (
    StreamsEpochWritten,
    StreamsTopologyWritten,
    StreamsMemberWritten,
    StreamsTargetEpochWritten,
    StreamsTargetWritten,
    StreamsCurrentWritten,
)
StreamsGroupEvent = (
    StreamsEpochWritten
    | StreamsGroupRemoved
    | StreamsTopologyWritten
    | StreamsTopologyRemoved
    | StreamsMemberWritten
    | StreamsMemberRemoved
    | StreamsTargetEpochWritten
    | StreamsTargetEpochRemoved
    | StreamsTargetWritten
    | StreamsTargetRemoved
    | StreamsCurrentWritten
    | StreamsCurrentRemoved
)
StreamsGroupRecord = CoordinatorRecord[Any]
"""A record whose event is a StreamsGroupEvent; the shard's event type includes it."""


def streams_epoch_written(
    group_id: str, epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]
) -> StreamsGroupRecord:
    """Return the record of a new group epoch."""
    value = messages.StreamsGroupMetadataValue(
        epoch,
        metadata_hash,
        validated_topology_epoch,
        [messages.LastAssignmentConfig(*each) for each in configs.items()],
    )
    event = StreamsEpochWritten(group_id, epoch, metadata_hash, validated_topology_epoch, tuple(configs.items()))
    return group_record(messages.StreamsGroupMetadataKey(group_id), value, event)


def streams_topology_written(group_id: str, topology: StreamsTopology) -> StreamsGroupRecord:
    """Return the record of the group's topology."""
    value = messages.StreamsGroupTopologyValue(
        topology.epoch,
        [
            messages.Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=list(each.source_topics),
                source_topic_regex=list(each.source_patterns),
                state_changelog_topics=_topic_infos(each.changelogs),
                repartition_sink_topics=list(each.repartition_sinks),
                repartition_source_topics=_topic_infos(each.repartition_sources),
                copartition_groups=[
                    messages.CopartitionGroup(
                        list(group.source_topics), list(group.source_patterns), list(group.repartition_sources)
                    )
                    for group in each.copartition_groups
                ],
            )
            for each in topology.subtopologies.values()
        ],
    )
    return group_record(messages.StreamsGroupTopologyKey(group_id), value, StreamsTopologyWritten(group_id, topology))


def streams_member_written(group_id: str, member: StreamsGroupMember) -> StreamsGroupRecord:
    """Return the record of a member."""
    endpoint = member.endpoint
    value = messages.StreamsGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else messages.Endpoint(endpoint.host, endpoint.port),
        client_tags=[messages.KeyValue(*tag) for tag in member.client_tags],
    )
    key = messages.StreamsGroupMemberMetadataKey(group_id, member.member_id)
    return group_record(key, value, StreamsMemberWritten(group_id, member))


def streams_target_epoch_written(group_id: str, epoch: int) -> StreamsGroupRecord:
    """Return the record that completes a target assignment."""
    value = messages.StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
    key = messages.StreamsGroupTargetAssignmentMetadataKey(group_id)
    return group_record(key, value, StreamsTargetEpochWritten(group_id, epoch))


def streams_target_written(group_id: str, member_id: str, target: Tasks) -> StreamsGroupRecord:
    """Return the record of a member's target assignment."""

    def lists(tasks: TaskSet) -> list[messages.StreamsGroupTargetAssignmentMemberValueTaskIds]:
        return [messages.StreamsGroupTargetAssignmentMemberValueTaskIds(*each) for each in in_task_order(tasks)]

    value = messages.StreamsGroupTargetAssignmentMemberValue(
        lists(target.active), lists(target.standby), lists(target.warmup)
    )
    key = messages.StreamsGroupTargetAssignmentMemberKey(group_id, member_id)
    return group_record(key, value, StreamsTargetWritten(group_id, member_id, target))


def streams_current_written(group_id: str, member_id: str, assignment: StreamsMemberAssignment) -> StreamsGroupRecord:
    """Return the record of a member's current assignment."""
    assigned, revoking = assignment.assigned, assignment.revoking
    value = messages.StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=assignment.epoch,
        previous_member_epoch=assignment.previous_epoch,
        state=assignment.state,
        active_tasks=_active_lists(assigned.active),
        standby_tasks=_task_lists(assigned.standby),
        warmup_tasks=_task_lists(assigned.warmup),
        active_tasks_pending_revocation=_active_lists(revoking.active),
        standby_tasks_pending_revocation=_task_lists(revoking.standby),
        warmup_tasks_pending_revocation=_task_lists(revoking.warmup),
    )
    key = messages.StreamsGroupCurrentMemberAssignmentKey(group_id, member_id)
    return group_record(key, value, StreamsCurrentWritten(group_id, member_id, assignment))


def streams_member_removed(group_id: str, member_id: str) -> list[StreamsGroupRecord]:
    """Return the tombstones of a member: current assignment, target assignment, member."""
    names = (group_id, member_id)
    return [
        group_record(messages.StreamsGroupCurrentMemberAssignmentKey(*names), None, StreamsCurrentRemoved(*names)),
        group_record(messages.StreamsGroupTargetAssignmentMemberKey(*names), None, StreamsTargetRemoved(*names)),
        group_record(messages.StreamsGroupMemberMetadataKey(*names), None, StreamsMemberRemoved(*names)),
    ]


def streams_group_removed(group_id: str, member_ids: Iterable[str]) -> list[StreamsGroupRecord]:
    """Return the tombstones of a group, in Kafka's order."""
    members = [streams_member_removed(group_id, member_id) for member_id in member_ids]
    target_epoch = messages.StreamsGroupTargetAssignmentMetadataKey(group_id)
    return [
        *(current for current, _, _ in members),
        *(target for _, target, _ in members),
        group_record(target_epoch, None, StreamsTargetEpochRemoved(group_id)),
        *(member for _, _, member in members),
        group_record(messages.StreamsGroupMetadataKey(group_id), None, StreamsGroupRemoved(group_id)),
        group_record(messages.StreamsGroupTopologyKey(group_id), None, StreamsTopologyRemoved(group_id)),
    ]


# Decoding.


def decode_streams_record(record_type: int, key: bytes, value: bytes | None) -> StreamsGroupEvent | None:
    """Decode a record of the types above; None for any other type. Raise DecodeError."""
    decoder = _DECODERS.get(record_type)
    return None if decoder is None else decoder(key, value)


def _decode_epoch(key: bytes, value: bytes | None) -> StreamsGroupEvent:
    group_id = decode_key(messages.StreamsGroupMetadataKey, key).group_id
    if value is None:
        return StreamsGroupRemoved(group_id)
    stored = decode_value(messages.StreamsGroupMetadataValue, value)
    configs = tuple((each.key, each.value) for each in stored.last_assignment_configs or ())
    return StreamsEpochWritten(group_id, stored.epoch, stored.metadata_hash, stored.validated_topology_epoch, configs)


def _decode_topology(key: bytes, value: bytes | None) -> StreamsGroupEvent:
    group_id = decode_key(messages.StreamsGroupTopologyKey, key).group_id
    if value is None:
        return StreamsTopologyRemoved(group_id)
    try:
        topology = topology_of(decode_value(messages.StreamsGroupTopologyValue, value))
    except KafkaError as error:
        raise DecodeError(f"the topology of group {group_id}: {error}") from error
    return StreamsTopologyWritten(group_id, topology)


def _decode_member(key: bytes, value: bytes | None) -> StreamsGroupEvent:
    named = decode_key(messages.StreamsGroupMemberMetadataKey, key)
    if value is None:
        return StreamsMemberRemoved(named.group_id, named.member_id)
    stored = decode_value(messages.StreamsGroupMemberMetadataValue, value)
    endpoint = stored.user_endpoint
    member = StreamsGroupMember(
        member_id=named.member_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        instance_id=stored.instance_id,
        rack_id=stored.rack_id,
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        topology_epoch=stored.topology_epoch,
        process_id=stored.process_id,
        endpoint=None if endpoint is None else UserEndpoint(endpoint.host, endpoint.port),
        client_tags=tuple((tag.key, tag.value) for tag in stored.client_tags),
    )
    return StreamsMemberWritten(named.group_id, member)


def _decode_target_epoch(key: bytes, value: bytes | None) -> StreamsGroupEvent:
    group_id = decode_key(messages.StreamsGroupTargetAssignmentMetadataKey, key).group_id
    if value is None:
        return StreamsTargetEpochRemoved(group_id)
    stored = decode_value(messages.StreamsGroupTargetAssignmentMetadataValue, value)
    return StreamsTargetEpochWritten(group_id, stored.assignment_epoch)


def _decode_target(key: bytes, value: bytes | None) -> StreamsGroupEvent:
    named = decode_key(messages.StreamsGroupTargetAssignmentMemberKey, key)
    if value is None:
        return StreamsTargetRemoved(named.group_id, named.member_id)
    stored = decode_value(messages.StreamsGroupTargetAssignmentMemberValue, value)
    target = Tasks(task_set(stored.active_tasks), task_set(stored.standby_tasks), task_set(stored.warmup_tasks))
    return StreamsTargetWritten(named.group_id, named.member_id, target)


def _decode_current(key: bytes, value: bytes | None) -> StreamsGroupEvent:
    named = decode_key(messages.StreamsGroupCurrentMemberAssignmentKey, key)
    if value is None:
        return StreamsCurrentRemoved(named.group_id, named.member_id)
    stored = decode_value(messages.StreamsGroupCurrentMemberAssignmentValue, value)
    epoch = stored.member_epoch
    assigned = AssignedTasks(
        _active_tasks(stored.active_tasks, epoch), task_set(stored.standby_tasks), task_set(stored.warmup_tasks)
    )
    revoking = AssignedTasks(
        _active_tasks(stored.active_tasks_pending_revocation, epoch),
        task_set(stored.standby_tasks_pending_revocation),
        task_set(stored.warmup_tasks_pending_revocation),
    )
    state = TaskReconciliationState.of(stored.state)
    assignment = StreamsMemberAssignment(epoch, stored.previous_member_epoch, state, assigned, revoking)
    return StreamsCurrentWritten(named.group_id, named.member_id, assignment)


_DECODERS: Final[Mapping[int, Callable[[bytes, bytes | None], StreamsGroupEvent]]] = {
    messages.StreamsGroupMetadataKey.API_KEY: _decode_epoch,
    messages.StreamsGroupMemberMetadataKey.API_KEY: _decode_member,
    messages.StreamsGroupTargetAssignmentMetadataKey.API_KEY: _decode_target_epoch,
    messages.StreamsGroupTargetAssignmentMemberKey.API_KEY: _decode_target,
    messages.StreamsGroupCurrentMemberAssignmentKey.API_KEY: _decode_current,
    messages.StreamsGroupTopologyKey.API_KEY: _decode_topology,
}


def _active_tasks(
    stored: Iterable[messages.StreamsGroupCurrentMemberAssignmentValueTaskIds], epoch: int
) -> ActiveTasks:
    """Return the tasks with their epochs; records of Kafka 4.1 have none, and mean the member epoch."""
    found: dict[str, dict[int, int]] = {}
    for each in stored:
        epochs = each.assignment_epochs or [epoch] * len(each.partitions)
        if len(epochs) != len(each.partitions):
            raise DecodeError(f"{len(each.partitions)} tasks have {len(epochs)} assignment epochs")
        if each.partitions:
            found.setdefault(each.subtopology_id, {}).update(zip(each.partitions, epochs, strict=True))
    return found


def _active_lists(tasks: ActiveTasks) -> list[messages.StreamsGroupCurrentMemberAssignmentValueTaskIds]:
    return [
        messages.StreamsGroupCurrentMemberAssignmentValueTaskIds(
            name, sorted(tasks[name]), [tasks[name][partition] for partition in sorted(tasks[name])]
        )
        for name in sorted(tasks)
    ]


def _task_lists(tasks: TaskSet) -> list[messages.StreamsGroupCurrentMemberAssignmentValueTaskIds]:
    return [
        messages.StreamsGroupCurrentMemberAssignmentValueTaskIds(name, partitions, [])
        for name, partitions in in_task_order(tasks)
    ]


def _topic_infos(topics: Iterable[InternalTopic]) -> list[messages.StreamsGroupTopologyValueTopicInfo]:
    return [
        messages.StreamsGroupTopologyValueTopicInfo(
            topic.name,
            topic.partitions,
            topic.replication_factor,
            [messages.TopicConfig(*config) for config in topic.configs],
        )
        for topic in topics
    ]
