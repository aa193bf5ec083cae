"""TxnOffsetCommit, key 28, with the group shard, its log, and the markers that end the transactions (KIP-98)."""

import asyncio
from itertools import count

import pytest

from broker.api.groups.offset_commit import OffsetCommitHandler
from broker.api.groups.offset_fetch import OffsetFetchHandler
from broker.api.transactions.txn_offset_commit import TxnOffsetCommitHandler
from broker.api.transactions.write_txn_markers import WriteTxnMarkersHandler
from broker.coordination.shard import CoordinatorResult
from broker.groups.config import GroupConfig
from broker.groups.replay import GROUP_FOLD
from broker.groups.shard import GroupShard
from broker.runtime.coordinators.consumer_group_coordinator import ConsumerGroupCoordinator
from broker.runtime.coordinators.group_coordinator import GROUP_METADATA_TOPIC, GroupCoordinator
from broker.runtime.coordinators.hosted_shard import WriteLimits
from broker.runtime.coordinators.offset_transactions import OffsetTransactions
from broker.runtime.coordinators.partition_log import PartitionLog
from broker.runtime.coordinators.shard_loader import ShardLoader
from broker.runtime.coordinators.shard_runtime import ShardRuntime
from broker.runtime.coordinators.streams_group_coordinator import StreamsGroupCoordinator
from protocol.compiler import encode_bytes
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, LeaderEpoch
from protocol.messages.delete_groups import DeletableGroupResult
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from storage.config import CleanupPolicy, LogConfig
from tests.support.harnesses.data_plane import BROKER_ID, Answer, DataPlane
from tests.support.harnesses.group_coordinator_harness import answered

OFFSETS = LogConfig(cleanup_policy=frozenset({CleanupPolicy.COMPACT}), verify_transactions=True)
PRODUCER = 7
LATEST = 5


class GroupNode:
    """A broker that leads the only partition of `__consumer_offsets`, with a group coordinator over its log."""

    def __init__(self) -> None:
        self.plane = DataPlane()
        self.plane.create_topic(GROUP_METADATA_TOPIC, config=OFFSETS)
        self.plane.create_topic("__transaction_state")
        self.plane.create_topic("t", 2)
        self.load()

    def load(self) -> None:
        """Load the group shard anew from the log."""
        plane, config = self.plane, GroupConfig(offset_metadata_max_bytes=10)
        ids = count()
        self.shards = ShardRuntime[GroupShard](
            plane.runtime,
            GROUP_METADATA_TOPIC,
            lambda: GroupShard(config, plane.clock, lambda: str(next(ids))),
            lambda index: PartitionLog(plane.partitions.hosted(GROUP_METADATA_TOPIC, index), plane.io),
            WriteLimits(0, 5_000),
            ShardLoader(plane.clock, 1 << 20, GROUP_FOLD),
        )
        transactions = OffsetTransactions(GROUP_METADATA_TOPIC, plane.partitions, plane.verifier, plane.clock)
        consumers = ConsumerGroupCoordinator(
            plane.runtime, self.shards, lambda: 1, lambda: plane.image, is_enabled=lambda: True
        )
        streams = StreamsGroupCoordinator(self.shards, lambda: 1, lambda: True)
        self.groups = GroupCoordinator(
            self.shards, config, lambda: 1, BrokerId(BROKER_ID), plane.loop, transactions, consumers, streams
        )
        self.shards.elect(0, LeaderEpoch(0))
        asyncio._set_running_loop(plane.loop._as_asyncio)  # the queue of the loader asks for it
        self.loader = plane.run(self.shards.run_loader())
        asyncio._set_running_loop(None)

    def start(
        self,
        offset: int,
        *,
        version: int = LATEST,
        epoch: int = 0,
        group_id: str = "g",
        generation: int = -1,
        metadata: str = "m",
        partition: int = 0,
    ) -> Answer[TxnOffsetCommitResponse]:
        """Send a TxnOffsetCommit."""
        topic = TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(partition, offset, 3, metadata)])
        request = TxnOffsetCommitRequest("mine", group_id, PRODUCER, epoch, generation, topics=[topic])
        handler = TxnOffsetCommitHandler(self.groups, lambda: self.plane.image)
        return self.plane.run(handler(request, self.plane.context(version)))

    def commit(self, offset: int, code: ErrorCode = ErrorCode.NONE, *, version: int = LATEST, epoch: int = 0) -> int:
        """Commit an offset after the transaction coordinator has answered `code`; return the error."""
        waiting = self.start(offset, version=version, epoch=epoch)
        self.plane.coordinators.confirm(code)
        self.plane.loop.run_soon()
        return error_of(waiting)

    def end(self, *, commit: bool, epoch: int = 1) -> int:
        """Write the marker of transaction version 2; return the error."""
        handler = WriteTxnMarkersHandler(self.plane.partitions, self.groups, self.plane.runtime, lambda: 1000)
        topics = [WritableTxnMarkerTopic(GROUP_METADATA_TOPIC, [0])]
        marker = WritableTxnMarker(PRODUCER, epoch, commit, topics, 0, 2)
        response = self.plane.run(handler(WriteTxnMarkersRequest([marker]), self.plane.context(2))).value
        return response.markers[0].topics[0].partitions[0].error_code

    def commit_plain(self, offset: int) -> None:
        """Commit an offset outside of transactions."""
        topic = OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, offset)])
        handler = OffsetCommitHandler(self.groups, lambda: self.plane.image)
        self.plane.run(answered(handler(OffsetCommitRequest("g", topics=[topic]), self.plane.context(8))))

    def fetch(self, *, stable: bool = False) -> tuple[int, int]:
        """Return the committed offset of t-0 and the error."""
        group = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("t", partition_indexes=[0])])
        request = OffsetFetchRequest(groups=[group], require_stable=stable)
        handler = OffsetFetchHandler(self.groups, lambda: self.plane.image)
        response = self.plane.run(handler(request, self.plane.context(8))).value
        found = response.groups[0].topics[0].partitions[0]
        return found.committed_offset, found.error_code


