"""A seeded simulation of the controller's commands: after every event the log alone must replay to the same state.

Checked each time: a fresh loader gives an equal image; what the image writes replays to an equal image; the indexes
equal those computed anew by plain loops; every partition obeys the rules that no sequence of events may break.
"""

from collections import Counter
from random import Random

import pytest

from broker.metadata.controller.configs import AlterOperation, ConfigOperation
from broker.metadata.controller.feature_updates import FeatureChange, UpgradeType
from broker.metadata.controller.state import ControllerSettings
from broker.metadata.image.config_image import ConfigResource, ResourceType
from broker.metadata.image.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from broker.metadata.image.loader import MetadataLoader
from broker.metadata.image.partition import PartitionRegistration
from broker.metadata.image.partition_index import PartitionId, PartitionIndex
from protocol.errors import KafkaError
from protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
)
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.broker.metadata.images import CLUSTER_ID, Cluster, image_of

EVENTS = 200
BROKERS = range(1, 6)
NAMES = ("a", "b", "c.d", "c_d", "e", "bad name")


class Simulation:
    """Random commands on a cluster of up to five brokers."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        settings = ControllerSettings(CLUSTER_ID, node_id=1, leader_imbalance_check_interval_ms=20_000)
        self.cluster = Cluster(settings, seed=seed, elr=bool(seed % 2))
        self.incarnations = Counter[int]()
        self.seen = Counter[str]()

    def step(self) -> None:
        event = self.random.choice(
            (
                *(
                    self.register,
                    self.heartbeat,
                    self.heartbeat,
                    self.heartbeat,
                    self.pass_time,
                    self.create,
                    self.create,
                ),
                *(self.add_partitions, self.delete, self.alter, self.shut_down, self.unregister, self.allocate),
                *(self.reassign, self.reassign, self.propose_isr, self.propose_isr, self.elect, self.switch_elr),
                *(self.fail_over, self.lose_leadership),
            )
        )
        try:
            event()
            self.seen[event.__name__] += 1
        except KafkaError as error:
            self.seen[error.code.name] += 1

    def register(self) -> None:
        broker = self.random.choice(BROKERS)
        self.incarnations[broker] += 1
        known = self.cluster.image.brokers.get(broker)
        clean = known is not None and self.random.random() < 0.5
        rack = self.random.choice((None, "r1", "r2"))
        epoch = known.epoch if clean and known is not None else -1
        self.cluster.register(broker, incarnation=self.incarnations[broker], rack=rack, previous_epoch=epoch)

    def heartbeat(self) -> None:
        for broker in BROKERS:
            if broker in self.cluster.image.brokers and self.random.random() < 0.7:
                self.cluster.heartbeat(broker, want_fence=self.random.random() < 0.05)

    def pass_time(self) -> None:
        self.cluster.now_ms += self.random.randrange(6_000)
        self.cluster.run_periodic_tasks()

    def create(self) -> None:
        count, factor = self.random.randrange(1, 5), self.random.randrange(1, 4)
        request = CreateTopicsRequest([CreatableTopic(self.random.choice(NAMES), count, factor)])
        self.cluster.write(self.cluster.controller.create_topics(request))

    def add_partitions(self) -> None:
        topic = CreatePartitionsTopic(self.random.choice(NAMES), self.random.randrange(1, 9), None)
        self.cluster.write(self.cluster.controller.create_partitions(CreatePartitionsRequest([topic])))

    def delete(self) -> None:
        topic = self.cluster.image.topics.by_name(self.random.choice(NAMES))
        if topic is not None:
            self.cluster.write(self.cluster.controller.delete_topics([topic.id]))

    def alter(self) -> None:
        key, value = self.random.choice(
            (("min.insync.replicas", "2"), ("unclean.leader.election.enable", "true"), ("cleanup.policy", "bad"))
        )
        resource = ConfigResource(ResourceType.TOPIC, self.random.choice(NAMES))
        operation = ConfigOperation(key, self.random.choice(list(AlterOperation)), value)
        self.cluster.write(self.cluster.controller.alter_configs({resource: [operation]}, validate_only=False))

    def shut_down(self) -> None:
        self.cluster.heartbeat(self.random.choice(BROKERS), want_shut_down=True)

    def unregister(self) -> None:
        if self.random.random() < 0.3:
            self.cluster.write(
                self.cluster.controller.unregister_broker(UnregisterBrokerRequest(self.random.choice(BROKERS)))
            )

    def allocate(self) -> None:
        broker = self.cluster.image.brokers.get(self.random.choice(BROKERS))
        if broker is not None:
            before = self.cluster.image.producer_ids.next_id
            block = self.cluster.write(self.cluster.controller.allocate_producer_ids(broker.id, broker.epoch))
            assert (block.first, block.first + block.size) == (before, self.cluster.image.producer_ids.next_id)

    def reassign(self) -> None:
        """Begin, replace or cancel a reassignment."""
        target = self.random.sample(BROKERS, self.random.randrange(1, 4)) if self.random.random() < 0.7 else None
        partition = ReassignablePartition(self.random.randrange(3), target)
        may_change = self.random.random() < 0.7
        topics = [ReassignableTopic(self.random.choice(NAMES), [partition])]
        request = AlterPartitionReassignmentsRequest(allow_replication_factor_change=may_change, topics=topics)
        self.cluster.write(self.cluster.controller.alter_reassignments(request))

    def propose_isr(self) -> None:
        """Propose a random valid ISR as a leader."""
        topic = self.cluster.image.topics.by_name(self.random.choice(NAMES))
        before = None if topic is None else topic.partitions.get(self.random.randrange(3))
        leader = None if before is None else self.cluster.image.brokers.get(before.leader)
        if topic is None or before is None or leader is None:
            return
        index = next(number for number, each in topic.partitions.items() if each is before)
        followers = [each for each in before.replicas if each != leader.id and self.random.random() < 0.8]
        isr = [leader.id, *(each for each in followers if self.cluster.image.brokers.is_active(each))]
        partition = AlterPartitionRequestPartitionData(index, before.leader_epoch, isr, [], 0, before.partition_epoch)
        data = [AlterPartitionRequestTopicData(topic.id, [partition])]
        request = AlterPartitionRequest(leader.id, leader.epoch, data)
        self.cluster.write(self.cluster.controller.alter_partitions(request))

    def elect(self) -> None:
        topics = [TopicPartitions(self.random.choice(NAMES), [0, 1])] if self.random.random() < 0.5 else None
        self.cluster.write(self.cluster.controller.elect_leaders(ElectLeadersRequest(self.random.randrange(2), topics)))

    def switch_elr(self) -> None:
        level, kind = self.random.choice(((0, UpgradeType.SAFE_DOWNGRADE), (1, UpgradeType.UPGRADE)))
        change = FeatureChange(ELIGIBLE_LEADER_REPLICAS_VERSION, level, kind)
        self.cluster.write(self.cluster.controller.update_features([change], validate_only=False))

    def fail_over(self) -> None:
        if self.random.random() < 0.2:
            self.cluster.fail_over()

    def lose_leadership(self) -> None:
        """Write changes that never commit; the controller must revert them completely."""
        before, log_length = self.cluster.image, len(self.cluster.log)
        for name in self.random.sample(NAMES, 3):
            topic = before.topics.by_name(name)
            if topic is None:
                request = CreateTopicsRequest([CreatableTopic(name, 2, 1)])
                self.cluster.write(self.cluster.controller.create_topics(request), commit=False)
            else:
                self.cluster.write(self.cluster.controller.delete_topics([topic.id]), commit=False)
        self.cluster.controller.revert()
        del self.cluster.log[log_length:]
        assert self.cluster.image is before
        self.cluster.activate()

    def check(self) -> None:
        image = self.cluster.image
        loader = MetadataLoader()
        loader.load(self.cluster.log)
        assert loader.image == image
        assert self.cluster.controller.committed_image is image
        again = image_of(record.message for record in image.write())
        assert again._replace(provenance=image.provenance) == image
        check_index(self.cluster.controller._state.index, image_partitions(self.cluster))
        for _, partition in image_partitions(self.cluster):
            check_partition(partition, self.cluster)


def image_partitions(cluster: Cluster) -> list[tuple[PartitionId, PartitionRegistration]]:
    return [
        (PartitionId(topic.id, index), partition)
        for topic in cluster.image.topics
        for index, partition in topic.in_order()
    ]


def check_index(index: PartitionIndex, partitions: list[tuple[PartitionId, PartitionRegistration]]) -> None:
    for broker in BROKERS:
        held = {where for where, partition in partitions if broker in partition.replicas}
        assert set(index.partitions_of(broker)) == held
        assert index.leader_count(broker) == sum(partition.leader == broker for _, partition in partitions)
    assert set(index.leaderless()) == {where for where, partition in partitions if partition.leader < 0}
    assert set(index.reassigning()) == {where for where, partition in partitions if partition.is_reassigning}
    assert set(index.imbalanced()) == {
        where for where, partition in partitions if partition.leader != partition.replicas[0]
    }


def check_partition(partition: PartitionRegistration, cluster: Cluster) -> None:
    replicas = set(partition.replicas)
    assert replicas
    assert len(replicas) == len(partition.replicas) == len(partition.directories)
    assert set(partition.isr) <= replicas
    assert set(partition.elr) <= replicas - set(partition.isr)
    assert set(partition.adding_replicas) | set(partition.removing_replicas) <= replicas
    assert replicas - set(partition.removing_replicas), "a replica remains"
    assert replicas - set(partition.adding_replicas), "a replica existed before"
    if not cluster.image.features.elr_enabled:
        assert not partition.elr
        assert not partition.last_known_elr
    if partition.leader >= 0:
        assert partition.leader in partition.isr
        broker = cluster.image.brokers.get(partition.leader)
        assert broker is not None
        assert not broker.fenced
    elif not cluster.image.features.elr_enabled:
        assert partition.isr


@pytest.mark.parametrize("seed", range(12))
def test_log_alone_replays_to_the_same_state(seed: int) -> None:
    simulation = Simulation(seed)
    for _ in range(EVENTS):
        simulation.step()
        simulation.check()
    names = {event for event in simulation.seen if event.islower()}
    assert len(names) == 16, f"seed {seed} covered too few commands: {simulation.seen}"
