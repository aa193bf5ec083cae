"""The streams groups of one shard: the operations of this package, joined."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from broker.coordination.shard import CoordinatorResult
from broker.coordination.timers import TimerQueue
from broker.groups.caller import Caller
from broker.groups.consumer.member import JOIN_EPOCH
from broker.groups.metrics import GroupMetrics
from broker.groups.records import group_removed
from broker.groups.streams.departures import StreamsDepartures
from broker.groups.streams.describe import describe_streams_group
from broker.groups.streams.environment import StreamsGroupEnvironment
from broker.groups.streams.group import StreamsGroup
from broker.groups.streams.heartbeat import StreamsGroupHeartbeat, StreamsHeartbeatResult
from broker.groups.streams.records import StreamsGroupEvent, StreamsGroupRecord, streams_group_removed
from broker.groups.streams.table import StreamsGroupTable
from broker.groups.streams.timers import StreamsGroupCause, StreamsGroupTimers
from broker.groups.streams.validation import check_streams_form
from broker.groups.table import GroupTable
from protocol.errors import KafkaError
from protocol.messages.streams_group_describe import DescribedGroup
from protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest


class StreamsGroups:
    """Serves streams groups beside the other groups of the same shard.

    `is_other` tells whether a group id is that of a group of the other types, except classic ones.
    """

    def __init__(
        self,
        classic_groups: GroupTable,
        environment: StreamsGroupEnvironment,
        queue: TimerQueue[Any],
        is_other: Callable[[str], bool],
    ) -> None:
        self.table = StreamsGroupTable(classic_groups)
        self._classic_groups = classic_groups
        self._is_other = is_other
        self._timers = StreamsGroupTimers(queue)
        self._departures = StreamsDepartures(self.table, self._timers)
        self._heartbeat = StreamsGroupHeartbeat(environment, self._timers, self._departures)

    def replay(self, event: StreamsGroupEvent) -> None:
        """Apply a record of the log."""
        self.table.replay(event)

    def on_loaded(self) -> None:
        """Give every member a new session, and the time to give up tasks where it must."""
        self.table.epochs_written = 0
        for group in self.table:
            for member_id in group.members:
                self._heartbeat.start_session(group, member_id)

    def on_timer(self, cause: StreamsGroupCause) -> CoordinatorResult[Any, None]:
        """Remove a member whose time is over, or assign the tasks of a group whose initial delay is over."""
        return self._departures.on_timer(cause)

    def heartbeat(self, request: StreamsGroupHeartbeatRequest, caller: Caller) -> StreamsHeartbeatResult:
        """Handle a heartbeat. The first one replaces a classic group without members. Raise KafkaError."""
        check_streams_form(request)
        group = self.table.get(request.group_id)
        if group is not None:
            return self._heartbeat.run(group, request, caller)
        classic = self._classic_groups.get(request.group_id)
        is_replaceable = classic is None or classic.is_empty
        if request.member_epoch != JOIN_EPOCH or self._is_other(request.group_id) or not is_replaceable:
            self._get_or_raise(request.group_id)
        self._timers.end_initial_delay(request.group_id)  # that of a deleted group with this id
        result = self._heartbeat.run(StreamsGroup(request.group_id), request, caller)
        if classic is None:
            return result
        return CoordinatorResult(result.response, [group_removed(request.group_id), *result.records])

    def give_way(self, group: StreamsGroup) -> list[StreamsGroupRecord]:
        """Remove a group without members, at once, for a classic one. Return its tombstones."""
        self._timers.end_initial_delay(group.group_id)
        self.table.drop(group.group_id)
        return streams_group_removed(group.group_id, group.members)

    def describe(self, group_id: str) -> CoordinatorResult[Any, DescribedGroup]:
        """Return the group; the error GROUP_ID_NOT_FOUND for a missing one, and for one of another type."""
        try:
            described = describe_streams_group(self._get_or_raise(group_id))
        except KafkaError as error:
            described = DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
        return CoordinatorResult(described)

    def count(self, metrics: GroupMetrics) -> None:
        """Write the number of groups by state, and of rebalances, into the shard's metrics."""
        metrics.streams_groups = Counter(group.state for group in self.table)
        metrics.streams_group_rebalances = self.table.epochs_written

    def on_topics_changed(self, names: Iterable[str]) -> None:
        """Let the next heartbeat of each group that requires one of the topics look at its topics again."""
        changed = frozenset(names)
        for group in self.table:
            if group.topology is not None and not changed.isdisjoint(group.topology.required_topics):
                group.needs_metadata_check = True

    def _get_or_raise(self, group_id: str) -> StreamsGroup:
        is_other = self._classic_groups.get(group_id) is not None or self._is_other(group_id)
        return self.table.get_or_raise(group_id, is_other=is_other)