def error_of(answer: Answer[TxnOffsetCommitResponse]) -> int:
    (topic,) = answer.value.topics
    (partition,) = topic.partitions
    return partition.error_code


@pytest.fixture
def node() -> GroupNode:
    return GroupNode()


def test_offsets_count_from_the_commit_on(node: GroupNode) -> None:
    assert node.commit(5) == ErrorCode.NONE
    assert node.fetch() == (-1, ErrorCode.NONE)
    assert node.fetch(stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert node.end(commit=True) == ErrorCode.NONE
    assert node.fetch(stable=True) == (5, ErrorCode.NONE)


def test_offsets_of_an_aborted_transaction_are_dropped(node: GroupNode) -> None:
    node.commit_plain(3)
    node.commit(5)
    assert node.end(commit=False) == ErrorCode.NONE
    assert node.fetch(stable=True) == (3, ErrorCode.NONE)


@pytest.mark.parametrize("committed", [True, False])
def test_loading_restores_pending_and_ended_transactions(node: GroupNode, committed: bool) -> None:
    node.commit_plain(3)
    node.commit(5)
    node.load()
    assert node.fetch() == (3, ErrorCode.NONE)
    assert node.fetch(stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    node.end(commit=committed)
    node.load()
    assert node.fetch(stable=True) == (5 if committed else 3, ErrorCode.NONE)


def test_writes_after_a_marker_match_the_log(node: GroupNode) -> None:
    node.commit(5)
    node.end(commit=True)
    node.commit_plain(8)
    assert node.fetch() == (8, ErrorCode.NONE)
    assert node.commit(9, epoch=1) == ErrorCode.NONE
    node.end(commit=True, epoch=2)
    node.load()
    assert node.fetch(stable=True) == (9, ErrorCode.NONE)


def test_partition_of_the_offsets_is_added_once_per_transaction(node: GroupNode) -> None:
    waiting = node.start(5)
    (transaction,) = node.plane.coordinators.confirm().transactions
    assert (transaction.transactional_id, transaction.producer_id, transaction.verify_only) == ("mine", 7, False)
    assert [(topic.name, topic.partitions) for topic in transaction.topics] == [(GROUP_METADATA_TOPIC, [0])]
    node.plane.loop.run_soon()
    assert error_of(waiting) == ErrorCode.NONE
    assert error_of(node.start(6)) == ErrorCode.NONE
    assert not node.plane.coordinators.asked


@pytest.mark.parametrize(
    ("version", "code", "expected"),
    [
        (5, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (4, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (3, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (3, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (3, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_refusal_of_the_transaction_coordinator(
    node: GroupNode, version: int, code: ErrorCode, expected: ErrorCode
) -> None:
    assert node.commit(5, code, version=version) == expected
    assert node.plane.partition(GROUP_METADATA_TOPIC).log.log_end_offset == 0


def test_old_versions_verify_only(node: GroupNode) -> None:
    node.start(5, version=4)
    assert node.plane.coordinators.confirm().transactions[0].verify_only


def test_unknown_generation_is_refused(node: GroupNode) -> None:
    waiting = node.start(5, generation=3)
    node.plane.coordinators.confirm()
    node.plane.loop.run_soon()
    assert error_of(waiting) == ErrorCode.ILLEGAL_GENERATION


def test_outdated_producer_epoch_is_fenced(node: GroupNode) -> None:
    node.commit(5, epoch=2)
    assert error_of(node.start(6, epoch=1)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_invalid_parts_fail_alone(node: GroupNode) -> None:
    assert error_of(node.start(5, partition=9)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error_of(node.start(5, group_id="")) == ErrorCode.INVALID_GROUP_ID
    waiting = node.start(5, metadata="x" * 11)
    node.plane.coordinators.confirm()
    node.plane.loop.run_soon()
    assert error_of(waiting) == ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_shard_that_is_not_loaded_refuses_commits_and_markers(node: GroupNode) -> None:
    node.shards.close()
    assert error_of(node.start(5)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert node.end(commit=True) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_deletion_of_the_group_removes_pending_offsets(node: GroupNode) -> None:
    node.commit(5)

    def delete(shard: GroupShard) -> CoordinatorResult[object, DeletableGroupResult]:
        return shard.delete_group("g")  # type: ignore[return-value]  # events are private to the shard

    node.shards.execute(0, delete)
    assert node.end(commit=True) == ErrorCode.NONE
    node.load()
    assert node.fetch(stable=True) == (-1, ErrorCode.NONE)


@pytest.mark.parametrize("version", range(LATEST + 1))
def test_every_version_has_a_response(node: GroupNode, version: int) -> None:
    waiting = node.start(5, version=version)
    node.plane.coordinators.confirm()
    node.plane.loop.run_soon()
    assert encode_bytes(waiting.value, version) is not None
