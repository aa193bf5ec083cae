"""Led partitions of the metadata topic, over real logs (`broker.runtime.remote_metadata.led_partitions`)."""

import pytest

from broker.runtime.remote_metadata.led_partitions import HostedMetadataLogs
from broker.runtime.remote_metadata.settings import TOPIC
from protocol.errors import ErrorCode, KafkaError
from tests.support.fakes.batches import iter_all_records
from tests.support.harnesses.data_plane import DataPlane


@pytest.fixture
def node() -> DataPlane:
    return DataPlane()


def test_only_led_partitions_are_found(node: DataPlane) -> None:
    logs = HostedMetadataLogs(node.partitions, node.clock)
    assert list(logs.led()) == []
    assert logs.log(0) is None
    identity = node.create_topic(TOPIC, partitions=2)
    assert list(logs.led()) == [0, 1]
    node.elect(identity, 2, index=1)
    assert list(logs.led()) == [0]
    assert logs.log(1) is None


def test_values_are_appended_without_keys_and_old_records_deleted(node: DataPlane) -> None:
    node.create_topic(TOPIC)
    log = HostedMetadataLogs(node.partitions, node.clock).log(0)
    assert log is not None
    log.append([b"first", b"second"])
    log.append([b"third"])
    assert (log.start_offset, log.end_offset, log.leader_epoch) == (0, 3, 0)
    data = node.partition(TOPIC).log.read(0, 10_000, 3).data
    assert [(record.key, record.value) for _, record in iter_all_records(data)] == [
        (None, b"first"),
        (None, b"second"),
        (None, b"third"),
    ]
    log.delete_records(2)
    assert (log.start_offset, log.end_offset) == (2, 3)


def test_former_leader_is_refused(node: DataPlane) -> None:
    identity = node.create_topic(TOPIC)
    log = HostedMetadataLogs(node.partitions, node.clock).log(0)
    assert log is not None
    node.elect(identity, 2)
    with pytest.raises(KafkaError) as refused:
        log.append([b"late"])
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError):
        log.delete_records(0)
