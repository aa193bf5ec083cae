"""JoinGroup: a client joins the next generation of a group.

The response follows at once for an error, or when the current generation remains valid; else when the join phase ends
(`rebalance.py`). A new member gets a member id. A dynamic member must rejoin with it before it counts (KIP-394), so
that a client that lost the response does not leave an unused member behind. A static member (KIP-345) takes over its
instance's slot.
"""

from collections.abc import Callable

from broker.coordination.shard import CoordinatorResult
from broker.coordination.timers import CoordinatorClock
from broker.groups.answers import joined
from broker.groups.attempt import JoinAttempt, requires_known_member_id
from broker.groups.classic import ClassicGroup
from broker.groups.config import GroupConfig
from broker.groups.member import ClassicGroupMember
from broker.groups.rebalance import NOTHING, Outcome, Rebalances
from broker.groups.records import group_created
from broker.groups.state import GroupState
from broker.groups.static_join import StaticReplacement
from broker.groups.table import GroupTable
from broker.groups.timers import GroupTimers
from protocol.errors import ErrorCode, KafkaError


class JoinGroup:
    """Handles join attempts with a valid group id and session timeout."""

    def __init__(
        self,
        groups: GroupTable,
        rebalances: Rebalances,
        timers: GroupTimers,
        config: GroupConfig,
        clock: CoordinatorClock,
        new_uuid: Callable[[], str],
    ) -> None:
        self._groups = groups
        self._rebalances = rebalances
        self._timers = timers
        self._config = config
        self._clock = clock
        self._new_uuid = new_uuid
        self._static_replacement = StaticReplacement(rebalances, timers)

    def run(self, attempt: JoinAttempt) -> Outcome:
        """Answer the attempt now or park its reply."""
        group = self._groups.get(attempt.group_id)
        if group is not None:
            return self._join(group, attempt)
        if attempt.member_id:
            return _refuse(attempt, ErrorCode.UNKNOWN_MEMBER_ID, attempt.member_id)
        group = self._groups.put(ClassicGroup(attempt.group_id, state_since_ms=self._clock.now_ms()))
        outcome = self._join(group, attempt)
        if outcome.records:
            return outcome
        # The group is written before it has a generation, so that it survives a failover. If the write fails, the group
        # continues here, and after a failover its members join again; no request waits for the write.
        return CoordinatorResult(None, [group_created(group)], replayed=False)

    def _join(self, group: ClassicGroup, attempt: JoinAttempt) -> Outcome:
        if not self._has_room(group, attempt.member_id):
            group.remove(attempt.member_id)
            return _refuse(attempt, ErrorCode.GROUP_MAX_SIZE_REACHED)
        if group.state is GroupState.DEAD:
            return _refuse(attempt, ErrorCode.COORDINATOR_NOT_AVAILABLE, attempt.member_id)
        if not group.supports(attempt.protocol_type, [protocol.name for protocol in attempt.protocols]):
            return _refuse(attempt, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, attempt.member_id)
        return self._join_with_id(group, attempt) if attempt.member_id else self._join_without_id(group, attempt)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether the group is below `group.max.size`, or already counts the member.

        During a rebalance, members with a parked JoinGroup count instead of all members: if the limit has been lowered,
        the last members to rejoin are refused.
        """
        member = group.members.get(member_id)
        match group.state:
            case GroupState.PREPARING_REBALANCE:
                counts = member is not None and member.awaits_join
                return counts or group.parked_join_count < self._config.group_max_size
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
                return member is not None or len(group.members) < self._config.group_max_size
            case _:
                return True

    def _join_without_id(self, group: ClassicGroup, attempt: JoinAttempt) -> Outcome:
        """Join a new member, or the restarted process of a static member."""
        instance_id = attempt.instance_id
        member_id = f"{attempt.caller.client_id if instance_id is None else instance_id}-{self._new_uuid()}"
        if instance_id is not None and group.static_member_id(instance_id) is not None:
            return self._static_replacement.run(group, instance_id, member_id, attempt)
        if instance_id is None and requires_known_member_id(attempt.caller.api_version):
            group.pending_joins.add(member_id)
            self._timers.start_pending_session(group, member_id, attempt.session_timeout_ms)
            return _refuse(attempt, ErrorCode.MEMBER_ID_REQUIRED, member_id)
        return self._add(group, member_id, attempt)

    def _join_with_id(self, group: ClassicGroup, attempt: JoinAttempt) -> Outcome:
        """Join a pending member that returns with its id, or an existing member."""
        member_id = attempt.member_id
        if member_id in group.pending_joins:
            if attempt.instance_id is not None:  # ids of static members are never pending
                return _refuse(attempt, ErrorCode.UNKNOWN_SERVER_ERROR)
            return self._add(group, member_id, attempt)
        try:
            member = group.member_or_raise(member_id, attempt.instance_id)
        except KafkaError as error:
            return _refuse(attempt, error.code, member_id)
        return self._rejoin(group, member, attempt)

    def _rejoin(self, group: ClassicGroup, member: ClassicGroupMember, attempt: JoinAttempt) -> Outcome:
        """Rejoin an existing member. A leader rejoins to have partitions reassigned, so its JoinGroup always
        rebalances.
        """
        has_changed = member.protocols != attempt.protocols
        must_rebalance = {
            GroupState.PREPARING_REBALANCE: True,
            GroupState.COMPLETING_REBALANCE: has_changed,
            GroupState.STABLE: has_changed or group.leader == member.member_id,
        }.get(group.state)
        if must_rebalance is None:
            return _refuse(attempt, ErrorCode.UNKNOWN_MEMBER_ID, member.member_id)
        if not must_rebalance:
            attempt.reply.complete(joined(group, member))
            return NOTHING
        attempt.park(group, member)
        return self._rebalances.prepare_or_complete(group, f"{member.member_id} joins again: {attempt.reason}")

    def _add(self, group: ClassicGroup, member_id: str, attempt: JoinAttempt) -> Outcome:
        if group.state is GroupState.PREPARING_REBALANCE and group.was_empty:
            group.has_new_member = True
        member = attempt.new_member(member_id)
        group.add(member, attempt.protocol_type, attempt.reply)
        self._timers.start_first_session(group, member)
        return self._rebalances.prepare_or_complete(group, f"{member_id} is new: {attempt.reason}")


def _refuse(attempt: JoinAttempt, error: ErrorCode, member_id: str = "") -> Outcome:
    attempt.refuse(error, member_id)
    return NOTHING
