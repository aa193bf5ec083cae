"""The answers that parked JoinGroup and SyncGroup requests get."""

from broker.groups.classic import ClassicGroup
from broker.groups.member import ClassicGroupMember
from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupResponse
from protocol.messages.sync_group import SyncGroupResponse


def joined(group: ClassicGroup, member: ClassicGroupMember, *, is_follower: bool = False) -> JoinGroupResponse:
    """The present generation. The leader, who has to share out the partitions, also gets the list of members."""
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        member_id=member.member_id,
        members=group.as_join_members() if group.is_leader(member.member_id) and not is_follower else [],
    )


def join_refused(error: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """No generation, but perhaps a member id to go on with."""
    return JoinGroupResponse(error_code=error, protocol_name=None, member_id=member_id)


def synced(group: ClassicGroup, member: ClassicGroupMember) -> SyncGroupResponse:
    """The member's assignment in the present generation."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )


def sync_refused(error: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error)
