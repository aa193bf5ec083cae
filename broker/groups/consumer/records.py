"""The records of consumer groups in `__consumer_offsets`, in Kafka's formats, and their events (KIP-848).

| type | record | written when |
|---|---|---|
| 3 | group epoch, hash of the subscribed topics | the group epoch is incremented |
| 4 | partitions of the subscribed topics | never (until Kafka 4.0); removed with the group |
| 5 | member | the member is new or has changed |
| 6 | epoch of the target assignment | a target assignment is computed; follows its members' records |
| 7 | target assignment of a member | it has changed |
| 8 | current assignment of a member | a reconciliation step |
| 16 | topics that match a regular expression | they have changed, or have been looked up again |

Keys name the group, and where there is one, the member or the expression. A replay applies each record on its own,
because compaction may have removed the others of its batch.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from broker.coordination.shard import CoordinatorRecord
from broker.groups.consumer.assignment import Assignment, assignment_of, in_order
from broker.groups.consumer.member import (
    ClassicProtocolSupport,
    ConsumerGroupMember,
    MemberAssignment,
    ReconciliationState,
)
from broker.groups.member import SupportedProtocol
from broker.groups.record_format import decode_key, decode_value, group_record
from protocol.messages.group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupCurrentMemberAssignmentValueTopicPartitions,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMemberValueTopicPartition,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)


class ConsumerGroupEpochWritten(NamedTuple):
    group_id: str
    epoch: int
    metadata_hash: int


class ConsumerGroupRemoved(NamedTuple):
    group_id: str


class PartitionMetadataSeen(NamedTuple):
    """A record of Kafka 4.0 and before, which a removed group leaves behind unless it is removed too."""

    group_id: str
    exists: bool


class ConsumerMemberWritten(NamedTuple):
    group_id: str
    member: ConsumerGroupMember


class ConsumerMemberRemoved(NamedTuple):
    group_id: str
    member_id: str


class TargetEpochWritten(NamedTuple):
    group_id: str
    epoch: int


class TargetEpochRemoved(NamedTuple):
    group_id: str


class TargetWritten(NamedTuple):
    group_id: str
    member_id: str
    target: Assignment


class TargetRemoved(NamedTuple):
    group_id: str
    member_id: str


class CurrentAssignmentWritten(NamedTuple):
    group_id: str
    member_id: str
    assignment: MemberAssignment


class CurrentAssignmentRemoved(NamedTuple):
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that match an expression. `version` is the metadata offset of the look-up at `resolved_ms`."""

    topics: frozenset[str]
    version: int
    resolved_ms: int


class RegexResolved(NamedTuple):
    group_id: str
    regex: str
    resolved: ResolvedRegex


class RegexRemoved(NamedTuple):
    group_id: str
    regex: str


ConsumerGroupEvent = (
    ConsumerGroupEpochWritten
    | ConsumerGroupRemoved
    | PartitionMetadataSeen
    | ConsumerMemberWritten
    | ConsumerMemberRemoved
    | TargetEpochWritten
    | TargetEpochRemoved
    | TargetWritten
    | TargetRemoved
    | CurrentAssignmentWritten
    | CurrentAssignmentRemoved
    | RegexResolved
    | RegexRemoved
)
ConsumerGroupRecord = CoordinatorRecord[Any]
"""A record whose event is a ConsumerGroupEvent; the shard's event type includes it."""


def epoch_written(group_id: str, epoch: int, metadata_hash: int) -> ConsumerGroupRecord:
    """Return the record of a new group epoch."""
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    event = ConsumerGroupEpochWritten(group_id, epoch, metadata_hash)
    return group_record(ConsumerGroupMetadataKey(group_id=group_id), value, event)


def member_written(group_id: str, member: ConsumerGroupMember) -> ConsumerGroupRecord:
    """Return the record of a member."""
    classic = member.classic
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=None
        if classic is None
        else ClassicMemberMetadata(
            classic.session_timeout_ms, [ClassicProtocol(each.name, each.metadata) for each in classic.protocols]
        ),
    )
    return group_record(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        value,
        ConsumerMemberWritten(group_id, member),
    )


