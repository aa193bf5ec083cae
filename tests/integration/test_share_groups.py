"""Share groups of a running node: membership, share partitions, and their administration."""

import time
from collections.abc import Iterator

import pytest

from protocol.errors import ErrorCode
from protocol.messages import Message
from protocol.messages import alter_share_group_offsets as altering
from protocol.messages import delete_share_group_offsets as deleting
from protocol.messages import describe_share_group_offsets as describing
from protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.interop.wire.harness import WireHarness
from tests.support.processes.ottla_node import OttlaNode

pytestmark = pytest.mark.integration

SETTINGS = {"offsets.topic.num.partitions": "1", "share.coordinator.state.topic.num.partitions": "2"}
LIMIT_S = 60.0


@pytest.fixture
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireHarness]:
    with OttlaNode(tmp_path_factory.mktemp("node"), SETTINGS) as node:
        harness = WireHarness(node.bootstrap)
        harness.warm_up()
        harness.create_topics({"t": (2, {})})
        yield harness
        harness.close()


def beat(client: WireHarness, epoch: int, *names: str) -> ShareGroupHeartbeatResponse:
    request = ShareGroupHeartbeatRequest("g", "member", epoch, None, list(names) or None)
    response = client.call(request, 1)
    assert isinstance(response, ShareGroupHeartbeatResponse)
    assert response.error_code == ErrorCode.NONE, response
    return response


def wait_for_assignment(client: WireHarness) -> list[int]:
    """Send heartbeats until the share partitions are initialized and assigned."""
    deadline = time.monotonic() + LIMIT_S
    response = beat(client, 0, "t")
    while response.assignment is None or not response.assignment.topic_partitions:
        assert time.monotonic() < deadline, "no share partition was assigned"
        response = beat(client, response.member_epoch)
    return response.assignment.topic_partitions[0].partitions


def start_offsets(client: WireHarness) -> dict[int, int]:
    group = describing.DescribeShareGroupOffsetsRequestGroup("g", None)
    response = client.call(describing.DescribeShareGroupOffsetsRequest([group]), 1)
    assert isinstance(response, describing.DescribeShareGroupOffsetsResponse)
    topics = response.groups[0].topics
    return {each.partition_index: each.start_offset for topic in topics for each in topic.partitions}


def alter(client: WireHarness, partition: int, offset: int) -> Message | None:
    partitions = [altering.AlterShareGroupOffsetsRequestPartition(partition, offset)]
    topics = [altering.AlterShareGroupOffsetsRequestTopic("t", partitions)]
    return client.call(altering.AlterShareGroupOffsetsRequest("g", topics), 0)


def listed(client: WireHarness) -> list[tuple[str, str]]:
    response = client.call(ListGroupsRequest([], ["share"]), 5)
    assert isinstance(response, ListGroupsResponse)
    return [(each.group_id, each.group_state) for each in response.groups]


def test_share_group_lives_from_the_first_heartbeat_to_its_deletion(client: WireHarness) -> None:
    assert wait_for_assignment(client) == [0, 1]
    assert listed(client) == [("g", "Stable")]
    refused = alter(client, 0, 5)
    assert isinstance(refused, altering.AlterShareGroupOffsetsResponse)
    assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
    beat(client, -1)
    altered = alter(client, 0, 5)
    assert isinstance(altered, altering.AlterShareGroupOffsetsResponse)
    assert altered.responses[0].partitions[0].error_code == ErrorCode.NONE
    assert start_offsets(client) == {0: 5, 1: -1}
    topics = [deleting.DeleteShareGroupOffsetsRequestTopic(name) for name in ("t", "unknown")]
    deleted = client.call(deleting.DeleteShareGroupOffsetsRequest("g", topics), 0)
    assert isinstance(deleted, deleting.DeleteShareGroupOffsetsResponse)
    codes = {each.topic_name: each.error_code for each in deleted.responses}
    assert codes == {"t": ErrorCode.NONE, "unknown": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert start_offsets(client) == {}
    removed = client.call(DeleteGroupsRequest(["g"]), 2)
    assert isinstance(removed, DeleteGroupsResponse)
    assert removed.results[0].error_code == ErrorCode.NONE
    assert listed(client) == []
