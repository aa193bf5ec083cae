"""One round of fetches: a request to each of several brokers, which wait at the same time, then the responses."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from broker.cli.shared.offsets import by_topic
from broker.client import Client, raise_for
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from storage.directories.checkpoints import TopicPartition

LAST_VERSION_WITH_NAMES: Final = 12
"""Last version of Fetch with topic names; later versions have topic ids."""

FULL_FETCH_EPOCH: Final = -1
"""Session epoch without a fetch session: every request lists all partitions."""


class FetchAnswer(NamedTuple):
    """A broker's response for a partition. The error of the partition is left to the caller."""

    node: int
    partition: TopicPartition
    data: PartitionData


def fetch_topics(
    partitions: Iterable[TopicPartition], positions: Mapping[TopicPartition, int], partition_max_bytes: int
) -> list[FetchTopic]:
    """Return the partitions of a request, each from its position."""
    return [
        FetchTopic(
            topic=topic,
            partitions=[
                FetchPartition(
                    partition=p.partition, fetch_offset=positions[p], partition_max_bytes=partition_max_bytes
                )
                for p in group
            ],
        )
        for topic, group in by_topic(partitions).items()
    ]


def fetch_round(client: Client, purpose: str, requests: Mapping[int, FetchRequest]) -> Iterator[FetchAnswer]:
    """Send the request of each broker on its connection for `purpose`, then yield the partitions of the responses.

    Raises KafkaError for an error of a whole response, and ClientError.
    """
    for node, request in requests.items():
        client.node(node, purpose).send(request, highest=LAST_VERSION_WITH_NAMES)
    for node, request in requests.items():
        timeout_ms = request.max_wait_ms + client.config.request_timeout_ms
        response = client.node(node, purpose).receive(FetchResponse, timeout_ms)
        raise_for(response.error_code, f"fetch from broker {node}")
        for topic in response.responses:
            for data in topic.partitions:
                yield FetchAnswer(node, TopicPartition(topic.topic, data.partition_index), data)
