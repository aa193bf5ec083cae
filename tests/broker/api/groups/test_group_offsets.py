"""OffsetCommit, OffsetFetch and OffsetDelete as clients of each version see them."""

from collections.abc import AsyncIterator
from typing import TypeVar

import pytest
import pytest_asyncio

from broker.api.groups.offset_commit import OffsetCommitHandler
from broker.api.groups.offset_delete import OffsetDeleteHandler
from broker.api.groups.offset_fetch import OffsetFetchHandler
from protocol.compiler import decode, encode_bytes
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from protocol.primitives import Uuid
from tests.support.harnesses.group_coordinator_harness import GroupCoordinatorHarness, answered, context, topic_id_of

UNKNOWN_ID = Uuid(b"?" * 16)

Wired = TypeVar("Wired", OffsetCommitRequest, OffsetFetchResponse)


@pytest_asyncio.fixture
async def harness() -> AsyncIterator[GroupCoordinatorHarness]:
    made = GroupCoordinatorHarness()
    yield made
    made.close()


async def commit(
    harness: GroupCoordinatorHarness, version: int, topics: list[OffsetCommitRequestTopic], group_id: str = "g"
) -> OffsetCommitResponse:
    handler = OffsetCommitHandler(harness.groups, harness.current_image)
    response = await answered(handler(OffsetCommitRequest(group_id=group_id, topics=topics), context(version)))
    assert encode_bytes(response, version) is not None
    return response


def named(name: str, **offsets: int) -> OffsetCommitRequestTopic:
    """Return the offsets of a topic's partitions, p0=5."""
    partitions = [OffsetCommitRequestPartition(int(key[1:]), offset, 3, "m") for key, offset in offsets.items()]
    return OffsetCommitRequestTopic(name=name, partitions=partitions)


def by_id(topic_id: Uuid, **offsets: int) -> OffsetCommitRequestTopic:
    topic = named("", **offsets)
    topic.topic_id = topic_id
    return topic


def codes(response: OffsetCommitResponse) -> dict[tuple[str, int], int]:
    return {
        (topic.name, each.partition_index): each.error_code for topic in response.topics for each in topic.partitions
    }


async def fetch(harness: GroupCoordinatorHarness, version: int, request: OffsetFetchRequest) -> OffsetFetchResponse:
    response = await OffsetFetchHandler(harness.groups, harness.current_image)(request, context(version))
    assert encode_bytes(response, version) is not None
    return response


def one_group(*topics: OffsetFetchRequestTopics) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=list(topics))])


@pytest.mark.parametrize("version", range(2, 10))
async def test_offsets_are_committed_in_every_version_with_names(
    harness: GroupCoordinatorHarness, version: int
) -> None:
    response = await commit(harness, version, [named("t", p0=5, p1=6)])
    assert codes(response) == {("t", 0): 0, ("t", 1): 0}


@pytest.mark.parametrize("version", range(1, 8))
async def test_offsets_of_one_group_are_fetched_in_every_old_version(
    harness: GroupCoordinatorHarness, version: int
) -> None:
    await commit(harness, 9, [named("t", p0=5)])
    request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("t", [0, 1])])
    response = await fetch(harness, version, request)
    first, second = response.topics[0].partitions
    assert (first.committed_offset, first.committed_leader_epoch, first.metadata) == (5, 3, "m")
    assert (second.committed_offset, second.committed_leader_epoch, second.metadata) == (-1, -1, "")


def over_the_wire(message: Wired, version: int) -> Wired:
    """Encode and decode the response, as a client reads it."""
    return decode(type(message), encode_bytes(message, version), version)[0]


@pytest.mark.parametrize(
    ("version", "epoch"), [*((old, -1) for old in range(2, 6)), *((new, 3) for new in range(6, 10))]
)
async def test_leader_epoch_of_a_commit_is_kept_where_the_version_has_one(
    harness: GroupCoordinatorHarness, version: int, epoch: int
) -> None:
    """KIP-320: -1 is an unknown leader epoch."""
    topic = named("t", p0=5)
    if version < 6:
        topic.partitions[0].committed_leader_epoch = -1
    request = over_the_wire(OffsetCommitRequest(group_id="g", topics=[topic]), version)
    await answered(OffsetCommitHandler(harness.groups, harness.current_image)(request, context(version)))
    fetched = await fetch(harness, 9, one_group(OffsetFetchRequestTopics(name="t", partition_indexes=[0])))
    assert fetched.groups[0].topics[0].partitions[0].committed_leader_epoch == epoch


