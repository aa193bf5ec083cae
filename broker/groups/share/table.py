"""The share groups of a shard, and the replay of their records."""

from collections.abc import Callable
from dataclasses import replace

from broker.groups.share import records as events
from broker.groups.share.group import ShareGroup
from broker.groups.share.partitions import GroupSharePartitions
from broker.groups.table import GroupsById
from protocol.errors import ErrorCode, KafkaError


class ShareGroupTable(GroupsById[ShareGroup]):
    """Finds share groups. `epochs_written` counts the group epochs since the shard was loaded: each is a rebalance."""

    def __init__(self, monotonic_ms: Callable[[], float]) -> None:
        super().__init__()
        self._monotonic_ms = monotonic_ms
        self.epochs_written = 0

    def get_or_raise(self, group_id: str) -> ShareGroup:
        """Return the group. Raise KafkaError GROUP_ID_NOT_FOUND."""
        group = self._groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
        return group

    def replay(self, event: events.ShareGroupEvent) -> None:
        """Apply a record of the log. A tombstone of something unknown changes nothing."""
        group = self._groups.get(event.group_id)
        if group is None:
            if not isinstance(event, _CREATING):
                return
            group = self._groups[event.group_id] = ShareGroup(event.group_id)
        self._apply(group, event)
        self.epochs_written += isinstance(event, events.ShareEpochWritten)
        if isinstance(event, events.ShareGroupRemoved) or group.is_blank:
            del self._groups[event.group_id]

    def _apply(self, group: ShareGroup, event: events.ShareGroupEvent) -> None:  # noqa: C901  one branch per event
        match event:
            case events.ShareEpochWritten(_, epoch, metadata_hash):
                group.epoch, group.metadata_hash = epoch, metadata_hash
            case events.ShareMemberWritten(_, member):
                group.set_member(member)
            case events.ShareMemberRemoved(_, member_id):
                group.remove_member(member_id)
            case events.ShareTargetEpochWritten(_, epoch):
                group.target_epoch = epoch
            case events.ShareTargetEpochRemoved():
                group.target_epoch = 0
            case events.ShareTargetWritten(_, member_id, target):
                group.set_target(member_id, target)
            case events.ShareTargetRemoved(_, member_id):
                group.remove_target(member_id)
            case events.ShareCurrentWritten(_, member_id, assignment):
                group.set_current(member_id, assignment)
            case events.ShareCurrentRemoved(_, member_id):
                group.remove_current(member_id)
            case events.SharePartitionsWritten(_, partitions):
                group.set_partitions(replace(partitions, began_ms=self._monotonic_ms()))
            case events.SharePartitionsRemoved():
                group.set_partitions(GroupSharePartitions())
            case events.ShareGroupRemoved():
                pass


_CREATING = (
    events.ShareEpochWritten,
    events.ShareMemberWritten,
    events.ShareTargetEpochWritten,
    events.ShareTargetWritten,
    events.ShareCurrentWritten,
    events.SharePartitionsWritten,
)
