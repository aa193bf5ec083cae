"""Deletion of offsets and groups on request: DeleteGroups, OffsetDelete, and the deletion of topics."""

from broker.coordination.shard import CoordinatorResult
from broker.groups.classic import ClassicGroup
from broker.groups.consumer.records import group_removed as consumer_group_removed
from broker.groups.directory import AnyGroup, GroupDirectory
from broker.groups.metrics import GroupMetrics
from broker.groups.offsets import OffsetStore
from broker.groups.records import GroupEvent, GroupRecord, OffsetKey, group_removed, offset_removed
from broker.groups.share.group import ShareGroup
from broker.groups.share.records import share_group_removed
from broker.groups.share.validation import refuse_share_group
from broker.groups.state import GroupState
from broker.groups.streams.group import StreamsGroup
from broker.groups.streams.records import streams_group_removed
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_groups import DeletableGroupResult
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


class Deletions:
    """Decides which tombstones to write."""

    def __init__(
        self,
        groups: GroupDirectory,
        offsets: OffsetStore,
        metrics: GroupMetrics,
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._metrics = metrics

    def delete_group(self, group_id: str) -> CoordinatorResult[GroupEvent, DeletableGroupResult]:
        """Delete a group without members, with all its offsets."""
        group = self._groups.find(group_id)
        if group is None or group.state is GroupState.DEAD:
            return CoordinatorResult(DeletableGroupResult(group_id, ErrorCode.GROUP_ID_NOT_FOUND))
        if not group.is_empty:
            return CoordinatorResult(DeletableGroupResult(group_id, ErrorCode.NON_EMPTY_GROUP))
        removals = [offset_removed(key) for key in self._offsets.keys_of_group(group_id)]
        self._metrics.offset_deletions += len(removals)
        return CoordinatorResult(DeletableGroupResult(group_id), [*removals, *tombstones_of(group)])

    def delete_offsets(self, request: OffsetDeleteRequest) -> CoordinatorResult[GroupEvent, OffsetDeleteResponse]:
        """Delete offsets of existing partitions, except of topics that the group reads.

        Raise KafkaError when the group has no offsets to delete.
        """
        group = self._groups.find(request.group_id) or self._groups.classic.get_or_raise(request.group_id)
        if isinstance(group, ShareGroup):
            refuse_share_group(group)
        if isinstance(group, ClassicGroup):
            _check_offset_deletion(group)
        records: list[GroupRecord] = []
        topics = [self._delete_topic_offsets(group, topic, records) for topic in request.topics]
        self._metrics.offset_deletions += len(records)
        return CoordinatorResult(OffsetDeleteResponse(topics=topics), records)

    def on_topics_deleted(self, topics: set[str]) -> CoordinatorResult[GroupEvent, None]:
        """Delete all groups' offsets of deleted topics."""
        records = [offset_removed(key) for key in self._offsets.keys_of_topics(topics)]
        return CoordinatorResult(None, records, atomic=False)

    def _delete_topic_offsets(
        self, group: AnyGroup, topic: OffsetDeleteRequestTopic, records: list[GroupRecord]
    ) -> OffsetDeleteResponseTopic:
        is_read = group.is_subscribed_to(topic.name)
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read else ErrorCode.NONE
        answers = [OffsetDeleteResponsePartition(each.partition_index, error) for each in topic.partitions]
        if not is_read:
            keys = [OffsetKey(group.group_id, topic.name, each.partition_index) for each in topic.partitions]
            records.extend(offset_removed(key) for key in keys if self._exists(key))
        return OffsetDeleteResponseTopic(name=topic.name, partitions=answers)

    def _exists(self, key: OffsetKey) -> bool:
        return self._offsets.get(key) is not None or self._offsets.is_pending(key)


def tombstones_of(group: AnyGroup) -> list[GroupRecord]:
    """Return the tombstones of a group without members; its offsets have others."""
    if isinstance(group, ClassicGroup):
        return [group_removed(group.group_id)]
    if isinstance(group, ShareGroup):
        return share_group_removed(group.group_id, group.members)
    if isinstance(group, StreamsGroup):
        return streams_group_removed(group.group_id, group.members)
    return consumer_group_removed(
        group.group_id, group.members, group.regexes, has_partition_metadata=group.has_partition_metadata
    )


def _check_offset_deletion(group: ClassicGroup) -> None:
    """Check that the group has no members, where their topics are unknown without the consumer protocol."""
    if group.state is GroupState.DEAD:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    if not group.is_empty and not group.uses_consumer_protocol:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
