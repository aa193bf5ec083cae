"""Descriptions of share groups, and the start offsets of their share partitions (KIP-932)."""

from collections.abc import Mapping, Sequence

from broker.cli.groups.view import coordinator_of, listed_groups
from broker.cli.shared.offsets import by_topic
from broker.client import Client, raise_for
from protocol.errors import ErrorCode
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from protocol.messages.list_groups import ListedGroup
from protocol.messages.share_group_describe import DescribedGroup, ShareGroupDescribeRequest, ShareGroupDescribeResponse
from storage.directories.checkpoints import TopicPartition

SHARE = "share"


@lazy_dataclass(frozen=True, slots=True)
class ShareGroupView:
    """A group as its coordinator, (node id, host, port), describes it."""

    described: DescribedGroup
    coordinator: tuple[int, str, int]

    @property
    def group_id(self) -> str:
        return self.described.group_id


@lazy_dataclass(frozen=True, slots=True)
class ShareOffset:
    """The start offset of a share partition; None for what the coordinator does not know."""

    start: int | None
    leader_epoch: int | None
    lag: int | None


def list_share_groups(client: Client, states: Sequence[str] = ()) -> list[ListedGroup]:
    """List the share groups of all brokers. Raises KafkaError."""
    return listed_groups(client, states, [SHARE])


def describe_share_group(client: Client, group_id: str) -> ShareGroupView:
    """Describe a group. Raises KafkaError, GROUP_ID_NOT_FOUND for a missing one and for one of another type."""
    connection, coordinator = coordinator_of(client, group_id)
    (found,) = connection.call(ShareGroupDescribeRequest(group_ids=[group_id]), ShareGroupDescribeResponse).groups
    raise_for(found.error_code, f"group {group_id!r}", found.error_message)
    return ShareGroupView(found, coordinator)


def share_offsets(client: Client, group_id: str) -> dict[TopicPartition, ShareOffset]:
    """Return the start offsets of all share partitions of a group, sorted. Raises KafkaError."""
    request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group_id, topics=None)])
    (found,) = client.coordinator(group_id).call(request, DescribeShareGroupOffsetsResponse).groups
    raise_for(found.error_code, f"group {group_id!r}", found.error_message)
    offsets = {}
    for topic in found.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.topic_name, each.partition_index)
            raise_for(each.error_code, str(partition), each.error_message)
            numbers = (each.start_offset, each.leader_epoch, each.lag)
            offsets[partition] = ShareOffset(*(None if number < 0 else number for number in numbers))
    return dict(sorted(offsets.items()))


def alter_share_offsets(client: Client, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Set start offsets of a group without members. Raises KafkaError for the first partition that fails."""
    if not offsets:
        return
    topics = [
        AlterShareGroupOffsetsRequestTopic(
            topic, [AlterShareGroupOffsetsRequestPartition(each.partition, offsets[each]) for each in partitions]
        )
        for topic, partitions in by_topic(offsets).items()
    ]
    request = AlterShareGroupOffsetsRequest(group_id, topics)
    response = client.coordinator(group_id).call(request, AlterShareGroupOffsetsResponse)
    raise_for(response.error_code, f"group {group_id!r}", response.error_message)
    for found in response.responses:
        for each in found.partitions:
            raise_for(each.error_code, f"{found.topic_name}-{each.partition_index}", each.error_message)


def delete_share_offsets(
    client: Client, group_id: str, topics: Sequence[str]
) -> list[tuple[str, ErrorCode, str | None]]:
    """Delete the states of whole topics; return (topic, error, message) sorted. Raises KafkaError for the group."""
    request = DeleteShareGroupOffsetsRequest(group_id, [DeleteShareGroupOffsetsRequestTopic(name) for name in topics])
    response = client.coordinator(group_id).call(request, DeleteShareGroupOffsetsResponse)
    raise_for(response.error_code, f"group {group_id!r}", response.error_message)
    return sorted((each.topic_name, ErrorCode(each.error_code), each.error_message) for each in response.responses)
