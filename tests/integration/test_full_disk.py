"""Disks that fill up under load: clients get an error, the directory goes offline, no acknowledged record is lost."""

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
"""More batches than fit on the disk."""


class NodeOnSmallDisk(OttlaNode):
    """A node in the mount namespace of the small file system."""

    def __init__(self, directory: Path, disk: SmallDisk, settings: dict[str, str]) -> None:
        super().__init__(directory, settings)
        self._disk = disk

    def command(self, *more: str) -> list[str]:
        return [*self._disk.enter, *super().command(*more)]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Return a 12 MB disk with ballast of a third that can be freed."""
    with SmallDisk(tmp_path / "disk", "12m") as mounted:
        (mounted.seen_from_here / "ballast").write_bytes(bytes(BALLAST_BYTES))
        yield mounted


def free_space(disk: SmallDisk) -> None:
    (disk.seen_from_here / "ballast").unlink()


def leave_no_room(disk: SmallDisk) -> None:
    """Fill the disk completely."""
    with (disk.seen_from_here / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def create_topic(node: OttlaNode, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic("t", partitions)])["t"].result(20)


def partitions_in(directory: Path) -> list[int]:
    """Return the indexes of the partitions that have a log in the directory."""
    return sorted(int(path.name[2:]) for path in directory.glob("t-*"))


def value_of(number: int) -> bytes:
    return b"%08d" % number + bytes(VALUE_BYTES)


def batch_of(number: int) -> bytes:
    return build_batch([Record(int(time.time() * 1000), b"k", value_of(number), ())])


def fill(node: OttlaNode, index: int) -> tuple[list[int], int]:
    """Produce until a batch is refused. Return the acknowledged numbers and the error of the refused batch."""
    acknowledged: list[int] = []
    with closing(RawProducer(node.port)) as producer:
        for number in range(MANY):
            error, offset = producer.produce("t", index, batch_of(number))
            if error != ErrorCode.NONE:
                return acknowledged, error
            assert offset == number
            acknowledged.append(number)
    raise AssertionError("the disk never filled up")


def numbers_in(node: OttlaNode, index: int, count: int) -> list[int]:
    """Return the numbers in the first `count` records of a partition."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": node.bootstrap, "group.id": "g"})
    try:
        consumer.assign([confluent_kafka.TopicPartition("t", index, 0)])
        messages = consumer.consume(count, timeout=30)
        assert all(message.value()[8:] == bytes(VALUE_BYTES) for message in messages)
        return [int(message.value()[:8]) for message in messages]
    finally:
        consumer.close()


def test_full_only_log_directory_stops_the_node_and_loses_nothing(tmp_path: Path, disk: SmallDisk) -> None:
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
            error, offset = producer.produce("t", 0, batch_of(0))
        assert error == ErrorCode.NONE
        assert offset >= len(acknowledged)


def test_full_log_directory_goes_offline_and_the_other_serves(tmp_path: Path, disk: SmallDisk) -> None:
    large = tmp_path / "large"
    node = NodeOnSmallDisk(tmp_path / "node", disk, {"log.dirs": f"{large},{disk.path / 'data'}"})
    with node:
        create_topic(node, 4)
        until(lambda: len(partitions_in(disk.seen_from_here / "data")) + len(partitions_in(large)) == 4)
        small, others = partitions_in(disk.seen_from_here / "data"), partitions_in(large)
        assert len(small) == len(others) == 2
        acknowledged, error = fill(node, small[0])
        assert error == ErrorCode.KAFKA_STORAGE_ERROR
        with closing(RawProducer(node.port)) as producer:
            for index in others:
                assert producer.produce("t", index, batch_of(0)) == (ErrorCode.NONE, 0)
            assert producer.produce("t", small[1], batch_of(0))[0] == ErrorCode.KAFKA_STORAGE_ERROR
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


def test_full_metadata_disk_stops_the_node_and_loses_nothing(tmp_path: Path, disk: SmallDisk) -> None:
    """Check that the stopping node does not wait for its controller, which cannot write any more."""
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


def test_first_start_on_a_full_disk_fails_with_one_error_line(tmp_path: Path, disk: SmallDisk) -> None:
    leave_no_room(disk)
    node = NodeOnSmallDisk(tmp_path / "node", disk, {"log.dirs": str(disk.path / "data")})
    with pytest.raises(AssertionError, match="exited with 1"), node:
        pass
    last = node.log_text.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    assert "No space left on device" in last
    assert "Traceback" not in node.log_text
