"""The random schedule of brokers and clients: work, faults and operations at random moments drawn from the seed.

Kafka's guarantees have conditions, and the schedule keeps to them. Unsynced data or a whole disk is lost on one node at
a time, only with eligible leader replicas, and only while every partition of the node has another in-sync or eligible
replica. Everything else may happen at any time, to any number of nodes.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from broker.metadata.image.partition import PartitionRegistration
from protocol.errors import KafkaError
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.simulation.replication.broker import Node
from tests.simulation.replication.compacted_topic import NAME
from tests.simulation.replication.disk import ReplicaName
from tests.simulation.replication.link_faults import LinkFaults
from tests.simulation.replication.lost_responses import LostResponses
from tests.simulation.replication.machine_faults import MachineFaults
from tests.simulation.replication.producers import Producer
from tests.simulation.replication.recreation import Recreation
from tests.simulation.replication.scenario import Mood
from tests.simulation.replication.simulation import ReplicationSimulator

_PENDING_MAX: Final = 12
"""Number of waiting batches at which a producer pauses."""
_CANCELLATIONS: Final = 5
_PREFERRED: Final = 0
_UNCLEAN: Final = 1


class RandomSchedule:
    """The random schedule. Implements Schedule."""

    def __init__(self, simulation: ReplicationSimulator) -> None:
        self._simulation = simulation
        self._random = Random(f"schedule {simulation.seed}")
        self._world = simulation.world
        self._nodes = simulation.nodes
        self._is_over = False
        self._recreation = Recreation(simulation, self._note)
        self._lost_responses = LostResponses(simulation, self._note, self._move_leader_of, self._produce)
        links = LinkFaults(simulation, self._random, self._note)
        machines = MachineFaults(simulation, self._random, self._note)
        self._faults: tuple[tuple[int, Callable[[], None]], ...] = (
            (14, self._kill),
            (8, self._lose_power),
            (5, self._lose_power_soon),
            (3, self._wipe),
            (3, machines.fail_directory_soon),
            (2, machines.fill_disk),
            (3, machines.stall_disk),
            (5, machines.step_clock),
            (8, self._shut_down),
            (8, machines.stall),
            (12, links.partition),
            (8, links.heal),
            (5, links.change_weather),
            (5, links.part_two_brokers),
            (3, links.cut_off_from_controller),
            (10, self._hold_metadata),
            (4, self._fail_over_controller),
            (9, self._move_leader),
            (7, self._reassign),
            (3, self._cancel_reassignment),
            (3, self._elect_uncleanly),
            (4, self._delete_records),
            (4, self._burst),
        )
        often: dict[Callable[[], None], int] = {}
        match simulation.scenario.mood:
            case Mood.MIXED:
                pass
            case Mood.RESTLESS:
                often = {self._move_leader: 80, self._hold_metadata: 40}
            case Mood.MORTAL:
                often = {self._lose_power: 80}
            case Mood.PARTED:
                often = {links.part_two_brokers: 150, links.partition: 0, links.change_weather: 0}
            case Mood.DEPOSED:
                often = {links.cut_off_from_controller: 100, links.change_weather: 0, machines.step_clock: 20}
        self._weights = [often.get(fault, weight) for weight, fault in self._faults]

    def begin(self) -> None:
        scenario = self._simulation.scenario
        for producer in self._simulation.producers:
            self._after(self._random.expovariate(1.0 / scenario.produce_every_ms), self._producing(producer))
        self._recreation.begin()
        self._lost_responses.begin()
        self._after(500.0 + self._random.expovariate(1.0 / scenario.fault_every_ms), self._fault_again)

    def end(self) -> None:
        self._is_over = True
        self._recreation.end()
        self._lost_responses.end()
        self._cancel_all(_CANCELLATIONS)

    def _cancel_all(self, times: int) -> None:
        """Cancel all reassignments, again and again: a controller that fails loses the request."""
        for name in self._simulation.checker.histories:
            self._cancel(name)
        if times > 1:
            self._after(self._simulation.scenario.session_timeout_ms, lambda: self._cancel_all(times - 1))

    def _after(self, delay_ms: float, action: Callable[[], None]) -> None:
        self._world.schedule(delay_ms, action)

    def _note(self, text: str) -> None:
        self._simulation.checker.note(text)

    def _fault_again(self) -> None:
        if self._is_over:
            return
        scenario = self._simulation.scenario
        if self._random.random() < scenario.calm_share:
            self._calm_down()
            return
        self._after(self._random.expovariate(1.0 / scenario.fault_every_ms), self._fault_again)
        (_, fault) = self._random.choices(self._faults, self._weights)[0]
        isr = self._simulation.isr_checker
        isr.look()
        fault()
        isr.look()

    def _calm_down(self) -> None:
        """Leave time for replicas to join the ISR again, and for reassignments to end."""
        self._note("calm")
        scenario = self._simulation.scenario
        self._simulation.isr_checker.look()
        self._simulation.wires.clear_up()
        self._after(self._random.uniform(1.0, 3.0) * scenario.session_timeout_ms, self._fault_again)

    # Work

    def _producing(self, producer: Producer) -> Callable[[], None]:
        def produce() -> None:
            if not self._is_over:
                self._after(self._random.expovariate(1.0 / self._simulation.scenario.produce_every_ms), produce)
                self._produce(producer)

        return produce

    def _produce(self, producer: Producer) -> None:
        if producer.pending_count < _PENDING_MAX:
            self._world.run(producer.process, producer.produce)

    def _burst(self) -> None:
        for producer in self._simulation.producers:
            for _ in range(self._random.randint(1, 4)):
                self._produce(producer)

    def _delete_records(self) -> None:
        """Send DeleteRecords, often up to the high watermark; not where unclean leaders may restore records."""
        name = self._any_partition()
        leader = self._leader(name)
        if leader is None or leader.broker is None:
            return
        partition = leader.broker.partition(*name)
        history = self._simulation.checker.histories[name]
        if partition is None or not partition.is_leader or partition.truncation.is_under_way or not history.promises:
            return
        offset = self._random.choice((partition.log.high_watermark, partition.log.high_watermark // 2))
        if offset > history.end:
            return

        def delete() -> None:
            self._simulation.checker.on_deleted(name, offset)
            try:
                partition.record_deletion.delete_records(offset)
            except KafkaError as error:
                self._note(f"deletion from {name} was refused: {error}")

        self._world.run(leader.broker.process, delete)

    # Restarts

    def _up(self) -> list[Node]:
        return [node for node in self._nodes.values() if node.is_up]

    def _any(self, nodes: list[Node]) -> Node | None:
        return self._random.choice(nodes) if nodes else None

    def _kill(self) -> None:
        """Kill one process, or sometimes all at once."""
        up = self._up()
        victims = up if self._random.random() < 0.1 else self._random.sample(up, min(1, len(up)))
        for node in victims:
            self._note(f"node {node.id} is killed")
            self._simulation.crash(node, power=False)
            self._simulation.start_later(node)

    def _lose_power(self) -> None:
        node = self._any([node for node in self._up() if self._may_lose(node)])
        if node is not None:
            self._note(f"node {node.id} loses power")
            self._simulation.crash(node, power=True)
            self._simulation.start_later(node)

    def _lose_power_soon(self) -> None:
        """Cut a node's power in the middle of its next operations, if that is still allowed then."""
        node = self._any([node for node in self._up() if self._may_lose(node)])
        if node is not None:
            node.disk.fail_after = self._random.randint(0, 30)
            node.disk.may_fail = lambda: self._may_lose(node)

    def _wipe(self) -> None:
        """Replace a disk by an empty one."""
        node = self._any([node for node in self._nodes.values() if self._may_lose(node)])
        if node is not None:
            self._note(f"the disk of node {node.id} is wiped")
            was_up = node.is_up
            self._simulation.crash(node, power=False)
            self._simulation.wipe(node)
            if was_up:
                self._simulation.start_later(node)

    def _may_lose(self, node: Node) -> bool:
        """Whether the other nodes have all records."""
        lost = self._simulation.checker.lost
        if self._is_over or not self._simulation.scenario.elr or lost - {node.id}:
            return False
        names = [*self._simulation.checker.histories]
        if self._simulation.compacted is not None:
            names.append(NAME)
        return all(self._others_have_it(node, name) for name in names)

    def _others_have_it(self, node: Node, name: ReplicaName) -> bool:
        """Whether others have a partition by the committed state, the decided state, and the next decision of any
        leader.
        """
        simulation = self._simulation
        decided, topic = simulation.registration(name), simulation.service.image.topics.by_name(name.topic)
        committed = None if topic is None else topic.partition(name.partition)
        history = simulation.checker.histories.get(name)
        if decided is None or committed is None or (history is not None and history.is_recovering):
            return False
        return self._is_held(decided, node.id) and self._is_held(committed, node.id)

    @staticmethod
    def _is_held(registration: PartitionRegistration, without: int) -> bool:
        holders = {*registration.isr, *registration.elr}
        return not holders <= {without}

    def _shut_down(self) -> None:
        node = self._any([node for node in self._up() if not node.is_leaving])
        if node is None or node.broker is None:
            return
        self._note(f"node {node.id} shuts down")
        self._simulation.checker.counts.add("controlled shutdowns")
        node.is_leaving = True
        self._world.run(node.broker.process, node.broker.shut_down)

    # The controller

    def _hold_metadata(self) -> None:
        """Hold back the metadata of a broker for a while."""
        node = self._any(list(self._nodes.values()))
        if node is not None:
            pause_ms = self._random.choice((200.0, 1_000.0, 4_000.0)) * self._simulation.scenario.pace
            self._note(f"node {node.id} receives no metadata for {pause_ms:.0f} ms")
            node.feed.held_until_ms = self._world.now_ms + pause_ms

    def _fail_over_controller(self) -> None:
        service = self._simulation.service
        if service.quorum.leader.leader_id != service.quorum.node_id:
            return
        self._note("the controller fails over")
        self._simulation.checker.counts.add("controller failovers")
        self._world.run(service.process, service.quorum.depose)
        self._after(
            self._random.choice((5.0, 100.0, 500.0)), lambda: self._world.run(service.process, service.quorum.elect)
        )

    # Operators

    def _any_partition(self) -> ReplicaName:
        return self._random.choice(list(self._simulation.checker.histories))

    def _leader(self, name: ReplicaName) -> Node | None:
        registration = self._simulation.registration(name)
        return None if registration is None else self._nodes.get(registration.leader)

    def _move_leader(self) -> None:
        """Make another replica the preferred leader, and then the leader if possible."""
        self._move_leader_of(self._any_partition())

    def _move_leader_of(self, name: ReplicaName) -> None:
        registration = self._simulation.registration(name)
        if registration is None or registration.adding_replicas or registration.removing_replicas:
            return
        replicas = list(registration.replicas)
        self._random.shuffle(replicas)
        self._alter(name, replicas)
        self._elect(name, _PREFERRED)

    def _reassign(self) -> None:
        name = self._any_partition()
        registration = self._simulation.registration(name)
        if registration is None:
            return
        factor = next(topic.factor for topic in self._simulation.scenario.topics if topic.name == name.topic)
        replicas = self._random.sample(list(self._nodes), min(factor, len(self._nodes)))
        self._note(f"{name} is reassigned to {replicas}")
        self._alter(name, replicas)

    def _cancel_reassignment(self) -> None:
        self._cancel(self._any_partition())

    def _cancel(self, name: ReplicaName) -> None:
        registration = self._simulation.registration(name)
        if registration is not None and (registration.adding_replicas or registration.removing_replicas):
            self._note(f"the reassignment of {name} is cancelled")
            self._alter(name, None)

    def _alter(self, name: ReplicaName, replicas: list[int] | None) -> None:
        request = AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(
                    name=name.topic,
                    partitions=[ReassignablePartition(partition_index=name.partition, replicas=replicas)],
                )
            ]
        )
        self._simulation.service.command(lambda controller, _now: controller.alter_reassignments(request), _nothing)

    def _elect_uncleanly(self) -> None:
        """Elect uncleanly, only in topics that allow it."""
        name = self._any_partition()
        if not self._simulation.checker.histories[name].is_clean:
            self._elect(name, _UNCLEAN)

    def _elect(self, name: ReplicaName, kind: int) -> None:
        request = ElectLeadersRequest(
            election_type=kind, topic_partitions=[TopicPartitions(topic=name.topic, partitions=[name.partition])]
        )
        self._simulation.service.command(lambda controller, _now: controller.elect_leaders(request), _nothing)


def _nothing(_: object) -> None:
    """Ignore the result."""
