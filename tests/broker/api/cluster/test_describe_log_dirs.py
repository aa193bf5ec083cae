"""DescribeLogDirs, key 35 (`broker.api.cluster.describe_log_dirs`)."""

import asyncio

import pytest

from broker.api.cluster.describe_log_dirs import DescribeLogDirsHandler
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from tests.support.fakes.inline_io import InlineIo
from tests.support.fakes.runtimes import make_runtime
from tests.support.harnesses.data_plane import DataPlane, batch


async def describe(node: DataPlane, topics: list[DescribableLogDirTopic] | None) -> list[DescribeLogDirsResult]:
    loop = asyncio.get_running_loop()
    handler = DescribeLogDirsHandler(node.log_dirs, make_runtime(loop, files=node.fs, io=InlineIo(loop)))
    return (await handler(DescribeLogDirsRequest(topics), node.context(4))).results


async def test_directories_are_described_with_logs_and_volumes() -> None:
    node = DataPlane(directories=("/one", "/two"))
    node.create_topic("t", 3)
    node.produce(b"a", index=1)
    one, two = await describe(node, None)
    assert (one.log_dir, two.log_dir) == ("/one", "/two")
    found = {
        (topic.name, p.partition_index): (p.partition_size, p.offset_lag, p.is_future_key)
        for result in (one, two)
        for topic in result.topics
        for p in topic.partitions
    }
    assert found == {("t", 0): (0, 0, False), ("t", 1): (len(batch(b"a")), 0, False), ("t", 2): (0, 0, False)}
    space = node.fs.disk_space("/one")
    assert (one.total_bytes, one.usable_bytes) == (space.total_bytes, space.usable_bytes)


async def test_requested_partitions_alone_are_described() -> None:
    node = DataPlane()
    node.create_topic("t", 2)
    (result,) = await describe(node, [DescribableLogDirTopic("t", [1, 9]), DescribableLogDirTopic("unknown", [0])])
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in result.topics] == [("t", [1])]
    (nothing,) = await describe(node, [])
    assert nothing.topics == []


async def test_offline_directory_has_an_error() -> None:
    node = DataPlane(directories=("/one", "/two"))
    node.create_topic("t", 2)
    failing = node.partition().log.directory
    node.memory.fail("write", path_part=failing)
    with pytest.raises(KafkaError):
        node.produce(b"a")
    node.loop.run_soon()
    results = {result.log_dir: result for result in await describe(node, None)}
    offline = results.pop(failing.rpartition("/")[0])
    assert (offline.error_code, offline.topics, offline.total_bytes) == (ErrorCode.KAFKA_STORAGE_ERROR, [], -1)
    (online,) = results.values()
    assert online.error_code == 0
    assert len(online.topics) == 1
