"""Groups commit offsets of `__cluster_metadata` as of any topic, where clients may read it."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from broker.api.groups.offset_commit import OffsetCommitHandler
from broker.api.groups.offset_delete import OffsetDeleteHandler
from broker.api.groups.offset_fetch import OffsetFetchHandler
from broker.runtime.partitions.metadata_topic import ClusterMetadataTopic
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from protocol.primitives import METADATA_TOPIC_ID
from tests.broker.api.quorum.test_cluster_metadata import NAME, MetadataTopicHarness
from tests.support.harnesses.group_coordinator_harness import GroupCoordinatorHarness, answered, context

BY_ID, BY_NAME = 10, 9


@pytest_asyncio.fixture
async def harness() -> AsyncIterator[GroupCoordinatorHarness]:
    made = GroupCoordinatorHarness()
    yield made
    made.close()


@pytest.fixture
def topic() -> ClusterMetadataTopic:
    return MetadataTopicHarness().topic


async def commit(
    harness: GroupCoordinatorHarness, topic: ClusterMetadataTopic | None, version: int, partition: int = 0
) -> int:
    """Commit offset 7 and return the error code."""
    partitions = [OffsetCommitRequestPartition(partition, 7)]
    wanted = OffsetCommitRequestTopic(NAME, METADATA_TOPIC_ID, partitions)
    handler = OffsetCommitHandler(harness.groups, harness.current_image, topic)
    response = await answered(handler(OffsetCommitRequest(group_id="g", topics=[wanted]), context(version)))
    return response.topics[0].partitions[0].error_code


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
async def test_offsets_are_committed_and_fetched(
    harness: GroupCoordinatorHarness, topic: ClusterMetadataTopic, version: int
) -> None:
    assert await commit(harness, topic, version) == ErrorCode.NONE
    named = OffsetFetchRequestTopics(name=NAME, topic_id=METADATA_TOPIC_ID, partition_indexes=[0])
    for topics in ([named], None):
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics)])
        found = await OffsetFetchHandler(harness.groups, harness.current_image, topic)(request, context(version))
        assert found.groups[0].topics[0].partitions[0].committed_offset == 7


async def test_offsets_are_deleted(harness: GroupCoordinatorHarness, topic: ClusterMetadataTopic) -> None:
    await commit(harness, topic, BY_NAME)
    request = OffsetDeleteRequest("g", [OffsetDeleteRequestTopic(NAME, [OffsetDeleteRequestPartition(0)])])
    deleted = await OffsetDeleteHandler(harness.groups, harness.current_image, topic)(request, context(0))
    assert (deleted.error_code, deleted.topics[0].partitions[0].error_code) == (ErrorCode.NONE, ErrorCode.NONE)


async def test_metadata_topic_has_one_partition(harness: GroupCoordinatorHarness, topic: ClusterMetadataTopic) -> None:
    assert await commit(harness, topic, BY_NAME, partition=1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_unreadable_metadata_topic_does_not_exist(harness: GroupCoordinatorHarness) -> None:
    assert await commit(harness, None, BY_NAME) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await commit(harness, None, BY_ID) == ErrorCode.UNKNOWN_TOPIC_ID
