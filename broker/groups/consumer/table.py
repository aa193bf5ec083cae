"""The consumer groups of a shard, and the replay of their records."""

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
        self.epochs_written += isinstance(event, events.ConsumerGroupEpochWritten)
        if isinstance(event, events.ConsumerGroupRemoved) or group.is_blank:
            del self._groups[event.group_id]


def _creates(event: events.ConsumerGroupEvent) -> bool:
    if isinstance(event, events.PartitionMetadataSeen):
        return event.exists
    return isinstance(
        event,
        events.ConsumerGroupEpochWritten
        | events.ConsumerMemberWritten
        | events.TargetEpochWritten
        | events.TargetWritten
        | events.CurrentAssignmentWritten
        | events.RegexResolved,
    )


def apply_event(group: ConsumerGroup, event: events.ConsumerGroupEvent) -> None:  # noqa: C901  one branch per event
    """Change the group as the record says."""
    match event:
        case events.ConsumerGroupEpochWritten(_, epoch, metadata_hash):
            group.epoch, group.metadata_hash = epoch, metadata_hash
        case events.PartitionMetadataSeen(_, exists):
            group.has_partition_metadata = exists
        case events.ConsumerMemberWritten(_, member):
            group.set_member(member)
        case events.ConsumerMemberRemoved(_, member_id):
            group.remove_member(member_id)
        case events.TargetEpochWritten(_, epoch):
            group.target_epoch = epoch
        case events.TargetEpochRemoved():
            group.target_epoch = 0
        case events.TargetWritten(_, member_id, target):
            group.set_target(member_id, target)
        case events.TargetRemoved(_, member_id):
            group.remove_target(member_id)
        case events.CurrentAssignmentWritten(_, member_id, assignment):
            group.set_current(member_id, assignment)
        case events.CurrentAssignmentRemoved(_, member_id):
            group.remove_current(member_id)
        case events.RegexResolved(_, regex, resolved):
            group.regexes[regex] = resolved
        case events.RegexRemoved(_, regex):
            group.regexes.pop(regex, None)
        case events.ConsumerGroupRemoved():
            pass
