"""AlterReplicaLogDirs, key 34 (`broker.api.cluster.alter_replica_log_dirs`)."""

import pytest

from broker.api.cluster.alter_replica_log_dirs import AlterReplicaLogDirsHandler
from broker.metadata.image.partition import UNASSIGNED_DIRECTORY
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from protocol.messages.metadata_records import PartitionChangeRecord
from storage.directories.checkpoints import TopicPartition
from tests.support.harnesses.data_plane import DataPlane


def alter(node: DataPlane, path: str, topic: str = "t", index: int = 0) -> ErrorCode:
    handler = AlterReplicaLogDirsHandler(node.partitions, node.log_dirs)
    request = AlterReplicaLogDirsRequest([AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(topic, [index])])])
    (result,) = handler(request, node.context(2)).results
    (answer,) = result.partitions
    assert (result.topic_name, answer.partition_index) == (topic, index)
    return ErrorCode(answer.error_code)


def home(node: DataPlane, topic: str) -> str:
    directory = node.log_dirs.directory_of(TopicPartition(topic, 0))
    assert directory is not None
    return directory.path


def test_hosted_replica_does_not_move() -> None:
    node = DataPlane(directories=("/one", "/two"))
    node.create_topic("t", 1)
    here = home(node, "t")
    there = {"/one": "/two", "/two": "/one"}[here]
    assert alter(node, here) is ErrorCode.NONE
    assert alter(node, f"{here}/") is ErrorCode.NONE
    assert alter(node, there) is ErrorCode.POLICY_VIOLATION
    assert alter(node, "/three") is ErrorCode.LOG_DIR_NOT_FOUND
    assert alter(node, here, index=7) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert home(node, "t") == here


def test_failed_directory_accepts_no_replica() -> None:
    node = DataPlane(directories=("/one", "/two"))
    node.create_topic("t", 1)
    here = home(node, "t")
    node.memory.fail("write", path_part=f"{here}/t-0")
    with pytest.raises(KafkaError):
        node.produce(b"a")
    node.loop.run_soon()
    assert alter(node, here) is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("path", ["/one", "/two"])
def test_future_replica_is_created_in_the_chosen_directory(path: str) -> None:
    node = DataPlane(directories=("/one", "/two"))
    topic = node.create_topic("t", 1, replicas=(2,), leader=2)
    assert alter(node, path) is ErrorCode.REPLICA_NOT_AVAILABLE
    unassigned = [UNASSIGNED_DIRECTORY] * 2
    node.apply(PartitionChangeRecord(topic_id=topic, partition_id=0, replicas=[2, 1], directories=unassigned))
    assert home(node, "t") == path
    assert alter(node, path) is ErrorCode.NONE
