"""Share groups at a partition leader, over sockets: raw requests of members, the state at the share coordinator."""

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from broker.client import Client, ClientConfig, Connection, raise_for
from protocol.errors import ErrorCode
from protocol.messages import describe_share_group_offsets as describing
from protocol.messages import initialize_share_group_state as initial
from protocol.messages import share_acknowledge as acknowledging
from protocol.messages import share_fetch as fetching
from protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from protocol.primitives import Uuid, uuid_to_text
from tests.support.processes.ottla_node import OttlaNode

pytestmark = pytest.mark.integration

TOPIC, GROUP = "orders", "billing"
ACCEPT, RELEASE = 1, 2
SETTINGS = {"share.coordinator.state.topic.num.partitions": "1"}

Acquired = list[tuple[int, int, int]]


class ShareMemberClient:
    """One member on a connection of its own. `acknowledge` takes (first offset, last offset, type)."""

    def __init__(self, client: Client, topic_id: Uuid, name: str) -> None:
        self.connection: Connection = client.node(1, name)
        self._topic_id = topic_id
        self._name = name
        self._epoch = 0

    def fetch(
        self,
        *batches: tuple[int, int, int],
        epoch: int | None = None,
        max_records: int = 500,
        max_wait_ms: int = 10_000,
    ) -> ShareFetchResponse:
        acknowledgements = [fetching.AcknowledgementBatch(first, last, [kind]) for first, last, kind in batches]
        partition = fetching.FetchPartition(0, acknowledgement_batches=acknowledgements)
        request = ShareFetchRequest(
            GROUP,
            self._name,
            self._epoch if epoch is None else epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_records=max_records,
            batch_size=500,
            topics=[fetching.FetchTopic(self._topic_id, [partition])],
        )
        self._epoch += 1
        return self.connection.call(request, ShareFetchResponse)

    def acquire(self, *batches: tuple[int, int, int], max_records: int = 500) -> Acquired:
        return acquired_in(self.fetch(*batches, max_records=max_records))

    def acknowledge(self, first: int, last: int, kind: int) -> int:
        batch = acknowledging.AcknowledgementBatch(first, last, [kind])
        partition = acknowledging.AcknowledgePartition(0, [batch])
        topics = [acknowledging.AcknowledgeTopic(self._topic_id, [partition])]
        request = ShareAcknowledgeRequest(GROUP, self._name, self._epoch, topics=topics)
        self._epoch += 1
        response = self.connection.call(request, ShareAcknowledgeResponse)
        raise_for(response.error_code, self._name)
        return response.responses[0].partitions[0].error_code


def acquired_in(response: ShareFetchResponse) -> Acquired:
    raise_for(response.error_code, GROUP)
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in response.responses
        for partition in topic.partitions
        for each in partition.acquired_records
    ]


class ShareCluster:
    """A node with a topic, and the state of a share group that begins at offset 0."""

    def __init__(self, node: OttlaNode) -> None:
        self.node = node
        self.client = Client(ClientConfig.parse(node.bootstrap))
        self.topic_id = self.client.metadata([TOPIC]).topics[0].topic_id
        self.client.retrying(self._initialize)

    def _initialize(self) -> None:
        key = f"{GROUP}:{uuid_to_text(self.topic_id)}:0"
        asked = FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
        raise_for(self.client.call(asked, FindCoordinatorResponse).coordinators[0].error_code, key)
        partition = initial.PartitionData(0, 0, 0)
        request = InitializeShareGroupStateRequest(GROUP, [initial.InitializeStateData(self.topic_id, [partition])])
        response = self.client.call(request, InitializeShareGroupStateResponse)
        raise_for(response.results[0].partitions[0].error_code, key)

    def produce(self, count: int) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.node.bootstrap, "linger.ms": 100})
        for number in range(count):
            producer.produce(TOPIC, str(number).encode(), partition=0)
        assert producer.flush(30) == 0

    def lag(self) -> int:
        """Return the lag that DescribeShareGroupOffsets shows (KIP-1226)."""
        topic = describing.DescribeShareGroupOffsetsRequestTopic(TOPIC, [0])
        request = DescribeShareGroupOffsetsRequest([describing.DescribeShareGroupOffsetsRequestGroup(GROUP, [topic])])

        def ask() -> int:
            group = client.coordinator(GROUP).call(request, DescribeShareGroupOffsetsResponse).groups[0]
            raise_for(group.error_code, GROUP)
            (found,) = group.topics[0].partitions
            raise_for(found.error_code, TOPIC)
            return found.lag

        client = Client(ClientConfig.parse(self.node.bootstrap))  # a retry closes all connections of its client
        try:
            return client.retrying(ask)
        finally:
            client.close()

    def member(self, name: str) -> ShareMemberClient:
        return ShareMemberClient(self.client, self.topic_id, name)

    def restart(self) -> None:
        """Kill the node and start it again; connections are new."""
        self.client.close()
        self.node.kill()
        self.node.start()
        self.client = Client(ClientConfig.parse(self.node.bootstrap))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ShareCluster]:
    with OttlaNode(tmp_path / "node", SETTINGS) as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(20)
        running = ShareCluster(node)
        yield running
        running.client.close()


def test_records_go_to_one_member_at_a_time_until_they_are_acknowledged(cluster: ShareCluster) -> None:
    cluster.produce(10)
    ann, bob = cluster.member("ann"), cluster.member("bob")
    held = ann.acquire()
    assert (held[0][0], held[-1][1], held[0][2]) == (0, 9, 1)
    assert acquired_in(bob.fetch(max_wait_ms=0)) == [], "ann holds all records"
    assert ann.acknowledge(0, 3, ACCEPT) == ErrorCode.NONE
    assert ann.acknowledge(0, 3, ACCEPT) == ErrorCode.NONE, "the window begins after these records"
    assert cluster.lag() == 6
    assert ann.acknowledge(8, 9, ACCEPT) == ErrorCode.NONE
    assert cluster.lag() == 4, "records that are done with do not count, wherever they lie"
    assert ann.acknowledge(4, 5, RELEASE) == ErrorCode.NONE
    assert bob.acquire() == [(4, 5, 2)]
    refused = bob.fetch((6, 7, ACCEPT), max_wait_ms=0)
    assert refused.responses[0].partitions[0].acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE
    ann.connection.close()
    assert bob.acquire() == [(6, 7, 2)], "ann's connection has released her records"
    closed = bob.fetch((4, 7, ACCEPT), epoch=-1)
    assert closed.responses[0].partitions[0].acknowledge_error_code == ErrorCode.NONE

    assert cluster.lag() == 0
    assert bob.fetch().error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    cluster.restart()
    cluster.produce(1)
    assert cluster.member("eve").acquire() == [(10, 10, 1)], "acknowledged records stay so after kill -9"
    metrics = cluster.node.http("/metrics")[1]
    assert 'inflightmessagecount{group="billing",partition="0",topic="orders"} 1' in metrics.replace(".0", "")
