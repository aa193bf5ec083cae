"""Markers of a coordinator for partitions of its own node (`broker.runtime.coordinators.own_markers`)."""

import pytest

from broker.replication.leader import FollowerFetch
from broker.runtime.coordinators.own_markers import OwnMarkers
from broker.transactions.markers import DueMarker, PendingMarkers
from broker.transactions.state import Transaction, TransactionPartition, TransactionState
from protocol.errors import ErrorCode
from protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch
from tests.support.harnesses.data_plane import DataPlane, batch

PRODUCER = 7


@pytest.fixture
def node() -> DataPlane:
    return DataPlane()


def write(node: DataPlane, epoch: int = 0, version: int = 0) -> list[ErrorCode]:
    """Write the marker of a committed transaction; return its result, empty while replicas lack it."""
    partition, results = TransactionPartition("t", 0), list[ErrorCode]()
    decided = Transaction(
        producer_id=PRODUCER,
        producer_epoch=epoch,
        timeout_ms=1000,
        state=TransactionState.PREPARE_COMMIT,
        partitions=frozenset((partition,)),
        last_update_ms=0,
        version=version,
    )
    due = DueMarker(PendingMarkers("id", decided, 3), partition)
    OwnMarkers(node.partitions, node.clock).write(due, results.append)
    return results


def begin(node: DataPlane) -> None:
    records = batch(producer_id=PRODUCER, producer_epoch=0, sequence=0, transactional=True)
    node.partition().append(records, 1)


def test_marker_ends_the_transaction_at_once_without_followers(node: DataPlane) -> None:
    node.create_topic()
    begin(node)
    assert write(node, epoch=1, version=2) == [ErrorCode.NONE]
    log = node.partition().log
    assert (log.log_end_offset, log.last_stable_offset) == (2, 2)
    assert log.producers.entries[PRODUCER].coordinator_epoch == 3


def test_result_waits_for_the_in_sync_replicas(node: DataPlane) -> None:
    node.create_topic(replicas=(1, 2))
    results = write(node)
    assert results == []
    node.partition().on_follower_fetch(FollowerFetch(BrokerId(2), BrokerEpoch(-1), LeaderEpoch(-1), 1, 0))
    node.loop.run_soon()
    assert results == [ErrorCode.NONE]


def test_result_is_an_error_when_another_broker_leads(node: DataPlane) -> None:
    assert write(node) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    topic = node.create_topic(replicas=(1, 2))
    results = write(node)
    node.elect(topic, 2)
    node.loop.run_soon()
    assert results == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_version_2_marker_without_raised_epoch_is_fenced(node: DataPlane) -> None:
    node.create_topic()
    begin(node)
    assert write(node, epoch=0, version=2) == [ErrorCode.INVALID_PRODUCER_EPOCH]