@pytest.mark.parametrize(("version", "epoch"), [(4, -1), (5, 3), (7, 3)])
async def test_leader_epoch_of_an_offset_is_returned_where_the_version_has_one(
    harness: GroupCoordinatorHarness, version: int, epoch: int
) -> None:
    await commit(harness, 9, [named("t", p0=5)])
    request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("t", [0])])
    response = over_the_wire(await fetch(harness, version, request), version)
    assert response.topics[0].partitions[0].committed_leader_epoch == epoch


async def test_null_topics_request_all_of_a_group(harness: GroupCoordinatorHarness) -> None:
    await commit(harness, 9, [named("t", p0=5), named("u", p1=6)])
    response = await fetch(harness, 2, OffsetFetchRequest(group_id="g", topics=None))
    assert [(topic.name, topic.partitions[0].committed_offset) for topic in response.topics] == [("t", 5), ("u", 6)]


@pytest.mark.parametrize("version", [8, 9])
async def test_several_groups_are_fetched_at_once(harness: GroupCoordinatorHarness, version: int) -> None:
    await commit(harness, 9, [named("t", p0=5)])
    await commit(harness, 9, [named("t", p0=7)], group_id="another")
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id="g", topics=topics),
            OffsetFetchRequestGroup(group_id="another", topics=None),
            OffsetFetchRequestGroup(group_id="unknown", topics=None),
        ]
    )
    response = await fetch(harness, version, request)
    assert [group.group_id for group in response.groups] == ["g", "another", "unknown"]
    assert [[topic.partitions[0].committed_offset for topic in group.topics] for group in response.groups] == [
        [5],
        [7],
        [],
    ]


async def test_missing_partitions_are_refused_and_the_rest_is_committed(harness: GroupCoordinatorHarness) -> None:
    response = await commit(harness, 9, [named("t", p0=5, p9=6), named("missing", p0=7)])
    assert codes(response) == {("t", 0): 0, ("t", 9): 3, ("missing", 0): 3}
    assert len(response.topics) == 2


async def test_commit_of_missing_partitions_alone_does_not_reach_the_group(harness: GroupCoordinatorHarness) -> None:
    response = await commit(harness, 9, [named("missing", p0=7)])
    assert codes(response) == {("missing", 0): 3}
    assert (await harness.groups.list_groups([], [])).groups == []


async def test_topics_are_named_by_id_from_version_10_on(harness: GroupCoordinatorHarness) -> None:
    response = await commit(harness, 10, [by_id(topic_id_of("t"), p0=5, p9=6), by_id(UNKNOWN_ID, p0=7)])
    assert [(topic.topic_id, [each.error_code for each in topic.partitions]) for topic in response.topics] == [
        (topic_id_of("t"), [0, 3]),
        (UNKNOWN_ID, [ErrorCode.UNKNOWN_TOPIC_ID]),
    ]
    fetched = await fetch(
        harness,
        10,
        one_group(
            OffsetFetchRequestTopics(topic_id=topic_id_of("t"), partition_indexes=[0]),
            OffsetFetchRequestTopics(topic_id=UNKNOWN_ID, partition_indexes=[0]),
        ),
    )
    known, unknown = fetched.groups[0].topics
    assert (known.topic_id, known.partitions[0].committed_offset) == (topic_id_of("t"), 5)
    assert (unknown.topic_id, unknown.partitions[0].error_code) == (UNKNOWN_ID, ErrorCode.UNKNOWN_TOPIC_ID)


async def test_all_existing_topics_are_fetched_by_id(harness: GroupCoordinatorHarness) -> None:
    await commit(harness, 9, [named("t", p0=5), named("u", p0=6)])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    response = await fetch(harness, 10, request)
    assert [topic.topic_id for topic in response.groups[0].topics] == [topic_id_of("t"), topic_id_of("u")]


