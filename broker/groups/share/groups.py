"""The share groups of one shard: the operations of this package, joined."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from logging import getLogger
from typing import Any

from broker.coordination.shard import CoordinatorResult
from broker.coordination.timers import CoordinatorClock, TimerQueue
from broker.groups.caller import Caller
from broker.groups.consumer.member import JOIN_EPOCH
from broker.groups.metrics import GroupMetrics
from broker.groups.share.describe import describe_share_group
from broker.groups.share.environment import ShareGroupEnvironment
from broker.groups.share.group import ShareGroup
from broker.groups.share.heartbeat import ShareGroupHeartbeat, ShareHeartbeatResult
from broker.groups.share.offsets import (
    ShareAlteration,
    ShareOffsetDeletion,
    begin_alteration,
    begin_group_deletion,
    begin_offset_deletion,
    changed_partitions,
)
from broker.groups.share.partitions import TopicMap
from broker.groups.share.records import ShareGroupEvent, ShareGroupRecord, share_partitions_written
from broker.groups.share.table import ShareGroupTable
from broker.groups.share.timers import ShareGroupTimers, ShareSessionExpired
from broker.groups.share.validation import check_share_form
from protocol.errors import KafkaError
from protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequestTopic
from protocol.messages.share_group_describe import DescribedGroup
from protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from protocol.primitives import Uuid

_log = getLogger(__name__)

NOTHING: CoordinatorResult[Any, None] = CoordinatorResult(None)


class ShareGroups:
    """Serves share groups beside the other groups of the same shard.

    `is_other` tells whether a group id is that of a group of another type.
    """

    def __init__(
        self,
        environment: ShareGroupEnvironment,
        queue: TimerQueue[Any],
        clock: CoordinatorClock,
        is_other: Callable[[str], bool],
    ) -> None:
        self.table = ShareGroupTable(clock.monotonic_ms)
        self._environment = environment
        self._clock = clock
        self._is_other = is_other
        self._heartbeat = ShareGroupHeartbeat(environment, ShareGroupTimers(queue))

    def replay(self, event: ShareGroupEvent) -> None:
        """Apply a record of the log."""
        self.table.replay(event)

    def on_loaded(self) -> None:
        """Give every member a new session."""
        self.table.epochs_written = 0
        for group in self.table:
            for member_id in group.members:
                self._heartbeat.start_session(group, member_id)

    def on_timer(self, cause: ShareSessionExpired) -> CoordinatorResult[Any, None]:
        """Remove a member whose session has expired."""
        group = self.table.get(cause.group_id)
        member = None if group is None else group.members.get(cause.member_id)
        if group is None or member is None:
            return CoordinatorResult(None)
        _log.info("member removed group=%s member=%s: its session has expired", cause.group_id, cause.member_id)
        return self._heartbeat.remove(group, member)

    def heartbeat(self, request: ShareGroupHeartbeatRequest, caller: Caller) -> ShareHeartbeatResult:
        """Handle a heartbeat. Raise KafkaError."""
        check_share_form(request)
        group = self._find(request.group_id, creates=request.member_epoch == JOIN_EPOCH)
        return self._heartbeat.run(group, request, caller, self._clock.monotonic_ms())

    def describe(self, group_id: str) -> CoordinatorResult[Any, DescribedGroup]:
        """Return the group; the error GROUP_ID_NOT_FOUND for a missing one, and for one of another type."""
        try:
            described = describe_share_group(
                self._find(group_id), self._environment.topics(), self._environment.assignor.name
            )
        except KafkaError as error:
            described = DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
        return CoordinatorResult(described)

    def count(self, metrics: GroupMetrics) -> None:
        """Write the number of groups by state, and of rebalances, into the shard's metrics."""
        metrics.share_groups = Counter(group.state for group in self.table)
        metrics.share_group_rebalances = self.table.epochs_written

    def on_topics_changed(self, names: Iterable[str]) -> None:
        """Let the next heartbeat of each subscribed group look at its topics again."""
        changed = frozenset(names)
        for group in self.table:
            if any(map(group.is_subscribed_to, changed)):
                group.needs_metadata_check = group.needs_initialization = True

    def on_topics_deleted(self, topic_ids: Collection[Uuid]) -> CoordinatorResult[Any, None]:
        """Forget the share partitions of deleted topics, whose states the share coordinator removes by itself."""
        records: list[ShareGroupRecord] = []
        for group in self.table:
            rest = group.partitions.without_topics(topic_ids)
            if rest != group.partitions:
                records.append(share_partitions_written(group.group_id, rest))
        return CoordinatorResult(None, records, atomic=False)

    # Share partitions.

    def initialized(self, group_id: str) -> TopicMap:
        """Return the partitions whose states exist."""
        group = self.table.get(group_id)
        return {} if group is None else group.partitions.initialized

    def on_initialized(self, group_id: str, topics: TopicMap) -> CoordinatorResult[Any, None]:
        """Record that states exist. The next heartbeats assign the partitions."""
        group = self.table.get(group_id)
        return NOTHING if group is None else changed_partitions(group, group.partitions.with_initialized(topics))

    def on_initialization_failed(self, group_id: str, topics: TopicMap) -> CoordinatorResult[Any, None]:
        """Record that states do not exist. The next heartbeat begins their initialization again."""
        group = self.table.get(group_id)
        return NOTHING if group is None else changed_partitions(group, group.partitions.without_initializing(topics))

    def begin_alteration(
        self, group_id: str, topics: list[AlterShareGroupOffsetsRequestTopic]
    ) -> CoordinatorResult[Any, ShareAlteration]:
        """Begin to alter start offsets; a missing group is created. Raise KafkaError."""
        return begin_alteration(self._find(group_id, creates=True), topics, self._environment.topics())

    def begin_offset_deletion(self, group_id: str, names: list[str]) -> CoordinatorResult[Any, ShareOffsetDeletion]:
        """Begin to delete the states of topics. Raise KafkaError."""
        return begin_offset_deletion(self._find(group_id), names, self._environment.topics())

    def begin_group_deletion(self, group_id: str) -> CoordinatorResult[Any, TopicMap]:
        """Begin to delete a group; return the states to delete. Raise KafkaError."""
        return begin_group_deletion(self._find(group_id), self._environment.topics())

    def on_deleted(self, group_id: str, topic_ids: Collection[Uuid]) -> CoordinatorResult[Any, None]:
        """Record that states are gone."""
        group = self.table.get(group_id)
        return NOTHING if group is None else changed_partitions(group, group.partitions.without_deleting(topic_ids))

    def _find(self, group_id: str, *, creates: bool = False) -> ShareGroup:
        """Return the group. Raise KafkaError GROUP_ID_NOT_FOUND."""
        if creates and group_id not in self.table and not self._is_other(group_id):
            return ShareGroup(group_id)
        return self.table.get_or_raise(group_id)
