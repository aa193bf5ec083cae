"""StreamsGroupHeartbeat: a member joins, reports, moves towards the target assignment, or leaves (KIP-1071).

1. The member is found or created, and written if it is new or has changed.
2. The first member brings the topology. The coordinator checks the topics and counts the tasks (`configuration.py`).
3. A change of members, topics, topology state or configs increments the group epoch.
4. A group epoch above that of the target assignment computes a new target, after the initial delay of an empty group.
5. The member takes one step of `reconciliation.py`, and its session begins anew.

The response carries the tasks when they have changed, or when the member joins; and the problems of the group.
"""

from collections.abc import Iterable
from dataclasses import replace
from logging import getLogger
from typing import Any, NamedTuple

from broker.coordination.shard import CoordinatorResult
from broker.groups.caller import Caller
from broker.groups.consumer.member import JOIN_EPOCH, LEAVE_EPOCH
from broker.groups.streams.configuration import ConfiguredTopology, StreamsStatus
from broker.groups.streams.departures import StreamsDepartures
from broker.groups.streams.endpoints import partitions_by_endpoint
from broker.groups.streams.environment import StreamsGroupEnvironment
from broker.groups.streams.group import StreamsGroup
from broker.groups.streams.member import (
    DELAYED_EPOCH,
    StreamsGroupMember,
    StreamsMemberAssignment,
    TaskReconciliationState,
    UserEndpoint,
)
from broker.groups.streams.tasks import NO_TARGET, TaskSet, in_task_order
from broker.groups.streams.timers import StreamsGroupTimers
from broker.groups.streams.topology import InternalTopic, topology_of
from broker.groups.streams.update import StreamsGroupUpdate
from broker.groups.streams.validation import (
    check_owned_tasks,
    check_streams_epoch,
    check_streams_room,
    owned_tasks,
)
from protocol.messages.streams_group_heartbeat import (
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsGroupHeartbeatResponseTaskIds,
)

_log = getLogger(__name__)


class StreamsHeartbeatAnswer(NamedTuple):
    """The response, and internal topics to create on behalf of the sender."""

    response: StreamsGroupHeartbeatResponse
    missing_topics: tuple[InternalTopic, ...] = ()


StreamsHeartbeatResult = CoordinatorResult[Any, StreamsHeartbeatAnswer]


class StreamsGroupHeartbeat:
    """Handles heartbeats whose form has been checked."""

    def __init__(
        self, environment: StreamsGroupEnvironment, timers: StreamsGroupTimers, departures: StreamsDepartures
    ) -> None:
        self._environment = environment
        self._timers = timers
        self._departures = departures

    def run(self, group: StreamsGroup, request: StreamsGroupHeartbeatRequest, caller: Caller) -> StreamsHeartbeatResult:
        """Decide the records of one heartbeat. Raise KafkaError when it is refused."""
        if request.member_epoch == LEAVE_EPOCH:
            return self._leave(group, request)
        return self._beat(group, request, caller)

    def start_session(self, group: StreamsGroup, member_id: str) -> None:
        """Start the member's session timeout, and its time to give up tasks where it must."""
        timeout_ms = self._environment.settings(group.group_id).session_timeout_ms
        self._timers.renew_session(group.group_id, member_id, timeout_ms)
        current = group.current(member_id)
        if current.state is TaskReconciliationState.UNREVOKED_TASKS:
            timeout_ms = group.members[member_id].rebalance_timeout_ms
            self._timers.await_revocation(group.group_id, member_id, current.epoch, timeout_ms)

    def _beat(
        self, group: StreamsGroup, request: StreamsGroupHeartbeatRequest, caller: Caller
    ) -> StreamsHeartbeatResult:
        is_joining = request.member_epoch == JOIN_EPOCH
        if is_joining:
            check_streams_room(group, self._environment.max_size)
        else:
            group.member_or_raise(request.member_id)
        owned = owned_tasks(request)
        current = group.current(request.member_id)
        check_streams_epoch(current, request.member_epoch, owned)
        former = group.members.get(request.member_id, StreamsGroupMember(request.member_id))
        member = _described(former, request, caller)
        update = StreamsGroupUpdate(group, self._environment, member)
        update.write_member()
        topology = update.update_topology(None if request.topology is None else topology_of(request.topology))
        configured = update.configure(topology)
        if owned is not None and configured.is_ready:
            check_owned_tasks(owned, configured)
        update.update_epoch(configured)
        settings = self._environment.settings(group.group_id)
        if group.is_empty:
            self._timers.start_initial_delay(group.group_id, settings.initial_rebalance_delay_ms)
        is_delayed = update.epoch > group.target_epoch and self._timers.is_delayed(group.group_id)
        if is_delayed:
            following = update.reconcile(current, max(DELAYED_EPOCH, group.target_epoch), NO_TARGET, owned)
        else:
            target = update.update_target(configured)
            following = update.reconcile(current, max(update.epoch, group.target_epoch), target, owned)
        if following != current:
            self._follow(group.group_id, member, following)
        self._timers.renew_session(group.group_id, member.member_id, settings.session_timeout_ms)
        if request.shutdown_application:
            _request_shutdown(group, member.member_id)
        response = StreamsGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=following.epoch,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            status=_statuses(group, member, configured, is_delayed=is_delayed),
        )
        self._add_tasks(response, group, request, member, following)
        return CoordinatorResult(StreamsHeartbeatAnswer(response, configured.missing), update.records)

    def _follow(self, group_id: str, member: StreamsGroupMember, assignment: StreamsMemberAssignment) -> None:
        """Start or stop the time to give up tasks."""
        if assignment.state is TaskReconciliationState.UNREVOKED_TASKS:
            timeout_ms = member.rebalance_timeout_ms
            self._timers.await_revocation(group_id, member.member_id, assignment.epoch, timeout_ms)
        else:
            self._timers.end_revocation(group_id, member.member_id)

    def _add_tasks(
        self,
        response: StreamsGroupHeartbeatResponse,
        group: StreamsGroup,
        request: StreamsGroupHeartbeatRequest,
        member: StreamsGroupMember,
        following: StreamsMemberAssignment,
    ) -> None:
        """Add what the client does not know yet: its tasks, and the partitions behind the endpoints."""
        assigned = following.assigned
        if request.member_epoch == JOIN_EPOCH or assigned != group.current(member.member_id).assigned:
            response.active_tasks = _task_lists(assigned.without_epochs().active)
            response.standby_tasks = _task_lists(assigned.standby)
            response.warmup_tasks = _task_lists(assigned.warmup)
            if member.endpoint is not None:
                group.endpoint_epoch += 1
        if group.endpoint_epoch != request.endpoint_information_epoch:
            topics = self._environment.topics()
            response.partitions_by_user_endpoint = partitions_by_endpoint(group, member, following, topics)
        if group.epoch:  # a new group's soft state is lost with this object; its first record makes another one
            response.endpoint_information_epoch = group.endpoint_epoch

    def _leave(self, group: StreamsGroup, request: StreamsGroupHeartbeatRequest) -> StreamsHeartbeatResult:
        if request.shutdown_application:
            _request_shutdown(group, request.member_id)
        group.member_or_raise(request.member_id)
        response = StreamsGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        _log.info("member left group=%s member=%s", group.group_id, request.member_id)
        return self._departures.remove(group, request.member_id).answering(StreamsHeartbeatAnswer(response))


