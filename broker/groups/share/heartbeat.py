"""ShareGroupHeartbeat: a member joins, reports, or leaves (KIP-932).

1. The member is found or created, and written if it is new or has changed.
2. A change of subscriptions, of subscribed topics, or of initialized share partitions increments the group epoch.
3. A group epoch above that of the target assignment computes a new target, from initialized share partitions alone.
4. The member takes the target at once: no other member has to give up a partition first.
5. Share partitions of subscribed topics that have no state begin their initialization.

The response carries the assignment when it has changed, when a member joins, and when the request names the topics.
"""

from logging import getLogger
from typing import Any, NamedTuple

from broker.coordination.shard import CoordinatorResult
from broker.groups.caller import Caller
from broker.groups.consumer.assignment import NO_PARTITIONS, Assignment, in_order
from broker.groups.consumer.assignors.assignor import AssignorFailed
from broker.groups.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, MemberAssignment
from broker.groups.consumer.topics import metadata_hash
from broker.groups.share.environment import ShareGroupEnvironment
from broker.groups.share.group import ShareGroup
from broker.groups.share.initialization import ShareInitialization, begin_initialization
from broker.groups.share.member import ShareGroupMember
from broker.groups.share.records import (
    ShareGroupRecord,
    share_current_written,
    share_epoch_written,
    share_member_removed,
    share_member_written,
    share_target_epoch_written,
    share_target_written,
)
from broker.groups.share.timers import ShareGroupTimers
from broker.groups.share.validation import check_share_epoch, check_share_room
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.share_group_heartbeat import Assignment as AssignmentMessage
from protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from protocol.primitives import Uuid

_log = getLogger(__name__)


class ShareHeartbeat(NamedTuple):
    """The response to a heartbeat, and the initialization that it begins, if any."""

    response: ShareGroupHeartbeatResponse
    initialization: ShareInitialization | None = None


ShareHeartbeatResult = CoordinatorResult[Any, ShareHeartbeat]


