"""`__cluster_metadata` through the client listener: serving broker, readable records, refused changes.

Broker 1 is this node; its metadata log is a real log in memory, filled and committed by the test.
"""

from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import cast

import pytest

from broker.api.configs.describe_configs import DescribeConfigsHandler
from broker.api.quorum.fetch_public_snapshot import FetchPublicSnapshotHandler
from broker.api.records.delete_records import DeleteRecordsHandler
from broker.api.records.list_offsets import ListOffsetsHandler
from broker.api.records.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from broker.api.records.produce import ProduceHandler
from broker.api.topics.describe_topic_partitions import DescribeTopicPartitionsHandler
from broker.api.topics.metadata import MetadataHandler
from broker.config.load import load_config
from broker.quorum.identity import LeaderAndEpoch
from broker.runtime.partitions.metadata_topic import ClusterMetadataTopic, MetadataPartition
from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotRequestPartitionSnapshot,
    FetchSnapshotRequestSnapshotId,
    FetchSnapshotRequestTopicSnapshot,
    FetchSnapshotResponse,
    FetchSnapshotResponsePartitionSnapshot,
)
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.primitives import METADATA_TOPIC_ID, ZERO_UUID, Uuid
from protocol.records.batch import iter_headers
from protocol.records.builder import Record, build_batch
from storage.config import LogConfig
from storage.log import Log
from storage.log_snapshots import SnapshotFiles, checkpoint_name
from tests.support.harnesses.data_plane import BROKER_ID, Answer, DataPlane, batch
from tests.support.quorum_values import leader_and_epoch

NAME = "__cluster_metadata"
BY_ID, BY_NAME = 17, 12
SNAPSHOT = b"bytes of a snapshot"
OTHER = 2


@dataclass
class Quorum:
    leader: LeaderAndEpoch = field(default_factory=lambda: leader_and_epoch(BROKER_ID, 3))
    high_watermark: int | None = 0
    is_truncating: bool = False


class MetadataTopicHarness:
    """A broker with the topic, and operations on the log and the quorum."""

    def __init__(self) -> None:
        self.node = DataPlane()
        fs = self.node.fs
        self.quorum = Quorum()
        self.log = Log.open(fs, "/data/__cluster_metadata-0", LogConfig(), now_ms=0, clean_shutdown=False)
        self.snapshots = SnapshotFiles(fs, "/data/__cluster_metadata-0")
        self.failures: list[object] = []
        partition = MetadataPartition(self.log, self.snapshots, self.quorum, self.failures.append)
        self.topic = ClusterMetadataTopic(BROKER_ID, partition, self.quorum)
        node = self.node
        self.fetch_handler = node.fetch_handler(metadata_topic=self.topic)

    def append(self, count: int = 1, *, epoch: int = 3) -> None:
        """Append a batch of records without committing it."""
        base, now_ms = self.log.log_end_offset, self.node.clock.now_ms()
        records = [Record(now_ms, None, b"record") for _ in range(count)]
        self.log.append_as_follower(
            build_batch(records, base_offset=base, leader_epoch=LeaderEpoch(epoch)), now_ms=now_ms
        )

    def commit(self) -> None:
        self.quorum.high_watermark = self.log.log_end_offset
        self.topic.on_quorum_changed()
        self.node.loop.run_soon()

    def trim_to(self, offset: int, epoch: int = 3) -> None:
        """Replace everything below `offset` by a snapshot."""
        self.node.fs.open(f"/data/__cluster_metadata-0/{offset:020d}-{epoch:010d}.checkpoint").write(0, SNAPSHOT)
        self.log.advance_high_watermark(offset)
        self.log.maybe_increment_log_start_offset(offset)

    def elect(self, leader: int | None, epoch: int) -> None:
        self.quorum.leader = leader_and_epoch(leader, epoch)
        self.topic.on_quorum_changed()
        self.node.loop.run_soon()

    def finish(self, pending: Awaitable[FetchSnapshotResponse]) -> FetchSnapshotResponse:
        """Run a handler that waits for the IO thread only."""
        steps = pending.__await__()
        while True:
            try:
                next(steps)
            except StopIteration as finished:
                return cast(FetchSnapshotResponse, finished.value)
            self.node.loop.run_soon()

    def fetch(
        self,
        offset: int,
        *,
        version: int = BY_ID,
        epoch: int = -1,
        wait_ms: int = 0,
        session: tuple[int, int] = (0, -1),
        named: bool = True,
        index: int = 0,
    ) -> Answer[FetchResponse]:
        topic = FetchTopic(NAME if version < 13 else "", METADATA_TOPIC_ID if version >= 13 else ZERO_UUID)
        topic.partitions = [FetchPartition(index, epoch, offset, -1, 0, 100_000)]
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1_000_000,
            session_id=session[0],
            session_epoch=session[1],
            topics=[topic] if named else [],
        )
        return Answer(self.fetch_handler(request, self.node.context(version)))

    def metadata(self, name: str | None = NAME, topic_id: Uuid = ZERO_UUID) -> MetadataResponseTopic:
        handler = MetadataHandler(
            self.node.metadata, _Controller(), cluster_id="c", creator=None, metadata_topic=self.topic
        )
        request = MetadataRequest(topics=[MetadataRequestTopic(topic_id, name)])
        (topic,) = handler(request, self.node.context(12)).topics
        return topic

    def list_offset(self, timestamp: int, *, epoch: int = -1) -> tuple[int, int, int]:
        handler = ListOffsetsHandler(self.node.partitions, self.topic)
        requested = ListOffsetsTopic(NAME, [ListOffsetsPartition(0, epoch, timestamp)])
        answer = Answer(handler(ListOffsetsRequest(-1, 0, [requested]), self.node.context(7)))
        (found,) = answer.value.topics[0].partitions
        return found.error_code, found.offset, found.leader_epoch


