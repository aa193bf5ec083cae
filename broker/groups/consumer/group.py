"""A consumer group: members, current and target assignments, and the tables derived from them.

All content follows from the log: only `replay.py` calls the `set_…` and `remove_…` methods. They keep counters, so that
no heartbeat iterates over all members.

| state | condition |
|---|---|
| Empty | there are no members |
| Assigning | the group epoch is above the epoch of the target assignment |
| Reconciling | a member has not reached the target assignment |
| Stable | otherwise |
"""

from collections import Counter
from collections.abc import Iterable
from enum import Enum

from broker.groups.consumer.assignment import Assignment
from broker.groups.consumer.counts import MemberCounts
from broker.groups.consumer.known_topics import KnownTopics
from broker.groups.consumer.member import (
    NEW_MEMBER_ASSIGNMENT,
    ConsumerGroupMember,
    MemberAssignment,
    MemberSubscription,
    ReconciliationState,
)
from broker.groups.consumer.records import ResolvedRegex
from broker.groups.consumer.targets import TargetTable
from protocol.errors import ErrorCode, KafkaError
from protocol.primitives import Uuid


class ConsumerGroupState(Enum):
    """A state, named as clients see it."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroup:
    """A group whose coordinator assigns the partitions.

    `needs_metadata_check` is soft state: a subscribed topic may have changed since `metadata_hash` was computed.
    `known_topics` is a cache.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.has_partition_metadata = False
        self.members: dict[str, ConsumerGroupMember] = {}
        self.counts = MemberCounts()
        self.regexes: dict[str, ResolvedRegex] = {}
        self.needs_metadata_check = True
        self.targets = TargetTable()
        self.known_topics = KnownTopics()
        self._current: dict[str, MemberAssignment] = {}
        self._static_members: dict[str, str] = {}
        self._holders: dict[tuple[Uuid, int], str] = {}
        self._reconciled: Counter[int] = Counter()

    # Views.

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if self._reconciled[self.target_epoch] < len(self.members):
            return ConsumerGroupState.RECONCILING
        return ConsumerGroupState.STABLE

    @property
    def is_empty(self) -> bool:
        return not self.members

    def member_or_raise(self, member_id: str) -> ConsumerGroupMember:
        """Return the member. Raise KafkaError UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def static_member(self, instance_id: str | None) -> ConsumerGroupMember | None:
        """Return the member that holds the instance id."""
        member_id = None if instance_id is None else self._static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def current(self, member_id: str) -> MemberAssignment:
        return self._current.get(member_id, NEW_MEMBER_ASSIGNMENT)

    def target(self, member_id: str) -> Assignment:
        return self.targets.get(member_id)

    def has_target(self, member_id: str) -> bool:
        return member_id in self.targets

    def holder(self, topic_id: Uuid, partition: int) -> str | None:
        """Return the member that owns the partition, or has not given it up yet."""
        return self._holders.get((topic_id, partition))

    # Subscriptions.

    def topics_of(self, subscription: MemberSubscription) -> frozenset[str]:
        """Return the names of a subscription: those given, and those that match its expression."""
        names, regex = subscription
        resolved = self.regexes.get(regex) if regex else None
        return names if resolved is None else names | resolved.topics

    def topics_of_all(self, subscriptions: Iterable[MemberSubscription]) -> frozenset[str]:
        """Return the names of all these subscriptions."""
        names = [self.topics_of(each) for each in subscriptions]
        return names[0] if len(names) == 1 else frozenset().union(*names)

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in self.topics_of(each) for each in self.counts.subscriptions)

    # Replay.

    def set_member(self, member: ConsumerGroupMember) -> None:
        former = self.members.get(member.member_id)
        if former is not None:
            self.counts.change(former, -1)
        self.members[member.member_id] = member
        self.counts.change(member, 1)
        if former is None:
            self.targets.add_member(member.member_id)
            self._count_reconciled(self.current(member.member_id), 1)
        if former is not None and former.instance_id is not None and former.instance_id != member.instance_id:
            self._static_members.pop(former.instance_id, None)
        if member.instance_id is not None:
            self._static_members[member.instance_id] = member.member_id

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self.targets.remove_member(member_id)
        self.counts.change(member, -1)
        self._count_reconciled(self.current(member_id), -1)
        if member.instance_id is not None and self._static_members.get(member.instance_id) == member_id:
            del self._static_members[member.instance_id]

    def set_current(self, member_id: str, assignment: MemberAssignment) -> None:
        former = self._current.get(member_id)
        if former is not None:
            self._release(member_id, former)
        self._current[member_id] = assignment
        self._holders.update(dict.fromkeys(assignment.held(), member_id))
        if member_id in self.members:
            self._count_reconciled(former or NEW_MEMBER_ASSIGNMENT, -1)
            self._count_reconciled(assignment, 1)

    def remove_current(self, member_id: str) -> None:
        former = self._current.pop(member_id, None)
        if former is None:
            return
        self._release(member_id, former)
        if member_id in self.members:
            self._count_reconciled(former, -1)
            self._count_reconciled(NEW_MEMBER_ASSIGNMENT, 1)

    def _release(self, member_id: str, former: MemberAssignment) -> None:
        for partition in former.held():
            # A log in compaction can show a partition under a later member first (KAFKA-19862).
            if self._holders.get(partition) == member_id:
                del self._holders[partition]

    @property
    def is_blank(self) -> bool:
        """Whether no record of the group is left."""
        is_unwritten = self.epoch == 0 and self.target_epoch == 0 and not self.has_partition_metadata
        return is_unwritten and not (self.members or self._current or self.targets or self.regexes)

    def _count_reconciled(self, assignment: MemberAssignment, change: int) -> None:
        if assignment.state is ReconciliationState.STABLE:
            self._reconciled[assignment.epoch] += change
            if not self._reconciled[assignment.epoch]:
                del self._reconciled[assignment.epoch]
