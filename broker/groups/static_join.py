"""The takeover of a static member's slot by its restarted process (KIP-345).

If the group is Stable and would elect the same protocol as before, the group does not rebalance: the new member id is
written, and the response is the current generation. A restarted leader must not assign the partitions again. From
JoinGroup version 9 on the response says so (KIP-814); in earlier versions it names the old member id as the leader.
"""

from dataclasses import replace

from broker.coordination.errors import response_error
from broker.coordination.shard import CoordinatorResult
from broker.groups.answers import join_refused, joined, sync_refused
from broker.groups.attempt import JoinAttempt, can_skip_assignment
from broker.groups.classic import ClassicGroup
from broker.groups.member import ClassicGroupMember
from broker.groups.rebalance import NOTHING, Outcome, Rebalances
from broker.groups.records import group_written
from broker.groups.state import GroupState
from broker.groups.timers import GroupTimers
from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupResponse


class StaticReplacement:
    """Replaces the member id of a static member."""

    def __init__(self, rebalances: Rebalances, timers: GroupTimers) -> None:
        self._rebalances = rebalances
        self._timers = timers

    def run(self, group: ClassicGroup, instance_id: str, member_id: str, attempt: JoinAttempt) -> Outcome:
        """Take over the slot of `instance_id`; the old process is fenced at once."""
        old_leader = group.leader
        old = group.members[group.static_member_id(instance_id) or ""]
        group.answer_join(old, join_refused(ErrorCode.FENCED_INSTANCE_ID, old.member_id))
        group.answer_sync(old, sync_refused(ErrorCode.FENCED_INSTANCE_ID))
        before = replace(old)
        member = self._rename(group, old, member_id)
        attempt.park(group, member)
        if group.state is GroupState.STABLE and group.elect_protocol() == group.protocol:
            return self._write(group, member, before, old_leader, attempt)
        reason = f"{member_id} replaces {before.member_id}: {attempt.reason}"
        return self._rebalances.prepare_or_complete(group, reason)

    def _write(
        self,
        group: ClassicGroup,
        member: ClassicGroupMember,
        before: ClassicGroupMember,
        old_leader: str | None,
        attempt: JoinAttempt,
    ) -> Outcome:
        generation = group.generation

        def on_outcome(error: ErrorCode) -> Outcome:
            still_stands = group.state is GroupState.STABLE and group.generation == generation
            if not attempt.reply.is_open or not still_stands:
                return NOTHING  # answered meanwhile, or parked for a rebalance that began meanwhile
            if error is ErrorCode.NONE:
                group.answer_join(member, _current_generation(group, member, old_leader, attempt.caller.api_version))
                return NOTHING
            group.answer_join(member, _refusal(group, member, old_leader, response_error(error)))
            if error is not ErrorCode.REQUEST_TIMED_OUT:  # otherwise the new id is in the log, and will be committed
                self._restore(group, member, before)
            return NOTHING

        assignments = {each.member_id: each.assignment for each in group.members.values()}
        return CoordinatorResult(None, [group_written(group, assignments)], replayed=False, on_outcome=on_outcome)

    def _restore(self, group: ClassicGroup, member: ClassicGroupMember, before: ClassicGroupMember) -> None:
        """Restore the old member id: the new one did not reach the log."""
        group.update(member, before.protocols)
        member.rebalance_timeout_ms = before.rebalance_timeout_ms
        member.session_timeout_ms = before.session_timeout_ms
        self._rename(group, member, before.member_id)

    def _rename(self, group: ClassicGroup, member: ClassicGroupMember, member_id: str) -> ClassicGroupMember:
        assert member.instance_id is not None
        self._timers.end_session(group, member.member_id)
        renamed = group.rename_static(member.instance_id, member_id)
        self._timers.renew_session(group, renamed)
        return renamed


def _current_generation(
    group: ClassicGroup, member: ClassicGroupMember, old_leader: str | None, api_version: int
) -> JoinGroupResponse:
    if can_skip_assignment(api_version):
        response = joined(group, member)
        response.skip_assignment = group.leader == member.member_id
        return response
    response = joined(group, member, is_follower=True)
    response.leader = old_leader or ""
    return response


def _refusal(
    group: ClassicGroup, member: ClassicGroupMember, old_leader: str | None, error: ErrorCode
) -> JoinGroupResponse:
    response = joined(group, member, is_follower=True)
    response.error_code, response.member_id, response.leader = error, "", old_leader or ""
    return response
