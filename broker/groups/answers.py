"""Responses to JoinGroup and SyncGroup requests."""

from broker.groups.classic import ClassicGroup
from broker.groups.member import ClassicGroupMember
from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from protocol.messages.sync_group import SyncGroupResponse


def joined(group: ClassicGroup, member: ClassicGroupMember, *, is_follower: bool = False) -> JoinGroupResponse:
    """Return the current generation. The leader, which assigns the partitions, also gets the list of members."""
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        member_id=member.member_id,
        members=_members(group) if group.leader == member.member_id and not is_follower else [],
    )


def _members(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    """Return the members as the leader sees them."""
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata(group.protocol),
        )
        for member in group.members.values()
    ]


def join_refused(error: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """Return an error without a generation, possibly with a member id for the next attempt."""
    return JoinGroupResponse(error_code=error, protocol_name=None, member_id=member_id)


def synced(group: ClassicGroup, member: ClassicGroupMember) -> SyncGroupResponse:
    """Return the member's assignment in the current generation."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )


def sync_refused(error: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error)
