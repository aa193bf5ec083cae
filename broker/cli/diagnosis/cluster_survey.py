"""Collects the facts about a cluster: any broker for the cluster's state, and every node about itself, in parallel.

A node that does not answer, and a part that a principal may not see, become facts. Only a cluster without any broker
that answers is an error (ConnectionLost).
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from typing import Final, TypeVar

from broker.cli.diagnosis.broker_survey import BrokerSurvey
from broker.cli.diagnosis.facts import (
    BrokerFacts,
    ClusterFacts,
    GroupFacts,
    HangingFacts,
    MetadataQuorumFacts,
    PartitionFacts,
    UncheckedFact,
    VoterFacts,
)
from broker.cli.shared.quorum_report import METADATA_TOPIC
from broker.cli.shared.transactions import KnownProducer, describe_producers, hanging
from broker.client import Client, ClientError, ConnectionLost, UnsupportedVersion, raise_for
from broker.metadata.image.metadata_version import METADATA_VERSION
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    ReplicaState,
)
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from storage.directories.checkpoints import TopicPartition

T = TypeVar("T")

PARALLEL_NODES: Final = 16
TOPICS_PER_REQUEST: Final = 500
TOPIC_RESOURCE: Final = 2
MIN_ISR: Final = "min.insync.replicas"
FENCED_FROM: Final = 2
"""First version of DescribeCluster that lists fenced brokers."""
HANGING_MS_MIN: Final = 15 * 60_000
"""Age of the last write of an open transaction from which it is a candidate: transaction.max.timeout.ms by default,
as `ottla transactions find-hanging` has it.
"""
CONFIGURED_TOPICS_MAX: Final = 100
REFUSALS: Final = frozenset(
    {ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION}
)


class ClusterSurvey:
    """Surveys one cluster again and again. `close` it in the end."""

    def __init__(self, client: Client, *, detailed: bool = True, topics_max: int = 0) -> None:
        self._client = client
        self._detailed = detailed
        self._topics_max = topics_max
        self._nodes: dict[tuple[int, str, int], BrokerSurvey] = {}
        self._pool = ThreadPoolExecutor(PARALLEL_NODES)
        self._unchecked: list[UncheckedFact] = []

    def close(self) -> None:
        """Close the connections to all nodes."""
        self._pool.shutdown(cancel_futures=True)
        for node in self._nodes.values():
            node.close()

    def take(self, *, deep: bool = False) -> ClusterFacts:
        """Return the present facts. `deep` includes configurations of all topics and hanging transactions.

        Otherwise the configurations are those of the first `CONFIGURED_TOPICS_MAX` topics with missing replicas.

        Raises ConnectionLost if no broker answers, KafkaError if it does not describe the cluster.
        """
        self._unchecked = []
        cluster, knows_fenced = self._client.retrying(self._cluster)
        nodes = self._surveys(cluster.brokers)
        brokers = list(self._pool.map(BrokerSurvey.take, nodes))
        groups = {group.id: group for node in nodes for group in node.groups}
        self._unchecked += [each for node in nodes for each in node.unchecked]
        partitions = self._part("topics", self._partitions) or ()
        facts = ClusterFacts(
            int(time.time() * 1000),
            brokers,
            self._quorum(),
            partitions,
            groups=sorted(groups.values()),
            metadata_level=self._metadata_level(),
            knows_fenced=knows_fenced,
            cluster_id=cluster.cluster_id,
        )
        missing = dict.fromkeys(each.topic for each in partitions if each.missing)
        topics = list(facts.topics if deep else islice(missing, CONFIGURED_TOPICS_MAX))
        facts = replace(facts, min_isr=self._part("configurations of topics", lambda: self._min_isr(topics)) or {})
        if deep:
            facts = replace(facts, hanging=self._part("open transactions", lambda: self._hanging(facts)) or ())
        return replace(facts, unchecked=self._unchecked)

    def groups(self, facts: ClusterFacts) -> Sequence[GroupFacts]:
        """Return the groups again, without anything else."""
        nodes = [node for node in self._nodes.values() if any(node.broker.broker_id == b.id for b in facts.live)]
        list(self._pool.map(BrokerSurvey.take, nodes))
        return sorted({group.id: group for node in nodes for group in node.groups}.values())

    def _part(self, subject: str, ask: Callable[[], T]) -> T | None:
        """Return the answer of the cluster, None if it refuses, and note why."""
        try:
            return self._client.retrying(ask)
        except UnsupportedVersion:
            return None
        except (KafkaError, ClientError) as error:
            self._unchecked.append(UncheckedFact(subject, str(error).rstrip(".")))
            return None

    def _cluster(self) -> tuple[DescribeClusterResponse, bool]:
        connection = self._client.any()
        request = DescribeClusterRequest()
        try:
            connection.version_of(request.API_KEY)
        except UnsupportedVersion:  # Apache Kafka before 2.8
            found = self._client.metadata([])
            brokers = [DescribeClusterBroker(each.node_id, each.host, each.port, each.rack) for each in found.brokers]
            return DescribeClusterResponse(cluster_id=found.cluster_id or "", brokers=brokers), False
        knows_fenced = connection.version_of(request.API_KEY) >= FENCED_FROM
        request.include_fenced_brokers = knows_fenced
        answer = connection.call(request, DescribeClusterResponse)
        raise_for(answer.error_code, "the cluster", answer.error_message)
        return answer, knows_fenced

    def _surveys(self, brokers: Iterable[DescribeClusterBroker]) -> Sequence[BrokerSurvey]:
        """Return the survey of each broker, with the connection of the last time if it has the same address."""
        former, self._nodes = self._nodes, {}
        for broker in sorted(brokers, key=lambda each: each.broker_id):
            key = (broker.broker_id, broker.host, broker.port)
            survey = former.pop(key, None) or BrokerSurvey(
                broker, self._client.config, detailed=self._detailed, topics_max=self._topics_max
            )
            survey.broker = broker
            self._nodes[key] = survey
        for gone in former.values():
            gone.close()
        return list(self._nodes.values())

    def _partitions(self) -> Sequence[PartitionFacts]:
        """Return all partitions; replicas that a reassignment adds do not count yet."""
        answer = self._client.call(MetadataRequest(topics=None, allow_auto_topic_creation=False), MetadataResponse)
        raise_for(answer.error_code if answer.error_code else 0, "topics")
        adding = self._adding()
        return [
            PartitionFacts(
                topic.name or "",
                each.partition_index,
                each.leader_id,
                [
                    id
                    for id in each.replica_nodes
                    if id not in adding.get((topic.name or "", each.partition_index), ()) or id in each.isr_nodes
                ],
                each.isr_nodes,
            )
            for topic in sorted(answer.topics, key=lambda topic: topic.name or "")
            if topic.name != METADATA_TOPIC
            for each in sorted(topic.partitions, key=lambda each: each.partition_index)
        ]

    def _adding(self) -> Mapping[tuple[str, int], Sequence[int]]:
        try:
            answer = self._client.call(
                ListPartitionReassignmentsRequest(self._client.config.request_timeout_ms, None),
                ListPartitionReassignmentsResponse,
            )
        except UnsupportedVersion:
            return {}
        return {
            (topic.name, each.partition_index): each.adding_replicas
            for topic in answer.topics
            for each in topic.partitions
        }

    def _min_isr(self, topics: Sequence[str]) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for start in range(0, len(topics), TOPICS_PER_REQUEST):
            resources = [
                DescribeConfigsResource(TOPIC_RESOURCE, name, [MIN_ISR])
                for name in topics[start : start + TOPICS_PER_REQUEST]
            ]
            for result in self._client.call(DescribeConfigsRequest(resources), DescribeConfigsResponse).results:
                if result.error_code in REFUSALS:
                    raise_for(result.error_code, f"topic {result.resource_name!r}", result.error_message)
                for config in result.configs:
                    if config.name == MIN_ISR and (config.value or "").isdigit():
                        found[result.resource_name] = int(config.value or "1")
        return found

    def _quorum(self) -> MetadataQuorumFacts | None:
        """Return the quorum as its leader describes it; None if it may not be described.

        Brokers forward the request, so that the lack of an active controller shows as a failure.
        """
        partition = DescribeQuorumRequestPartitionData(0)
        request = DescribeQuorumRequest([DescribeQuorumRequestTopicData(METADATA_TOPIC, [partition])])
        try:
            answer = self._client.call(request, DescribeQuorumResponse)
            raise_for(answer.error_code, "the quorum", answer.error_message)
            found = answer.topics[0].partitions[0]
            raise_for(found.error_code, "the quorum", found.error_message)
        except UnsupportedVersion:
            return None
        except ConnectionLost as error:
            self._client.forget()
            return MetadataQuorumFacts(-1, failure=str(error).rstrip("."))
        except KafkaError as error:
            if error.code in REFUSALS:
                self._unchecked.append(UncheckedFact("the quorum", error.message.rstrip(".")))
                return None
            return MetadataQuorumFacts(-1, failure=error.message.rstrip("."))
        return MetadataQuorumFacts(
            found.leader_id,
            found.leader_epoch,
            found.high_watermark,
            [_voter(each) for each in found.current_voters],
            [_voter(each) for each in found.observers],
        )

    def _metadata_level(self) -> int | None:
        features = self._client.any().api_versions.finalized_features
        return next((each.max_version_level for each in features if each.name == METADATA_VERSION), None)

    def _hanging(self, facts: ClusterFacts) -> Sequence[HangingFacts]:
        """Return the transactions that no coordinator will end (KIP-664), in partitions whose leaders answer."""
        answering = {broker.id for broker in facts.live if broker.failure is None}
        by_leader: dict[int, list[TopicPartition]] = {}
        for each in facts.partitions:
            if each.leader in answering:
                by_leader.setdefault(each.leader, []).append(TopicPartition(each.topic, each.number))
        candidates: list[KnownProducer] = []
        for leader, partitions in by_leader.items():
            candidates += [
                each
                for each in describe_producers(self._client, partitions, leader)
                if each.state.current_txn_start_offset >= 0
                and facts.time_ms - each.state.last_timestamp > HANGING_MS_MIN
            ]
        return [
            HangingFacts(
                str(each.partition),
                each.state.current_txn_start_offset,
                each.state.producer_id,
                each.state.last_timestamp,
            )
            for each in hanging(self._client, candidates)
        ]


def _voter(state: ReplicaState) -> VoterFacts:
    return VoterFacts(
        state.replica_id, state.log_end_offset, state.last_fetch_timestamp, state.last_caught_up_timestamp
    )


def answering(brokers: Iterable[BrokerFacts]) -> Sequence[BrokerFacts]:
    """Return the brokers that answer."""
    return [broker for broker in brokers if not broker.is_fenced and broker.failure is None]
