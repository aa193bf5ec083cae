"""The consumer groups of one shard: the operations of this package, joined."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from logging import getLogger
from typing import Any

from broker.coordination.shard import CoordinatorResult
from broker.coordination.timers import CoordinatorClock, TimerQueue
from broker.groups.caller import Caller
from broker.groups.classic import ClassicGroup
from broker.groups.consumer.classic_requests import ClassicRequests
from broker.groups.consumer.departures import Departures
from broker.groups.consumer.describe import describe
from broker.groups.consumer.environment import ConsumerGroupEnvironment
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.heartbeat import ConsumerGroupHeartbeat, HeartbeatResult
from broker.groups.consumer.member import JOIN_EPOCH
from broker.groups.consumer.migration import can_upgrade, release_parked, upgraded
from broker.groups.consumer.records import ConsumerGroupEvent, ConsumerGroupRecord, ResolvedRegex
from broker.groups.consumer.records import group_removed as consumer_group_removed
from broker.groups.consumer.regexes import RegexLookup, RegexSubscriptions
from broker.groups.consumer.table import ConsumerGroupTable
from broker.groups.consumer.timers import ConsumerGroupCause, ConsumerGroupTimers
from broker.groups.consumer.validation import check_form
from broker.groups.metrics import GroupMetrics
from broker.groups.records import group_removed
from broker.groups.table import GroupTable
from broker.groups.timers import GroupTimers
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.consumer_group_describe import DescribedGroup
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

_log = getLogger(__name__)


class ConsumerGroups:
    """Serves consumer groups beside the other groups of the same shard. `adopt`: see `Departures`.

    `is_other` tells whether a group id is that of a group of the other types, except classic ones.
    """

    def __init__(
        self,
        classic_groups: GroupTable,
        environment: ConsumerGroupEnvironment,
        queue: TimerQueue[Any],
        clock: CoordinatorClock,
        new_uuid: Callable[[], str],
        adopt: Callable[[str], CoordinatorResult[Any, None]],
        is_other: Callable[[str], bool],
    ) -> None:
        self.table = ConsumerGroupTable(classic_groups)
        self._classic_groups = classic_groups
        self._environment = environment
        self._is_other = is_other
        self._classic_timers = GroupTimers(queue)
        timers = ConsumerGroupTimers(queue)
        self._regexes = RegexSubscriptions(self.table, environment, clock)
        self._departures = Departures(self.table, environment, timers, clock, adopt)
        self.classic_requests = ClassicRequests(environment, self._regexes, timers, self._departures, new_uuid)
        self._heartbeat = ConsumerGroupHeartbeat(environment, self._regexes, timers, self._departures, new_uuid)

    def replay(self, event: ConsumerGroupEvent) -> None:
        """Apply a record of the log."""
        self.table.replay(event)

    def on_loaded(self) -> None:
        """Give every member a new session, and the time to revoke where it must."""
        self.table.epochs_written = 0
        self._regexes.newest_topic_offset = self._environment.topics().offset
        for group in self.table:
            for member_id in group.members:
                self._heartbeat.start_session(group, member_id)

    def on_timer(self, cause: ConsumerGroupCause) -> CoordinatorResult[Any, None]:
        """Remove a member whose time is over."""
        return self._departures.on_timer(cause)

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> HeartbeatResult:
        """Handle a heartbeat. The first one replaces a classic group, or upgrades its members. Raise KafkaError."""
        check_form(request, caller.api_version, self._environment.assignors.keys())
        group = self.table.get(request.group_id)
        if group is not None:
            return self._heartbeat.run(group, request, caller)
        classic = self._classic_groups.get(request.group_id)
        if request.member_epoch != JOIN_EPOCH or self._is_other(request.group_id):
            self.table.get_or_raise(request.group_id, is_other=self._is_other(request.group_id))
        if classic is not None and not classic.is_empty:
            return self._upgrade(classic, request, caller)
        result = self._heartbeat.run(ConsumerGroup(request.group_id), request, caller)
        if classic is None:
            return result
        return CoordinatorResult(result.response, [group_removed(request.group_id), *result.records])

    def _upgrade(
        self, classic: ClassicGroup, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> HeartbeatResult:
        """Make the classic group a consumer group, which the sender then joins."""
        if not can_upgrade(classic, self._environment):
            self.table.get_or_raise(request.group_id)
        group, records = upgraded(classic, self._environment.topics())
        result = self._heartbeat.run(group, request, caller)
        release_parked(classic)
        for member in group.members.values():
            if member.classic is not None:
                self._heartbeat.start_session(group, member.member_id)
        _log.info("group upgraded group=%s members=%d", group.group_id, len(group.members))

        def on_outcome(error: ErrorCode) -> CoordinatorResult[Any, None]:
            if error is ErrorCode.NONE:
                self._classic_timers.end_all(classic)
            return CoordinatorResult(None)

        return CoordinatorResult(result.response, [*records, *result.records], on_outcome=on_outcome)

    def give_way(self, group: ConsumerGroup) -> list[ConsumerGroupRecord]:
        """Remove a group without members, at once, for a classic one. Return its tombstones."""
        self.table.drop(group.group_id)
        return consumer_group_removed(
            group.group_id, group.members, group.regexes, has_partition_metadata=group.has_partition_metadata
        )

    def describe(self, group_id: str) -> CoordinatorResult[Any, DescribedGroup]:
        """Return the group; the error GROUP_ID_NOT_FOUND for a missing one, and for one of another type."""
        try:
            described = describe(
                self.table.get_or_raise(group_id, is_other=self._is_other(group_id)), self._environment
            )
        except KafkaError as error:
            described = DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
        return CoordinatorResult(described)

    def count(self, metrics: GroupMetrics) -> None:
        """Write the number of groups by state, and of rebalances, into the shard's metrics."""
        metrics.consumer_groups = Counter(group.state for group in self.table)
        metrics.consumer_group_rebalances = self.table.epochs_written

    # Topics.

    def on_topics_changed(self, names: Iterable[str], created_at: int | None) -> None:
        """Let the next heartbeat of each subscribed group look at its topics again.

        `created_at` is the metadata offset of created topics, which may match expressions; None when none was created.
        """
        changed = frozenset(names)
        if created_at is not None:
            self._regexes.newest_topic_offset = created_at
        for group in self.table:
            if any(map(group.is_subscribed_to, changed)):
                group.needs_metadata_check = True

    def take_regex_lookups(self) -> list[RegexLookup]:
        """Return look-ups of expressions to start, each once; `resolve_regexes` takes the result."""
        return self._regexes.take_due()

    def resolve_regexes(
        self, group_id: str, results: Mapping[str, ResolvedRegex] | None
    ) -> CoordinatorResult[Any, None]:
        """Write the result of a look-up; None when it failed."""
        return self._regexes.resolve(group_id, results)
