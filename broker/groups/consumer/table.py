"""The consumer groups of a shard, and the replay of their records."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from broker.groups.consumer import records as events
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.table import GroupsById, GroupTable
from protocol.errors import ErrorCode, KafkaError


class ConsumerGroupTable(GroupsById[ConsumerGroup]):
    """Finds consumer groups. `classic_groups` are the shard's other groups; a group id is in one of both tables.

    `epochs_written` counts the group epochs since the shard was loaded: each is a rebalance.
    """

    def __init__(self, classic_groups: GroupTable) -> None:
        super().__init__()
        self._classic_groups = classic_groups
        self.epochs_written = 0

    def get_or_raise(self, group_id: str, *, is_other: bool = False) -> ConsumerGroup:
        """Return the group. Raise KafkaError GROUP_ID_NOT_FOUND; `is_other`: the id is that of another modern type."""
        group = self._groups.get(group_id)
        if group is None:
            is_known = is_other or self._classic_groups.get(group_id) is not None
            reason = "is not a consumer group" if is_known else "not found"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.")
        return group

    def drop(self, group_id: str) -> ConsumerGroup:
        """Remove a group at once, whose tombstones follow in the log."""
        return self._groups.pop(group_id)

    def replay(self, event: events.ConsumerGroupEvent) -> None:
        """Apply a record of the log. A tombstone of something unknown changes nothing."""
        group = self._groups.get(event.group_id)
        if group is None:
            if not _creates(event):
                return
            group = self._groups[event.group_id] = ConsumerGroup(event.group_id)
            # Offsets of the group may come first in the log, and look like those of a group without members.
            self._classic_groups.remove(event.group_id)
        apply_event(group, event)
        kind = type(event)
        if kind in _GROUP_WIDE or kind in _REMOVALS:
            self.epochs_written += kind is events.ConsumerGroupEpochWritten
            if kind is events.ConsumerGroupRemoved or group.is_blank:
                del self._groups[event.group_id]


def apply_event(group: ConsumerGroup, event: events.ConsumerGroupEvent) -> None:
    """Change the group as the record says."""
    _CHANGES[type(event)](group, event)


def _creates(event: events.ConsumerGroupEvent) -> bool:
    if isinstance(event, events.PartitionMetadataSeen):
        return event.exists
    return type(event) not in _REMOVALS


def _set_epoch(group: ConsumerGroup, event: events.ConsumerGroupEpochWritten) -> None:
    group.epoch, group.metadata_hash = event.epoch, event.metadata_hash


def _set_partition_metadata(group: ConsumerGroup, event: events.PartitionMetadataSeen) -> None:
    group.has_partition_metadata = event.exists


def _set_target_epoch(group: ConsumerGroup, event: events.TargetEpochWritten) -> None:
    group.target_epoch = event.epoch


def _remove_target_epoch(group: ConsumerGroup, _event: events.TargetEpochRemoved) -> None:
    group.target_epoch = 0


def _set_regex(group: ConsumerGroup, event: events.RegexResolved) -> None:
    group.regexes[event.regex] = event.resolved


def _remove_regex(group: ConsumerGroup, event: events.RegexRemoved) -> None:
    group.regexes.pop(event.regex, None)


def _leave_to_table(_group: ConsumerGroup, _event: events.ConsumerGroupRemoved) -> None:
    """Change nothing: the table removes the group."""


# One look-up in place of a comparison with each type: a join writes eight records, a load replays all of them.
_CHANGES: Final[Mapping[type[Any], Callable[[ConsumerGroup, Any], None]]] = {
    events.ConsumerGroupEpochWritten: _set_epoch,
    events.ConsumerGroupRemoved: _leave_to_table,
    events.PartitionMetadataSeen: _set_partition_metadata,
    events.ConsumerMemberWritten: lambda group, event: group.set_member(event.member),
    events.ConsumerMemberRemoved: lambda group, event: group.remove_member(event.member_id),
    events.TargetEpochWritten: _set_target_epoch,
    events.TargetEpochRemoved: _remove_target_epoch,
    events.TargetWritten: lambda group, event: group.targets.set(event.member_id, event.target),
    events.TargetRemoved: lambda group, event: group.targets.remove(event.member_id),
    events.CurrentAssignmentWritten: lambda group, event: group.set_current(event.member_id, event.assignment),
    events.CurrentAssignmentRemoved: lambda group, event: group.remove_current(event.member_id),
    events.RegexResolved: _set_regex,
    events.RegexRemoved: _remove_regex,
}
_REMOVALS: Final = frozenset(
    {
        events.ConsumerGroupRemoved,
        events.ConsumerMemberRemoved,
        events.TargetEpochRemoved,
        events.TargetRemoved,
        events.CurrentAssignmentRemoved,
        events.RegexRemoved,
    }
)
_GROUP_WIDE: Final = frozenset(
    {events.ConsumerGroupEpochWritten, events.PartitionMetadataSeen, events.TargetEpochWritten}
)
"""Records that may take away what a group has: an epoch of 0, no partition metadata."""
