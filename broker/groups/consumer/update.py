"""One command's changes of a consumer group: records in the order of the log, and the group as it will be after them.

The group itself changes when the records are replayed. Kafka's order is kept: members (5), group epoch (3), target
assignment (7 per member, then 6), current assignment (8).
"""

from collections.abc import Mapping
from logging import getLogger

from broker.groups.consumer.assignment import NO_PARTITIONS, Assignment
from broker.groups.consumer.assignors.assignor import (
    AssignableGroup,
    AssignableMember,
    FormerTargets,
    IncrementalAssignor,
    PartitionAssignor,
)
from broker.groups.consumer.environment import ConsumerGroupEnvironment
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.known_topics import TopicCounts
from broker.groups.consumer.member import ConsumerGroupMember, MemberAssignment, MemberSubscription
from broker.groups.consumer.reconciliation import next_assignment
from broker.groups.consumer.records import (
    ConsumerGroupRecord,
    current_written,
    epoch_written,
    member_removed,
    member_written,
    target_epoch_written,
    target_written,
)
from broker.groups.consumer.topics import SubscribableTopic
from protocol.errors import ErrorCode, KafkaError
from protocol.primitives import Uuid

_log = getLogger(__name__)


class GroupUpdate:
    """Collects the records of a heartbeat, or of a classic member's JoinGroup.

    `before` is the member in the group that the request continues: the member itself, the static member that it
    replaces, or None for a new one. `after` is the member as the request describes it.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        environment: ConsumerGroupEnvironment,
        before: ConsumerGroupMember | None,
        after: ConsumerGroupMember,
    ) -> None:
        self.records: list[ConsumerGroupRecord] = []
        self.epoch = group.epoch
        self.target_epoch = group.target_epoch
        self._group = group
        self._environment = environment
        self._before = before
        self._after = after

    def replace_static_member(self, copied: ConsumerGroupMember, assignment: MemberAssignment) -> None:
        """Give the slot of `before` to the new member id: same target, and current assignment at epoch 0."""
        assert self._before is not None
        group_id, old_id = self._group.group_id, self._before.member_id
        self.records += member_removed(group_id, old_id)
        self.records.append(member_written(group_id, copied))
        self.records.append(target_written(group_id, copied.member_id, self._group.target(old_id)))
        self.records.append(current_written(group_id, copied.member_id, assignment))

    def write_member(self, former: ConsumerGroupMember | None) -> None:
        """Write the member if it differs from `former`."""
        if self._after != former:
            self.records.append(member_written(self._group.group_id, self._after))

    def update_epoch(self, *, must_bump: bool) -> None:
        """Increment the group epoch if asked to, or if a subscribed topic has changed."""
        group = self._group
        if not must_bump and not group.needs_metadata_check:
            return
        subscriptions = {self._after.subscription, *group.counts.other_subscriptions(self._before)}
        new_hash = group.known_topics.hash(self._environment.topics(), group.topics_of_all(subscriptions))
        group.needs_metadata_check = new_hash != group.metadata_hash  # until written, which a refusal prevents
        if must_bump or group.needs_metadata_check:
            self.epoch = group.epoch + 1
            self.records.append(epoch_written(group.group_id, self.epoch, new_hash))
            _log.info("consumer group changed group=%s epoch=%d", group.group_id, self.epoch)

    def update_target(self) -> Assignment:
        """Compute a target assignment if the group epoch is above that of the target; return the member's target.

        Raise KafkaError UNKNOWN_SERVER_ERROR when the assignor fails.
        """
        group = self._group
        if self.epoch <= group.target_epoch:
            return self._former_target(self._after.member_id)
        name = group.counts.preferred_assignor(self._before, self._after)
        assignor = self._environment.assignors.get(name or "") or next(iter(self._environment.assignors.values()))
        try:
            changed = self._changed_targets(assignor)
        except Exception as error:
            message = f"Failed to compute a new target assignment for epoch {self.epoch}: {error}"
            _log.error("assignment failed group=%s assignor=%s: %s", group.group_id, assignor.name, error)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message) from error
        self.records += (target_written(group.group_id, member_id, target) for member_id, target in changed.items())
        self.target_epoch = self.epoch
        self.records.append(target_epoch_written(group.group_id, self.epoch))
        own_id = self._after.member_id
        return changed[own_id] if own_id in changed else self._former_target(own_id)

    def reconcile(self, current: MemberAssignment, target: Assignment, owned: Assignment | None) -> MemberAssignment:
        """Take the member's next step towards the target. Raise KafkaError FENCED_MEMBER_EPOCH."""
        if current.is_reconciled_to(self.target_epoch):
            return current
        following = next_assignment(
            current, self.target_epoch, target, owned, self._is_held_by_other, self._new_subscription()
        )
        if following != current:
            self.records.append(current_written(self._group.group_id, self._after.member_id, following))
        return following

    def _new_subscription(self) -> frozenset[Uuid] | None:
        """Return the topics of a changed subscription; None when it is the former one."""
        if self._before is None or self._after.subscription == self._before.subscription:
            return None
        return frozenset(self._topic_counts(self._after.subscription).counts)

    @property
    def _replacing_id(self) -> str | None:
        """The id of a member that takes another member's slot."""
        is_replacing = self._before is not None and self._before.member_id != self._after.member_id
        return self._after.member_id if is_replacing else None

    def _members(self) -> dict[str, ConsumerGroupMember]:
        members = dict(self._group.members)  # in their order, which decides who gets a surplus partition
        if self._replacing_id is not None and self._before is not None:
            del members[self._before.member_id]
        members[self._after.member_id] = self._after
        return members

    def _former_target(self, member_id: str) -> Assignment:
        if member_id == self._replacing_id:
            assert self._before is not None
            return self._group.target(self._before.member_id)
        return self._group.target(member_id)

    def _is_held_by_other(self, topic_id: Uuid, partition: int) -> bool:
        holder = self._group.holder(topic_id, partition)
        own = (self._after.member_id, None if self._before is None else self._before.member_id)
        return holder is not None and holder not in own

    def _changed_targets(self, assignor: PartitionAssignor) -> Mapping[str, Assignment]:
        """Return the targets that differ from the former ones, and those of members without one, in their order."""
        if isinstance(assignor, IncrementalAssignor) and (former := self._former_targets()) is not None:
            changes, own_id = assignor.changes(former), self._after.member_id
            is_unwritten = not self._group.has_target(own_id) and own_id not in changes
            return {**changes, own_id: NO_PARTITIONS} if is_unwritten else changes
        targets = assignor.assign(self._assignable())
        changed: dict[str, Assignment] = {}
        for member_id in self._members():
            target = targets.get(member_id, NO_PARTITIONS)
            has_record = self._group.has_target(member_id) or member_id == self._replacing_id
            if not has_record or target != self._former_target(member_id):
                changed[member_id] = target
        return changed

    def _former_targets(self) -> FormerTargets | None:
        """Return the former targets if all members subscribe to the same topics, and no two share a partition."""
        group, own_id = self._group, self._after.member_id
        targets = group.targets
        if self._replacing_id is not None or not targets.is_complete(except_for=own_id):
            return None
        own = self._topic_counts(self._after.subscription)
        others = group.counts.other_subscriptions(self._before)
        if any(self._topic_counts(each).counts.keys() != own.counts.keys() for each in others):
            return None
        free = targets.free(own.counts)
        if free is None:
            return None
        newcomer = None if own_id in group.members else own_id
        return FormerTargets(targets.loads, newcomer, free, own.partition_count, targets.get)

    def _topic_counts(self, subscription: MemberSubscription) -> TopicCounts:
        return self._group.known_topics.counts(self._environment.topics(), self._group.topics_of(subscription))

    def _topics_of(self, subscription: MemberSubscription) -> list[SubscribableTopic]:
        """Return the existing topics of a subscription."""
        topics = self._environment.topics()
        found = map(topics.describe, self._group.topics_of(subscription))
        return [topic for topic in found if topic is not None]

    def _assignable(self) -> AssignableGroup:
        members = self._members()
        ids: dict[object, frozenset[Uuid]] = {}
        racks: dict[Uuid, tuple[frozenset[str], ...]] = {}
        for subscription in {member.subscription for member in members.values()}:
            described = self._topics_of(subscription)
            ids[subscription] = frozenset(topic.topic_id for topic in described)
            racks.update((topic.topic_id, tuple(topic.racks)) for topic in described)
        return AssignableGroup(
            {
                member_id: AssignableMember(
                    member_id,
                    ids[member.subscription],
                    self._former_target(member_id),
                    member.instance_id,
                    member.rack_id,
                )
                for member_id, member in members.items()
            },
            racks,
            len(set(ids.values())) == 1,
        )
