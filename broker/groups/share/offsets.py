"""Administration of share partitions: offsets to alter or delete, and groups to delete, each in two steps.

The first step checks the group, and records what begins. Then the share coordinator changes the states. The second step
records what is done, so that a failure between the two can be repeated.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from broker.coordination.shard import CoordinatorResult
from broker.groups.consumer.topics import SubscribableTopic, TopicsView
from broker.groups.share.group import ShareGroup
from broker.groups.share.partitions import GroupSharePartitions, TopicMap, named
from broker.groups.share.records import ShareGroupRecord, share_partitions_written
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsResponseTopic
from protocol.primitives import Uuid


class ShareAlteration(NamedTuple):
    """Start offsets to write, by topic and partition, with the state epoch; and the response if all succeed."""

    state_epoch: int
    start_offsets: Mapping[Uuid, Mapping[int, int]]
    response: list[AlterShareGroupOffsetsResponseTopic]


class ShareOffsetDeletion(NamedTuple):
    """States to delete, and the results of topics without any."""

    topics: TopicMap
    refused: list[DeleteShareGroupOffsetsResponseTopic]


def check_share_group_is_empty(group: ShareGroup) -> None:
    """Raise KafkaError NON_EMPTY_GROUP."""
    if not group.is_empty:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)


def begin_alteration(
    group: ShareGroup, asked: list[AlterShareGroupOffsetsRequestTopic], topics: TopicsView
) -> CoordinatorResult[Any, ShareAlteration]:
    """Begin to alter start offsets. Raise KafkaError NON_EMPTY_GROUP."""
    check_share_group_is_empty(group)
    response: list[AlterShareGroupOffsetsResponseTopic] = []
    offsets: dict[Uuid, dict[int, int]] = {}
    begun: list[tuple[Uuid, str, list[int]]] = []
    for each in asked:
        topic = topics.describe(each.topic_name)
        wanted = {} if topic is None else _existing(each, topic)
        response.append(_alteration_response(each, topic))
        if topic is not None and wanted:
            offsets[topic.topic_id] = wanted
            begun.append((topic.topic_id, topic.name, list(wanted)))
    records = _changed(group, group.partitions.with_initializing(named(begun)))
    return CoordinatorResult(ShareAlteration(group.epoch, offsets, response), records)


def begin_offset_deletion(
    group: ShareGroup, names: list[str], topics: TopicsView
) -> CoordinatorResult[Any, ShareOffsetDeletion]:
    """Begin to delete the states of topics. Raise KafkaError NON_EMPTY_GROUP."""
    check_share_group_is_empty(group)
    partitions, refused = group.partitions, list[DeleteShareGroupOffsetsResponseTopic]()
    found: list[tuple[Uuid, str, frozenset[int]]] = []
    for name in names:
        topic = topics.describe(name)
        if topic is None:
            refused.append(_refused(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.message))
        elif topic.topic_id in partitions.initialized:
            found.append((topic.topic_id, name, partitions.initialized[topic.topic_id].partitions))
        elif topic.topic_id in partitions.deleting:
            found.append((topic.topic_id, name, frozenset(range(topic.partition_count))))
        else:
            refused.append(_refused(name, "There is no offset information to delete."))
    records = _changed(group, partitions.with_deleting({topic_id: name for topic_id, name, _ in found}))
    return CoordinatorResult(ShareOffsetDeletion(named(found), refused), records)


def begin_group_deletion(group: ShareGroup, topics: TopicsView) -> CoordinatorResult[Any, TopicMap]:
    """Begin to delete a group; return the states to delete. Raise KafkaError NON_EMPTY_GROUP."""
    check_share_group_is_empty(group)

    def partition_count(topic_id: Uuid) -> int:
        name = topics.name_of(topic_id)
        topic = None if name is None else topics.describe(name)
        return 0 if topic is None else topic.partition_count

    return CoordinatorResult(
        group.partitions.to_delete(partition_count), _changed(group, group.partitions.all_deleting())
    )


def changed_partitions(group: ShareGroup, partitions: GroupSharePartitions) -> CoordinatorResult[Any, None]:
    """Return the record of other share partitions of the group, if they differ."""
    return CoordinatorResult(None, _changed(group, partitions))


def _changed(group: ShareGroup, partitions: GroupSharePartitions) -> list[ShareGroupRecord]:
    return [] if partitions == group.partitions else [share_partitions_written(group.group_id, partitions)]


def _existing(asked: AlterShareGroupOffsetsRequestTopic, topic: SubscribableTopic) -> dict[int, int]:
    return {
        each.partition_index: each.start_offset
        for each in asked.partitions
        if 0 <= each.partition_index < topic.partition_count
    }


def _alteration_response(
    asked: AlterShareGroupOffsetsRequestTopic, topic: SubscribableTopic | None
) -> AlterShareGroupOffsetsResponseTopic:
    response = AlterShareGroupOffsetsResponseTopic(topic_name=asked.topic_name)
    if topic is not None:
        response.topic_id = topic.topic_id
    count = 0 if topic is None else topic.partition_count
    for each in asked.partitions:
        result = AlterShareGroupOffsetsResponsePartition(each.partition_index)
        if not 0 <= each.partition_index < count:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            result.error_message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.message
        response.partitions.append(result)
    return response


def _refused(name: str, message: str) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message=message
    )
