"""Heartbeat: renews a member's session and reports whether the member must rejoin."""

from collections.abc import Mapping

from broker.groups.state import GroupState
from broker.groups.table import GroupTable
from broker.groups.timers import GroupTimers
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.heartbeat import HeartbeatRequest

# Results for a member of the current generation. A client may send heartbeats before it has its assignment.
_ANSWERS: Mapping[GroupState, ErrorCode] = {
    GroupState.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    GroupState.PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    GroupState.COMPLETING_REBALANCE: ErrorCode.NONE,
    GroupState.STABLE: ErrorCode.NONE,
}


class Heartbeat:
    """Handles Heartbeat requests with a valid group id."""

    def __init__(self, groups: GroupTable, timers: GroupTimers) -> None:
        self._groups = groups
        self._timers = timers

    def run(self, request: HeartbeatRequest) -> ErrorCode:
        """Renew the session and return the group's status. Raise KafkaError when the caller is no member."""
        group = self._groups.get(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if group.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        member = group.member_or_raise(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        self._timers.renew_session(group, member)
        return _ANSWERS[group.state]
