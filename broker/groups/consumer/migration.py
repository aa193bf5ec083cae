"""Conversion of groups with members between the protocols (KIP-848, "Group Upgrade and Downgrade").

| conversion | when | state after it |
|---|---|---|
| upgrade | the first consumer of the new protocol joins a classic group of type "consumer" | epoch = generation; every member STABLE with its last assignment as target; parked requests get REBALANCE_IN_PROGRESS |
| downgrade | the last member of the new protocol leaves, or a classic member takes its instance id | generation = group epoch; Stable, and each member has what it may own still; then a rebalance, if a member has left or is on its way to its target. The record without a leader says that it is due, so that a coordinator that takes over in between starts it |

The targets in place of what members own (as in Kafka) would give a partition two owners if the group is upgraded again
before the rebalance. `group.consumer.migration.policy` allows either. A downgrade needs a remaining member, and room by `group.max.size`.
"""  # noqa: E501  rows of a table

from collections.abc import Collection

from broker.groups.answers import join_refused, sync_refused
from broker.groups.classic import ClassicGroup
from broker.groups.consumer.embedded_protocol import assignment_bytes, embedded_assignment, embedded_subscription
from broker.groups.consumer.environment import ConsumerGroupEnvironment
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import (
    ClassicProtocolSupport,
    ConsumerGroupMember,
    MemberAssignment,
    ReconciliationState,
)
from broker.groups.consumer.records import (
    ConsumerGroupRecord,
    current_written,
    epoch_written,
    member_written,
    target_epoch_written,
    target_written,
)
from broker.groups.consumer.records import group_removed as consumer_group_removed
from broker.groups.consumer.table import apply_event
from broker.groups.consumer.topics import TopicsView
from broker.groups.member import ClassicGroupMember, SupportedProtocol
from broker.groups.records import GroupRecord, group_removed, group_written
from broker.groups.state import GroupState
from broker.groups.subscription import CONSUMER_PROTOCOL_TYPE
from protocol.errors import DecodeError, ErrorCode, KafkaError


def can_upgrade(classic: ClassicGroup, environment: ConsumerGroupEnvironment) -> bool:
    """Whether the classic group, which has members, may become a consumer group."""
    is_small = len(classic.members) <= environment.max_size
    return environment.migration_policy.allows_upgrade and classic.uses_consumer_protocol and is_small


def upgraded(classic: ClassicGroup, topics: TopicsView) -> tuple[ConsumerGroup, list[GroupRecord]]:
    """Return the consumer group that the records create, which replaces the classic one.

    Raise KafkaError GROUP_ID_NOT_FOUND when the members' metadata cannot be read.
    """
    group_id, epoch = classic.group_id, classic.generation
    try:
        members = [_as_consumer_member(member, classic, topics) for member in classic.members.values()]
        assigned = {each.member_id: embedded_assignment(each.assignment, topics) for each in classic.members.values()}
    except DecodeError as error:
        message = f"Cannot upgrade the classic group {group_id}: the embedded consumer protocol is malformed: {error}."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message) from error
    records: list[ConsumerGroupRecord] = [member_written(group_id, member) for member in members]
    records.append(epoch_written(group_id, epoch, 0))
    records += [target_written(group_id, member_id, target) for member_id, target in assigned.items()]
    records.append(target_epoch_written(group_id, epoch))
    records += [
        current_written(group_id, member_id, MemberAssignment(epoch, epoch, ReconciliationState.STABLE, target))
        for member_id, target in assigned.items()
    ]
    group = ConsumerGroup(group_id)
    for record in records:
        apply_event(group, record.event)
    return group, [group_removed(group_id), *records]


def release_parked(classic: ClassicGroup) -> None:
    """Let the members of an upgraded group join again."""
    for member in classic.members.values():
        classic.answer_join(member, join_refused(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        classic.answer_sync(member, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS))


def can_downgrade(
    group: ConsumerGroup, leaving: Collection[str], environment: ConsumerGroupEnvironment, joining: int = 0
) -> bool:
    """Whether the group may become a classic one when these members leave and `joining` classic ones join."""
    classic_leavers = sum(group.members[member_id].classic is not None for member_id in leaving)
    remaining = len(group.members) - len(leaving)
    has_last_consumer_left = classic_leavers < len(leaving) and group.counts.classic - classic_leavers == remaining
    size = remaining + joining
    is_allowed = environment.migration_policy.allows_downgrade and 0 < size <= environment.classic_max_size
    return has_last_consumer_left and is_allowed


def downgrade_records(
    group: ConsumerGroup,
    leaving: Collection[str],
    topics: TopicsView,
    now_ms: int,
    successor: tuple[ConsumerGroupMember, int] | None = None,
) -> list[GroupRecord]:
    """Return the records that replace the group by a classic one without the members that leave.

    A `successor` takes the slot and partitions of the leaving member, in the generation that it is given with.
    """
    staying = [member for member_id, member in group.members.items() if member_id not in leaving]
    former_ids = {member.member_id: member.member_id for member in staying}
    generation = group.epoch
    if successor is not None:
        member, generation = successor
        staying.append(member)
        former_ids[member.member_id] = next(iter(leaving))
    owned = {member_id: group.current(former_id).owned for member_id, former_id in former_ids.items()}
    is_settled = all(owned[member_id] == group.target(former_id) for member_id, former_id in former_ids.items())
    classic = ClassicGroup(group.group_id, state=GroupState.STABLE, state_since_ms=now_ms)
    classic.generation = generation
    for member in staying:
        assert member.classic is not None
        classic.add(_as_classic_member(member, member.classic), CONSUMER_PROTOCOL_TYPE)
    classic.protocol = classic.elect_protocol()
    assignments = {
        member.member_id: assignment_bytes(
            owned[member.member_id],
            SupportedProtocol("", classic.members[member.member_id].metadata(classic.protocol)),
            topics,
        )
        for member in staying
    }
    if successor is None or not is_settled:
        classic.leader = None
    tombstones = consumer_group_removed(
        group.group_id, group.members, group.regexes, has_partition_metadata=group.has_partition_metadata
    )
    return [*tombstones, group_written(classic, assignments)]


def _as_consumer_member(member: ClassicGroupMember, classic: ClassicGroup, topics: TopicsView) -> ConsumerGroupMember:
    protocol = classic.protocol or classic.elect_protocol()
    subscription = embedded_subscription([SupportedProtocol("", member.metadata(protocol))], topics)
    return ConsumerGroupMember(
        member.member_id,
        member.client_id,
        member.client_host,
        member.instance_id,
        subscription.rack_id,
        member.rebalance_timeout_ms,
        subscription.topics,
        classic=ClassicProtocolSupport(member.session_timeout_ms, member.protocols),
    )


def _as_classic_member(member: ConsumerGroupMember, classic: ClassicProtocolSupport) -> ClassicGroupMember:
    return ClassicGroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        classic.session_timeout_ms,
        classic.protocols,
    )
