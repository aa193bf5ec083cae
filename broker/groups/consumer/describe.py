"""ConsumerGroupDescribe and ListGroups: the administrator's view of consumer groups."""

from broker.groups.consumer.assignment import Assignment, in_order
from broker.groups.consumer.environment import ConsumerGroupEnvironment
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import ConsumerGroupMember
from broker.groups.consumer.topics import TopicsView
from broker.groups.subscription import CONSUMER_PROTOCOL_TYPE
from protocol.messages.consumer_group_describe import (
    Assignment as DescribedAssignment,
)
from protocol.messages.consumer_group_describe import (
    DescribedGroup,
    Member,
    TopicPartitions,
)
from protocol.messages.list_groups import ListedGroup

CONSUMER_GROUP_TYPE = "consumer"
CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def listed(group: ConsumerGroup) -> ListedGroup:
    """Return the group's entry in ListGroups."""
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        group_state=group.state.value,
        group_type=CONSUMER_GROUP_TYPE,
    )


def describe(group: ConsumerGroup, environment: ConsumerGroupEnvironment) -> DescribedGroup:
    """Return the group with its members."""
    topics = environment.topics()
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.counts.preferred_assignor() or environment.default_assignor,
        members=[_member(group, member, topics) for member in group.members.values()],
    )


def _member(group: ConsumerGroup, member: ConsumerGroupMember, topics: TopicsView) -> Member:
    current = group.current(member.member_id)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=current.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(current.assigned, topics),
        target_assignment=_assignment(group.target(member.member_id), topics),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(assignment: Assignment, topics: TopicsView) -> DescribedAssignment:
    """Return the assignment with topic names; deleted topics have none and are left out."""
    named = ((topic_id, topics.name_of(topic_id), partitions) for topic_id, partitions in in_order(assignment))
    return DescribedAssignment(
        [TopicPartitions(topic_id, name, partitions) for topic_id, name, partitions in named if name is not None]
    )
