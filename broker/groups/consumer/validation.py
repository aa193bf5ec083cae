"""Checks of ConsumerGroupHeartbeat requests: their form, and the sender's membership and epoch."""

from collections.abc import Collection

from broker.groups.consumer.assignment import Assignment, is_subset
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroupMember,
    MemberAssignment,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def requires_member_id(api_version: int) -> bool:
    """Whether new members bring an id of their own (KIP-1082)."""
    return api_version >= 1


def check_form(request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Collection[str]) -> None:
    """Check what the request alone shows. Raise KafkaError INVALID_REQUEST or UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    if requires_member_id(api_version) or epoch > 0 or epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
        _refuse_if(not request.member_id.strip(), "MemberId can't be empty.")
    _refuse_if(not request.group_id.strip(), "GroupId can't be empty.")
    _refuse_if(_is_blank(request.instance_id), "InstanceId can't be empty.")
    _refuse_if(_is_blank(request.rack_id), "RackId can't be empty.")
    if epoch == JOIN_EPOCH:
        _refuse_if(request.rebalance_timeout_ms == -1, "RebalanceTimeoutMs must be provided in first request.")
        is_owner = request.topic_partitions is None or bool(request.topic_partitions)
        _refuse_if(is_owner, "TopicPartitions must be empty when (re-)joining.")
        has_subscription = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        message = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        _refuse_if(not has_subscription, message)
    elif epoch == STATIC_LEAVE_EPOCH:
        _refuse_if(request.instance_id is None, "InstanceId can't be null.")
    else:
        message = f"MemberEpoch is {epoch}, but must be greater than or equal to -2."
        _refuse_if(epoch < STATIC_LEAVE_EPOCH, message)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def check_room(group: ConsumerGroup, member_id: str, limit: int) -> None:
    """Check that the group has the member, or room for it. Raise KafkaError GROUP_MAX_SIZE_REACHED."""
    if len(group.members) >= limit and member_id not in group.members:
        message = f"The consumer group has reached its maximum capacity of {limit} members."
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)


def check_epoch(current: MemberAssignment, received_epoch: int, owned: Assignment | None) -> None:
    """Check a heartbeat's epoch: the current one, 0 to join again, or the previous one after a lost response.

    The previous epoch counts only from a client that owns no partition beyond its assignment. Raise KafkaError
    FENCED_MEMBER_EPOCH.
    """
    if received_epoch in (JOIN_EPOCH, current.epoch):
        return
    if received_epoch > current.epoch:
        raise _fenced("greater", received_epoch, current.epoch)
    has_lost_response = received_epoch == current.previous_epoch
    if not has_lost_response or owned is None or not is_subset(owned, current.assigned):
        raise _fenced("smaller", received_epoch, current.epoch)


def check_instance(holder: ConsumerGroupMember | None, instance_id: str, member_id: str) -> ConsumerGroupMember:
    """Return the static member that sent a request. Raise KafkaError UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    if holder is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if holder.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {holder.member_id}.",
        )
    return holder


def check_released(holder: ConsumerGroupMember, current: MemberAssignment, member_id: str) -> None:
    """Check that the holder of an instance id has left it. Raise KafkaError UNRELEASED_INSTANCE_ID."""
    if current.epoch != STATIC_LEAVE_EPOCH:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {holder.instance_id} cannot join the group because the "
            f"instance id is owned by {holder.member_id} member.",
        )


def _is_blank(text: str | None) -> bool:
    return text is not None and not text.strip()


def _refuse_if(is_wrong: bool, message: str) -> None:
    if is_wrong:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _fenced(comparison: str, received_epoch: int, known_epoch: int) -> KafkaError:
    return KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {comparison} member epoch ({received_epoch}) than the one known by the "
        f"group coordinator ({known_epoch}). The member must abandon all its partitions and rejoin.",
    )