def target_epoch_written(group_id: str, epoch: int) -> ConsumerGroupRecord:
    """Return the record that completes a target assignment."""
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
    key = ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
    return group_record(key, value, TargetEpochWritten(group_id, epoch))


def target_written(group_id: str, member_id: str, target: Assignment) -> ConsumerGroupRecord:
    """Return the record of a member's target assignment."""
    topics = [ConsumerGroupTargetAssignmentMemberValueTopicPartition(*each) for each in in_order(target)]
    return group_record(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics),
        TargetWritten(group_id, member_id, target),
    )


def current_written(group_id: str, member_id: str, assignment: MemberAssignment) -> ConsumerGroupRecord:
    """Return the record of a member's current assignment."""
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=assignment.epoch,
        previous_member_epoch=assignment.previous_epoch,
        state=assignment.state,
        assigned_partitions=_partition_lists(assignment.assigned),
        partitions_pending_revocation=_partition_lists(assignment.revoking),
    )
    return group_record(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        value,
        CurrentAssignmentWritten(group_id, member_id, assignment),
    )


def regex_resolved(group_id: str, regex: str, resolved: ResolvedRegex) -> ConsumerGroupRecord:
    """Return the record of a regular expression's topics."""
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.resolved_ms
    )
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    return group_record(key, value, RegexResolved(group_id, regex, resolved))


def regex_removed(group_id: str, regex: str) -> ConsumerGroupRecord:
    """Return the tombstone of a regular expression, which no member has any more."""
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    return group_record(key, None, RegexRemoved(group_id, regex))


def member_removed(group_id: str, member_id: str) -> list[ConsumerGroupRecord]:
    """Return the tombstones of a member: current assignment, target assignment, member."""
    names = {"group_id": group_id, "member_id": member_id}
    return [
        group_record(
            ConsumerGroupCurrentMemberAssignmentKey(**names), None, CurrentAssignmentRemoved(group_id, member_id)
        ),
        group_record(ConsumerGroupTargetAssignmentMemberKey(**names), None, TargetRemoved(group_id, member_id)),
        group_record(ConsumerGroupMemberMetadataKey(**names), None, ConsumerMemberRemoved(group_id, member_id)),
    ]


def group_removed(
    group_id: str, member_ids: Iterable[str], regexes: Iterable[str], *, has_partition_metadata: bool
) -> list[ConsumerGroupRecord]:
    """Return the tombstones of a group, in Kafka's order: members' assignments and targets first, the group last."""
    members = [member_removed(group_id, member_id) for member_id in member_ids]
    tombstones = [current for current, _, _ in members] + [target for _, target, _ in members]
    tombstones.append(
        group_record(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None, TargetEpochRemoved(group_id))
    )
    tombstones += [member for _, _, member in members]
    tombstones += [regex_removed(group_id, regex) for regex in regexes]
    if has_partition_metadata:
        event = PartitionMetadataSeen(group_id, exists=False)
        tombstones.append(group_record(ConsumerGroupPartitionMetadataKey(group_id=group_id), None, event))
    tombstones.append(group_record(ConsumerGroupMetadataKey(group_id=group_id), None, ConsumerGroupRemoved(group_id)))
    return tombstones


# Decoding.


def decode_consumer_record(record_type: int, key: bytes, value: bytes | None) -> ConsumerGroupEvent | None:
    """Decode a record of the types above; None for any other type. Raise DecodeError."""
    decoder = _DECODERS.get(record_type)
    return None if decoder is None else decoder(key, value)


def _decode_epoch(key: bytes, value: bytes | None) -> ConsumerGroupEvent:
    group_id = decode_key(ConsumerGroupMetadataKey, key).group_id
    if value is None:
        return ConsumerGroupRemoved(group_id)
    stored = decode_value(ConsumerGroupMetadataValue, value)
    return ConsumerGroupEpochWritten(group_id, stored.epoch, stored.metadata_hash)


def _decode_partition_metadata(key: bytes, value: bytes | None) -> ConsumerGroupEvent:
    return PartitionMetadataSeen(decode_key(ConsumerGroupPartitionMetadataKey, key).group_id, value is not None)