class ShareGroupHeartbeat:
    """Handles heartbeats whose form has been checked."""

    def __init__(self, environment: ShareGroupEnvironment, timers: ShareGroupTimers) -> None:
        self._environment = environment
        self._timers = timers

    def run(
        self, group: ShareGroup, request: ShareGroupHeartbeatRequest, caller: Caller, now_ms: float
    ) -> ShareHeartbeatResult:
        """Decide the records of one heartbeat. `now_ms` is monotonic. Raise KafkaError when it is refused."""
        if request.member_epoch == LEAVE_EPOCH:
            member = group.member_or_raise(request.member_id)
            _log.info("member left group=%s member=%s", group.group_id, member.member_id)
            response = ShareGroupHeartbeatResponse(member_id=member.member_id, member_epoch=LEAVE_EPOCH)
            return self.remove(group, member).answering(ShareHeartbeat(response))
        return self._beat(group, request, caller, now_ms)

    def start_session(self, group: ShareGroup, member_id: str) -> None:
        """Start the member's session timeout."""
        timeout_ms = self._environment.intervals(group.group_id).session_timeout_ms
        self._timers.renew_session(group.group_id, member_id, timeout_ms)

    def remove(self, group: ShareGroup, member: ShareGroupMember) -> CoordinatorResult[Any, None]:
        """Remove a member and increment the group epoch, so that the next heartbeat computes a new target.

        The session goes on, because the records may not be written. The expired session of a former member is ignored.
        """
        records = share_member_removed(group.group_id, member.member_id)
        new_hash = metadata_hash(self._environment.topics(), group.subscribed_topics(before=member))
        records.append(share_epoch_written(group.group_id, group.epoch + 1, new_hash))
        return CoordinatorResult(None, records)

    def _beat(
        self, group: ShareGroup, request: ShareGroupHeartbeatRequest, caller: Caller, now_ms: float
    ) -> ShareHeartbeatResult:
        check_share_room(group, request.member_id, self._environment.max_size)
        before = group.members.get(request.member_id)
        if before is None and request.member_epoch != JOIN_EPOCH:
            group.member_or_raise(request.member_id)
        current = group.current(request.member_id)
        check_share_epoch(current, request.member_epoch)
        after = _described(before, request, caller)
        records: list[ShareGroupRecord] = []
        if after != before:
            records.append(share_member_written(group.group_id, after))
        names = group.subscribed_topics(before, after)
        has_new_names = before is None or after.topic_names != before.topic_names
        epoch = self._updated_epoch(group, names, records, must_bump=has_new_names or _lacks_initialized(group))
        target_epoch, target = self._updated_target(group, epoch, after, records)
        following = current
        if current.epoch != target_epoch:
            following = MemberAssignment(target_epoch, current.epoch, assigned=target)
            records.append(share_current_written(group.group_id, after.member_id, following))
        intervals = self._environment.intervals(group.group_id)
        self._timers.renew_session(group.group_id, after.member_id, intervals.session_timeout_ms)
        response = ShareGroupHeartbeatResponse(
            member_id=after.member_id,
            member_epoch=following.epoch,
            heartbeat_interval_ms=intervals.heartbeat_interval_ms,
        )
        is_full = request.member_epoch == JOIN_EPOCH or request.subscribed_topic_names is not None
        if is_full or following.assigned != current.assigned:
            response.assignment = _assignment_message(following.assigned)
        initialization = None
        if has_new_names or group.needs_initialization:
            initialization = begin_initialization(group, self._environment, names, epoch, now_ms, records)
        return CoordinatorResult(ShareHeartbeat(response, initialization), records)

    def _updated_epoch(
        self, group: ShareGroup, names: frozenset[str], records: list[ShareGroupRecord], *, must_bump: bool
    ) -> int:
        """Increment the group epoch if asked to, or if a subscribed topic has changed. Return the epoch."""
        if not must_bump and not group.needs_metadata_check:
            return group.epoch
        group.needs_metadata_check = False
        new_hash = metadata_hash(self._environment.topics(), names)
        if not must_bump and new_hash == group.metadata_hash:
            return group.epoch
        _log.info("share group changed group=%s epoch=%d", group.group_id, group.epoch + 1)
        records.append(share_epoch_written(group.group_id, group.epoch + 1, new_hash))
        return group.epoch + 1

    def _updated_target(
        self, group: ShareGroup, epoch: int, after: ShareGroupMember, records: list[ShareGroupRecord]
    ) -> tuple[int, Assignment]:
        """Compute a target assignment if the group epoch is above that of the target; return the member's target."""
        if epoch <= group.target_epoch:
            return group.target_epoch, group.target(after.member_id)
        members = {**group.members, after.member_id: after}
        initialized = {each: sorted(value.partitions) for each, value in group.partitions.initialized.items()}
        topics = self._environment.topics()
        ids: dict[frozenset[str], frozenset[Uuid]] = {}
        for names in {member.topic_names for member in members.values()}:
            found = (topics.describe(name) for name in names)
            ids[names] = frozenset(topic.topic_id for topic in found if topic is not None)
        assignor = self._environment.assignor
        try:
            targets = assignor.assign(
                {member_id: ids[member.topic_names] for member_id, member in members.items()},
                initialized,
                {member_id: group.target(member_id) for member_id in members},
            )
        except AssignorFailed as error:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"The assignor {assignor.name} has no assignment: {error}"
            ) from error
        for member_id in members:
            target = targets.get(member_id, NO_PARTITIONS)
            if not group.has_target(member_id) or target != group.target(member_id):
                records.append(share_target_written(group.group_id, member_id, target))
        records.append(share_target_epoch_written(group.group_id, epoch))
        return epoch, targets.get(after.member_id, NO_PARTITIONS)


def _lacks_initialized(group: ShareGroup) -> bool:
    """Whether share partitions of subscribed topics were initialized since the target was computed."""
    if not group.needs_partition_check or group.is_empty:
        return False
    assigned = group.assigned_to_all()
    is_lacking = any(
        assigned.get(topic_id) != partitions
        for topic_id, (name, partitions) in group.partitions.initialized.items()
        if group.is_subscribed_to(name)
    )
    group.needs_partition_check = is_lacking
    return is_lacking


def _described(
    former: ShareGroupMember | None, request: ShareGroupHeartbeatRequest, caller: Caller
) -> ShareGroupMember:
    """Return the member as the request describes it; null fields mean no change."""
    names = request.subscribed_topic_names
    former = former or ShareGroupMember(request.member_id)
    return ShareGroupMember(
        request.member_id,
        former.rack_id if request.rack_id is None else request.rack_id,
        caller.client_id,
        caller.client_host,
        former.topic_names if names is None else frozenset(names),
    )


def _assignment_message(assigned: Assignment) -> AssignmentMessage:
    return AssignmentMessage([TopicPartitions(*each) for each in in_order(assigned)])
