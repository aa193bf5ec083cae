"""A share group: members, current and target assignments, and its share partitions.

All content follows from the log: only `table.py` calls the `set_…` and `remove_…` methods. A group is Stable with
members, and Empty without.
"""

from collections import Counter
from enum import Enum

from broker.groups.consumer.assignment import NO_PARTITIONS, Assignment, assignment_from, each_partition
from broker.groups.consumer.member import NEW_MEMBER_ASSIGNMENT, MemberAssignment
from broker.groups.share.member import ShareGroupMember
from broker.groups.share.partitions import GroupSharePartitions
from protocol.errors import ErrorCode, KafkaError


class ShareGroupState(Enum):
    """A state, named as clients see it."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareGroup:
    """A group whose members share partitions.

    `needs_metadata_check` is soft state: a subscribed topic may have changed since `metadata_hash` was computed.
    `needs_partition_check` likewise: share partitions may have been initialized since the target was computed.
    `needs_initialization` likewise: subscribed share partitions may not be initialized.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.members: dict[str, ShareGroupMember] = {}
        self.partitions = GroupSharePartitions()
        self.subscriptions: Counter[frozenset[str]] = Counter()
        self.needs_metadata_check = True
        self.needs_partition_check = True
        self.needs_initialization = True
        self._current: dict[str, MemberAssignment] = {}
        self._targets: dict[str, Assignment] = {}

    # Views.

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def is_empty(self) -> bool:
        return not self.members

    def member_or_raise(self, member_id: str) -> ShareGroupMember:
        """Return the member. Raise KafkaError UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            message = f"Member {member_id} is not a member of group {self.group_id}."
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, message)
        return member

    def current(self, member_id: str) -> MemberAssignment:
        return self._current.get(member_id, NEW_MEMBER_ASSIGNMENT)

    def target(self, member_id: str) -> Assignment:
        return self._targets.get(member_id, NO_PARTITIONS)

    def has_target(self, member_id: str) -> bool:
        return member_id in self._targets

    def subscribed_topics(
        self, before: ShareGroupMember | None = None, after: ShareGroupMember | None = None
    ) -> frozenset[str]:
        """Return the names of all subscribed topics, with `after` in the place of `before`."""
        counts = self.subscriptions.copy()
        if before is not None:
            counts[before.topic_names] -= 1
        if after is not None:
            counts[after.topic_names] += 1
        return frozenset().union(*(names for names, count in counts.items() if count > 0))

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in names for names in self.subscriptions)

    def assigned_to_all(self) -> Assignment:
        """Return the partitions that are in the target of a member."""
        return assignment_from(each for target in self._targets.values() for each in each_partition(target))

    # Replay.

    def set_member(self, member: ShareGroupMember) -> None:
        self._forget_subscription(member.member_id)
        self.members[member.member_id] = member
        self.subscriptions[member.topic_names] += 1

    def remove_member(self, member_id: str) -> None:
        self._forget_subscription(member_id)
        self.members.pop(member_id, None)

    def set_current(self, member_id: str, assignment: MemberAssignment) -> None:
        self._current[member_id] = assignment

    def remove_current(self, member_id: str) -> None:
        self._current.pop(member_id, None)

    def set_target(self, member_id: str, target: Assignment) -> None:
        self._targets[member_id] = target

    def remove_target(self, member_id: str) -> None:
        self._targets.pop(member_id, None)

    def set_partitions(self, partitions: GroupSharePartitions) -> None:
        self.partitions = partitions
        self.needs_partition_check = True
        self.needs_initialization = True

    @property
    def is_blank(self) -> bool:
        """Whether no record of the group is left."""
        is_unwritten = self.epoch == 0 and self.target_epoch == 0 and self.partitions.is_blank
        return is_unwritten and not (self.members or self._current or self._targets)

    def _forget_subscription(self, member_id: str) -> None:
        former = self.members.get(member_id)
        if former is not None:
            self.subscriptions[former.topic_names] -= 1
            if not self.subscriptions[former.topic_names]:
                del self.subscriptions[former.topic_names]
