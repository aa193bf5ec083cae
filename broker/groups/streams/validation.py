"""Checks of StreamsGroupHeartbeat requests: their form, and the sender's membership, epoch and tasks."""

from collections.abc import Iterable
from typing import Final

from broker.groups.consumer.member import JOIN_EPOCH, STATIC_LEAVE_EPOCH
from broker.groups.streams.configuration import ConfiguredTopology
from broker.groups.streams.group import StreamsGroup
from broker.groups.streams.member import StreamsMemberAssignment
from broker.groups.streams.tasks import Tasks, all_tasks, are_tasks_within, task_set
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest

_TASK_FIELDS: Final = (
    ("active_tasks", "ActiveTasks"),
    ("standby_tasks", "StandbyTasks"),
    ("warmup_tasks", "WarmupTasks"),
)


def check_streams_form(request: StreamsGroupHeartbeatRequest) -> None:
    """Check what the request alone shows, in Kafka's order.

    Raise KafkaError: INVALID_REQUEST or STREAMS_INVALID_TOPOLOGY.
    """
    _check_features(request)
    for text, name in (
        (request.member_id, "MemberId"),
        (request.group_id, "GroupId"),
        (request.rack_id, "RackId"),
    ):
        _refuse_if(text is not None and not text.strip(), f"{name} can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        _check_first(request)
    else:
        _refuse_if(request.member_epoch == STATIC_LEAVE_EPOCH, "InstanceId can't be null.")
        message = f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2."
        _refuse_if(request.member_epoch < STATIC_LEAVE_EPOCH, message)
    roles = [getattr(request, field) for field, _ in _TASK_FIELDS]
    is_partial = None in roles and any(role is not None for role in roles)
    _refuse_if(is_partial, "If one task-type is non-null, all must be non-null.")
    if request.member_epoch != JOIN_EPOCH:
        _refuse_if(request.topology is not None, "Topology can only be provided when (re-)joining.")


def _check_features(request: StreamsGroupHeartbeatRequest) -> None:
    """Refuse the parts of the protocol that Kafka 4.2 does not serve either."""
    _refuse_if(request.instance_id is not None, "Static membership is not yet supported.")
    _refuse_if(request.task_offsets is not None, "TaskOffsets are not supported yet.")
    _refuse_if(request.task_end_offsets is not None, "TaskEndOffsets are not supported yet.")
    _refuse_if(bool(request.warmup_tasks), "WarmupTasks are not supported yet.")
    subtopologies = [] if request.topology is None else request.topology.subtopologies
    has_pattern = any(each.source_topic_regex for each in subtopologies)
    _refuse_if(has_pattern, "Regular expressions for source topics are not supported yet.")


def _check_first(request: StreamsGroupHeartbeatRequest) -> None:
    _refuse_if(request.rebalance_timeout_ms == -1, "RebalanceTimeoutMs must be provided in first request.")
    for field, name in _TASK_FIELDS:
        is_absent_or_owned = getattr(request, field) != []
        _refuse_if(is_absent_or_owned, f"{name} must be empty when (re-)joining.")
    if request.topology is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Topology must be non-null when (re-)joining.")
    for topic in (topic for each in request.topology.subtopologies for topic in each.state_changelog_topics):
        if topic.partitions:
            message = (
                f"Changelog topic {topic.name} must have an undefined partition count, but it is set to"
                f" {topic.partitions}."
            )
            raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def owned_tasks(request: StreamsGroupHeartbeatRequest) -> Tasks | None:
    """Return the tasks that the client names as its own; None when it does not."""
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    return Tasks(task_set(request.active_tasks), task_set(request.standby_tasks), task_set(request.warmup_tasks))


def check_streams_room(group: StreamsGroup, limit: int) -> None:
    """Check that the group has room for a joining member. Raise KafkaError GROUP_MAX_SIZE_REACHED."""
    if len(group.members) >= limit:
        message = f"The streams group has reached its maximum capacity of {limit} members."
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)


def check_streams_epoch(current: StreamsMemberAssignment, received_epoch: int, owned: Tasks | None) -> None:
    """Check a heartbeat's epoch: the current one, 0 to join again, or the previous one after a lost response.

    The previous epoch counts only from a client that owns no task beyond its assignment. Raise KafkaError
    FENCED_MEMBER_EPOCH.
    """
    if received_epoch in (JOIN_EPOCH, current.epoch):
        return
    comparison = "greater" if received_epoch > current.epoch else "smaller"
    is_within = owned is not None and are_tasks_within(owned, current.assigned.without_epochs())
    if comparison == "smaller" and received_epoch == current.previous_epoch and is_within:
        return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {comparison} member epoch ({received_epoch}) than the one known by the "
        f"group coordinator ({current.epoch}). The member must abandon all its partitions and rejoin.",
    )


def check_owned_tasks(owned: Tasks, configured: ConfiguredTopology) -> None:
    """Check that the topology has the tasks. Raise KafkaError INVALID_REQUEST."""
    for subtopology, partition in all_tasks(owned):
        found = configured.subtopologies.get(subtopology)
        if found is None:
            _refuse_if(True, f"Subtopology {subtopology} does not exist in the topology.")
        elif not 0 <= partition < found.task_count:
            message = (
                f"Task {partition} for subtopology {subtopology} is invalid. Number of tasks for this subtopology:"
                f" {found.task_count}"
            )
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def topology_topics(request: StreamsGroupHeartbeatRequest) -> Iterable[str]:
    """Return the distinct names of all topics in the request's topology, in order."""
    subtopologies = [] if request.topology is None else request.topology.subtopologies
    names: dict[str, None] = {}
    for each in subtopologies:
        names |= dict.fromkeys(each.source_topics)
        names |= dict.fromkeys(each.repartition_sink_topics)
        names |= dict.fromkeys(topic.name for topic in each.repartition_source_topics)
        names |= dict.fromkeys(topic.name for topic in each.state_changelog_topics)
    return names


def _refuse_if(is_wrong: bool, message: str) -> None:
    if is_wrong:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