def _decode_member(key: bytes, value: bytes | None) -> ConsumerGroupEvent:
    named = decode_key(ConsumerGroupMemberMetadataKey, key)
    if value is None:
        return ConsumerMemberRemoved(named.group_id, named.member_id)
    stored = decode_value(ConsumerGroupMemberMetadataValue, value)
    classic = stored.classic_member_metadata
    member = ConsumerGroupMember(
        member_id=named.member_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        instance_id=stored.instance_id,
        rack_id=stored.rack_id,
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        topic_names=frozenset(stored.subscribed_topic_names),
        topic_regex=stored.subscribed_topic_regex or "",
        server_assignor=stored.server_assignor,
        classic=None
        if classic is None
        else ClassicProtocolSupport(
            classic.session_timeout_ms,
            tuple(SupportedProtocol(each.name, each.metadata) for each in classic.supported_protocols),
        ),
    )
    return ConsumerMemberWritten(named.group_id, member)


def _decode_target_epoch(key: bytes, value: bytes | None) -> ConsumerGroupEvent:
    group_id = decode_key(ConsumerGroupTargetAssignmentMetadataKey, key).group_id
    if value is None:
        return TargetEpochRemoved(group_id)
    return TargetEpochWritten(
        group_id, decode_value(ConsumerGroupTargetAssignmentMetadataValue, value).assignment_epoch
    )


def _decode_target(key: bytes, value: bytes | None) -> ConsumerGroupEvent:
    named = decode_key(ConsumerGroupTargetAssignmentMemberKey, key)
    if value is None:
        return TargetRemoved(named.group_id, named.member_id)
    stored = decode_value(ConsumerGroupTargetAssignmentMemberValue, value)
    return TargetWritten(named.group_id, named.member_id, assignment_of(stored.topic_partitions))


def _decode_current(key: bytes, value: bytes | None) -> ConsumerGroupEvent:
    named = decode_key(ConsumerGroupCurrentMemberAssignmentKey, key)
    if value is None:
        return CurrentAssignmentRemoved(named.group_id, named.member_id)
    stored = decode_value(ConsumerGroupCurrentMemberAssignmentValue, value)
    assignment = MemberAssignment(
        stored.member_epoch,
        stored.previous_member_epoch,
        ReconciliationState.of(stored.state),
        assignment_of(stored.assigned_partitions),
        assignment_of(stored.partitions_pending_revocation),
    )
    return CurrentAssignmentWritten(named.group_id, named.member_id, assignment)


def _decode_regex(key: bytes, value: bytes | None) -> ConsumerGroupEvent:
    named = decode_key(ConsumerGroupRegularExpressionKey, key)
    if value is None:
        return RegexRemoved(named.group_id, named.regular_expression)
    stored = decode_value(ConsumerGroupRegularExpressionValue, value)
    resolved = ResolvedRegex(frozenset(stored.topics), stored.version, stored.timestamp)
    return RegexResolved(named.group_id, named.regular_expression, resolved)


_DECODERS: Final[Mapping[int, Callable[[bytes, bytes | None], ConsumerGroupEvent]]] = {
    ConsumerGroupMetadataKey.API_KEY: _decode_epoch,
    ConsumerGroupPartitionMetadataKey.API_KEY: _decode_partition_metadata,
    ConsumerGroupMemberMetadataKey.API_KEY: _decode_member,
    ConsumerGroupTargetAssignmentMetadataKey.API_KEY: _decode_target_epoch,
    ConsumerGroupTargetAssignmentMemberKey.API_KEY: _decode_target,
    ConsumerGroupCurrentMemberAssignmentKey.API_KEY: _decode_current,
    ConsumerGroupRegularExpressionKey.API_KEY: _decode_regex,
}


def _partition_lists(assignment: Assignment) -> list[ConsumerGroupCurrentMemberAssignmentValueTopicPartitions]:
    return [
        ConsumerGroupCurrentMemberAssignmentValueTopicPartitions(topic_id, partitions, [])
        for topic_id, partitions in in_order(assignment)
    ]