@pytest.mark.parametrize(
    ("version", "member", "error"), [(8, "m", ErrorCode.UNKNOWN_MEMBER_ID), (9, "", ErrorCode.UNKNOWN_MEMBER_ID)]
)
async def test_group_error_is_in_every_partition(
    harness: GroupCoordinatorHarness, version: int, member: str, error: ErrorCode
) -> None:
    await commit(harness, 9, [named("t", p0=5)])
    handler = OffsetCommitHandler(harness.groups, harness.current_image)
    request = OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=1, member_id=member, topics=[named("t", p0=5, p1=6, p9=7)]
    )
    response = await answered(handler(request, context(version)))
    assert codes(response) == {("t", 0): error, ("t", 1): error, ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("version", [1, 2, 8])
async def test_coordinator_error_has_its_field_in_each_version(version: int) -> None:
    harness = GroupCoordinatorHarness(elected=False)
    request = OffsetFetchRequest(
        group_id="g",
        topics=[OffsetFetchRequestTopic("t", [0])],
        groups=[
            OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])])
        ],
    )
    response = await fetch(harness, version, request)
    if version == 1:
        assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    elif version == 2:
        assert (response.error_code, response.topics) == (ErrorCode.NOT_COORDINATOR, [])
    else:
        assert response.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    harness.close()


async def test_empty_group_id_may_commit_and_fetch(harness: GroupCoordinatorHarness) -> None:
    assert codes(await commit(harness, 9, [named("t", p0=5)], group_id="")) == {("t", 0): 0}
    response = await fetch(harness, 7, OffsetFetchRequest(group_id="", topics=None))
    assert response.topics[0].partitions[0].committed_offset == 5


async def test_offsets_of_a_deleted_topic_are_deleted(harness: GroupCoordinatorHarness) -> None:
    await commit(harness, 9, [named("t", p0=5), named("u", p0=6)])
    harness.delete_topic("t")
    response = await fetch(harness, 7, OffsetFetchRequest(group_id="g", topics=None))
    assert [topic.name for topic in response.topics] == ["u"]


async def delete(
    harness: GroupCoordinatorHarness, group_id: str, **partitions: list[int]
) -> tuple[int, dict[tuple[str, int], int]]:
    topics = [
        OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(each) for each in indexes])
        for name, indexes in partitions.items()
    ]
    handler = OffsetDeleteHandler(harness.groups, harness.current_image)
    response = await handler(OffsetDeleteRequest(group_id=group_id, topics=topics), context(0))
    assert encode_bytes(response, 0)
    answers = {
        (topic.name, each.partition_index): each.error_code for topic in response.topics for each in topic.partitions
    }
    return response.error_code, answers


async def test_offsets_are_deleted_where_partitions_exist(harness: GroupCoordinatorHarness) -> None:
    await commit(harness, 9, [named("t", p0=5, p1=6)])
    assert await delete(harness, "g", t=[0, 9], missing=[0]) == (0, {("t", 0): 0, ("t", 9): 3, ("missing", 0): 3})
    response = await fetch(harness, 7, OffsetFetchRequest(group_id="g", topics=None))
    assert [each.partition_index for each in response.topics[0].partitions] == [1]


@pytest.mark.parametrize(
    ("group_id", "error"), [("unknown", ErrorCode.GROUP_ID_NOT_FOUND), ("", ErrorCode.INVALID_GROUP_ID)]
)
async def test_offsets_of_a_missing_group_are_not_deleted(
    harness: GroupCoordinatorHarness, group_id: str, error: ErrorCode
) -> None:
    assert await delete(harness, group_id, t=[0]) == (error, {})


async def test_repeated_topic_of_a_commit_has_one_entry(harness: GroupCoordinatorHarness) -> None:
    response = await commit(harness, 9, [named("t", p0=5, p77=1), named("t", p1=6)])
    assert codes(response) == {("t", 0): 0, ("t", 1): 0, ("t", 77): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert len(response.topics) == 1


async def test_missing_partition_in_any_entry_of_its_topic_is_refused(harness: GroupCoordinatorHarness) -> None:
    await commit(harness, 9, [named("t", p0=5)])
    topics = [
        OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(77)]),
        OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)]),
    ]
    handler = OffsetDeleteHandler(harness.groups, harness.current_image)
    response = await handler(OffsetDeleteRequest("g", topics), context(0))
    answers = {each.partition_index: each.error_code for topic in response.topics for each in topic.partitions}
    assert answers == {0: 0, 77: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
