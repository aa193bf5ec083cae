"""The removal of members: on their own request, an administrator's, or at the end of a timeout."""

from collections.abc import Callable, Collection, Iterable
from logging import getLogger
from typing import Any

from broker.coordination.shard import CoordinatorResult
from broker.coordination.timers import CoordinatorClock
from broker.groups.consumer.environment import ConsumerGroupEnvironment
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import ConsumerGroupMember
from broker.groups.consumer.migration import can_downgrade, downgrade_records
from broker.groups.consumer.records import ConsumerGroupRecord, epoch_written, member_removed, regex_removed
from broker.groups.consumer.table import ConsumerGroupTable
from broker.groups.consumer.timers import (
    ClassicJoinOverdue,
    ClassicSyncOverdue,
    ConsumerGroupCause,
    ConsumerGroupTimers,
    ConsumerSessionExpired,
    RevocationOverdue,
)
from protocol.errors import ErrorCode

_log = getLogger(__name__)

_REASONS = {
    ConsumerSessionExpired: "its session has expired",
    RevocationOverdue: "it has not given up partitions in time",
    ClassicJoinOverdue: "it has not rejoined in time",
    ClassicSyncOverdue: "it has not sent SyncGroup in time",
}


class Departures:
    """Removes members and increments the group epoch, so that the next heartbeat computes a new target.

    The group becomes a classic one when only classic members remain (`migration.py`). `adopt(group_id)` starts the
    timers of that group, which is then in the table of classic groups, and rebalances it if a member has left.
    """

    def __init__(
        self,
        groups: ConsumerGroupTable,
        environment: ConsumerGroupEnvironment,
        timers: ConsumerGroupTimers,
        clock: CoordinatorClock,
        adopt: Callable[[str], CoordinatorResult[Any, None]],
    ) -> None:
        self.adopt = adopt
        self._clock = clock
        self._groups = groups
        self._environment = environment
        self._timers = timers

    def on_timer(self, cause: ConsumerGroupCause) -> CoordinatorResult[Any, None]:
        """Remove a member whose time is over."""
        group = self._groups.get(cause.group_id)
        member = None if group is None else group.members.get(cause.member_id)
        if group is None or member is None:
            return CoordinatorResult(None)
        if isinstance(cause, RevocationOverdue) and group.current(cause.member_id).epoch != cause.member_epoch:
            return CoordinatorResult(None)
        _log.info("member removed group=%s member=%s: %s", group.group_id, member.member_id, _REASONS[type(cause)])
        return self.remove(group, [member])

    def remove(self, group: ConsumerGroup, leavers: Iterable[ConsumerGroupMember]) -> CoordinatorResult[Any, None]:
        """Remove the members, and expressions that no other member has."""
        leaving = {member.member_id: member for member in leavers}
        if not leaving:
            return CoordinatorResult(None)
        if self.can_downgrade(group, leaving):
            return self._downgrade(group, leaving)
        records: list[ConsumerGroupRecord] = []
        subscriptions = group.counts.subscriptions.copy()
        for member in leaving.values():
            records += member_removed(group.group_id, member.member_id)
            subscriptions[member.subscription] -= 1
        remaining = [subscription for subscription, count in subscriptions.items() if count]
        kept_regexes = {regex for _, regex in remaining}
        records += [regex_removed(group.group_id, regex) for regex in group.regexes if regex not in kept_regexes]
        new_hash = group.known_topics.hash(self._environment.topics(), group.topics_of_all(remaining))
        records.append(epoch_written(group.group_id, group.epoch + 1, new_hash))

        def on_outcome(_: ErrorCode) -> CoordinatorResult[Any, None]:
            self.end_timers(group.group_id, leaving)
            return CoordinatorResult(None)

        return CoordinatorResult(None, records, on_outcome=on_outcome)

    def end_timers(self, group_id: str, member_ids: Iterable[str]) -> None:
        """End the timers of former members. Members whose removal was not written keep theirs."""
        group = self._groups.get(group_id)
        for member_id in member_ids:
            if group is None or member_id not in group.members:
                self._timers.end_all(group_id, member_id)

    def can_downgrade(self, group: ConsumerGroup, leaving: Collection[str], *, joining: int = 0) -> bool:
        """Whether the group becomes a classic one when these members leave and `joining` classic ones join."""
        return can_downgrade(group, leaving, self._environment, joining)

    def downgrade(
        self, group: ConsumerGroup, leaving: Collection[str], successor: tuple[ConsumerGroupMember, int] | None = None
    ) -> list[ConsumerGroupRecord]:
        """Return the records that make the group a classic one. Call `end_timers` and `adopt` with their outcome."""
        return downgrade_records(group, leaving, self._environment.topics(), self._clock.now_ms(), successor)

    def _downgrade(self, group: ConsumerGroup, leaving: Collection[str]) -> CoordinatorResult[Any, None]:
        records, member_ids = self.downgrade(group, leaving), tuple(group.members)

        def on_outcome(_: ErrorCode) -> CoordinatorResult[Any, None]:
            self.end_timers(group.group_id, member_ids)
            return self.adopt(group.group_id)

        return CoordinatorResult(None, records, on_outcome=on_outcome)