class _Controller:
    controller_id: int | None = BROKER_ID


@pytest.fixture
def harness() -> MetadataTopicHarness:
    return MetadataTopicHarness()


def only(answer: Answer[FetchResponse]) -> PartitionData:
    (topic,) = answer.value.responses
    (entry,) = topic.partitions
    return entry


def base_offsets(entry: PartitionData) -> list[int]:
    return [header.base_offset for _, header in iter_headers(entry.records or b"")]


class TestWhoServes:
    def test_active_controller_serves_where_it_is_a_broker(self, harness: MetadataTopicHarness) -> None:
        topic = harness.metadata()
        assert (topic.error_code, topic.name, topic.topic_id, topic.is_internal) == (0, NAME, METADATA_TOPIC_ID, False)
        (partition,) = topic.partitions
        assert (partition.leader_id, partition.leader_epoch, partition.replica_nodes) == (BROKER_ID, 3, [BROKER_ID])

    @pytest.mark.parametrize("leader", [None, 3000])
    def test_lowest_live_broker_serves_otherwise(self, harness: MetadataTopicHarness, leader: int | None) -> None:
        harness.node.register_broker(OTHER)
        harness.elect(leader, 4)
        assert harness.metadata().partitions[0].leader_id == BROKER_ID
        harness.node.register_broker(BROKER_ID, fenced=True, epoch=9)
        assert harness.metadata().partitions[0].leader_id == OTHER

    def test_fenced_controller_does_not_serve(self, harness: MetadataTopicHarness) -> None:
        harness.node.register_broker(OTHER, fenced=True)
        harness.elect(OTHER, 4)
        assert harness.metadata().partitions[0].leader_id == BROKER_ID

    def test_topic_is_described_on_request_by_name_or_id(self, harness: MetadataTopicHarness) -> None:
        assert harness.metadata(None, METADATA_TOPIC_ID).name == NAME
        handler = MetadataHandler(
            harness.node.metadata, _Controller(), cluster_id="c", creator=None, metadata_topic=harness.topic
        )
        harness.node.create_topic("t")
        listed = handler(MetadataRequest(topics=None), harness.node.context(12)).topics
        assert [topic.name for topic in listed] == ["t"]

    def test_unreadable_topic_does_not_exist(self, harness: MetadataTopicHarness) -> None:
        handler = MetadataHandler(harness.node.metadata, _Controller(), cluster_id="c", creator=None)
        request = MetadataRequest(topics=[MetadataRequestTopic(ZERO_UUID, NAME)])
        (topic,) = handler(request, harness.node.context(12)).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_other_brokers_redirect_readers(self, harness: MetadataTopicHarness) -> None:
        harness.node.register_broker(OTHER)
        harness.elect(OTHER, 4)
        response = harness.fetch(0).value
        entry = response.responses[0].partitions[0]
        assert entry.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (entry.current_leader.leader_id, entry.current_leader.leader_epoch) == (OTHER, 4)
        assert [(each.node_id, each.host) for each in response.node_endpoints] == [(OTHER, "host-2")]
        assert harness.list_offset(-1)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_topic_pages_include_it_by_name(self, harness: MetadataTopicHarness) -> None:
        handler = DescribeTopicPartitionsHandler(
            harness.node.metadata, partition_limit=100, metadata_topic=harness.topic
        )
        harness.node.create_topic("t")
        context = harness.node.context(0)
        named = handler(DescribeTopicPartitionsRequest([TopicRequest(NAME)], 100), context).topics
        everything = handler(DescribeTopicPartitionsRequest([], 100), context).topics
        assert [(topic.name, len(topic.partitions), topic.is_internal) for topic in named] == [(NAME, 1, False)]
        assert [topic.name for topic in everything] == ["t"]


