"""SyncGroup: members fetch their assignment, which the leader's SyncGroup contains.

Every SyncGroup is parked until the leader's assignment is committed, since a member must not work on partitions that it
would not own after a failover. Then the group is Stable, and SyncGroup is answered at once.
"""

from broker.coordination.errors import response_error
from broker.coordination.reply import Reply
from broker.coordination.shard import CoordinatorResult
from broker.coordination.timers import CoordinatorClock
from broker.groups.answers import sync_refused, synced
from broker.groups.classic import ClassicGroup
from broker.groups.member import ClassicGroupMember
from broker.groups.metrics import GroupMetrics
from broker.groups.rebalance import NOTHING, Outcome, Rebalances
from broker.groups.records import group_written
from broker.groups.state import GroupState, Transition
from broker.groups.table import GroupTable
from broker.groups.timers import GroupTimers
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

SyncReply = Reply[SyncGroupResponse]


class SyncGroup:
    """Handles SyncGroup requests with a valid group id."""

    def __init__(
        self,
        groups: GroupTable,
        rebalances: Rebalances,
        timers: GroupTimers,
        metrics: GroupMetrics,
        clock: CoordinatorClock,
    ) -> None:
        self._groups = groups
        self._rebalances = rebalances
        self._timers = timers
        self._metrics = metrics
        self._clock = clock

    def run(self, request: SyncGroupRequest, reply: SyncReply) -> Outcome:
        """Answer the request now or park its reply."""
        try:
            group, member = self._check(request)
        except KafkaError as error:
            return _refuse(reply, error.code)
        match group.state:
            case GroupState.COMPLETING_REBALANCE:
                return self._park(group, member, request, reply)
            case GroupState.STABLE:
                self._remove_pending_sync(group, member)
                reply.complete(synced(group, member))
                return NOTHING
            case _:
                return _refuse(reply, ErrorCode.REBALANCE_IN_PROGRESS)

    def _check(self, request: SyncGroupRequest) -> tuple[ClassicGroup, ClassicGroupMember]:
        group = self._groups.get(request.group_id)
        if group is None or group.is_empty:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if group.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        member = group.member_or_raise(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol_name, group.protocol):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return group, member

    def _park(
        self, group: ClassicGroup, member: ClassicGroupMember, request: SyncGroupRequest, reply: SyncReply
    ) -> Outcome:
        group.answer_sync(member, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS))  # an earlier SyncGroup
        member.sync_reply = reply
        self._remove_pending_sync(group, member)
        is_first_of_leader = group.leader == member.member_id and group.assigning != group.generation
        return self._write(group, request) if is_first_of_leader else NOTHING

    def _remove_pending_sync(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        group.pending_syncs.discard(member.member_id)
        if not group.pending_syncs:
            self._timers.end_sync_phase(group)

    def _write(self, group: ClassicGroup, request: SyncGroupRequest) -> Outcome:
        """Write the assignment to the log; members that the leader left out get an empty one."""
        given = {each.member_id: each.assignment for each in request.assignments}
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
        generation = group.assigning = group.generation

        def on_outcome(error: ErrorCode) -> Outcome:
            group.assigning = None
            if group.state is not GroupState.COMPLETING_REBALANCE or group.generation != generation:
                return NOTHING  # a newer generation has begun
            if error is not ErrorCode.NONE:
                return self._fail_assignment(group, response_error(error))
            self._assign(group, assignments)
            return NOTHING

        return CoordinatorResult(None, [group_written(group, assignments)], replayed=False, on_outcome=on_outcome)

    def _assign(self, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
        self._groups.move(group, Transition.ASSIGNED, self._clock.now_ms())
        self._metrics.completed_rebalances += 1
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if group.answer_sync(member, synced(group, member)):
                # The request may have been parked past the end of the session, which does not count while it is parked.
                self._timers.renew_session(group, member)

    def _fail_assignment(self, group: ClassicGroup, error: ErrorCode) -> Outcome:
        self._rebalances.cancel_syncs(group, error)
        return self._rebalances.prepare(group, f"the assignment could not be written: {error.name}")


def _differ(named: str | None, elected: str | None) -> bool:
    return named is not None and elected is not None and named != elected


def _refuse(reply: SyncReply, error: ErrorCode) -> Outcome:
    reply.complete(sync_refused(error))
    return NOTHING
