"""ListGroups, DescribeGroups, DeleteGroups and FindCoordinator."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from broker.api.groups.delete_groups import DeleteGroupsHandler
from broker.api.groups.describe_groups import DescribeGroupsHandler
from broker.api.groups.find_coordinator import CoordinatorType, FindCoordinatorHandler
from broker.api.groups.list_groups import ListGroupsHandler
from broker.coordination.partitioner import partition_for
from broker.runtime.coordinators.group_coordinator import GROUP_METADATA_TOPIC
from protocol.compiler import encode_bytes
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.harnesses.group_coordinator_harness import GroupCoordinatorHarness, answered, context

NAMES = ("one", "two", "a", "c")


@pytest_asyncio.fixture
async def harness() -> AsyncIterator[GroupCoordinatorHarness]:
    """A harness with four simple groups, in both partitions."""
    made = GroupCoordinatorHarness()
    for name in NAMES:
        topic = OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(0, 5)])
        await answered(made.groups.commit_offsets(OffsetCommitRequest(group_id=name, topics=[topic]), 9))
    assert {partition_for(name, 2) for name in NAMES} == {0, 1}
    yield made
    made.close()


@pytest.mark.parametrize("version", range(6))
async def test_groups_of_all_partitions_are_listed(harness: GroupCoordinatorHarness, version: int) -> None:
    response = await ListGroupsHandler(harness.groups)(ListGroupsRequest(), context(version))
    assert {group.group_id for group in response.groups} == set(NAMES)
    assert encode_bytes(response, version)


async def test_groups_are_filtered(harness: GroupCoordinatorHarness) -> None:
    handler = ListGroupsHandler(harness.groups)
    assert len((await handler(ListGroupsRequest(states_filter=["empty"]), context(4))).groups) == 4
    assert (await handler(ListGroupsRequest(states_filter=["Stable"]), context(4))).groups == []
    assert (await handler(ListGroupsRequest(types_filter=["share"]), context(5))).groups == []


async def test_moved_partition_is_left_out_of_the_list(harness: GroupCoordinatorHarness) -> None:
    harness.lead(GROUP_METADATA_TOPIC, {0: (2, 1)})
    response = await ListGroupsHandler(harness.groups)(ListGroupsRequest(), context(5))
    assert {group.group_id for group in response.groups} == {name for name in NAMES if partition_for(name, 2) == 1}


async def test_loading_partition_fails_the_list(harness: GroupCoordinatorHarness) -> None:
    harness.lead(GROUP_METADATA_TOPIC, {0: (2, 1)})
    harness.lead(GROUP_METADATA_TOPIC, {0: (1, 2)})
    response = await ListGroupsHandler(harness.groups)(ListGroupsRequest(), context(5))
    assert (response.error_code, response.groups) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])


@pytest.mark.parametrize("version", range(7))
async def test_groups_are_described_in_request_order(harness: GroupCoordinatorHarness, version: int) -> None:
    request = DescribeGroupsRequest(["two", "unknown", "one"], include_authorized_operations=True)
    response = await DescribeGroupsHandler(harness.groups)(request, context(version))
    assert [(group.group_id, group.group_state) for group in response.groups] == [
        ("two", "Empty"),
        ("unknown", "Dead"),
        ("one", "Empty"),
    ]
    assert response.groups[1].error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    # READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS
    assert response.groups[0].authorized_operations == (0b1101_0100_1000 if version >= 3 else -(2**31))
    assert encode_bytes(response, version)


async def test_group_of_another_coordinator_is_not_described(harness: GroupCoordinatorHarness) -> None:
    harness.groups.close()
    response = await DescribeGroupsHandler(harness.groups)(DescribeGroupsRequest(["one"]), context(6))
    assert response.groups[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("version", range(3))
async def test_groups_are_deleted_one_by_one(harness: GroupCoordinatorHarness, version: int) -> None:
    request = DeleteGroupsRequest(["one", "unknown", "two", "one"])
    response = await DeleteGroupsHandler(harness.groups, harness.share_groups)(request, context(version))
    assert [(each.group_id, each.error_code) for each in response.results] == [("one", 0), ("unknown", 69), ("two", 0)]
    assert encode_bytes(response, version)
    listed = await ListGroupsHandler(harness.groups)(ListGroupsRequest(), context(5))
    assert {group.group_id for group in listed.groups} == {"a", "c"}


async def test_deletion_that_cannot_be_written_has_an_error(harness: GroupCoordinatorHarness) -> None:
    for log in harness.logs:
        log.fail_next = ErrorCode.NOT_ENOUGH_REPLICAS
    response = await DeleteGroupsHandler(harness.groups, harness.share_groups)(DeleteGroupsRequest(["one"]), context(2))
    assert response.results[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_groups_and_offsets_are_counted(harness: GroupCoordinatorHarness) -> None:
    metrics = harness.groups.metrics()
    assert (sum(metrics.groups.values()), metrics.offsets, metrics.offset_commits) == (4, 4, 4)


async def test_deleted_offsets_topic_ends_its_coordinators(harness: GroupCoordinatorHarness) -> None:
    harness.delete_topic(GROUP_METADATA_TOPIC)
    metrics = harness.groups.metrics()
    assert (sum(metrics.groups.values()), metrics.offsets) == (0, 0)


# FindCoordinator


class Finder:
    """The handler, and the topics whose creation it requested."""

    def __init__(self, harness: GroupCoordinatorHarness) -> None:
        self.created: list[str] = []
        topics = {CoordinatorType.GROUP: GROUP_METADATA_TOPIC}
        self.handler = FindCoordinatorHandler(harness.current_image, topics, self.created.append)


@pytest.mark.parametrize("version", range(4))
async def test_one_coordinator_is_found_in_every_old_version(harness: GroupCoordinatorHarness, version: int) -> None:
    response = Finder(harness).handler(FindCoordinatorRequest(key="one"), context(version))
    assert (response.error_code, response.node_id, response.host, response.port) == (0, 1, "host-1", 9092)
    assert response.error_message == "NONE"
    assert encode_bytes(response, version)


@pytest.mark.parametrize("version", range(4, 7))
async def test_several_coordinators_are_found_at_once(harness: GroupCoordinatorHarness, version: int) -> None:
    """KIP-699."""
    response = Finder(harness).handler(FindCoordinatorRequest(coordinator_keys=["one", "two"]), context(version))
    assert [(each.key, each.node_id, each.error_code) for each in response.coordinators] == [
        ("one", 1, 0),
        ("two", 1, 0),
    ]
    assert encode_bytes(response, version)


async def test_coordinator_endpoint_is_that_of_the_listener(harness: GroupCoordinatorHarness) -> None:
    response = Finder(harness).handler(FindCoordinatorRequest(key="one"), context(3, listener="OTHER"))
    assert (response.host, response.port) == ("other", 9999)
    response = Finder(harness).handler(FindCoordinatorRequest(key="one"), context(3, listener="UNKNOWN"))
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_first_request_creates_the_topic() -> None:
    harness = GroupCoordinatorHarness(elected=False)
    finder = Finder(harness)
    response = finder.handler(FindCoordinatorRequest(key="one"), context(3))
    assert (response.error_code, response.node_id, response.port) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1)
    assert finder.created == [GROUP_METADATA_TOPIC]
    harness.create_topics(**{GROUP_METADATA_TOPIC: 2})
    assert finder.handler(FindCoordinatorRequest(key="one"), context(3)).error_code == 0
    assert finder.created == [GROUP_METADATA_TOPIC]
    harness.close()


@pytest.mark.parametrize("leader", [-1, 2, 3])
async def test_coordinator_needs_a_live_leader(harness: GroupCoordinatorHarness, leader: int) -> None:
    """Broker -1 does not exist, broker 2 never registered, broker 3 is fenced."""
    harness.register_broker(3, fenced=True)
    harness.lead(GROUP_METADATA_TOPIC, {0: (leader, 1), 1: (leader, 1)})
    response = Finder(harness).handler(FindCoordinatorRequest(key="one"), context(3))
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("key_type", [2, 9])
async def test_unserved_coordinator_type_is_an_invalid_request(harness: GroupCoordinatorHarness, key_type: int) -> None:
    finder = Finder(harness)
    response = finder.handler(FindCoordinatorRequest(key="one", key_type=key_type), context(3))
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert finder.created == []
