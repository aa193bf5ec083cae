"""Checks of ShareGroupHeartbeat requests: their form, and the sender's membership and epoch."""

from typing import NoReturn

from broker.groups.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, MemberAssignment
from broker.groups.share.group import ShareGroup
from broker.groups.share.member import SHARE_MEMBER_ID_MAX_LENGTH
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest


def check_share_form(request: ShareGroupHeartbeatRequest) -> None:
    """Check what the request alone shows. Raise KafkaError INVALID_REQUEST."""
    _refuse_if(len(request.member_id) > SHARE_MEMBER_ID_MAX_LENGTH, "Invalid member id in the request.")
    _refuse_if(not request.member_id.strip(), "MemberId can't be empty.")
    _refuse_if(not request.group_id.strip(), "GroupId can't be empty.")
    _refuse_if(request.rack_id is not None and not request.rack_id.strip(), "RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        _refuse_if(not request.subscribed_topic_names, "SubscribedTopicNames must be set in first request.")
    _refuse_if(request.member_epoch < LEAVE_EPOCH, "MemberEpoch is invalid.")


def check_share_room(group: ShareGroup, member_id: str, limit: int) -> None:
    """Check that the group has the member, or room for it. Raise KafkaError GROUP_MAX_SIZE_REACHED."""
    if len(group.members) >= limit and member_id not in group.members:
        message = f"The share group has reached its maximum capacity of {limit} members."
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)


def check_share_epoch(current: MemberAssignment, received_epoch: int) -> None:
    """Check a heartbeat's epoch: the current one, 0 to join again, or the previous one after a lost response.

    Raise KafkaError FENCED_MEMBER_EPOCH.
    """
    if received_epoch not in (JOIN_EPOCH, current.epoch, current.previous_epoch):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has another member epoch ({received_epoch}) than the one known by the group "
            f"coordinator ({current.epoch}). The member must abandon all its partitions and rejoin.",
        )


def refuse_share_group(group: ShareGroup) -> NoReturn:
    """Refuse a request about committed offsets: share groups have none. Raise KafkaError GROUP_ID_NOT_FOUND."""
    raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a consumer group.")


def _refuse_if(is_wrong: bool, message: str) -> None:
    if is_wrong:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
