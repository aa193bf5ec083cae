"""The records of share groups in `__consumer_offsets`, in Kafka's formats, and their events (KIP-932).

| type | record | written when |
|---|---|---|
| 10 | member | the member is new or has changed |
| 11 | group epoch, hash of the subscribed topics | the group epoch is incremented |
| 12 | epoch of the target assignment | a target assignment is computed; follows its members' records |
| 13 | target assignment of a member | it has changed |
| 14 | current assignment of a member | the member reaches a target assignment |
| 15 | share partitions of the group | the initialization or deletion of their states makes progress |
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from broker.coordination.shard import CoordinatorRecord
from broker.groups.consumer.assignment import Assignment, assignment_of, in_order
from broker.groups.consumer.member import MemberAssignment, ReconciliationState
from broker.groups.record_format import decode_key, decode_value, group_record
from broker.groups.share.member import ShareGroupMember
from broker.groups.share.partitions import GroupSharePartitions, TopicMap, named
from protocol.messages.group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupCurrentMemberAssignmentValueTopicPartitions,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupStatePartitionMetadataValueTopicInfo,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMemberValueTopicPartition,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicPartitionsInfo,
)


class ShareEpochWritten(NamedTuple):
    group_id: str
    epoch: int
    metadata_hash: int


class ShareGroupRemoved(NamedTuple):
    group_id: str


class ShareMemberWritten(NamedTuple):
    group_id: str
    member: ShareGroupMember


class ShareMemberRemoved(NamedTuple):
    group_id: str
    member_id: str


class ShareTargetEpochWritten(NamedTuple):
    group_id: str
    epoch: int


class ShareTargetEpochRemoved(NamedTuple):
    group_id: str


class ShareTargetWritten(NamedTuple):
    group_id: str
    member_id: str
    target: Assignment


class ShareTargetRemoved(NamedTuple):
    group_id: str
    member_id: str


class ShareCurrentWritten(NamedTuple):
    group_id: str
    member_id: str
    assignment: MemberAssignment


class ShareCurrentRemoved(NamedTuple):
    group_id: str
    member_id: str


class SharePartitionsWritten(NamedTuple):
    group_id: str
    partitions: GroupSharePartitions


class SharePartitionsRemoved(NamedTuple):
    group_id: str


ShareGroupEvent = (
    ShareEpochWritten
    | ShareGroupRemoved
    | ShareMemberWritten
    | ShareMemberRemoved
    | ShareTargetEpochWritten
    | ShareTargetEpochRemoved
    | ShareTargetWritten
    | ShareTargetRemoved
    | ShareCurrentWritten
    | ShareCurrentRemoved
    | SharePartitionsWritten
    | SharePartitionsRemoved
)
ShareGroupRecord = CoordinatorRecord[Any]
"""A record whose event is a ShareGroupEvent; the shard's event type includes it."""


def share_epoch_written(group_id: str, epoch: int, metadata_hash: int) -> ShareGroupRecord:
    """Return the record of a new group epoch."""
    value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return group_record(ShareGroupMetadataKey(group_id), value, ShareEpochWritten(group_id, epoch, metadata_hash))


def share_member_written(group_id: str, member: ShareGroupMember) -> ShareGroupRecord:
    """Return the record of a member."""
    value = ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
    )
    key = ShareGroupMemberMetadataKey(group_id, member.member_id)
    return group_record(key, value, ShareMemberWritten(group_id, member))


def share_target_epoch_written(group_id: str, epoch: int) -> ShareGroupRecord:
    """Return the record that completes a target assignment."""
    value = ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
    return group_record(
        ShareGroupTargetAssignmentMetadataKey(group_id), value, ShareTargetEpochWritten(group_id, epoch)
    )


def share_target_written(group_id: str, member_id: str, target: Assignment) -> ShareGroupRecord:
    """Return the record of a member's target assignment."""
    topics = [ShareGroupTargetAssignmentMemberValueTopicPartition(*each) for each in in_order(target)]
    return group_record(
        ShareGroupTargetAssignmentMemberKey(group_id, member_id),
        ShareGroupTargetAssignmentMemberValue(topics),
        ShareTargetWritten(group_id, member_id, target),
    )


def share_current_written(group_id: str, member_id: str, assignment: MemberAssignment) -> ShareGroupRecord:
    """Return the record of a member's current assignment."""
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=assignment.epoch,
        previous_member_epoch=assignment.previous_epoch,
        state=assignment.state,
        assigned_partitions=[
            ShareGroupCurrentMemberAssignmentValueTopicPartitions(*each) for each in in_order(assignment.assigned)
        ],
    )
    key = ShareGroupCurrentMemberAssignmentKey(group_id, member_id)
    return group_record(key, value, ShareCurrentWritten(group_id, member_id, assignment))


def share_partitions_written(group_id: str, partitions: GroupSharePartitions) -> ShareGroupRecord:
    """Return the record of a group's share partitions."""
    value = ShareGroupStatePartitionMetadataValue(
        initializing_topics=_infos(partitions.initializing),
        initialized_topics=_infos(partitions.initialized),
        deleting_topics=[ShareGroupStatePartitionMetadataValueTopicInfo(*each) for each in partitions.deleting.items()],
    )
    key = ShareGroupStatePartitionMetadataKey(group_id)
    return group_record(key, value, SharePartitionsWritten(group_id, partitions))


