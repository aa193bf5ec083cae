"""ShareGroupDescribe and ListGroups: the administrator's view of share groups."""

from broker.groups.consumer.assignment import Assignment, in_order
from broker.groups.consumer.topics import TopicsView
from broker.groups.share.group import ShareGroup
from broker.groups.share.member import ShareGroupMember
from protocol.messages.list_groups import ListedGroup
from protocol.messages.share_group_describe import Assignment as DescribedAssignment
from protocol.messages.share_group_describe import DescribedGroup, Member, TopicPartitions

SHARE_GROUP_TYPE = "share"


def listed_share_group(group: ShareGroup) -> ListedGroup:
    """Return the group's entry in ListGroups."""
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=SHARE_GROUP_TYPE,
        group_state=group.state.value,
        group_type=SHARE_GROUP_TYPE,
    )


def describe_share_group(group: ShareGroup, topics: TopicsView, assignor: str) -> DescribedGroup:
    """Return the group with its members, and the name of its assignor."""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=assignor,
        members=[_member(group, member, topics) for member in group.members.values()],
    )


def _member(group: ShareGroup, member: ShareGroupMember, topics: TopicsView) -> Member:
    current = group.current(member.member_id)
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=current.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        assignment=_assignment(current.assigned, topics),
    )


def _assignment(assignment: Assignment, topics: TopicsView) -> DescribedAssignment:
    """Return the assignment with topic names; deleted topics have none and are left out."""
    found = ((topic_id, topics.name_of(topic_id), partitions) for topic_id, partitions in in_order(assignment))
    return DescribedAssignment(
        [TopicPartitions(topic_id, name, partitions) for topic_id, name, partitions in found if name is not None]
    )
