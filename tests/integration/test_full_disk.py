"""A disk that fills up under load: an error for clients, a directory offline, nothing lost that was acknowledged."""

import contextlib
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from protocol.errors import ErrorCode
from protocol.records.builder import Record, build_batch
from tests.support.clients.partition_states import until
from tests.support.clients.raw_produce import RawProducer
from tests.support.processes.ottla_node import OttlaNode
from tests.support.processes.small_disk import SmallDisk, unavailable_reason

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason())),
]

BALLAST_BYTES = 4 * 1024 * 1024
VALUE_BYTES = 50_000
MANY = 1000
"""More batches than the disk has room for."""


class NodeOnSmallDisk(OttlaNode):
    """A node that sees the small file system."""

    def __init__(self, directory: Path, disk: SmallDisk, settings: dict[str, str]) -> None:
        super().__init__(directory, settings)
        self._disk = disk

    def command(self, *more: str) -> list[str]:
        return [*self._disk.enter, *super().command(*more)]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """12 MB, of which a third can be freed."""
    with SmallDisk(tmp_path / "disk", "12m") as mounted:
        (mounted.seen_from_here / "ballast").write_bytes(bytes(BALLAST_BYTES))
        yield mounted


def free_space(disk: SmallDisk) -> None:
    (disk.seen_from_here / "ballast").unlink()


def leave_no_room(disk: SmallDisk) -> None:
    """Fill the disk to the last page."""
    with (disk.seen_from_here / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def create_topic(node: OttlaNode, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic("t", partitions)])["t"].result(20)


def homes(directory: Path) -> list[int]:
    """The partitions with a log there."""
    return sorted(int(path.name[2:]) for path in directory.glob("t-*"))


def a_value(number: int) -> bytes:
    return b"%08d" % number + bytes(VALUE_BYTES)


def a_batch(number: int) -> bytes:
    return build_batch([Record(int(time.time() * 1000), b"k", a_value(number), ())])


def fill(node: OttlaNode, index: int) -> tuple[list[int], int]:
    """Produce until it is refused: the numbers that were acknowledged, and the error of the next one."""
    acknowledged: list[int] = []
    with closing(RawProducer(node.port)) as producer:
        for number in range(MANY):
            error, offset = producer.produce("t", index, a_batch(number))
            if error != ErrorCode.NONE:
                return acknowledged, error
            assert offset == number
            acknowledged.append(number)
    raise AssertionError("the disk never filled up")


def numbers_in(node: OttlaNode, index: int, count: int) -> list[int]:
    """The first `count` records of a partition, by the numbers they carry."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": node.bootstrap, "group.id": "g"})
    try:
        consumer.assign([confluent_kafka.TopicPartition("t", index, 0)])
        messages = consumer.consume(count, timeout=30)
        assert all(message.value()[8:] == bytes(VALUE_BYTES) for message in messages)
        return [int(message.value()[:8]) for message in messages]
    finally:
        consumer.close()


def test_the_only_log_directory_fills_up(tmp_path: Path, disk: SmallDisk) -> None:
    node = NodeOnSmallDisk(tmp_path / "node", disk, {"log.dirs": str(disk.path / "data")})
    with node:
        create_topic(node, 1)
        acknowledged, error = fill(node, 0)
        assert error == ErrorCode.KAFKA_STORAGE_ERROR
        assert len(acknowledged) > 50
        assert node.process is not None
        assert node.process.wait(60) == 1
    last = node.log_text.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    assert "No space left on device" in last
    assert str(disk.path / "data") in last
    assert "Traceback" not in node.log_text
    free_space(disk)
    with node:
        assert numbers_in(node, 0, len(acknowledged)) == acknowledged
        with closing(RawProducer(node.port)) as producer:
            error, offset = producer.produce("t", 0, a_batch(0))
        assert error == ErrorCode.NONE
        assert offset >= len(acknowledged)


def test_one_of_two_log_directories_fills_up(tmp_path: Path, disk: SmallDisk) -> None:
    large = tmp_path / "large"
    node = NodeOnSmallDisk(tmp_path / "node", disk, {"log.dirs": f"{large},{disk.path / 'data'}"})
    with node:
        create_topic(node, 4)
        until(lambda: len(homes(disk.seen_from_here / "data")) + len(homes(large)) == 4)
        small, others = homes(disk.seen_from_here / "data"), homes(large)
        assert len(small) == len(others) == 2
        acknowledged, error = fill(node, small[0])
        assert error == ErrorCode.KAFKA_STORAGE_ERROR
        with closing(RawProducer(node.port)) as producer:
            for index in others:
                assert producer.produce("t", index, a_batch(0)) == (ErrorCode.NONE, 0)
            assert producer.produce("t", small[1], a_batch(0))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        assert numbers_in(node, others[0], 1) == [0]
        status, metrics = node.http("/metrics")
        assert status == 200
        assert "kafka_log_logmanager_offlinelogdirectorycount 1.0" in metrics.lower()
        assert node.terminate() == 0
    assert "Traceback" not in node.log_text
    free_space(disk)
    with node:
        assert numbers_in(node, small[0], len(acknowledged)) == acknowledged
        assert numbers_in(node, others[1], 1) == [0]


def test_the_disk_of_the_metadata_log_fills_up(tmp_path: Path, disk: SmallDisk) -> None:
    """The controller cannot decide any more, and must not be waited for when the node stops."""
    data = tmp_path / "large"
    node = NodeOnSmallDisk(
        tmp_path / "node", disk, {"log.dirs": str(data), "metadata.log.dir": str(disk.path / "meta")}
    )
    with node:
        create_topic(node, 1)
        leave_no_room(disk)
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        refused = admin.create_topics([NewTopic("refused", 50)], request_timeout=5)["refused"]
        assert node.process is not None
        assert node.process.wait(60) == 1
        assert refused.exception(20) is not None
    last = node.log_text.strip().splitlines()[-1]
    assert last == f"Error: {disk.path / 'meta'}/__cluster_metadata-0: No space left on device."
    assert "Traceback" not in node.log_text
    free_space(disk)
    with node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        assert set(admin.list_topics(timeout=20).topics) == {"t"}


def test_a_first_start_on_a_full_disk_says_so(tmp_path: Path, disk: SmallDisk) -> None:
    leave_no_room(disk)
    node = NodeOnSmallDisk(tmp_path / "node", disk, {"log.dirs": str(disk.path / "data")})
    with pytest.raises(AssertionError, match="exited with 1"), node:
        pass
    last = node.log_text.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    assert "No space left on device" in last
    assert "Traceback" not in node.log_text
