"""Operations: topics that come and go, reassignments, preferred leaders, resignations."""

from collections.abc import Callable
from typing import Final

from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.create_topics import CreateTopicsResponse
from protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.simulation.cluster.fault_source import FaultSource, ScheduleState
from tests.simulation.cluster.topics import create_topic_request
from tests.simulation.replication.disk import ReplicaName
from tests.simulation.replication.metadata import Refusal
from tests.simulation.replication.scenario import TopicScenario

ASK_AGAIN_MS: Final = 200.0
_PREFERRED: Final = 0


class Operators(FaultSource):
    """The operations of the schedule; `kill_active_controller` is the fault in the middle of one."""

    def __init__(self, state: ScheduleState, kill_active_controller: Callable[[], None]) -> None:
        super().__init__(state)
        self._kill_active_controller = kill_active_controller
        self._topic_count = 0

    def resign(self) -> None:
        active = self._simulation.active()
        if active is not None:
            quorum = active.replica.quorum
            self._note(f"controller {active.process.node_id} resigns")
            self._world.run(active.process, quorum.resign, quorum.leader.epoch)

    def _any_partition(self) -> ReplicaName:
        return self._random.choice(self._partitions())

    def move_leader(self) -> None:
        """Make another replica the preferred leader, and then the leader if possible."""
        name = self._any_partition()
        registration = self._simulation.registration(name)
        if registration is None or registration.adding_replicas or registration.removing_replicas:
            return
        replicas = list(registration.replicas)
        self._random.shuffle(replicas)
        self.alter(name, replicas)
        request = ElectLeadersRequest(
            election_type=_PREFERRED,
            topic_partitions=[TopicPartitions(topic=name.topic, partitions=[name.partition])],
        )
        self._simulation.command(lambda controller, _now: controller.elect_leaders(request), _nothing)

    def reassign(self) -> None:
        """Reassign a partition, never to a dead broker."""
        name = self._any_partition()
        registration = self._simulation.registration(name)
        live = [node_id for node_id in self._simulation.nodes if node_id not in self._simulation.dead]
        if registration is None or self._simulation.dead & set(self._simulation.nodes):
            return
        factor = len(registration.replicas) - len(registration.adding_replicas)
        replicas = self._random.sample(live, min(factor, len(live)))
        self._note(f"{name} is reassigned to {replicas}")
        self.alter(name, replicas)

    def alter(self, name: ReplicaName, replicas: list[int] | None) -> None:
        partition = ReassignablePartition(partition_index=name.partition, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=name.topic, partitions=[partition])]
        )
        self._simulation.command(lambda controller, _now: controller.alter_reassignments(request), _nothing)

    def churn_topics(self) -> None:
        """Create a topic, and later delete it; the controller may fail in the middle."""
        self._create_topic()
        if self._random.random() < 0.3:
            self._after(self._random.choice((0.0, 3.0, 20.0)), self._kill_active_controller)

    def _create_topic(self) -> None:
        if self._is_over:
            return
        if self._simulation.active() is None:
            self._after(ASK_AGAIN_MS, self._create_topic)
            return
        self._topic_count += 1
        name = f"extra-{self._topic_count}"
        topic = TopicScenario(name=name, partitions=self._random.choice((1, 3)), factor=2, is_clean=False)
        request = create_topic_request(topic, self._random, list(self._simulation.nodes))
        self._note(f"topic {name} is created")

        def done(response: CreateTopicsResponse | Refusal) -> None:
            if isinstance(response, CreateTopicsResponse) and not response.topics[0].error_code:
                self._simulation.checker.on_topic_acknowledged(name, exists=True)
                self._after(self._random.uniform(50.0, 1_500.0), lambda: self._delete_topic(name))

        self._simulation.command(lambda controller, _now: controller.create_topics(request), done)

    def _delete_topic(self, name: str) -> None:
        topic = self._simulation.checker.committed.image.topics.by_name(name)
        if topic is None or self._is_over:
            return
        if self._simulation.active() is None:
            self._after(ASK_AGAIN_MS, lambda: self._delete_topic(name))
            return
        topic_id = topic.id
        self._note(f"topic {name} is deleted")

        def done(response: object) -> None:
            if isinstance(response, dict) and not response[topic_id].error_code:
                self._simulation.checker.on_topic_acknowledged(name, exists=False)

        self._simulation.command(lambda controller, _now: controller.delete_topics([topic_id]), done)


def _nothing(_: object) -> None:
    """Ignore the result."""