class TestReading:
    @pytest.mark.parametrize("version", [BY_NAME, BY_ID])
    def test_committed_records_alone_are_read(self, harness: MetadataTopicHarness, version: int) -> None:
        harness.append(2)
        harness.append(1)
        harness.commit()
        harness.append(1)
        entry = only(harness.fetch(0, version=version))
        assert base_offsets(entry) == [0, 2]
        assert (entry.high_watermark, entry.last_stable_offset, entry.log_start_offset) == (3, 3, 0)

    def test_reader_at_the_end_waits_for_the_next_commit(self, harness: MetadataTopicHarness) -> None:
        answer = harness.fetch(0, wait_ms=500)
        harness.append()
        harness.node.loop.run_soon()
        assert answer.is_waiting
        harness.commit()
        assert base_offsets(only(answer)) == [0]

    def test_position_past_the_log_end_waits(self, harness: MetadataTopicHarness) -> None:
        harness.append(3)
        harness.commit()
        answer = harness.fetch(5, wait_ms=500)
        assert answer.is_waiting
        harness.append(2)
        harness.append(2)
        harness.commit()
        assert base_offsets(only(answer)) == [5]

    def test_deleted_records_are_out_of_range_and_name_a_snapshot(self, harness: MetadataTopicHarness) -> None:
        harness.append(5)
        harness.append(2)
        harness.commit()
        harness.trim_to(5)
        entry = only(harness.fetch(4))
        assert entry.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (entry.snapshot_id.end_offset, entry.snapshot_id.epoch) == (5, 3)

    def test_unknown_high_watermark_is_retriable(self, harness: MetadataTopicHarness) -> None:
        harness.append()
        harness.quorum.high_watermark = None
        assert only(harness.fetch(0)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert harness.list_offset(-1)[0] == ErrorCode.OFFSET_NOT_AVAILABLE

    @pytest.mark.parametrize(
        ("epoch", "error"), [(2, ErrorCode.FENCED_LEADER_EPOCH), (4, ErrorCode.UNKNOWN_LEADER_EPOCH), (3, 0)]
    )
    def test_readers_are_fenced_by_the_quorums_epoch(
        self, harness: MetadataTopicHarness, epoch: int, error: int
    ) -> None:
        harness.append()
        harness.commit()
        assert only(harness.fetch(0, epoch=epoch)).error_code == error
        assert harness.list_offset(-2, epoch=epoch)[0] == error

    def test_topic_has_one_partition(self, harness: MetadataTopicHarness) -> None:
        assert only(harness.fetch(0, index=1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_replicas_are_refused(self, harness: MetadataTopicHarness) -> None:
        request = FetchRequest(replica_id=OTHER, max_bytes=1000)
        request.topics = [FetchTopic(NAME, ZERO_UUID, [FetchPartition(0, -1, 0, -1, 0, 1000)])]
        answer = Answer(harness.fetch_handler(request, harness.node.context(BY_NAME)))
        assert only(answer).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_incremental_session_reports_commits_and_lost_leadership(self, harness: MetadataTopicHarness) -> None:
        harness.append()
        harness.commit()
        opened = harness.fetch(1, session=(0, 0))
        session = opened.value.session_id
        assert session > 0
        waiting = harness.fetch(1, session=(session, 1), named=False, wait_ms=500)
        harness.append()
        harness.commit()
        assert base_offsets(only(waiting)) == [1]
        idle = harness.fetch(2, session=(session, 2), wait_ms=500)
        assert idle.is_waiting
        harness.node.register_broker(OTHER)
        harness.elect(OTHER, 4)
        assert only(idle).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_published_metadata_wakes_readers(self, harness: MetadataTopicHarness) -> None:
        answer = harness.fetch(0, wait_ms=500)
        harness.append()
        harness.quorum.high_watermark = 1
        harness.topic.on_metadata(None, harness.node.image)  # type: ignore[arg-type]  # what changed does not matter
        harness.node.loop.run_soon()
        assert base_offsets(only(answer)) == [0]


class TestPositions:
    def test_offsets_of_ends_and_timestamps_are_found(self, harness: MetadataTopicHarness) -> None:
        harness.append(2, epoch=2)
        harness.append(3, epoch=3)
        harness.commit()
        harness.append(1)
        assert harness.list_offset(-1) == (0, 5, 3)
        assert harness.list_offset(-2) == (0, 0, 2)
        assert harness.list_offset(harness.node.clock.now_ms()) == (0, 0, 2)
        assert harness.list_offset(harness.node.clock.now_ms() + 1) == (0, -1, -1)

    def test_epochs_end_where_they_are_committed(self, harness: MetadataTopicHarness) -> None:
        harness.append(2, epoch=2)
        harness.append(3, epoch=3)
        harness.commit()
        harness.append(1)
        assert self.ends(harness, 2, 3, 4) == [(0, 2, 2), (0, 3, 5), (0, -1, -1)]

    def test_epoch_is_open_until_the_next_leadership_begins_here(self, harness: MetadataTopicHarness) -> None:
        """A client that read the two records of epoch 3 elsewhere has lost nothing."""
        harness.append(2, epoch=2)
        harness.commit()
        not_yet = [(ErrorCode.OFFSET_NOT_AVAILABLE, -1, -1)]
        assert self.ends(harness, 2) == not_yet
        harness.append(2, epoch=3)
        harness.elect(None, 4)
        assert self.ends(harness, 3) == not_yet
        harness.elect(BROKER_ID, 4)
        harness.append(1, epoch=4)
        assert self.ends(harness, 3) == not_yet
        harness.commit()
        assert self.ends(harness, 3) == [(0, 3, 4)]

    def ends(self, harness: MetadataTopicHarness, *epochs: int) -> list[tuple[int, int, int]]:
        """Return (error, epoch, end offset) for each requested epoch."""
        requested = [OffsetForLeaderPartition(0, harness.quorum.leader.epoch, epoch) for epoch in epochs]
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(NAME, requested)])
        (topic,) = OffsetForLeaderEpochHandler(harness.node.partitions, harness.topic)(
            request, harness.node.context(4)
        ).topics
        return [(each.error_code, each.leader_epoch, each.end_offset) for each in topic.partitions]


class TestSnapshots:
    def ask(
        self,
        harness: MetadataTopicHarness,
        position: int = 0,
        *,
        end_offset: int = 5,
        epoch: int = 3,
        max_bytes: int = 1000,
        topic: str = NAME,
    ) -> FetchSnapshotResponsePartitionSnapshot:
        handler = FetchPublicSnapshotHandler(harness.node.metadata, harness.topic, harness.node.io, cluster_id="c")
        snapshot_id = FetchSnapshotRequestSnapshotId(end_offset, epoch)
        partition = FetchSnapshotRequestPartitionSnapshot(0, -1, snapshot_id, position)
        request = FetchSnapshotRequest(None, -1, max_bytes, [FetchSnapshotRequestTopicSnapshot(topic, [partition])])
        pending = handler(request, harness.node.context(1))
        response = pending if isinstance(pending, FetchSnapshotResponse) else harness.finish(pending)
        (found,) = response.topics[0].partitions
        return found

    @pytest.fixture
    def harness(self, harness: MetadataTopicHarness) -> MetadataTopicHarness:
        harness.append(5)
        harness.commit()
        harness.trim_to(5)
        return harness

    def test_snapshot_is_read_in_pages(self, harness: MetadataTopicHarness) -> None:
        first, rest = self.ask(harness, max_bytes=8), self.ask(harness, 8)
        assert bytes(first.unaligned_records or b"") + bytes(rest.unaligned_records or b"") == SNAPSHOT
        assert (first.size, rest.position, rest.snapshot_id.end_offset) == (len(SNAPSHOT), 8, 5)
        assert (first.current_leader.leader_id, first.current_leader.leader_epoch) == (BROKER_ID, 3)

    def test_invalid_snapshot_requests_are_refused(self, harness: MetadataTopicHarness) -> None:
        assert self.ask(harness, len(SNAPSHOT)).error_code == ErrorCode.POSITION_OUT_OF_RANGE
        assert self.ask(harness, -1).error_code == ErrorCode.POSITION_OUT_OF_RANGE
        assert self.ask(harness, end_offset=4).error_code == ErrorCode.SNAPSHOT_NOT_FOUND
        assert self.ask(harness, end_offset=0, epoch=0).error_code == ErrorCode.SNAPSHOT_NOT_FOUND
        assert self.ask(harness, topic="t").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        harness.node.register_broker(OTHER)
        harness.elect(OTHER, 4)
        assert self.ask(harness).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_several_partitions_or_another_cluster_are_refused(self, harness: MetadataTopicHarness) -> None:
        handler = FetchPublicSnapshotHandler(harness.node.metadata, harness.topic, harness.node.io, cluster_id="c")
        foreign = handler(FetchSnapshotRequest(cluster_id="other"), harness.node.context(1))
        nothing = handler(FetchSnapshotRequest(), harness.node.context(1))
        assert [Answer(each).value.error_code for each in (foreign, nothing)] == [
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            ErrorCode.INVALID_REQUEST,
        ]


class TestReadOnly:
    @pytest.mark.parametrize("version", [12, 13])
    def test_produce_is_refused(self, harness: MetadataTopicHarness, version: int) -> None:
        handler = ProduceHandler(harness.node.partitions, harness.node.runtime, harness.node.verifier)
        by_id = version >= 13
        topic = TopicProduceData("" if by_id else NAME, METADATA_TOPIC_ID if by_id else ZERO_UUID)
        topic.partition_data = [PartitionProduceData(0, batch())]
        response = handler(ProduceRequest(acks=1, topic_data=[topic]), harness.node.context(version))
        (found,) = Answer(response).value.responses[0].partition_responses
        assert found.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    def test_delete_records_is_refused(self, harness: MetadataTopicHarness) -> None:
        handler = DeleteRecordsHandler(harness.node.partitions, harness.node.runtime)
        topic = DeleteRecordsTopic(NAME, [DeleteRecordsPartition(0, 1)])
        answer = Answer(handler(DeleteRecordsRequest(topics=[topic]), harness.node.context(2)))
        assert answer.value.topics[0].partitions[0].error_code == ErrorCode.POLICY_VIOLATION

    def test_cleanup_policy_is_described(self, harness: MetadataTopicHarness) -> None:
        config, _ = load_config(None, (), {})
        handler = DescribeConfigsHandler(
            harness.node.metadata, node_id=1, config=lambda: config, loggers=_NoLoggers(), metadata_is_readable=True
        )
        request = DescribeConfigsRequest(resources=[DescribeConfigsResource(2, NAME)])
        (result,) = handler(request, harness.node.context(4)).results
        assert [(entry.name, entry.value, entry.read_only) for entry in result.configs] == [
            ("cleanup.policy", "snapshot", True)
        ]


class _NoLoggers:
    def levels(self) -> dict[str, str]:
        return {}


def test_snapshot_is_found_by_its_name(harness: MetadataTopicHarness) -> None:
    harness.append(5)
    harness.commit()
    harness.trim_to(5)
    assert [checkpoint_name(id) for id in harness.snapshots.ids()] == ["00000000000000000005-0000000003.checkpoint"]
