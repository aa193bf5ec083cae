"""A partition as a coordinator's log (`broker.runtime.coordinators.partition_log`)."""

import asyncio

import pytest

from broker.runtime.coordinators.partition_log import PartitionLog
from broker.runtime.coordinators.shard_log import LoadedRecord
from protocol.errors import ErrorCode, KafkaError
from protocol.records.compression import Codec
from protocol.records.control import ControlType, end_transaction_marker
from storage.config import CleanupPolicy, LogConfig
from storage.producer_state import Origin
from tests.support.fakes.inline_io import InlineIo
from tests.support.harnesses.data_plane import DataPlane, batch

TOPIC = "__consumer_offsets"
COMPACTED = LogConfig(cleanup_policy=frozenset({CleanupPolicy.COMPACT}), max_message_bytes=1000)


@pytest.fixture
def node() -> DataPlane:
    node = DataPlane()
    node.create_topic(TOPIC, config=COMPACTED)
    return node


def open_log(node: DataPlane, codec: Codec = Codec.NONE) -> PartitionLog:
    return PartitionLog(node.partitions.hosted(TOPIC, 0), node.io, codec)


def code_of(error: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return error.value.code


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
async def test_written_records_are_read_unchanged(node: DataPlane, codec: Codec) -> None:
    log = open_log(node, codec)
    assert log.append([(b"a", b"1"), (b"b", None)], 0, 5) == 0
    assert log.append([(b"c", b"3")], 0, 6) == 2
    assert (log.start_offset, log.end_offset, log.high_watermark, log.max_batch_bytes) == (0, 3, 3, 1000)
    first, second = await log.read(0, 10_000)
    assert list(first.records) == [LoadedRecord(0, b"a", b"1"), LoadedRecord(1, b"b", None)]
    assert (first.next_offset, first.producer_id, first.committed) == (2, -1, None)
    assert list(second.records) == [LoadedRecord(2, b"c", b"3")]
    assert await log.read(3, 10_000) == []


async def test_reading_starts_at_the_offset_inside_a_batch(node: DataPlane) -> None:
    log = open_log(node)
    log.append([(b"a", b"1"), (b"b", b"2")], 0, 5)
    (loaded,) = await log.read(1, 10)
    assert list(loaded.records) == [LoadedRecord(1, b"b", b"2")]


async def test_transactions_are_read_with_their_markers(node: DataPlane) -> None:
    partition = node.partition(TOPIC)
    partition.append(batch(b"v", producer_id=7, producer_epoch=0, sequence=0, transactional=True), 1)
    for kind in (ControlType.COMMIT, ControlType.ABORT):
        marker = end_transaction_marker(kind, 7, 0, 0, 1)
        partition.append(bytearray(marker), 1, Origin.COORDINATOR)
    loaded = await open_log(node).read(0, 10_000)
    assert [(one.producer_id, one.committed) for one in loaded] == [(7, None), (7, True), (7, False)]


def test_batch_above_max_message_bytes_is_refused(node: DataPlane) -> None:
    with pytest.raises(KafkaError) as error:
        open_log(node).append([(b"a", b"1"), (b"b", b"x" * 1000)], 0, 5)
    assert code_of(error) is ErrorCode.MESSAGE_TOO_LARGE
    assert node.partition(TOPIC).log.log_end_offset == 0


def test_append_under_another_leader_epoch_is_refused(node: DataPlane) -> None:
    log = open_log(node)
    node.elect(node.partition(TOPIC).topic_id, 1)
    with pytest.raises(KafkaError) as error:
        log.append([(b"a", b"1")], 0, 5)
    assert code_of(error) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert log.append([(b"a", b"1")], 1, 5) == 0


def test_wait_for_commit_fails_when_leadership_ends() -> None:
    node = DataPlane()
    identity = node.create_topic(TOPIC, replicas=(1, 2), config=COMPACTED)
    log = open_log(node)
    log.append([(b"a", b"1")], 0, 5)
    outcomes: list[ErrorCode] = []
    log.when_committed(0, outcomes.append)
    assert (outcomes, log.high_watermark) == ([], 0)
    node.elect(identity, 2)
    assert outcomes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    with pytest.raises(KafkaError):
        assert log.end_offset


def test_append_below_min_insync_replicas_is_refused() -> None:
    node = DataPlane()
    node.create_topic(TOPIC, replicas=(1, 2), isr=(1,), config=LogConfig(min_insync_replicas=2))
    with pytest.raises(KafkaError) as error:
        open_log(node).append([(b"a", b"1")], 0, 5)
    assert code_of(error) is ErrorCode.NOT_ENOUGH_REPLICAS


async def test_read_outside_of_the_log_is_an_error(node: DataPlane) -> None:
    with pytest.raises(KafkaError) as error:
        await open_log(node).read(5, 10)
    assert code_of(error) is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_cold_records_are_warmed_first(node: DataPlane) -> None:
    log = PartitionLog(node.partitions.hosted(TOPIC, 0), InlineIo(asyncio.get_running_loop()))
    log.append([(b"a", b"x" * 800)], 0, 5)
    node.memory.is_cold = True
    (loaded,) = await log.read(0, 10)
    assert [record.key for record in loaded.records] == [b"a"]


async def test_failing_disk_takes_the_partition_offline(node: DataPlane) -> None:
    log = open_log(node)
    log.append([(b"a", b"1")], 0, 5)
    node.memory.fail("read", path_part=TOPIC)
    with pytest.raises(KafkaError) as error:
        await log.read(0, 10)
    assert code_of(error) is ErrorCode.KAFKA_STORAGE_ERROR
