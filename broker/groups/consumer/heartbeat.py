"""ConsumerGroupHeartbeat: a member joins, reports, moves towards the target assignment, or leaves (KIP-848).

1. The member is found or created, and written if it is new or has changed.
2. A change of subscriptions or of subscribed topics increments the group epoch.
3. A group epoch above that of the target assignment computes a new target.
4. The member takes one step of `reconciliation.py`, and its session begins anew.

The response carries the assignment when it has changed, or when the request names all fields: clients do so after
joining and after an error.
"""

from collections.abc import Callable
from dataclasses import replace
from logging import getLogger
from typing import Any

from broker.coordination.shard import CoordinatorResult
from broker.groups.caller import Caller
from broker.groups.consumer.assignment import Assignment, assignment_of, in_order
from broker.groups.consumer.departures import Departures
from broker.groups.consumer.environment import ConsumerGroupEnvironment
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroupMember,
    MemberAssignment,
    ReconciliationState,
)
from broker.groups.consumer.records import current_written
from broker.groups.consumer.regexes import RegexSubscriptions
from broker.groups.consumer.timers import ConsumerGroupTimers
from broker.groups.consumer.update import GroupUpdate
from broker.groups.consumer.validation import check_epoch, check_instance, check_released, check_room
from protocol.messages.consumer_group_heartbeat import (
    Assignment as AssignmentMessage,
)
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

HeartbeatResult = CoordinatorResult[Any, ConsumerGroupHeartbeatResponse]

_log = getLogger(__name__)


