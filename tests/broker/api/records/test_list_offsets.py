"""ListOffsets, key 2 (`broker.api.records.list_offsets`, `broker.runtime.partitions.offset_lookup`)."""

import pytest

from broker.api.records.list_offsets import ListOffsetsHandler
from broker.runtime.partitions import offset_lookup
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.support.harnesses.data_plane import Answer, DataPlane, batch

CONSUMER, DEBUGGER, FOLLOWER = -1, -2, 2


@pytest.fixture
def node() -> DataPlane:
    return DataPlane()


def ask(
    node: DataPlane,
    *timestamps: int,
    version: int = 11,
    replica: int = CONSUMER,
    committed: bool = False,
    epoch: int = -1,
    index: int = 0,
    topic: str = "t",
) -> list[ListOffsetsPartitionResponse]:
    partitions = [ListOffsetsPartition(index, epoch, timestamp) for timestamp in timestamps]
    request = ListOffsetsRequest(replica, int(committed), [ListOffsetsTopic(topic, partitions)])
    return Answer(ListOffsetsHandler(node.partitions)(request, node.context(version))).value.topics[0].partitions


def found(entry: ListOffsetsPartitionResponse) -> tuple[int, int, int]:
    assert entry.error_code == 0
    return entry.timestamp, entry.offset, entry.leader_epoch


def only(entries: list[ListOffsetsPartitionResponse]) -> ListOffsetsPartitionResponse:
    (entry,) = entries
    return entry


def stamped(node: DataPlane, *timestamps: int) -> None:
    for timestamp in timestamps:
        node.partition().append(batch(b"v", timestamp=timestamp), 1)


def test_ends_of_the_log_are_found(node: DataPlane) -> None:
    identity = node.create_topic()
    node.produce(b"a", b"b", b"c")
    node.elect(identity, 1)
    node.partition().record_deletion.delete_records(1)
    assert found(only(ask(node, offset_lookup.LATEST))) == (-1, 3, 1)
    assert found(only(ask(node, offset_lookup.EARLIEST))) == (-1, 1, 0)
    assert found(only(ask(node, offset_lookup.EARLIEST_LOCAL))) == (-1, 1, 0)


def test_first_record_at_or_after_a_timestamp_is_found(node: DataPlane) -> None:
    node.create_topic()
    stamped(node, 100, 300, 200, 400)
    assert found(only(ask(node, 0))) == (100, 0, 0)
    assert found(only(ask(node, 150))) == (300, 1, 0)
    assert found(only(ask(node, 400))) == (400, 3, 0)
    assert found(only(ask(node, 401))) == (-1, -1, -1)


def test_record_with_the_largest_timestamp_is_found(node: DataPlane) -> None:
    node.create_topic()
    stamped(node, 100, 300, 300, 200)
    assert found(only(ask(node, offset_lookup.MAX_TIMESTAMP))) == (300, 1, 0)


def test_untiered_log_has_no_tiered_offset(node: DataPlane) -> None:
    node.create_topic()
    stamped(node, 100)
    for special in (offset_lookup.LATEST_TIERED, offset_lookup.EARLIEST_PENDING_UPLOAD):
        assert found(only(ask(node, special))) == (-1, -1, -1)


def test_consumers_see_committed_records_and_followers_the_whole_log(node: DataPlane) -> None:
    node.create_topic(replicas=(1, 2))
    stamped(node, 100)
    assert found(only(ask(node, offset_lookup.LATEST)))[1] == 0
    assert found(only(ask(node, 100))) == (-1, -1, -1)
    assert found(only(ask(node, offset_lookup.LATEST, replica=DEBUGGER)))[1] == 1
    assert found(only(ask(node, 100, replica=FOLLOWER))) == (100, 0, 0)


def test_read_committed_ends_before_an_open_transaction(node: DataPlane) -> None:
    node.create_topic()
    node.produce(b"a")
    open_transaction = batch(producer_id=1, producer_epoch=0, sequence=0, transactional=True)
    node.partition().append(open_transaction, 1)
    assert found(only(ask(node, offset_lookup.LATEST, committed=True)))[1] == 1
    assert found(only(ask(node, offset_lookup.LATEST)))[1] == 2


@pytest.mark.parametrize(("timestamp", "first"), [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_special_timestamps_have_a_first_version(node: DataPlane, timestamp: int, first: int) -> None:
    node.create_topic()
    assert only(ask(node, timestamp, version=first)).error_code == 0
    if first > 1:
        assert only(ask(node, timestamp, version=first - 1)).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_unknown_negative_timestamps_are_refused(node: DataPlane) -> None:
    node.create_topic()
    assert only(ask(node, -7)).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("timestamp", [-1, -3, 0])
def test_new_leader_does_not_send_consumers_back(node: DataPlane, timestamp: int) -> None:
    """The new leader's high watermark may be behind the former one's until it has committed its own first record."""
    identity = node.create_topic(replicas=(1, 2))
    stamped(node, 100)
    node.elect(identity, 1)
    assert only(ask(node, timestamp)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert only(ask(node, timestamp, version=7, replica=FOLLOWER)).error_code == 0
    assert only(ask(node, offset_lookup.EARLIEST)).error_code == 0
    if timestamp != -3:
        assert only(ask(node, timestamp, version=4)).error_code == ErrorCode.LEADER_NOT_AVAILABLE


def test_readers_are_fenced_and_only_the_leader_answers(node: DataPlane) -> None:
    identity = node.create_topic(replicas=(1, 2))
    node.elect(identity, 2)
    assert only(ask(node, -1, epoch=0)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert only(ask(node, -1, epoch=2)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert only(ask(node, -1)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert only(ask(node, -1, replica=DEBUGGER)).error_code == 0


def test_repeated_partition_is_refused(node: DataPlane) -> None:
    node.create_topic()
    assert only(ask(node, -1, -2)).error_code == ErrorCode.INVALID_REQUEST


def test_unknown_partitions_are_refused(node: DataPlane) -> None:
    node.create_topic()
    entry = only(ask(node, -1, index=5))
    assert (entry.error_code, entry.offset, entry.timestamp) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert only(ask(node, -1, topic="unknown")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_failed_disk_is_a_storage_error(node: DataPlane) -> None:
    node.create_topic()
    stamped(node, 100)
    node.memory.fail("read", path_part="t-0")
    assert only(ask(node, 100)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