def _described(former: StreamsGroupMember, request: StreamsGroupHeartbeatRequest, caller: Caller) -> StreamsGroupMember:
    """Return the member as the request describes it; null fields mean no change."""
    tags, endpoint, timeout_ms = request.client_tags, request.user_endpoint, request.rebalance_timeout_ms
    return replace(
        former,
        client_id=caller.client_id,
        client_host=caller.client_host,
        rack_id=former.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=former.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topology_epoch=former.topology_epoch if request.topology is None else request.topology.epoch,
        process_id=former.process_id if request.process_id is None else request.process_id,
        endpoint=former.endpoint if endpoint is None else UserEndpoint(endpoint.host, endpoint.port),
        client_tags=former.client_tags if tags is None else tuple(sorted({tag.key: tag.value for tag in tags}.items())),
    )


def _request_shutdown(group: StreamsGroup, member_id: str) -> None:
    if group.shutdown_member is None:
        _log.info("shutdown of the application requested group=%s member=%s", group.group_id, member_id)
        group.shutdown_member = member_id


def _statuses(
    group: StreamsGroup, member: StreamsGroupMember, configured: ConfiguredTopology, *, is_delayed: bool
) -> list[Status]:
    """Return the problems of the group, in Kafka's order."""
    return list(_each_status(group, member, configured, is_delayed=is_delayed))


def _each_status(
    group: StreamsGroup, member: StreamsGroupMember, configured: ConfiguredTopology, *, is_delayed: bool
) -> Iterable[Status]:
    if group.topology is not None and member.topology_epoch < group.topology.epoch:
        yield Status(
            StreamsStatus.STALE_TOPOLOGY,
            f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch"
            f" {group.topology.epoch}.",
        )
    if is_delayed:
        yield Status(
            StreamsStatus.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured initial rebalance delay."
        )
    if configured.problem is not None:
        yield Status(configured.problem.status, configured.problem.detail)
    if group.shutdown_member is not None:
        yield Status(
            StreamsStatus.SHUTDOWN_APPLICATION,
            f"Streams group member {group.shutdown_member} encountered a fatal error and requested a shutdown for the"
            " entire application.",
        )


def _task_lists(tasks: TaskSet) -> list[StreamsGroupHeartbeatResponseTaskIds]:
    return [StreamsGroupHeartbeatResponseTaskIds(*each) for each in in_task_order(tasks)]