class ConsumerGroupHeartbeat:
    """Handles heartbeats whose form has been checked."""

    def __init__(
        self,
        environment: ConsumerGroupEnvironment,
        regexes: RegexSubscriptions,
        timers: ConsumerGroupTimers,
        departures: Departures,
        new_uuid: Callable[[], str],
    ) -> None:
        self._environment = environment
        self._regexes = regexes
        self._timers = timers
        self._departures = departures
        self._new_uuid = new_uuid

    def run(self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> HeartbeatResult:
        """Decide the records of one heartbeat. Raise KafkaError when it is refused."""
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return self._leave(group, request)
        member = group.members.get(request.member_id)
        if member is not None and self._is_unchanged(group, member, request, caller):
            return self._renewed(group, request)
        return self._beat(group, request, caller)

    def start_session(self, group: ConsumerGroup, member_id: str) -> None:
        """Start the member's session timeout, and its time to revoke partitions where it must."""
        member = group.members[member_id]
        timeout_ms = self._environment.intervals(group.group_id).session_timeout_ms
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        self._timers.renew_session(group.group_id, member_id, timeout_ms)
        self._follow(group.group_id, member, group.current(member_id))

    # The straight path, of members that have reached the target assignment and report nothing.

    def _is_unchanged(
        self, group: ConsumerGroup, member: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> bool:
        """Whether `_beat` would write no record, look up no topics, and answer without an assignment."""
        if group.needs_metadata_check or group.epoch != group.target_epoch or member.topic_regex:
            return False
        current = group.current(member.member_id)
        return (
            request.member_epoch == current.epoch != JOIN_EPOCH
            and current.is_reconciled_to(group.target_epoch)
            and request.instance_id is None
            and request.topic_partitions is None
            and request.subscribed_topic_names is None
            and request.subscribed_topic_regex is None
            and request.server_assignor is None
            and request.rack_id is None
            and request.rebalance_timeout_ms == -1
            and member.classic is None
            and caller.client_id == member.client_id
            and caller.client_host == member.client_host
        )

    def _renewed(self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> HeartbeatResult:
        """Begin the member's session anew."""
        self._timers.end_revocation(group.group_id, request.member_id)
        intervals = self._environment.intervals(group.group_id)
        self._timers.renew_session(group.group_id, request.member_id, intervals.session_timeout_ms)
        return CoordinatorResult(
            ConsumerGroupHeartbeatResponse(
                member_id=request.member_id,
                member_epoch=request.member_epoch,
                heartbeat_interval_ms=intervals.heartbeat_interval_ms,
            )
        )

    # Joining and reporting.

    def _beat(self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> HeartbeatResult:
        check_room(group, request.member_id, self._environment.max_size)
        member_id = request.member_id or self._new_uuid()
        owned = None if request.topic_partitions is None else assignment_of(request.topic_partitions)
        before = self._find(group, member_id, request, owned)
        is_replacing = before is not None and before.member_id != member_id
        if before is None:
            copied = ConsumerGroupMember(member_id)
        else:
            copied = replace(before, member_id=member_id) if is_replacing else before
        after = _described(copied, request, caller)
        update = GroupUpdate(group, self._environment, before, after)
        current = group.current(member_id if before is None else before.member_id)
        if is_replacing:
            current = replace(current, epoch=0, previous_epoch=0)
            update.replace_static_member(copied, current)
        update.write_member(copied if is_replacing else before)
        has_new_regex = self._regexes.update(group, before, after, update.records)
        has_new_names = before is None or after.topic_names != before.topic_names
        update.update_epoch(must_bump=has_new_names or has_new_regex or group.epoch == 0)
        target = update.update_target()
        following = update.reconcile(current, target, owned)
        self._follow(group.group_id, after, following)
        intervals = self._environment.intervals(group.group_id)
        self._timers.renew_session(group.group_id, member_id, intervals.session_timeout_ms)
        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=following.epoch,
            heartbeat_interval_ms=intervals.heartbeat_interval_ms,
        )
        if _is_full(request) or following.assigned != current.assigned:
            response.assignment = _assignment_message(following.assigned)
        return CoordinatorResult(response, update.records)

    def _find(
        self,
        group: ConsumerGroup,
        member_id: str,
        request: ConsumerGroupHeartbeatRequest,
        owned: Assignment | None,
    ) -> ConsumerGroupMember | None:
        """Return the member that the request continues; None for a new one. Raise KafkaError."""
        is_joining = request.member_epoch == JOIN_EPOCH
        if request.instance_id is None:
            member = group.members.get(member_id)
            if member is None and not is_joining:
                return group.member_or_raise(member_id)
        else:
            member = group.static_member(request.instance_id)
            if member is None and is_joining:
                return group.members.get(member_id)
            if member is not None and is_joining:
                if member.classic is None:
                    check_released(member, group.current(member.member_id), member_id)
                return member
            member = check_instance(member, request.instance_id, member_id)
        if member is not None:
            check_epoch(group.current(member.member_id), request.member_epoch, owned)
        return member

    def _follow(self, group_id: str, member: ConsumerGroupMember, assignment: MemberAssignment) -> None:
        """Start or stop the time to revoke partitions."""
        if assignment.state is not ReconciliationState.UNREVOKED_PARTITIONS or member.classic is not None:
            self._timers.end_revocation(group_id, member.member_id)
        elif not self._timers.awaits_revocation(group_id, member.member_id, assignment.epoch):
            self._timers.await_revocation(group_id, member.member_id, assignment.epoch, member.rebalance_timeout_ms)

    # Leaving.

    def _leave(self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> HeartbeatResult:
        response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.instance_id is None:
            member = group.member_or_raise(request.member_id)
        else:
            holder = group.static_member(request.instance_id)
            member = check_instance(holder, request.instance_id, request.member_id)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            current = group.current(member.member_id)
            paused = replace(current, epoch=STATIC_LEAVE_EPOCH, revoking={})
            return CoordinatorResult(response, [current_written(group.group_id, member.member_id, paused)])
        _log.info("member left group=%s member=%s", group.group_id, member.member_id)
        return self._departures.remove(group, [member]).answering(response)


def _described(
    former: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest, caller: Caller
) -> ConsumerGroupMember:
    """Return the member as the request describes it; null fields mean no change."""
    names = request.subscribed_topic_names
    regex = request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    is_plain = (names, regex, request.server_assignor, request.rack_id, timeout_ms) == (None, None, None, None, -1)
    is_known = (caller.client_id, caller.client_host, None) == (former.client_id, former.client_host, former.classic)
    if is_plain and is_known and request.instance_id in (None, former.instance_id):
        return former
    return replace(
        former,
        client_id=caller.client_id,
        client_host=caller.client_host,
        instance_id=former.instance_id if request.instance_id is None else request.instance_id,
        rack_id=former.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=former.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topic_names=former.topic_names if names is None else frozenset(names),
        topic_regex=former.topic_regex if regex is None else regex,
        server_assignor=former.server_assignor if request.server_assignor is None else request.server_assignor,
        classic=None,
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the request names every field, so that the client wants the whole assignment."""
    has_subscription = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    names_all = request.rebalance_timeout_ms != -1 and has_subscription and request.topic_partitions is not None
    return request.member_epoch == JOIN_EPOCH or names_all


def _assignment_message(assigned: Assignment) -> AssignmentMessage:
    return AssignmentMessage([ConsumerGroupHeartbeatResponseTopicPartitions(*each) for each in in_order(assigned)])
