"""Topics with their partitions and dynamic configs, for commands that describe them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import field

from broker.client import Client, raise_for
from protocol.api_keys import ApiKey
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from protocol.primitives import Uuid, uuid_to_text

TOPIC_RESOURCE = 2
DEFAULT_SOURCE = 5
UNKNOWN_TOPIC = 3
MAX_PARTITIONS_PER_RESPONSE = 2000


@lazy_dataclass(slots=True)
class PartitionInfo:
    """A partition. `eligible` and `last_known` are None if the broker does not report them (KIP-966)."""

    index: int
    leader: int
    replicas: list[int]
    isr: list[int]
    eligible: list[int] | None = None
    last_known: list[int] | None = None

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)


@lazy_dataclass(slots=True)
class TopicInfo:
    """A topic. `configs` holds the configs set at any level, by name, and is empty until `fill_configs`; `shown` holds
    the partitions that a command prints.
    """

    name: str
    id: Uuid
    is_internal: bool
    partitions: list[PartitionInfo]
    configs: dict[str, str] = field(default_factory=dict)
    shown: list[PartitionInfo] = field(default_factory=list)

    @property
    def id_text(self) -> str:
        return uuid_to_text(self.id)

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas) if self.partitions else 0


def matching(
    names: Iterable[str], pattern: str | None, *, exclude_internal: bool, internal: frozenset[str]
) -> list[str]:
    """Return the names that match a Kafka topic pattern (a regular expression or a comma-separated list), sorted."""
    wanted = None if pattern is None else topic_pattern(pattern)
    return sorted(
        name
        for name in names
        if (wanted is None or wanted.fullmatch(name)) and not (exclude_internal and name in internal)
    )


def topic_pattern(text: str) -> re.Pattern[str]:
    """Compile Kafka's include list, in which "," means "|". Raises ValueError for an invalid regular expression."""
    try:
        return re.compile(text.strip().strip("\"'").replace(",", "|").replace(" ", ""))
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from error


def describe_topics(
    client: Client, names: Sequence[str], per_response: int = MAX_PARTITIONS_PER_RESPONSE
) -> list[TopicInfo]:
    """Return topics from DescribeTopicPartitions, page by page, or from Metadata if the broker does not serve it.

    Leave out topics that were deleted meanwhile.
    """
    if not names:
        return []
    if client.any().serves(ApiKey.DESCRIBE_TOPIC_PARTITIONS):
        return _paged(client, names, per_response)
    return topics_of_metadata(client, names)


def topics_of_metadata(client: Client, names: Sequence[str] | None) -> list[TopicInfo]:
    """Return topics (None: all) from Metadata."""
    topics = []
    for found in client.metadata(names).topics:
        if found.error_code != UNKNOWN_TOPIC:
            raise_for(found.error_code, f"topic {found.name!r}")
            partitions = [
                PartitionInfo(p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in found.partitions
            ]
            partitions.sort(key=lambda partition: partition.index)
            topics.append(TopicInfo(found.name or "", found.topic_id, found.is_internal, partitions))
    return topics


def _paged(client: Client, names: Sequence[str], per_response: int) -> list[TopicInfo]:
    topics: dict[str, TopicInfo] = {}
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name) for name in names], response_partition_limit=per_response
    )
    while True:
        response = client.call(request, DescribeTopicPartitionsResponse)
        for found in response.topics:
            if found.error_code != UNKNOWN_TOPIC:
                raise_for(found.error_code, f"topic {found.name!r}")
                topic = topics.setdefault(
                    found.name or "", TopicInfo(found.name or "", found.topic_id, found.is_internal, [])
                )
                topic.partitions += _partitions(found)
        if response.next_cursor is None:
            return list(topics.values())
        cursor = response.next_cursor
        request.topics = [topic for topic in request.topics if topic.name >= cursor.topic_name]
        request.cursor = DescribeTopicPartitionsRequestCursor(cursor.topic_name, cursor.partition_index)


def _partitions(found: DescribeTopicPartitionsResponseTopic) -> list[PartitionInfo]:
    return [
        PartitionInfo(
            p.partition_index,
            p.leader_id,
            p.replica_nodes,
            p.isr_nodes,
            p.eligible_leader_replicas or [],
            p.last_known_elr or [],
        )
        for p in found.partitions
    ]


def describe_configs(
    client: Client, resources: Sequence[tuple[int, str]], *, synonyms: bool = True
) -> list[DescribeConfigsResult]:
    """Return all configs of (type, name) resources, from any broker. Raises KafkaError."""
    return checked_configs(client.any().call(configs_request(resources, synonyms=synonyms), DescribeConfigsResponse))


def configs_request(resources: Sequence[tuple[int, str]], *, synonyms: bool = True) -> DescribeConfigsRequest:
    """Return a request for all configs of (type, name) resources."""
    return DescribeConfigsRequest(
        resources=[DescribeConfigsResource(kind, name, None) for kind, name in resources], include_synonyms=synonyms
    )


def checked_configs(response: DescribeConfigsResponse) -> list[DescribeConfigsResult]:
    """Return the results of a response. Raises KafkaError for the first resource with an error."""
    for result in response.results:
        raise_for(result.error_code, result.resource_name, result.error_message)
    return response.results


def fill_configs(client: Client, topics: Sequence[TopicInfo]) -> None:
    """Set `configs` of each topic to the configs that are set at any level."""
    if not topics:
        return
    results = describe_configs(client, [(TOPIC_RESOURCE, topic.name) for topic in topics], synonyms=False)
    by_name = {result.resource_name: result for result in results}
    for topic in topics:
        topic.configs = {
            config.name: "" if config.value is None else config.value
            for config in by_name[topic.name].configs
            if config.config_source != DEFAULT_SOURCE
        }
