"""The streams groups of a shard, and the replay of their records."""

from broker.groups.streams import records as events
from broker.groups.streams.group import StreamsGroup
from broker.groups.table import GroupsById, GroupTable
from protocol.errors import ErrorCode, KafkaError


class StreamsGroupTable(GroupsById[StreamsGroup]):
    """Finds streams groups. `epochs_written` counts the group epochs since the shard was loaded: one per rebalance."""

    def __init__(self, classic_groups: GroupTable) -> None:
        super().__init__()
        self._classic_groups = classic_groups
        self.epochs_written = 0

    def get_or_raise(self, group_id: str, *, is_other: bool = False) -> StreamsGroup:
        """Return the group. Raise KafkaError GROUP_ID_NOT_FOUND; `is_other`: the id is that of another type."""
        group = self._groups.get(group_id)
        if group is None:
            text = f"Group {group_id} {'is not a streams group' if is_other else 'not found'}."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)
        return group

    def drop(self, group_id: str) -> StreamsGroup:
        """Remove a group at once, whose tombstones follow in the log."""
        return self._groups.pop(group_id)

    def replay(self, event: events.StreamsGroupEvent) -> None:
        """Apply a record of the log. A tombstone of something unknown changes nothing."""
        group = self._groups.get(event.group_id)
        if group is None:
            if not isinstance(event, events.CREATING_EVENTS):
                return
            group = self._groups[event.group_id] = StreamsGroup(event.group_id)
            # Offsets of the group may come first in the log, and look like those of a group without members.
            self._classic_groups.remove(event.group_id)
        apply_streams_event(group, event)
        self.epochs_written += isinstance(event, events.StreamsEpochWritten)
        if isinstance(event, events.StreamsGroupRemoved) or group.is_blank:
            del self._groups[event.group_id]


def apply_streams_event(group: StreamsGroup, event: events.StreamsGroupEvent) -> None:  # noqa: C901  one branch per event
    """Change the group as the record says."""
    match event:
        case events.StreamsEpochWritten():
            group.epoch, group.metadata_hash = event.epoch, event.metadata_hash
            group.validated_topology_epoch = event.validated_topology_epoch
            group.assignment_configs = dict(event.assignment_configs)
        case events.StreamsTopologyWritten(_, topology):
            group.topology = topology
        case events.StreamsTopologyRemoved():
            group.topology = None
        case events.StreamsMemberWritten(_, member):
            group.set_member(member)
        case events.StreamsMemberRemoved(_, member_id):
            group.remove_member(member_id)
        case events.StreamsTargetEpochWritten(_, epoch):
            group.target_epoch = epoch
        case events.StreamsTargetEpochRemoved():
            group.target_epoch = 0
        case events.StreamsTargetWritten(_, member_id, target):
            group.set_target(member_id, target)
        case events.StreamsTargetRemoved(_, member_id):
            group.remove_target(member_id)
        case events.StreamsCurrentWritten(_, member_id, assignment):
            group.set_current(member_id, assignment)
        case events.StreamsCurrentRemoved(_, member_id):
            group.remove_current(member_id)
        case events.StreamsGroupRemoved():
            pass
