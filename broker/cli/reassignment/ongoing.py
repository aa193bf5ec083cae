"""Ongoing reassignments, and how much of their partitions the new replicas have."""

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from broker.cli.shared.offsets import by_topic
from broker.client import Client, ClientError, raise_for
from protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest, DescribeLogDirsResponse
from storage.directories.checkpoints import TopicPartition


class OngoingReassignment(NamedTuple):
    """A reassignment in progress: all replicas, and the replicas being added and removed."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]

    @property
    def target(self) -> list[int]:
        return [broker for broker in self.replicas if broker not in self.removing]


class CopiedBytes(NamedTuple):
    """Bytes of the local logs that new replicas have, and that they will have."""

    done: int
    total: int


def copied_bytes(client: Client, ongoing: Mapping[TopicPartition, OngoingReassignment]) -> CopiedBytes:
    """Return the bytes that new replicas have copied. The largest replica stands for the leader's log.

    Brokers that do not answer are left out. Raises KafkaError.
    """
    hosted: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for partition, each in ongoing.items():
        for broker in each.replicas:
            hosted[broker].append(partition)
    sizes: dict[TopicPartition, dict[int, int]] = {partition: {} for partition in ongoing}
    live = {broker.node_id for broker in client.metadata([]).brokers}
    for broker in sorted(hosted.keys() & live):
        for partition, size in _sizes(client, broker, hosted[broker]).items():
            sizes[partition][broker] = size
    done = total = 0
    for partition, of_brokers in sizes.items():
        whole = max(of_brokers.values(), default=0)
        for broker in ongoing[partition].adding:
            done += min(of_brokers.get(broker, 0), whole)
            total += whole
    return CopiedBytes(done, total)


def _sizes(client: Client, broker: int, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    topics = [
        DescribableLogDirTopic(topic, [each.partition for each in group])
        for topic, group in by_topic(partitions).items()
    ]
    try:
        response = client.node(broker).call(DescribeLogDirsRequest(topics=topics), DescribeLogDirsResponse)
    except ClientError:  # the broker has just stopped
        return {}
    raise_for(response.error_code, f"broker {broker}")
    return {
        TopicPartition(topic.name, each.partition_index): each.partition_size
        for directory in response.results
        for topic in directory.topics
        for each in topic.partitions
    }
