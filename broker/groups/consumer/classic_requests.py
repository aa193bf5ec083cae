"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic members in a consumer group, during a migration (KIP-848).

A classic member has the member epoch as its generation. It takes one step of `reconciliation.py` with each JoinGroup,
where it names its owned partitions, and fetches the assignment with SyncGroup. REBALANCE_IN_PROGRESS asks it to join
again, when

| state | condition |
|---|---|
| any | the group epoch is above the member's |
| UNREVOKED | always: the partitions to give up are in the last assignment |
| UNRELEASED | the partitions that it waits for are free |

The group has no leader among its members: JoinGroup is answered at once, and names none.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from broker.coordination.errors import response_error
from broker.coordination.reply import Reply
from broker.coordination.shard import CoordinatorResult
from broker.groups.answers import sync_refused
from broker.groups.attempt import JoinAttempt, requires_known_member_id
from broker.groups.consumer.assignment import each_partition
from broker.groups.consumer.departures import Departures
from broker.groups.consumer.embedded_protocol import EmbeddedSubscription, assignment_bytes, embedded_subscription
from broker.groups.consumer.environment import ConsumerGroupEnvironment
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import (
    ClassicProtocolSupport,
    ConsumerGroupMember,
    MemberAssignment,
    ReconciliationState,
)
from broker.groups.consumer.regexes import RegexSubscriptions
from broker.groups.consumer.timers import ConsumerGroupTimers
from broker.groups.consumer.update import GroupUpdate
from broker.groups.consumer.validation import check_instance, check_room
from broker.groups.subscription import CONSUMER_PROTOCOL_TYPE
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_NOTHING: CoordinatorResult[Any, None] = CoordinatorResult(None)


