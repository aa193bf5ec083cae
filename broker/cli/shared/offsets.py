"""Offsets from the brokers: log ends, offsets by timestamp, committed offsets of groups."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from broker.client import Client, raise_for
from protocol.api_keys import ApiKey
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from storage.directories.checkpoints import TopicPartition

LATEST = -1
EARLIEST = -2
CONSUMER_REPLICA_ID = -1
NO_OFFSET = -1

PARTITIONS_PER_REQUEST: Final = 1_000
"""Limit of one ListOffsets request, so that long work shows progress and stays within the request timeout."""

LAST_VERSION_WITH_NAMES = 9
"""Last version of OffsetCommit and OffsetFetch with topic names. Topic ids are of no use for deleted topics."""


def list_offsets(
    client: Client,
    timestamps: Mapping[TopicPartition, int],
    *,
    isolation_level: int = 0,
    advance: Callable[[int], object] = lambda _count: None,
) -> dict[TopicPartition, int]:
    """Return the offset of each partition for a timestamp, LATEST or EARLIEST; -1 if no record is that late.

    `advance` is told the number of partitions of each response. Raises KafkaError for the first partition that fails.
    """
    if not timestamps:
        return {}
    offsets = {}
    for node, partitions in _leaders(client, timestamps).items():
        for start in range(0, len(partitions), PARTITIONS_PER_REQUEST):
            asked = partitions[start : start + PARTITIONS_PER_REQUEST]
            request = _list_request(client, {each: timestamps[each] for each in asked}, isolation_level)
            for found in client.node(node).call(request, ListOffsetsResponse).topics:
                for result in found.partitions:
                    partition = TopicPartition(found.name, result.partition_index)
                    raise_for(result.error_code, str(partition))
                    offsets[partition] = result.offset
            advance(len(asked))
    return offsets


def _list_request(client: Client, timestamps: Mapping[TopicPartition, int], isolation_level: int) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=CONSUMER_REPLICA_ID,
        isolation_level=isolation_level,
        topics=[
            ListOffsetsTopic(topic, [ListOffsetsPartition(p.partition, -1, timestamps[p]) for p in group])
            for topic, group in by_topic(timestamps).items()
        ],
        timeout_ms=client.config.request_timeout_ms,
    )


def _leaders(client: Client, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
    wanted = list(partitions)
    topics = client.leaders({partition.topic for partition in wanted})
    leaders: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    of = {
        TopicPartition(name, found.partition_index): found.leader_id
        for name, topic in topics.items()
        for found in topic.partitions
    }
    for partition in wanted:
        raise_for(3 if partition not in of else 0, str(partition))
        leaders[of[partition]].append(partition)
    return leaders


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Group partitions by topic; topics and partitions are sorted."""
    grouped: defaultdict[str, list[TopicPartition]] = defaultdict(list)
    for partition in sorted(partitions):
        grouped[partition.topic].append(partition)
    return grouped


def committed_offsets(client: Client, group: str) -> dict[TopicPartition, tuple[int, int]]:
    """Return (offset, leader epoch) of each partition with a committed offset of the group. Raises KafkaError."""
    coordinator = client.coordinator(group)
    request = OffsetFetchRequest(group_id=group, topics=None)
    if coordinator.version_of(ApiKey.OFFSET_FETCH, LAST_VERSION_WITH_NAMES) >= 8:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None)])
    response = coordinator.call(request, OffsetFetchResponse, highest=LAST_VERSION_WITH_NAMES)
    if response.groups:
        raise_for(response.groups[0].error_code, f"group {group!r}")
        rows = [(topic.name, partition) for topic in response.groups[0].topics for partition in topic.partitions]
        found = {
            TopicPartition(name, p.partition_index): (p.committed_offset, p.committed_leader_epoch) for name, p in rows
        }
    else:
        raise_for(response.error_code, f"group {group!r}")
        found = {
            TopicPartition(topic.name, p.partition_index): (p.committed_offset, p.committed_leader_epoch)
            for topic in response.topics
            for p in topic.partitions
        }
    return {partition: committed for partition, committed in sorted(found.items()) if committed[0] != NO_OFFSET}


def commit_request(
    group: str, offsets: Mapping[TopicPartition, int], *, generation: int = -1, member_id: str = ""
) -> OffsetCommitRequest:
    """Build a commit of a member, or, with the defaults, of an admin client for a group without members."""
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[OffsetCommitRequestPartition(p.partition, offsets[p]) for p in partitions],
            )
            for topic, partitions in by_topic(offsets).items()
        ],
    )


def commit_offsets(client: Client, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit offsets of a group without members. Raises KafkaError for the first partition that fails."""
    if not offsets:
        return
    response = client.coordinator(group).call(
        commit_request(group, offsets), OffsetCommitResponse, highest=LAST_VERSION_WITH_NAMES
    )
    check_commit(response)


def check_commit(response: OffsetCommitResponse) -> None:
    """Raise KafkaError for the first partition whose commit failed."""
    for topic in response.topics:
        for partition in topic.partitions:
            raise_for(partition.error_code, f"{topic.name}-{partition.partition_index}")
