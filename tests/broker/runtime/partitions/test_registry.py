"""Hosting partitions by the metadata (`registry`, `replica_assignments`, `log_store`)."""

import asyncio

import pytest

from broker.metadata.image.config_image import ConfigResource, ResourceType, config_record
from broker.runtime.partitions.log_store import DirectoryFailures
from broker.runtime.partitions.partition import ACKS_ALL, Partition
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.metadata_records import PartitionChangeRecord
from storage.config import LogConfig
from tests.support.harnesses.data_plane import DataPlane, batch, directory_id


@pytest.fixture
def node() -> DataPlane:
    return DataPlane()


def absence(node: DataPlane, topic: str = "t", index: int = 0) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        node.partitions.hosted(topic, index)
    return error.value.code


def test_assigned_partitions_are_hosted_by_name_and_id(node: DataPlane) -> None:
    identity = node.create_topic("t", 3)
    assert [str(p) for p in node.partitions.all()] == ["t-0", "t-1", "t-2"]
    assert node.partitions.hosted("t", 1) is node.partitions.by_id[identity].partitions[1]
    assert node.partition().log.topic_id == identity
    assert node.fs.exists("/data/t-2")


def test_unassigned_partitions_are_not_hosted(node: DataPlane) -> None:
    node.create_topic(replicas=(2, 3), leader=2)
    assert absence(node) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert absence(node, "t", 1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert absence(node, "unknown") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not node.fs.exists("/data/t-0")


def test_partition_is_hosted_once_its_log_is_created(node: DataPlane) -> None:
    node.io.is_held = True
    node.create_topic()
    assert absence(node) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    node.io.release()
    node.loop.run_soon()
    assert node.partitions.hosted("t", 0).is_leader


def test_assignment_at_the_end_of_the_creation_counts(node: DataPlane) -> None:
    node.io.is_held = True
    identity = node.create_topic(replicas=(1, 2), config=LogConfig(retention_ms=1))
    node.elect(identity, 2)
    node.configs["t"] = LogConfig(retention_ms=2)
    node.io.release()
    node.loop.run_soon()
    assert not node.partition().is_leader
    assert node.partition().role.epoch == 1
    assert node.partition().log.config.retention_ms == 2


def test_topic_deleted_during_log_creation_leaves_no_log(node: DataPlane) -> None:
    node.io.is_held = True
    identity = node.create_topic()
    node.delete_topic(identity)
    node.io.release()
    node.loop.run_soon()
    assert absence(node) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not node.fs.exists("/data/t-0")
    assert len(node.log_dirs) == 0


@pytest.mark.parametrize("generations", [1, 2, 3])
def test_topic_recreated_during_log_creation_is_hosted(node: DataPlane, generations: int) -> None:
    node.io.is_held = True
    for _ in range(generations):
        node.delete_topic(node.create_topic())
    identity = node.create_topic()
    node.io.release()
    node.loop.run_soon()
    assert node.loop.failures == []
    assert node.partition().log.topic_id == identity
    assert node.partition().is_leader
    assert len(node.log_dirs) == 1
    assert len([name for name in node.fs.list("/data") if name.startswith("t-0")]) == 2, "the old one is to be removed"


def test_topic_recreated_during_log_deletion_is_hosted(node: DataPlane) -> None:
    first = node.create_topic()
    node.io.is_held = True
    node.delete_topic(first)
    identity = node.create_topic()
    node.io.release()
    node.loop.run_soon()
    assert node.loop.failures == []
    assert node.partition().log.topic_id == identity


def test_replica_that_returns_during_log_deletion_gets_a_new_log(node: DataPlane) -> None:
    """The log that is being removed must not be used again."""
    identity = node.create_topic(replicas=(1, 2))
    node.produce(b"a")
    former = node.partition().log
    node.io.is_held = True
    node.apply(PartitionChangeRecord(topic_id=identity, partition_id=0, replicas=[2, 3], isr=[2], leader=2))
    node.apply(PartitionChangeRecord(topic_id=identity, partition_id=0, replicas=[1, 2, 3]))
    assert absence(node) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    node.io.release()
    node.loop.run_soon()
    assert node.loop.failures == []
    assert node.partition().log is not former
    assert node.partition().log.log_end_offset == 0
    node.elect(identity, 1)
    node.produce(b"b")


def test_deleting_a_topic_removes_its_logs_and_fails_waiters(node: DataPlane) -> None:
    identity = node.create_topic("t", 2, replicas=(1, 2))
    node.produce(b"a")
    errors: list[ErrorCode] = []
    node.partition().when_acknowledged(1, ACKS_ALL, errors.append)
    node.partition().record_deletion.when_deleted(1, errors.append)
    node.delete_topic(identity)
    assert errors == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert node.partitions.by_name == {}
    assert node.partitions.by_id == {}
    assert len(node.removals) == 2
    assert [name.endswith("-delete") for name in node.fs.list("/data") if name.startswith("t-")] == [True, True]


def test_recreated_topic_of_the_same_name_is_distinct(node: DataPlane) -> None:
    first = node.create_topic()
    node.produce(b"a")
    node.delete_topic(first)
    second = node.create_topic()
    assert node.partition().topic_id == second
    assert node.partition().log.log_end_offset == 0
    assert list(node.partitions.by_id) == [second]


def test_replica_reassigned_away_is_removed(node: DataPlane) -> None:
    identity = node.create_topic(replicas=(1, 2))
    node.apply(PartitionChangeRecord(topic_id=identity, partition_id=0, replicas=[2, 3], isr=[2, 3], leader=2))
    assert absence(node) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not node.fs.exists("/data/t-0")


def test_configurations_reach_the_logs(node: DataPlane) -> None:
    node.create_topic("t", 2)
    node.configs["t"] = LogConfig(max_message_bytes=5)
    node.apply(config_record(ConfigResource(ResourceType.TOPIC, "t"), "max.message.bytes", "5").message)
    assert [p.log.config.max_message_bytes for p in node.partitions.all()] == [5, 5]
    node.configs["t"] = LogConfig(max_message_bytes=6)
    node.apply(config_record(ConfigResource(ResourceType.BROKER, ""), "message.max.bytes", "6").message)
    assert [p.log.config.max_message_bytes for p in node.partitions.all()] == [6, 6]


def test_restart_finds_existing_logs(node: DataPlane) -> None:
    node.create_topic("t", 2)
    node.produce(b"a", b"b")
    node.log_dirs.close()
    node.log_dirs.unlock()
    again = DataPlane(fs=node.memory)
    again.io.is_held = True  # no log needs to be created
    again.create_topic("t", 2)
    assert again.partition().log.log_end_offset == 2
    assert again.partition().log.high_watermark == 2


def test_log_of_a_former_topic_of_the_same_name_is_set_aside(node: DataPlane) -> None:
    node.create_topic("former")
    node.create_topic("t")
    node.produce(b"a")
    node.log_dirs.close()
    node.log_dirs.unlock()
    again = DataPlane(fs=node.memory)
    again.create_topic("t")  # its id is that of the topic "former"
    assert again.partition().log.log_end_offset == 0
    assert any(name.endswith("-stray") for name in again.fs.list("/data"))


class Listener:
    def __init__(self) -> None:
        self.hosted: list[str] = []

    def on_hosted(self, partition: Partition) -> None:
        self.hosted.append(str(partition))


def test_listeners_are_called_once_partitions_are_in_service(node: DataPlane) -> None:
    listener = Listener()
    node.partitions.roles.add_listener(listener)
    node.io.is_held = True
    node.create_topic()
    assert listener.hosted == []
    node.io.release()
    node.loop.run_soon()
    assert listener.hosted == ["t-0"]


class TestDirectories:
    def two(self) -> DataPlane:
        node = DataPlane(directories=("/one", "/two"))
        node.create_topic("t", 4)
        return node

    def test_logs_are_spread_over_directories(self) -> None:
        node = self.two()
        homes = sorted(p.log.directory for p in node.partitions.all())
        assert [home[:4] for home in homes] == ["/one", "/one", "/two", "/two"]

    def test_failed_directory_takes_only_its_partitions_offline(self) -> None:
        node = self.two()
        failing = node.partition("t", 0)
        node.memory.fail("write", path_part=failing.log.directory)
        with pytest.raises(KafkaError):
            node.produce(b"a")
        node.loop.run_soon()
        assert len(list(node.partitions.all())) == 2
        assert node.partitions.offline_count == 2
        assert absence(node) is ErrorCode.KAFKA_STORAGE_ERROR

    def test_offline_replica_is_not_created_in_another_directory(self) -> None:
        node = self.two()
        failing = next(p for p in node.partitions.all() if p.log.directory.startswith("/one"))
        node.memory.fail("write", path_part="/one")
        with pytest.raises(KafkaError):
            failing.append(batch(), 1)
        node.loop.run_soon()
        node.create_topic("assigned", directory=directory_id("/one"))
        assert absence(node, "assigned") is ErrorCode.KAFKA_STORAGE_ERROR
        node.create_topic("free")
        assert node.partition("free").log.directory == "/two/free-0"

    def test_deleting_an_offline_topic_clears_its_offline_state(self, node: DataPlane) -> None:
        identity = node.create_topic()
        node.memory.fail("write", path_part="t-0")
        with pytest.raises(KafkaError):
            node.produce(b"a")
        node.loop.run_soon()
        node.delete_topic(identity)
        assert node.partitions.offline_count == 0
        assert absence(node) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_failures_before_the_first_listener_are_reported_later(node: DataPlane) -> None:
    failures = DirectoryFailures(node.loop)
    directory = node.log_dirs.directories[0]
    failures(directory, [])
    node.loop.run_soon()
    failed_paths: list[str] = []
    failures.listen(lambda failed, lost: failed_paths.append(failed.path))
    assert failed_paths == ["/data"]


def test_pending_directory_removals_resume_after_a_restart(node: DataPlane) -> None:
    identity = node.create_topic()
    node.delete_topic(identity)
    node.log_dirs.close()
    node.log_dirs.unlock()
    again = DataPlane(fs=node.memory)
    again.store.discard_leftovers()
    assert again.removals.run_due(again.clock.now_ms()) == 1
    assert not [name for name in again.fs.list("/data") if name.startswith("t-")]


async def test_wait_for_creation_ends_with_the_last_log(node: DataPlane) -> None:
    await node.assignments.wait_created()  # at once: no log is being created
    node.io.is_held = True
    node.create_topic("t", 2)
    first = asyncio.ensure_future(node.assignments.wait_created())
    second = asyncio.ensure_future(node.assignments.wait_created())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    assert not second.done()
    node.io.release()
    node.loop.run_soon()
    await second
    assert [str(p) for p in node.partitions.all()] == ["t-0", "t-1"]


def test_stopping_drops_pending_creations(node: DataPlane) -> None:
    node.io.is_held = True
    node.create_topic("t", 3)
    node.store.stop_creating()
    node.io.release()
    node.loop.run_soon()
    assert not node.fs.exists("/data/t-0")
    assert not list(node.partitions.all())
