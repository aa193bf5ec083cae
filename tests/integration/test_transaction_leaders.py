"""Transactions at a partition leader, over sockets: markers and offsets by raw requests, consumers by librdkafka."""

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from broker.client import Client, ClientConfig, raise_for
from protocol.errors import ErrorCode
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.records.builder import Record, build_batch
from tests.support.processes.ottla_node import OttlaNode

pytestmark = pytest.mark.integration

TOPIC, OFFSETS, GROUP = "orders", "__consumer_offsets", "billing"
PRODUCER = 4711
ADDED_BY_CLIENT = 11
"""Produce version of clients that add partitions to the transaction themselves."""

# No coordinator knows the transactions of this test.
SETTINGS = {"transaction.partition.verification.enable": "false", "offsets.topic.num.partitions": "1"}


class Transactions:
    """A producer and its coordinator as the leader sees them. Markers are of transaction version 0."""

    def __init__(self, node: OttlaNode) -> None:
        self._client = Client(ClientConfig.parse(node.bootstrap))
        self._sequence = 0

    def close(self) -> None:
        self._client.close()

    def continue_on(self, node: OttlaNode) -> None:
        """Connect again after a restart of the node."""
        self._client.close()
        self._client = Client(ClientConfig.parse(node.bootstrap))

    def write(self, *values: str) -> None:
        batch = build_batch(
            [Record(1_700_000_000_000, None, value.encode()) for value in values],
            producer_id=PRODUCER,
            producer_epoch=0,
            base_sequence=self._sequence,
            transactional=True,
        )
        self._sequence += len(values)
        data = TopicProduceData(TOPIC, partition_data=[PartitionProduceData(0, batch)])
        request = ProduceRequest("billing-1", -1, 10_000, [data])
        response = self._client.call(request, ProduceResponse, highest=ADDED_BY_CLIENT)
        raise_for(response.responses[0].partition_responses[0].error_code, TOPIC)

    def commit_offset(self, offset: int) -> None:
        def attempt() -> None:
            partitions = [TxnOffsetCommitRequestPartition(0, offset)]
            request = TxnOffsetCommitRequest(
                "billing-1", GROUP, PRODUCER, 0, topics=[TxnOffsetCommitRequestTopic(TOPIC, partitions)]
            )
            response = self._client.coordinator(GROUP).call(request, TxnOffsetCommitResponse, highest=4)
            raise_for(response.topics[0].partitions[0].error_code, GROUP)

        self._client.retrying(attempt)

    def end(self, *topics: str, commit: bool) -> None:
        def attempt() -> None:
            marker = WritableTxnMarker(PRODUCER, 0, commit, [WritableTxnMarkerTopic(name, [0]) for name in topics], 1)
            response = self._client.call(WriteTxnMarkersRequest([marker]), WriteTxnMarkersResponse)
            for topic in response.markers[0].topics:
                raise_for(topic.partitions[0].error_code, topic.name)

        self._client.retrying(attempt)

    def stable_offset(self) -> tuple[int, int]:
        """Return the committed offset, and the error of a client that requires a stable one."""

        def attempt() -> tuple[int, int]:
            group = OffsetFetchRequestGroup(GROUP, topics=[OffsetFetchRequestTopics(TOPIC, partition_indexes=[0])])
            request = OffsetFetchRequest(groups=[group], require_stable=True)
            found = self._client.coordinator(GROUP).call(request, OffsetFetchResponse, highest=9).groups[0]
            raise_for(found.error_code, GROUP)
            partition = found.topics[0].partitions[0]
            return partition.committed_offset, partition.error_code

        return self._client.retrying(attempt)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OttlaNode]:
    with OttlaNode(tmp_path / "node", SETTINGS) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(20)
        yield running


def values_of(node: OttlaNode, isolation: str) -> list[str]:
    """Return all values that a consumer gets up to the end of the partition."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": f"reader-{isolation}",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    values = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None, "the consumer got no answer"
            error = message.error()
            if error is None:
                values.append((message.value() or b"").decode())
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                return values
            else:
                raise AssertionError(error)
    finally:
        consumer.close()


def test_consumers_and_groups_see_committed_transactions_only(node: OttlaNode) -> None:
    transactions = Transactions(node)
    try:
        transactions.write("committed 1")
        transactions.commit_offset(5)
        assert transactions.stable_offset() == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        transactions.end(TOPIC, OFFSETS, commit=True)
        assert transactions.stable_offset() == (5, ErrorCode.NONE)
        transactions.write("aborted")
        transactions.commit_offset(6)
        node.kill()
        node.start()
        transactions.continue_on(node)
        assert transactions.stable_offset() == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT), "the transaction is still open"
        assert values_of(node, "read_committed") == ["committed 1"]
        transactions.end(TOPIC, OFFSETS, commit=False)
        assert transactions.stable_offset() == (5, ErrorCode.NONE)
        transactions.write("committed 2")
        transactions.end(TOPIC, commit=True)
        transactions.write("open")
        assert values_of(node, "read_committed") == ["committed 1", "committed 2"]
        assert values_of(node, "read_uncommitted") == ["committed 1", "aborted", "committed 2", "open"]
    finally:
        transactions.close()
