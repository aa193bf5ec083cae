"""WriteTxnMarkers, key 27 (`broker.api.transactions.write_txn_markers`)."""

from typing import cast

import pytest

from broker.api.transactions.write_txn_markers import WriteTxnMarkersHandler
from broker.replication.leader import FollowerFetch
from broker.runtime.coordinators.group_coordinator import GROUP_METADATA_TOPIC, GroupCoordinator
from protocol.errors import ErrorCode
from protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from storage.config import LogConfig
from tests.support.harnesses.data_plane import Answer, DataPlane, batch
from tests.support.harnesses.group_coordinator_harness import GroupCoordinatorHarness

PRODUCER = 7


@pytest.fixture
def node() -> DataPlane:
    return DataPlane()


def begin(node: DataPlane, epoch: int = 0, sequence: int = 0, topic: str = "t") -> None:
    """Append a transactional batch."""
    records = batch(producer_id=PRODUCER, producer_epoch=epoch, sequence=sequence, transactional=True)
    node.partition(topic).append(records, 1)


def marker(
    epoch: int = 0, *, commit: bool = True, coordinator_epoch: int = 3, version: int = 0, topic: str = "t"
) -> WritableTxnMarker:
    return WritableTxnMarker(PRODUCER, epoch, commit, [WritableTxnMarkerTopic(topic, [0])], coordinator_epoch, version)


def start(
    node: DataPlane, *markers: WritableTxnMarker, groups: GroupCoordinator | None = None
) -> Answer[WriteTxnMarkersResponse]:
    handler = WriteTxnMarkersHandler(node.partitions, cast(GroupCoordinator, groups), node.runtime, lambda: 1000)
    return node.run(handler(WriteTxnMarkersRequest(list(markers)), node.context(2)))


def write(node: DataPlane, *markers: WritableTxnMarker) -> WriteTxnMarkersResponse:
    return start(node, *markers).value


def errors(response: WriteTxnMarkersResponse) -> list[int]:
    return [entry.error_code for result in response.markers for topic in result.topics for entry in topic.partitions]


def test_commit_ends_the_transaction(node: DataPlane) -> None:
    node.create_topic()
    begin(node)
    log = node.partition().log
    assert (log.high_watermark, log.last_stable_offset) == (1, 0)
    assert errors(write(node, marker())) == [ErrorCode.NONE]
    assert (log.log_end_offset, log.last_stable_offset) == (2, 2)
    assert log.producers.entries[PRODUCER].coordinator_epoch == 3
    assert log.aborted_transactions(0, 2) == []


def test_abort_is_indexed(node: DataPlane) -> None:
    node.create_topic()
    begin(node)
    assert errors(write(node, marker(commit=False))) == [ErrorCode.NONE]
    assert [tuple(txn) for txn in node.partition().log.aborted_transactions(0, 2)] == [(PRODUCER, 0, 1, 2)]


def test_deposed_coordinator_is_fenced(node: DataPlane) -> None:
    node.create_topic()
    begin(node)
    assert errors(write(node, marker(coordinator_epoch=5))) == [ErrorCode.NONE]
    begin(node, sequence=1)
    assert errors(write(node, marker(coordinator_epoch=4))) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    assert errors(write(node, marker(coordinator_epoch=5))) == [ErrorCode.NONE]


def test_marker_of_an_older_producer_epoch_is_fenced(node: DataPlane) -> None:
    node.create_topic()
    begin(node, epoch=2)
    assert errors(write(node, marker(epoch=1))) == [ErrorCode.INVALID_PRODUCER_EPOCH]


def test_version_2_marker_raises_the_epoch_and_may_be_repeated(node: DataPlane) -> None:
    """KIP-1228: a delayed marker with the epoch of an open transaction would end another transaction than its own."""
    node.create_topic()
    begin(node)
    assert errors(write(node, marker(epoch=0, version=2))) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert node.partition().log.producers.has_open_transaction(PRODUCER, 0)
    assert errors(write(node, marker(epoch=1, version=2))) == [ErrorCode.NONE]
    assert errors(write(node, marker(epoch=1, version=2))) == [ErrorCode.NONE]
    begin(node, epoch=1)
    assert errors(write(node, marker(epoch=1, version=2))) == [ErrorCode.INVALID_PRODUCER_EPOCH]


def test_each_partition_has_its_own_result(node: DataPlane) -> None:
    node.create_topic()
    node.create_topic("other", replicas=(1, 2), leader=2)
    node.create_topic("thin", replicas=(1, 2), isr=(1,), config=LogConfig(min_insync_replicas=2))
    response = write(node, marker(topic="missing"), marker(), marker(topic="other"), marker(topic="thin"))
    assert errors(response) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    ]
    assert [result.producer_id for result in response.markers] == [PRODUCER] * 4


def test_response_waits_for_the_in_sync_replicas(node: DataPlane) -> None:
    node.create_topic(replicas=(1, 2))
    waiting = start(node, marker())
    assert waiting.is_waiting
    node.partition().on_follower_fetch(FollowerFetch(BrokerId(2), BrokerEpoch(-1), LeaderEpoch(-1), 1, 0))
    node.loop.run_soon()
    assert errors(waiting.value) == [ErrorCode.NONE]


def test_wait_for_replicas_is_limited(node: DataPlane) -> None:
    node.create_topic(replicas=(1, 2))
    waiting = start(node, marker())
    node.advance_ms(1001)
    assert errors(waiting.value) == [ErrorCode.REQUEST_TIMED_OUT]


@pytest.mark.parametrize(("elected", "error"), [(True, 0), (False, ErrorCode.NOT_LEADER_OR_FOLLOWER)])
async def test_marker_for_offsets_goes_through_the_group_shard(node: DataPlane, elected: bool, error: int) -> None:
    node.create_topic(GROUP_METADATA_TOPIC)
    harness = GroupCoordinatorHarness(elected=elected)
    response = start(node, marker(topic=GROUP_METADATA_TOPIC), groups=harness.groups).value
    assert errors(response) == [error]
    written = [(batch.producer_id, batch.committed) for log in harness.logs for batch in log.batches]
    assert written == ([(PRODUCER, True)] if elected else [])
    harness.close()
