"""Transactions as their coordinators and the partition leaders see them."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from broker.cli.shared.cluster_view import describe_topics
from broker.cli.shared.offsets import by_topic
from broker.cli.shared.progress import ProgressBar
from broker.client import Client, Connection, raise_for
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import describe_transactions as described
from protocol.messages import list_transactions as listed
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from storage.directories.checkpoints import TopicPartition

TRANSACTION_COORDINATOR = 1
MAX_PARTITIONS_PER_REQUEST = 500
NO_OFFSET = -1
NO_COORDINATOR_EPOCH = -1


class KnownProducer(NamedTuple):
    """A producer that a partition knows."""

    partition: TopicPartition
    state: ProducerState


class Listing(NamedTuple):
    """A transactional id and the broker that coordinates it."""

    coordinator: int
    state: listed.TransactionState


def list_transactions(
    client: Client, *, producer_ids: Collection[int] = (), duration_ms: int = -1, pattern: str | None = None
) -> list[Listing]:
    """Return the transactional ids of all live brokers. Raises KafkaError."""
    found = []
    request = listed.ListTransactionsRequest([], sorted(producer_ids), duration_ms, pattern)
    for broker in client.metadata([]).brokers:
        response = client.node(broker.node_id).call(request, listed.ListTransactionsResponse)
        raise_for(response.error_code, f"transactions of broker {broker.node_id}")
        found += [Listing(broker.node_id, each) for each in response.transaction_states]
    return found


def describe_transaction(client: Client, transactional_id: str) -> tuple[int, described.TransactionState]:
    """Return the coordinator's node id and the transaction. Raises KafkaError."""
    node_id = client.coordinator_id(transactional_id, TRANSACTION_COORDINATOR)
    request = described.DescribeTransactionsRequest([transactional_id])
    state = client.node(node_id).call(request, described.DescribeTransactionsResponse).transaction_states[0]
    raise_for(state.error_code, f"transactional id {transactional_id!r}")
    return node_id, state


def describe_producers(
    client: Client, partitions: Sequence[TopicPartition], broker_id: int | None = None
) -> list[KnownProducer]:
    """Return the producers of partitions as one broker knows them, or each partition's leader. Raises KafkaError."""
    by_node: dict[int, list[TopicPartition]] = defaultdict(list)
    if broker_id is None:
        for partition, leader in _leaders(client, partitions).items():
            by_node[leader].append(partition)
    else:
        by_node[broker_id] = list(partitions)
    found: list[KnownProducer] = []
    with ProgressBar("partitions", len(partitions)) as progress:
        for node, hosted in by_node.items():
            for start in range(0, len(hosted), MAX_PARTITIONS_PER_REQUEST):
                asked = hosted[start : start + MAX_PARTITIONS_PER_REQUEST]
                found += _producers(client.node(node), asked)
                progress.advance(len(asked))
    return found


def _producers(node: Connection, partitions: Sequence[TopicPartition]) -> Iterable[KnownProducer]:
    topics = by_topic(partitions).items()
    request = DescribeProducersRequest(
        [TopicRequest(topic, [each.partition for each in group]) for topic, group in topics]
    )
    for topic in node.call(request, DescribeProducersResponse).topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            raise_for(answer.error_code, str(partition), answer.error_message)
            yield from (KnownProducer(partition, state) for state in answer.active_producers)


def _leaders(client: Client, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the leaders. Raises KafkaError for a partition that does not exist or has no leader."""
    wanted = set(partitions)
    topics = client.leaders({each.topic for each in wanted})
    known = {TopicPartition(name, p.partition_index): p.leader_id for name, t in topics.items() for p in t.partitions}
    for partition in sorted(wanted - known.keys()):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {partition} does not exist.")
    return {partition: known[partition] for partition in wanted}


def abort_transaction(
    client: Client, partition: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> None:
    """Write the marker of an aborted transaction at the partition's leader. Raises KafkaError."""
    leader = _leaders(client, [partition])[partition]
    topics = [WritableTxnMarkerTopic(partition.topic, [partition.partition])]
    marker = WritableTxnMarker(producer_id, producer_epoch, False, topics, max(0, coordinator_epoch))
    response = client.node(leader).call(WriteTxnMarkersRequest([marker]), WriteTxnMarkersResponse)
    for written in response.markers:
        for topic in written.topics:
            for answer in topic.partitions:
                raise_for(answer.error_code, str(partition))


def fence_producer(client: Client, transactional_id: str) -> None:
    """Begin a producer session, which fences the producer and aborts its transaction.

    Raises KafkaError: CONCURRENT_TRANSACTIONS until the markers of the aborted transaction are written.
    """
    coordinator = client.coordinator(transactional_id, TRANSACTION_COORDINATOR)
    request = InitProducerIdRequest(transactional_id, client.config.request_timeout_ms)
    response = coordinator.call(request, InitProducerIdResponse)
    raise_for(response.error_code, f"transactional id {transactional_id!r}")


def partitions_of(
    client: Client, topic: str | None, partition: int | None, broker_id: int | None
) -> list[TopicPartition]:
    """Return one partition, or those of a topic or of all topics, on a broker if `broker_id` is given."""
    if topic is not None and partition is not None:
        return [TopicPartition(topic, partition)]
    names = [topic] if topic is not None else [each.name or "" for each in client.metadata(None).topics]
    found = describe_topics(client, names)
    if topic is not None and not found:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} does not exist.")
    return [
        TopicPartition(each.name, hosted.index)
        for each in found
        for hosted in each.partitions
        if broker_id is None or broker_id in hosted.replicas
    ]


def hanging(client: Client, candidates: Sequence[KnownProducer]) -> list[KnownProducer]:
    """Return the open transactions that no coordinator will end.

    A coordinator knows the partitions that still need a marker. A transaction whose producer has no transactional id,
    or whose partition is not among these, hangs.
    """
    producer_ids = {each.state.producer_id for each in candidates}
    if not producer_ids:
        return []
    ids = {
        each.state.producer_id: each.state.transactional_id
        for each in list_transactions(client, producer_ids=producer_ids)
    }
    expected: dict[int, set[TopicPartition]] = {}
    for producer_id, transactional_id in ids.items():
        try:
            _, state = describe_transaction(client, transactional_id)
        except KafkaError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
        else:
            expected[producer_id] = {TopicPartition(t.topic, index) for t in state.topics for index in t.partitions}
    return [each for each in candidates if each.partition not in expected.get(each.state.producer_id, ())]
