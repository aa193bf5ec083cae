"""OffsetFetch: returns the committed offsets of a group.

A missing group has no offsets, which is no error. A partition with an open transaction has no stable offset; a client
that requires one gets UNSTABLE_OFFSET_COMMIT and retries (KIP-447).
"""

from collections.abc import Iterable

from broker.groups.offsets import OffsetStore
from broker.groups.records import CommittedOffset, OffsetKey
from protocol.errors import ErrorCode
from protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from protocol.primitives import ZERO_UUID, Uuid


class OffsetFetch:
    """Reads offsets of one group at a time; topics must have names."""

    def __init__(self, offsets: OffsetStore) -> None:
        self._offsets = offsets

    def run(self, request: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
        """Return the requested offsets; all offsets of the group when the request's topics are None."""
        if request.topics is None:
            stored = self._offsets.of_group(request.group_id)
            topics = [
                self._topic(request.group_id, name, ZERO_UUID, partitions, require_stable)
                for name, partitions in stored.items()
            ]
        else:
            topics = [
                self._topic(request.group_id, topic.name, topic.topic_id, topic.partition_indexes, require_stable)
                for topic in request.topics
            ]
        return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)

    def _topic(
        self, group_id: str, name: str, topic_id: Uuid, partitions: Iterable[int], require_stable: bool
    ) -> OffsetFetchResponseTopics:
        answers = [
            self._partition(OffsetKey(group_id, name, partition), topic_id, require_stable) for partition in partitions
        ]
        return OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=answers)

    def _partition(self, key: OffsetKey, topic_id: Uuid, require_stable: bool) -> OffsetFetchResponsePartitions:
        if require_stable and self._offsets.is_pending(key):
            return _no_offset(key.partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        stored = self._offsets.get(key)
        if stored is None or _is_of_another_topic(stored, topic_id):
            return _no_offset(key.partition, ErrorCode.NONE)
        return OffsetFetchResponsePartitions(
            partition_index=key.partition,
            committed_offset=stored.offset,
            committed_leader_epoch=stored.leader_epoch,
            metadata=stored.metadata,
        )


def _is_of_another_topic(stored: CommittedOffset, topic_id: Uuid) -> bool:
    """Whether the offset belongs to an earlier topic of the same name. Both sides must know the topic id."""
    return ZERO_UUID not in (stored.topic_id, topic_id) and stored.topic_id != topic_id


def _no_offset(partition: int, error: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=partition, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=error
    )
