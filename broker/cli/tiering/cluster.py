"""Topics of a cluster: their ids, leaders, log bounds and local sizes."""

from collections import defaultdict
from collections.abc import Mapping

from broker.cli.shared.offsets import CONSUMER_REPLICA_ID, EARLIEST, LATEST
from broker.client import Client, raise_for
from protocol.api_keys import ApiKey
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.metadata import MetadataResponseTopic
from storage.directories.checkpoints import TopicPartition
from storage.tiered.bucket.recovery_plan import ClusterTopics
from storage.tiered.segment_metadata import TopicIdPartition

EARLIEST_LOCAL = -4
LATEST_TIERED = -5
FIRST_VERSIONS = {EARLIEST: 1, LATEST: 1, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
"""First version of ListOffsets that supports each timestamp."""


@lazy_dataclass(frozen=True, slots=True)
class PartitionLogBounds:
    """Log bounds of a partition, as reported by its leader; None if a bound is unknown.

    `local_start` is the first local offset, `remote_end` the highest remote offset, -1 for none.
    """

    start: int | None = None
    local_start: int | None = None
    remote_end: int | None = None
    end: int | None = None


class Cluster:
    """Cached state of a cluster; `refresh` updates it. Raises KafkaError or ClientError."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._topics: dict[str, MetadataResponseTopic] = {}
        self._bounds: dict[str, dict[int, PartitionLogBounds]] = {}
        self._absent: set[TopicIdPartition] = set()
        self.cluster_id = ""
        self.refresh()

    def refresh(self) -> None:
        found = self._client.retrying(self._client.metadata)
        self.cluster_id = found.cluster_id or ""
        self._topics = {topic.name: topic for topic in found.topics if topic.name and not topic.error_code}
        self._bounds = {}

    @property
    def topics(self) -> ClusterTopics:
        ids = {name: topic.topic_id for name, topic in self._topics.items()}
        return ClusterTopics({topic_id: name for name, topic_id in ids.items()}, ids)

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions, 0 for a topic that does not exist."""
        return len(self._topics[topic].partitions) if topic in self._topics else 0

    def has(self, partition: TopicIdPartition) -> bool:
        """Return whether the cluster has the partition, with this topic id."""
        topic = self._topics.get(partition.topic)
        return (
            topic is not None and topic.topic_id == partition.topic_id and partition.partition < len(topic.partitions)
        )

    def log_start_offset(self, partition: TopicIdPartition) -> int | None:
        """Return None for a partition that does not exist, and 0, the safe lower bound, if its leader does not respond.

        A missing partition is requested once more: it may have been created since.
        """
        if not self.has(partition) and partition not in self._absent:
            self._absent.add(partition)
            self.refresh()
        return (self.bounds(partition.topic)[partition.partition].start or 0) if self.has(partition) else None

    def bounds(self, topic: str) -> Mapping[int, PartitionLogBounds]:
        """Return the log bounds of all partitions of an existing topic."""
        if topic not in self._bounds:
            self._bounds[topic] = self._client.retrying(lambda: self._request_bounds(self._topics[topic]))
        return self._bounds[topic]

    def local_bytes(self) -> dict[TopicPartition, int]:
        """Return the sizes of the leaders' local logs. Partitions without a response are missing."""
        return self._client.retrying(self._request_local_bytes)

    def _request_bounds(self, topic: MetadataResponseTopic) -> dict[int, PartitionLogBounds]:
        answers: defaultdict[int, dict[int, int]] = defaultdict(dict)
        by_leader: defaultdict[int, list[int]] = defaultdict(list)
        for partition in topic.partitions:
            if partition.leader_id >= 0:
                by_leader[partition.leader_id].append(partition.partition_index)
        for leader, numbers in by_leader.items():
            connection = self._client.node(leader)
            version = connection.version_of(ApiKey.LIST_OFFSETS)
            for timestamp in (each for each, since in FIRST_VERSIONS.items() if version >= since):
                request = self._list_offsets(topic.name or "", numbers, timestamp)
                for answer in connection.call(request, ListOffsetsResponse).topics[0].partitions:
                    if not answer.error_code:
                        answers[answer.partition_index][timestamp] = answer.offset
        return {p.partition_index: _bounds(answers[p.partition_index]) for p in topic.partitions}

    def _list_offsets(self, topic: str, numbers: list[int], timestamp: int) -> ListOffsetsRequest:
        partitions = [ListOffsetsPartition(number, -1, timestamp) for number in numbers]
        return ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA_ID,
            topics=[ListOffsetsTopic(topic, partitions)],
            timeout_ms=self._client.config.request_timeout_ms,
        )

    def _request_local_bytes(self) -> dict[TopicPartition, int]:
        leaders = {
            TopicPartition(name, partition.partition_index): partition.leader_id
            for name, topic in self._topics.items()
            for partition in topic.partitions
        }
        sizes: dict[TopicPartition, int] = {}
        for broker in {leader for leader in leaders.values() if leader >= 0}:
            response = self._client.node(broker).call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
            raise_for(response.error_code, f"broker {broker}")
            for directory in response.results:
                for topic in directory.topics:
                    for found in topic.partitions:
                        name = TopicPartition(topic.name, found.partition_index)
                        if leaders.get(name) == broker and not found.is_future_key:
                            sizes[name] = found.partition_size
        return sizes


def _bounds(answers: Mapping[int, int]) -> PartitionLogBounds:
    return PartitionLogBounds(
        start=answers.get(EARLIEST),
        local_start=answers.get(EARLIEST_LOCAL),
        remote_end=answers.get(LATEST_TIERED),
        end=answers.get(LATEST),
    )
