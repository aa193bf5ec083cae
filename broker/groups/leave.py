"""LeaveGroup: removes members at once, on their own request or an administrator's (KIP-345)."""

from logging import getLogger

from broker.coordination.shard import CoordinatorResult
from broker.groups.classic import ClassicGroup
from broker.groups.rebalance import Rebalances
from broker.groups.records import GroupEvent
from broker.groups.state import GroupState
from broker.groups.table import GroupTable
from broker.groups.timers import GroupTimers
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse

_log = getLogger(__name__)


class LeaveGroup:
    """Handles LeaveGroup requests with a valid group id, as lists of members."""

    def __init__(self, groups: GroupTable, rebalances: Rebalances, timers: GroupTimers) -> None:
        self._groups = groups
        self._rebalances = rebalances
        self._timers = timers

    def run(self, group_id: str, leavers: list[MemberIdentity]) -> CoordinatorResult[GroupEvent, LeaveGroupResponse]:
        """Remove the members, then start at most one rebalance."""
        group = self._groups.get(group_id)
        if group is None:
            return CoordinatorResult(
                LeaveGroupResponse(members=[_answer(each, ErrorCode.UNKNOWN_MEMBER_ID) for each in leavers])
            )
        if group.state is GroupState.DEAD:
            return CoordinatorResult(LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        response = LeaveGroupResponse(members=[_answer(each, self._remove(group, each)) for each in leavers])
        has_removed = any(each.error_code == ErrorCode.NONE for each in response.members)
        if not has_removed or group.is_empty:
            return CoordinatorResult(response)
        return self._rebalances.prepare_or_complete(group, f"{len(leavers)} left").answering(response)

    def _remove(self, group: ClassicGroup, leaver: MemberIdentity) -> ErrorCode:
        if leaver.member_id in group.pending_joins:
            group.remove(leaver.member_id)
            self._timers.end_session(group, leaver.member_id)
            return ErrorCode.NONE
        try:
            member = group.member_or_raise(_member_id(group, leaver), leaver.group_instance_id)
        except KafkaError as error:
            return error.code
        reason = leaver.reason or "not provided"
        _log.info("member left group=%s member=%s reason=%s", group.group_id, member.member_id, reason)
        self._rebalances.drop(group, member)
        return ErrorCode.NONE


def _member_id(group: ClassicGroup, leaver: MemberIdentity) -> str:
    """Return the member's id; an administrator may name a static member by its instance alone."""
    if leaver.member_id or leaver.group_instance_id is None:
        return leaver.member_id
    return group.static_member_id(leaver.group_instance_id) or ""


def _answer(leaver: MemberIdentity, error: ErrorCode) -> MemberResponse:
    return MemberResponse(member_id=leaver.member_id, group_instance_id=leaver.group_instance_id, error_code=error)
