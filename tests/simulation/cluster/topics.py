"""Topics and clients of a cluster, created before the faults begin."""

from random import Random
from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tests.simulation.cluster.coordinators.applications import TOPICS as APPLICATION_TOPICS
from tests.simulation.cluster.scenario import FIRST_CLIENT_ID
from tests.simulation.cluster.tier import TIERED
from tests.simulation.cluster.tier_checker import TIERED_NAME
from tests.simulation.cluster.tier_consumer import TieredConsumer
from tests.simulation.replication.clients import ACKS_ALL
from tests.simulation.replication.consumers import Consumer
from tests.simulation.replication.disk import ReplicaName
from tests.simulation.replication.history import History
from tests.simulation.replication.producers import Producer
from tests.simulation.replication.scenario import TopicScenario

if TYPE_CHECKING:
    from tests.simulation.cluster.simulation import ClusterSimulator


def create_topics(simulation: "ClusterSimulator") -> list[str]:
    """Request the topics of the scenario; return their names."""
    coordinated = () if simulation.applications is None else APPLICATION_TOPICS
    for topic in (*simulation.scenario.topics, *coordinated):
        for index in range(topic.partitions):
            name = ReplicaName(topic.name, index)
            simulation.checker.data.histories[name] = History(name, is_clean=topic.is_clean)
        _create(simulation, create_topic_request(topic, simulation.random, list(simulation.nodes)))
    names = [topic.name for topic in (*simulation.scenario.topics, *coordinated)]
    if simulation.tier is not None:
        names.append(TIERED)
        _create(simulation, _tiered_topic_request(simulation))
    return names


def _tiered_topic_request(simulation: "ClusterSimulator") -> CreateTopicsRequest:
    topic = TopicScenario(name=TIERED, partitions=1, factor=3, is_clean=True)
    request = create_topic_request(topic, simulation.random, list(simulation.nodes))
    request.topics[0].configs += [
        CreatableTopicConfig("remote.storage.enable", "true"),
        CreatableTopicConfig("local.retention.bytes", str(simulation.random.choice((0, 0, 1_000)))),
        CreatableTopicConfig("retention.bytes", str(simulation.random.choice((-1, -1, 1_500, 4_000)))),
    ]
    return request


def _create(simulation: "ClusterSimulator", request: CreateTopicsRequest) -> None:
    simulation.command(lambda controller, _now: controller.create_topics(request), _nothing)


def create_clients(simulation: "ClusterSimulator") -> None:
    """Create a producer and a consumer for each partition."""
    scenario, checker, seed = simulation.scenario, simulation.checker.data, simulation.seed
    ids, tier = iter(range(FIRST_CLIENT_ID, FIRST_CLIENT_ID + 100)), simulation.checker.tier
    tiered = [TIERED_NAME] if tier is not None else []
    names = [ReplicaName(topic.name, index) for topic in scenario.topics for index in range(topic.partitions)]
    for name in (*names, *tiered):
        node_id = next(ids)
        producer = Producer(
            simulation,
            checker if name in names or tier is None else tier,
            node_id,
            name,
            Random(f"producer {seed} {node_id}"),
            acks=ACKS_ALL,
            timeout_ms=scenario.request_timeout_ms,
            delivery_timeout_ms=scenario.delivery_timeout_ms,
            rate=1.0 + simulation.random.uniform(-scenario.drift, scenario.drift),
        )
        simulation.producers.append(producer)
        node_id = next(ids)
        random, timeout_ms = Random(f"consumer {seed} {node_id}"), scenario.request_timeout_ms
        consumer = (
            TieredConsumer(simulation, tier, node_id, name, random, timeout_ms)
            if tier is not None and name in tiered
            else Consumer(simulation, checker, node_id, name, random, timeout_ms=timeout_ms, rate=1.0)
        )
        simulation.consumers.append(consumer)
        if simulation.metadata_scenario.acls:
            for client in (producer, consumer):
                client.retried |= {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        consumer.start()
    if simulation.applications is not None:
        simulation.applications.start()


def create_topic_request(topic: TopicScenario, random: Random, brokers: list[int]) -> CreateTopicsRequest:
    """Return the request that creates a topic on randomly chosen brokers."""
    assignments = [
        CreatableReplicaAssignment(index, list(topic.assignment) or random.sample(brokers, topic.factor))
        for index in range(topic.partitions)
    ]
    configs = [CreatableTopicConfig("min.insync.replicas", str(topic.min_insync_replicas))]
    if not topic.is_clean:
        configs.append(CreatableTopicConfig("unclean.leader.election.enable", "true"))
    created = CreatableTopic(
        name=topic.name, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=configs
    )
    return CreateTopicsRequest(topics=[created])


def _nothing(_: object) -> None:
    """Ignore the result."""