class ClassicRequests:
    """Handles requests of classic members to consumer groups with members."""

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

    # Joining.

    def join(self, group: ConsumerGroup, attempt: JoinAttempt) -> CoordinatorResult[Any, None]:
        """Answer the attempt when its effects are committed. Raise KafkaError when it is refused."""
        member_id = attempt.member_id or f"{attempt.instance_id or attempt.caller.client_id}-{self._new_uuid()}"
        check_room(group, member_id, self._environment.max_size)
        subscription = self._subscription(group, attempt)
        is_unknown = not attempt.member_id
        if is_unknown and attempt.instance_id is None and requires_known_member_id(attempt.caller.api_version):
            attempt.refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
            return _NOTHING
        before = self._find(group, attempt, member_id)
        copied = ConsumerGroupMember(member_id) if before is None else replace(before, member_id=member_id)
        after = _described(copied, attempt, subscription)
        update = GroupUpdate(group, self._environment, before, after)
        following = self._update(group, update, before, copied, after, subscription)
        is_last_consumer_replaced = (
            before is not None
            and before.member_id != member_id
            and self._departures.can_downgrade(group, [before.member_id], joining=1)
        )
        records = update.records
        generation = following.epoch
        if is_last_consumer_replaced and before is not None:
            generation = update.epoch
            records = self._departures.downgrade(group, [before.member_id], (after, generation))
        members = tuple(group.members)
        response = JoinGroupResponse(
            member_id=member_id,
            generation_id=generation,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=attempt.protocols[0].name,
        )

        def on_outcome(error: ErrorCode) -> CoordinatorResult[Any, None]:
            if is_last_consumer_replaced:
                self._departures.end_timers(group.group_id, members)
                self._departures.adopt(group.group_id)
            if error is not ErrorCode.NONE:
                if member_id in group.members:  # the record is in the log, and may be committed later
                    self._timers.renew_session(group.group_id, member_id, attempt.session_timeout_ms)
                attempt.refuse(response_error(error), member_id)
                return _NOTHING
            self._timers.end_join(group.group_id, member_id)
            if not is_last_consumer_replaced:
                self._timers.renew_session(group.group_id, member_id, attempt.session_timeout_ms)
                self._timers.await_sync(group.group_id, member_id, attempt.rebalance_timeout_ms)
            attempt.reply.complete(response)
            return _NOTHING

        return CoordinatorResult(None, records, on_outcome=on_outcome)

    def _subscription(self, group: ConsumerGroup, attempt: JoinAttempt) -> EmbeddedSubscription:
        """Return the subscription of a client whose protocols fit the group's classic members. Raise KafkaError."""
        counts = group.counts
        is_common = any(counts.classic_protocols.get(each.name, 0) == counts.classic for each in attempt.protocols)
        if attempt.protocol_type != CONSUMER_PROTOCOL_TYPE or not is_common:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        try:
            return embedded_subscription(attempt.protocols, self._environment.topics())
        except DecodeError as error:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error

    def _find(self, group: ConsumerGroup, attempt: JoinAttempt, member_id: str) -> ConsumerGroupMember | None:
        """Return the member that the attempt continues, or whose instance id it takes; None for a new member."""
        if attempt.instance_id is None:
            return group.members.get(member_id)
        holder = group.static_member(attempt.instance_id)
        return holder if not attempt.member_id else check_instance(holder, attempt.instance_id, member_id)

    def _update(
        self,
        group: ConsumerGroup,
        update: GroupUpdate,
        before: ConsumerGroupMember | None,
        copied: ConsumerGroupMember,
        after: ConsumerGroupMember,
        subscription: EmbeddedSubscription,
    ) -> MemberAssignment:
        is_replacing = before is not None and before.member_id != after.member_id
        current = group.current(after.member_id if before is None else before.member_id)
        if is_replacing:
            current = replace(current, epoch=0, previous_epoch=0)
            update.replace_static_member(copied, current)
        update.write_member(copied if is_replacing else before)
        has_new_regex = self._regexes.update(group, before, after, update.records)
        has_new_names = before is None or before.topic_names != after.topic_names
        update.update_epoch(must_bump=has_new_names or has_new_regex)
        target = update.update_target()
        return update.reconcile(current, target, subscription.owned)

    # Requests of members.

    def sync(
        self, group: ConsumerGroup, request: SyncGroupRequest, reply: Reply[SyncGroupResponse]
    ) -> CoordinatorResult[Any, None]:
        """Return the assignment, once it is committed. Raise KafkaError."""
        member, classic = self._member_or_raise(group, request.member_id, request.group_instance_id)
        current = group.current(member.member_id)
        _check_generation(current, request.generation_id)
        protocol = classic.protocols[0]
        has_other_type = request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE)
        if has_other_type or request.protocol_name not in (None, protocol.name):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        is_revoking = current.state is ReconciliationState.UNREVOKED_PARTITIONS
        if group.epoch > current.epoch and not is_revoking:
            self._timers.await_join(group.group_id, member.member_id, member.rebalance_timeout_ms)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        response = SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment_bytes(current.assigned, protocol, self._environment.topics()),
        )

        def on_outcome(error: ErrorCode) -> CoordinatorResult[Any, None]:
            if error is ErrorCode.NONE:
                self._timers.end_sync(group.group_id, member.member_id)
                self._timers.renew_session(group.group_id, member.member_id, classic.session_timeout_ms)
                reply.complete(response)
            else:
                reply.complete(sync_refused(response_error(error)))
            return _NOTHING

        return CoordinatorResult(None, on_outcome=on_outcome)

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest) -> ErrorCode:
        """Renew the session, and return whether the member must join again. Raise KafkaError."""
        member, classic = self._member_or_raise(group, request.member_id, request.group_instance_id)
        current = group.current(member.member_id)
        _check_generation(current, request.generation_id)
        self._timers.renew_session(group.group_id, member.member_id, classic.session_timeout_ms)
        if not self._must_rejoin(group, member.member_id, current):
            return ErrorCode.NONE
        self._timers.await_join(group.group_id, member.member_id, member.rebalance_timeout_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def leave(self, group: ConsumerGroup, leavers: list[MemberIdentity]) -> CoordinatorResult[Any, LeaveGroupResponse]:
        """Remove members of either protocol, as an administrator may ask; unknown ones get UNKNOWN_MEMBER_ID."""
        found: dict[str, ConsumerGroupMember] = {}
        answers: list[MemberResponse] = []
        for leaver in leavers:
            member_id, instance_id = leaver.member_id, leaver.group_instance_id
            error = ErrorCode.NONE
            try:
                holder = group.static_member(instance_id)
                is_by_instance = not member_id and holder is not None
                named = holder.member_id if is_by_instance and holder is not None else member_id
                member = _find_member(group, named, instance_id)
                found[member.member_id] = member
                member_id = member.member_id
            except KafkaError as refusal:
                error = refusal.code
            answers.append(MemberResponse(member_id, instance_id, error))
        return self._departures.remove(group, found.values()).answering(LeaveGroupResponse(members=answers))

    def _member_or_raise(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> tuple[ConsumerGroupMember, ClassicProtocolSupport]:
        member = _find_member(group, member_id, instance_id)
        if member.classic is None:
            message = f"Member {member.member_id} does not use the classic protocol."
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, message)
        return member, member.classic

    def _must_rejoin(self, group: ConsumerGroup, member_id: str, current: MemberAssignment) -> bool:
        if group.epoch > current.epoch or current.state is ReconciliationState.UNREVOKED_PARTITIONS:
            return True
        holders = (group.holder(*partition) for partition in each_partition(group.target(member_id)))
        is_waiting = any(holder not in (None, member_id) for holder in holders)
        return current.state is ReconciliationState.UNRELEASED_PARTITIONS and not is_waiting


def _find_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerGroupMember:
    """Return the member. Raise KafkaError UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    if instance_id is None:
        return group.member_or_raise(member_id)
    return check_instance(group.static_member(instance_id), instance_id, member_id)


def _described(
    former: ConsumerGroupMember, attempt: JoinAttempt, subscription: EmbeddedSubscription
) -> ConsumerGroupMember:
    return replace(
        former,
        client_id=attempt.caller.client_id,
        client_host=attempt.caller.client_host,
        instance_id=former.instance_id if attempt.instance_id is None else attempt.instance_id,
        rack_id=former.rack_id if subscription.rack_id is None else subscription.rack_id,
        rebalance_timeout_ms=attempt.rebalance_timeout_ms,
        topic_names=subscription.topics,
        topic_regex="",
        classic=ClassicProtocolSupport(attempt.session_timeout_ms, attempt.protocols),
    )


def _check_generation(current: MemberAssignment, generation: int) -> None:
    if generation != current.epoch:
        message = f"The request generation id {generation} is not equal to the member epoch {current.epoch}."
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION, message)
