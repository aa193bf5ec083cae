"""Members of share groups in requests: acknowledgements, checked, and leaders in responses (KIP-932, KIP-1222)."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from broker.api.pipeline.permission import READ_TOPIC
from broker.api.serving.context import RequestContext
from broker.api.serving.current_leader import LeaderHints
from broker.fetch.share.service import Acknowledgements
from broker.metadata.image.metadata_image import MetadataImage
from broker.share.records import AcknowledgementBatch, AcknowledgeType
from broker.share.sessions import TopicPartitionId
from protocol.errors import ErrorCode
from protocol.primitives import Uuid

RENEWAL_FROM = 2
REDIRECTED = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH))
"""Errors beside which a response names the current leader."""


class _Batch(Protocol):
    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


B = TypeVar("B", bound=_Batch)
T = TypeVar("T")


def acknowledgements_of(
    partitions: Iterable[tuple[TopicPartitionId, Sequence[B]]], *, may_renew: bool
) -> Acknowledgements:
    """Return what a request acknowledges, or the error of a partition with malformed batches."""
    return {key: _parsed(batches, may_renew=may_renew) for key, batches in partitions if batches}


def _parsed(batches: Sequence[B], *, may_renew: bool) -> list[AcknowledgementBatch] | ErrorCode:
    """Return batches in order that do not overlap and have one type, or one for each offset.

    As in Kafka, an offset that ends a batch and begins the next one is INVALID_RECORD_STATE, since the first batch has
    acknowledged its record. Everything else is INVALID_REQUEST.
    """
    highest = AcknowledgeType.RENEW if may_renew else AcknowledgeType.REJECT
    parsed: list[AcknowledgementBatch] = []
    end, is_repeated = -1, False
    for batch in batches:
        types = batch.acknowledge_types
        is_ordered = max(end, 0) <= batch.first_offset <= batch.last_offset
        is_complete = len(types) in (1, batch.last_offset - batch.first_offset + 1)
        if not is_ordered or not is_complete or not all(0 <= each <= highest for each in types):
            return ErrorCode.INVALID_REQUEST
        is_repeated |= end == batch.first_offset
        end = batch.last_offset
        parsed.append(AcknowledgementBatch(batch.first_offset, end, tuple(AcknowledgeType(each) for each in types)))
    return ErrorCode.INVALID_RECORD_STATE if is_repeated else parsed


def denied_partitions(
    context: RequestContext, image: MetadataImage, partitions: Iterable[TopicPartitionId]
) -> frozenset[TopicPartitionId]:
    """Return the partitions of topics that the principal may not read; unknown topics have their own error."""
    if context.authorizer is None:
        return frozenset()
    keys = set(partitions)
    found = {topic_id: image.topics.by_id(topic_id) for topic_id, _ in keys}
    denied = {
        topic_id
        for topic_id, topic in found.items()
        if topic is not None and not context.allows(READ_TOPIC, topic.name)
    }
    return frozenset(key for key in keys if key[0] in denied)


def by_topic(entries: Iterable[tuple[Uuid, T]]) -> dict[Uuid, list[T]]:
    """Return entries by topic id, in order."""
    topics: dict[Uuid, list[T]] = {}
    for topic_id, entry in entries:
        topics.setdefault(topic_id, []).append(entry)
    return topics


class ShareLeaderHints:
    """The leaders that one response names."""

    def __init__(self, image: MetadataImage, listener: str) -> None:
        self._image = image
        self.hints = LeaderHints(image, listener)

    def leader_of(self, key: TopicPartitionId, *errors: ErrorCode) -> tuple[int, int]:
        """Return leader id and epoch for a partition with an error that sends the client elsewhere, else zeros."""
        if REDIRECTED.isdisjoint(errors):
            return (0, 0)
        topic_id, index = key
        return self.hints.leader_of(self._image.topics.by_id(topic_id), index)