def share_member_removed(group_id: str, member_id: str) -> list[ShareGroupRecord]:
    """Return the tombstones of a member: current assignment, target assignment, member."""
    ids = (group_id, member_id)
    return [
        group_record(ShareGroupCurrentMemberAssignmentKey(*ids), None, ShareCurrentRemoved(*ids)),
        group_record(ShareGroupTargetAssignmentMemberKey(*ids), None, ShareTargetRemoved(*ids)),
        group_record(ShareGroupMemberMetadataKey(*ids), None, ShareMemberRemoved(*ids)),
    ]


def share_group_removed(group_id: str, member_ids: Iterable[str]) -> list[ShareGroupRecord]:
    """Return the tombstones of a group, in Kafka's order: members' assignments and targets first, the group last."""
    members = [share_member_removed(group_id, member_id) for member_id in member_ids]
    target_epoch = ShareGroupTargetAssignmentMetadataKey(group_id)
    partitions = ShareGroupStatePartitionMetadataKey(group_id)
    return [
        *(current for current, _, _ in members),
        *(target for _, target, _ in members),
        group_record(target_epoch, None, ShareTargetEpochRemoved(group_id)),
        *(member for _, _, member in members),
        group_record(partitions, None, SharePartitionsRemoved(group_id)),
        group_record(ShareGroupMetadataKey(group_id), None, ShareGroupRemoved(group_id)),
    ]


# Decoding.


def decode_share_record(record_type: int, key: bytes, value: bytes | None) -> ShareGroupEvent | None:
    """Decode a record of the types above; None for any other type. Raise DecodeError."""
    decoder = _DECODERS.get(record_type)
    return None if decoder is None else decoder(key, value)


def _decode_epoch(key: bytes, value: bytes | None) -> ShareGroupEvent:
    group_id = decode_key(ShareGroupMetadataKey, key).group_id
    if value is None:
        return ShareGroupRemoved(group_id)
    stored = decode_value(ShareGroupMetadataValue, value)
    return ShareEpochWritten(group_id, stored.epoch, stored.metadata_hash)


def _decode_member(key: bytes, value: bytes | None) -> ShareGroupEvent:
    ids = decode_key(ShareGroupMemberMetadataKey, key)
    if value is None:
        return ShareMemberRemoved(ids.group_id, ids.member_id)
    stored = decode_value(ShareGroupMemberMetadataValue, value)
    names = frozenset(stored.subscribed_topic_names)
    member = ShareGroupMember(ids.member_id, stored.rack_id, stored.client_id, stored.client_host, names)
    return ShareMemberWritten(ids.group_id, member)


def _decode_target_epoch(key: bytes, value: bytes | None) -> ShareGroupEvent:
    group_id = decode_key(ShareGroupTargetAssignmentMetadataKey, key).group_id
    if value is None:
        return ShareTargetEpochRemoved(group_id)
    return ShareTargetEpochWritten(
        group_id, decode_value(ShareGroupTargetAssignmentMetadataValue, value).assignment_epoch
    )


def _decode_target(key: bytes, value: bytes | None) -> ShareGroupEvent:
    ids = decode_key(ShareGroupTargetAssignmentMemberKey, key)
    if value is None:
        return ShareTargetRemoved(ids.group_id, ids.member_id)
    stored = decode_value(ShareGroupTargetAssignmentMemberValue, value)
    return ShareTargetWritten(ids.group_id, ids.member_id, assignment_of(stored.topic_partitions))


def _decode_current(key: bytes, value: bytes | None) -> ShareGroupEvent:
    ids = decode_key(ShareGroupCurrentMemberAssignmentKey, key)
    if value is None:
        return ShareCurrentRemoved(ids.group_id, ids.member_id)
    stored = decode_value(ShareGroupCurrentMemberAssignmentValue, value)
    assignment = MemberAssignment(
        stored.member_epoch,
        stored.previous_member_epoch,
        ReconciliationState.of(stored.state),
        assignment_of(stored.assigned_partitions),
    )
    return ShareCurrentWritten(ids.group_id, ids.member_id, assignment)


def _decode_partitions(key: bytes, value: bytes | None) -> ShareGroupEvent:
    group_id = decode_key(ShareGroupStatePartitionMetadataKey, key).group_id
    if value is None:
        return SharePartitionsRemoved(group_id)
    stored = decode_value(ShareGroupStatePartitionMetadataValue, value)
    deleting = {each.topic_id: each.topic_name for each in stored.deleting_topics}
    partitions = GroupSharePartitions(_topics(stored.initializing_topics), _topics(stored.initialized_topics), deleting)
    return SharePartitionsWritten(group_id, partitions)


_DECODERS: Final[Mapping[int, Callable[[bytes, bytes | None], ShareGroupEvent]]] = {
    ShareGroupMetadataKey.API_KEY: _decode_epoch,
    ShareGroupMemberMetadataKey.API_KEY: _decode_member,
    ShareGroupTargetAssignmentMetadataKey.API_KEY: _decode_target_epoch,
    ShareGroupTargetAssignmentMemberKey.API_KEY: _decode_target,
    ShareGroupCurrentMemberAssignmentKey.API_KEY: _decode_current,
    ShareGroupStatePartitionMetadataKey.API_KEY: _decode_partitions,
}


def _infos(topics: TopicMap) -> list[TopicPartitionsInfo]:
    return [TopicPartitionsInfo(topic_id, name, sorted(partitions)) for topic_id, (name, partitions) in topics.items()]


def _topics(infos: Iterable[TopicPartitionsInfo]) -> TopicMap:
    return named((each.topic_id, each.topic_name, each.partitions) for each in infos)
