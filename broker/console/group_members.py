"""Members of groups of every kind, in one form."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final

from broker.console.request import Json
from protocol.compiler import decode
from protocol.errors import DecodeError
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages import consumer_group_describe, describe_groups, share_group_describe, streams_group_describe
from protocol.messages.common_records import ConsumerProtocolAssignment

_VERSION_BYTES: Final = 2

Partition = tuple[str, int]


@lazy_dataclass(frozen=True, slots=True)
class MemberView:
    """A member. `facts` are what only some kinds of groups have; `patterns` are subscribed regular expressions."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: Sequence[Partition]
    facts: Mapping[str, object] = field(default_factory=dict)
    subscription: Sequence[str] = ()
    patterns: Sequence[str] = ()

    def seen_by(self, topics: Collection[str]) -> Json:
        """Return the member with its partitions of these topics, and its subscription to them."""
        by_topic: dict[str, list[int]] = {}
        for topic, index in self.assignment:
            if topic in topics:
                by_topic.setdefault(topic, []).append(index)
        return {
            "id": self.id,
            "instance_id": self.instance_id,
            "client_id": self.client_id,
            "host": self.host,
            "assignment": [{"topic": topic, "partitions": sorted(found)} for topic, found in sorted(by_topic.items())],
            "subscription": [*(topic for topic in self.subscription if topic in topics), *self.patterns],
            **self.facts,
        }


@lazy_dataclass(frozen=True, slots=True)
class GroupView:
    """A group with its members."""

    state: str
    epoch: int | None
    assignor: str | None
    members: Sequence[MemberView]

    @property
    def owners(self) -> Mapping[Partition, str]:
        """The member of each assigned partition; one of them where members share a partition."""
        return {partition: member.id for member in self.members for partition in member.assignment}

    @property
    def topics(self) -> set[str]:
        """All topics that members are assigned or subscribed to."""
        assigned = {topic for member in self.members for topic, _ in member.assignment}
        return assigned.union(*(member.subscription for member in self.members))

    def members_seen_by(self, topics: Collection[str]) -> list[Json]:
        """Return the members, with their partitions of these topics."""
        return [member.seen_by(topics) for member in self.members]


def describe_classic(group: describe_groups.DescribedGroup) -> GroupView:
    """Return a classic group."""
    members = [
        MemberView(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host.removeprefix("/"),
            _classic_assignment(each.member_assignment),
        )
        for each in group.members
    ]
    return GroupView(group.group_state, None, group.protocol_data or None, members)


def describe_consumer(group: consumer_group_describe.DescribedGroup) -> GroupView:
    """Return a group of the consumer protocol (KIP-848)."""
    members = [
        MemberView(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host.removeprefix("/"),
            _pairs(each.assignment.topic_partitions),
            {"epoch": each.member_epoch, "target": len(_pairs(each.target_assignment.topic_partitions))},
            list(each.subscribed_topic_names),
            list(filter(None, [each.subscribed_topic_regex])),
        )
        for each in group.members
    ]
    return GroupView(group.group_state, group.group_epoch, group.assignor_name, members)


def describe_share(group: share_group_describe.DescribedGroup) -> GroupView:
    """Return a share group (KIP-932)."""
    members = [
        MemberView(
            each.member_id,
            None,
            each.client_id,
            each.client_host.removeprefix("/"),
            _pairs(each.assignment.topic_partitions),
            {"epoch": each.member_epoch},
            list(each.subscribed_topic_names),
        )
        for each in group.members
    ]
    return GroupView(group.group_state, group.group_epoch, group.assignor_name, members)


def describe_streams(group: streams_group_describe.DescribedGroup) -> GroupView:
    """Return a Streams group (KIP-1071); its members have tasks of subtopologies."""
    sources: dict[str, list[str]] = {}
    for part in (group.topology.subtopologies or ()) if group.topology is not None else ():
        sources[part.subtopology_id] = [*part.source_topics, *(each.name for each in part.repartition_source_topics)]
    members = [_streams_member(each, sources) for each in group.members]
    return GroupView(group.group_state, group.group_epoch, None, members)


def _streams_member(member: streams_group_describe.Member, sources: Mapping[str, Sequence[str]]) -> MemberView:
    tasks = member.assignment
    pairs = [
        (topic, index)
        for task in tasks.active_tasks
        for topic in sources.get(task.subtopology_id, ())
        for index in task.partitions
    ]
    facts = {
        "epoch": member.member_epoch,
        "process_id": member.process_id,
        "tasks": {
            "active": _tasks(tasks.active_tasks),
            "standby": _tasks(tasks.standby_tasks),
            "warmup": _tasks(tasks.warmup_tasks),
        },
    }
    host = member.client_host.removeprefix("/")
    return MemberView(member.member_id, member.instance_id, member.client_id, host, pairs, facts)


def _tasks(tasks: Iterable[streams_group_describe.TaskIds]) -> list[str]:
    return [f"{each.subtopology_id}_{index}" for each in tasks for index in each.partitions]


def _pairs(
    topics: Iterable[consumer_group_describe.TopicPartitions | share_group_describe.TopicPartitions],
) -> list[Partition]:
    return [(topic.topic_name, index) for topic in topics for index in topic.partitions]


def _classic_assignment(data: bytes) -> list[Partition]:
    """Decode a classic member's assignment; empty during a rebalance or for another protocol."""
    if len(data) < _VERSION_BYTES:
        return []
    version = min(int.from_bytes(data[:_VERSION_BYTES], "big", signed=True), ConsumerProtocolAssignment.MAX_VERSION)
    try:
        assignment, _ = decode(ConsumerProtocolAssignment, data, version, _VERSION_BYTES)
    except DecodeError:
        return []
    return sorted((topic.topic, index) for topic in assignment.assigned_partitions for index in topic.partitions)
