"""A harness for `ottla remote`: a fake broker with a metadata topic, and a bucket in a directory.

The metadata topic stores real batches: produced batches are returned by fetches. The log bounds of other topics are
those in `bounds`; restored topics have no logs.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, LeaderEpoch
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.messages.restore_topics import RestoredTopic, RestoreTopicsRequest, RestoreTopicsResponse
from protocol.primitives import Uuid
from protocol.records.batch import iter_headers, patch
from protocol.records.builder import Record, build_batch
from storage.directories.checkpoints import LeaderEpochEntry
from storage.files import OsFileSystem
from storage.producer_state import ProducerEntry, ProducerState
from storage.tiered.cache.chunk_cache import UncachedChunkReader
from storage.tiered.catalog.lineage import encode_epochs, epochs_of
from storage.tiered.catalog.metadata_journal import Event, KnownPartitions
from storage.tiered.catalog.metadata_partitioner import metadata_partition
from storage.tiered.catalog.metadata_records import decode_event, encode_event, partition_of
from storage.tiered.format.object_keys import ObjectKeys, ObjectSuffix
from storage.tiered.format.topic_object import TopicDescription, TopicWriter
from storage.tiered.object_store import ObjectStore
from storage.tiered.segment_metadata import (
    RemoteSegment,
    RemoteSegmentId,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)
from storage.tiered.segments.store import ObjectSegmentStore
from storage.tiered.settings import parse_settings
from storage.tiered.stores.directory_store import DirectoryStore
from tests.storage.tiered.sample_segments import Contents, write_files
from tests.support.fakes.batches import iter_all_records
from tests.support.fakes.fake_broker import FakeBroker
from tests.support.fakes.memory_files import MemoryFileSystem

METADATA_TOPIC = "__remote_log_metadata"
METADATA_PARTITIONS = 3
CLUSTER_ID = "fake"
PREFIX = "tiered/"
SEGMENT_TIME_MS = 1_000_000
FOO_ID = Uuid(bytes(15) + b"\x66")

Bounds = tuple[int, int, int, int]
"""Log start offset, local log start offset, highest remote offset, log end offset."""


class RemoteCommandBroker(FakeBroker):
    """A fake broker. `ids` are topic ids other than the default ones; `bounds` are log bounds by topic."""

    def __init__(self) -> None:
        super().__init__({METADATA_TOPIC: METADATA_PARTITIONS})
        self.ids: dict[str, Uuid] = {}
        self.bounds: dict[str, list[Bounds]] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.log: defaultdict[int, bytearray] = defaultdict(bytearray)
        self.log_start: defaultdict[int, int] = defaultdict(int)
        self.ends: defaultdict[int, int] = defaultdict(int)
        self.next_log_start: defaultdict[int, int] = defaultdict(int)
        """Log start offset of a metadata partition after the next ListOffsets, which deletes records below it."""
        self.epochs = [(0, 0)]
        """Leader epochs of every log, with their start offsets."""
        self.refusal: tuple[ErrorCode, str] | None = None
        """Error of RestoreTopics requests."""
        self.on_metadata_request: Callable[[], None] = lambda: None
        """Callback after each Metadata request for all topics."""
        self.answer(ApiKey.PRODUCE, self._produce)
        self.answer(ApiKey.FETCH, self._fetch)
        self.answer(ApiKey.LIST_OFFSETS, self._list_offsets)
        self.answer(ApiKey.OFFSET_FOR_LEADER_EPOCH, self._epoch_ends)
        self.answer(ApiKey.DESCRIBE_LOG_DIRS, lambda _: self._log_dirs())
        self.answer(ApiKey.DESCRIBE_CONFIGS, self._describe_configs)
        self.answer(ApiKey.RESTORE_TOPICS, self._restore)

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        answer = super()._metadata(request)
        if request.topics is None:
            self.on_metadata_request()
        return answer

    def _topic(self, name: str) -> MetadataResponseTopic:
        topic = super()._topic(name)
        topic.topic_id = self.ids.get(name, topic.topic_id)
        for partition in topic.partitions:
            partition.leader_epoch = self.epochs[-1][0]
        return topic

    def append(self, number: int, batch: bytes) -> int:
        copy = bytearray(batch)
        [(_, header)] = iter_headers(copy)
        base = self.ends[number]
        patch(copy, 0, base, LeaderEpoch(0))
        self.log[number] += copy
        self.ends[number] = base + header.last_offset_delta + 1
        return base

    def _produce(self, request: ProduceRequest) -> ProduceResponse:
        [topic] = request.topic_data
        [data] = topic.partition_data
        assert (topic.name, request.acks) == (METADATA_TOPIC, -1), "events are published with acks=all"
        base = self.append(data.index, bytes(data.records or b""))
        return ProduceResponse(
            [TopicProduceResponse(topic.name, partition_responses=[PartitionProduceResponse(data.index, 0, base)])]
        )

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic.topic, partitions=[self._read(each.partition, each.fetch_offset) for each in topic.partitions]
                )
                for topic in request.topics
            ]
        )

    def _read(self, number: int, offset: int) -> PartitionData:
        if offset < self.log_start[number]:
            return PartitionData(number, ErrorCode.OFFSET_OUT_OF_RANGE)
        log = self.log[number]
        first = next((at for at, header in iter_headers(log) if header.last_offset >= offset), len(log))
        return PartitionData(number, high_watermark=self.ends[number], records=bytes(log[first:]))

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    topic.name,
                    [
                        ListOffsetsPartitionResponse(
                            each.partition_index, offset=self._offset(topic.name, each.partition_index, each.timestamp)
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _offset(self, topic: str, number: int, timestamp: int) -> int:
        if topic == METADATA_TOPIC:
            if timestamp == -1:
                return self.ends[number]
            offset, self.log_start[number] = self.log_start[number], self.next_log_start[number]
            return offset
        start, local, remote, end = self.bounds[topic][number]
        return {-2: start, -4: local, -5: remote, -1: end}[timestamp]

    def _epoch_ends(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        """Answer with the end of the latest epoch up to the one asked for, as leaders do."""

        def end_of(topic: str, each: OffsetForLeaderPartition) -> EpochEndOffset:
            starts = [(epoch, start) for epoch, start in self.epochs if epoch <= each.leader_epoch]
            later = [start for epoch, start in self.epochs if epoch > each.leader_epoch]
            epoch = starts[-1][0] if starts else -1
            end = later[0] if later else self.bounds[topic][each.partition][3]
            return EpochEndOffset(0, each.partition, epoch, end if starts else -1)

        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic.topic,
                    [end_of(topic.topic, each) for each in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _log_dirs(self) -> DescribeLogDirsResponse:
        topics = [
            DescribeLogDirsTopic(name, [DescribeLogDirsPartition(number, 100 + number) for number in range(count)])
            for name, count in self.topics.items()
        ]
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir="/d", topics=topics)])

    def _describe_configs(self, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                    configs=[
                        DescribeConfigsResourceResult(name, value, config_source=1)
                        for name, value in self.configs.get(each.resource_name, {}).items()
                    ],
                )
                for each in request.resources
            ]
        )

    def _restore(self, request: RestoreTopicsRequest) -> RestoreTopicsResponse:
        if self.refusal:
            refused = [RestoredTopic(each.name, each.topic_id, *self.refusal) for each in request.topics]
            return RestoreTopicsResponse(topics=refused)
        for topic in () if request.validate_only else request.topics:
            self.topics[topic.name] = len(topic.leader_epochs)
            self.ids[topic.name] = topic.topic_id
        return RestoreTopicsResponse(topics=[RestoredTopic(each.name, each.topic_id) for each in request.topics])


class RemoteCommandHarness:
    """State created by brokers before a test: topics, segments, events."""

    def __init__(
        self, broker: RemoteCommandBroker, root: Path, remote: tuple[ObjectStore, Mapping[str, str]] | None = None
    ) -> None:
        """Use `remote`, an object store and its settings, or by default a directory."""
        self.broker = broker
        self.root = root
        self.keys = ObjectKeys(PREFIX)
        self.store, named = remote or self._directory()
        below = {"key.prefix": PREFIX, "chunk.size": "64"}
        self._storage = ObjectSegmentStore(
            self.store, parse_settings(below).settings, UncachedChunkReader(), monotonic_ms=lambda: 0.0
        )
        self._count = 0
        self.config = root.with_suffix(".properties")
        lines = dict(named) | {f"rsm.config.{name}": value for name, value in below.items()}
        self.config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))

    def _directory(self) -> tuple[ObjectStore, Mapping[str, str]]:
        named = {"remote.log.storage.manager.class.name": "local", "rsm.config.storage.root": str(self.root)}
        return DirectoryStore(OsFileSystem(), str(self.root)), named

    @property
    def arguments(self) -> list[str]:
        return ["--config", str(self.config)]

    def topic(self, name: str, topic_id: Uuid, *bounds: Bounds) -> None:
        """Create a topic with a partition for each of `bounds`."""
        self.broker.topics[name] = len(bounds)
        self.broker.ids[name] = topic_id
        self.broker.bounds[name] = list(bounds)
        self.broker.configs[name] = {"remote.storage.enable": "true"}

    def partition(self, number: int = 0, topic: str = "foo", topic_id: Uuid = FOO_ID) -> TopicIdPartition:
        return TopicIdPartition(topic_id, topic, number)

    def copy(
        self,
        partition: TopicIdPartition,
        start: int,
        end: int,
        epochs: list[tuple[int, int]] | None = None,
        *,
        producer_id: int | None = None,
    ) -> RemoteSegment:
        """Copy a segment with one record per offset to the bucket, without publishing events."""
        self._count += 1
        history = [LeaderEpochEntry(LeaderEpoch(number), at) for number, at in epochs or [(0, 0)]]
        records = [Record(SEGMENT_TIME_MS, None, b"%d" % offset, ()) for offset in range(start, end + 1)]
        log = build_batch(records, base_offset=start)
        producers = ProducerState()
        if producer_id is not None:
            producers.entries[producer_id] = ProducerEntry(producer_id, 0)
        contents = Contents(
            log, transaction_index=None, producer_snapshot=producers.encode(), leader_epochs=encode_epochs(history)
        )
        segment = RemoteSegment(
            id=RemoteSegmentId(partition, Uuid(self._count.to_bytes(16, "big"))),
            start_offset=start,
            end_offset=end,
            max_timestamp_ms=SEGMENT_TIME_MS,
            broker_id=BrokerId(1),
            event_timestamp_ms=SEGMENT_TIME_MS,
            size_bytes=len(log),
            leader_epochs=epochs_of(history, start, end),
            txn_index_empty=True,
        )
        custom = self._storage.copy_segment(segment, write_files(MemoryFileSystem(), contents))
        return replace(segment, custom_metadata=custom)

    def describe(self, topic: str, topic_id: Uuid, partitions: int, cluster_id: str = CLUSTER_ID) -> None:
        description = TopicDescription(
            topic=topic,
            topic_id=topic_id,
            partition_count=partitions,
            replication_factor=1,
            cluster_id=cluster_id,
            metadata_offset=1,
            configs={"remote.storage.enable": "true", "retention.ms": "-1"},
        )
        directory = self.keys.partition(TopicIdPartition(topic_id, topic, 0)).removesuffix("0/")
        TopicWriter(self.store, directory, leader_epoch=3).write(description)

    def delete_objects(self, segment: RemoteSegment, *suffixes: ObjectSuffix) -> None:
        self.store.delete([self.keys.key(segment, suffix) for suffix in suffixes or tuple(ObjectSuffix)])

    def publish(self, *events: Event) -> None:
        """Publish events as a broker does."""
        for event in events:
            number = metadata_partition(partition_of(event), METADATA_PARTITIONS)
            self.broker.append(number, build_batch([Record(0, None, encode_event(event), ())]))

    def finished(self, partition: TopicIdPartition, start: int, end: int) -> RemoteSegment:
        segment = self.copy(partition, start, end)
        self.publish(segment, SegmentUpdate(segment.id, SegmentState.COPY_FINISHED, SEGMENT_TIME_MS, BrokerId(1)))
        return segment

    def known(self) -> KnownPartitions:
        """Return the state that a broker derives from the metadata topic now."""
        known = KnownPartitions()
        for log in self.broker.log.values():
            for value in _values(log):
                known.apply(decode_event(value))
        return known

    def object_keys(self) -> list[str]:
        return [info.key for info in self.store.list("")]


def _values(log: bytearray) -> list[bytes]:
    return [bytes(record.value) for _, record in iter_all_records(bytes(log)) if record.value is not None]
