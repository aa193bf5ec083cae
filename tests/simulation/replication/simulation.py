"""Simulator of replication: brokers, their controller, and clients, under faults and in recovery.

After the faults the cluster must come to rest (`peace.py`).
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, Final, Protocol

from broker.metadata.image.partition import PartitionRegistration
from broker.net.peer import SocketAddress
from broker.runtime.controller.broker_lifecycle import RegistrationTimedOut
from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from protocol.messages.fetch import FetchRequest
from protocol.primitives import ZERO_UUID, Uuid
from storage.directories.log_dir import NoLogDir
from storage.errors import LogDirFailure
from tests.simulation.replication.broker import Broker, Node
from tests.simulation.replication.checker import KEPT_LINES, Checker
from tests.simulation.replication.clients import ACKS_ALL, Client
from tests.simulation.replication.compacted_topic import SHARE, CompactedTopic
from tests.simulation.replication.consumers import Consumer
from tests.simulation.replication.disk import PartitionDisk, ReplicaName
from tests.simulation.replication.fencing_checker import FencingChecker
from tests.simulation.replication.history import History
from tests.simulation.replication.isr_checker import IsrChecker
from tests.simulation.replication.metadata import CONTROLLER, Feed, MetadataService
from tests.simulation.replication.network import Wires
from tests.simulation.replication.peace import Peace
from tests.simulation.replication.producers import Producer
from tests.simulation.replication.scenario import FIRST_CLIENT_ID, Scenario, TopicScenario, draw_scenario
from tests.simulation.simulator import EventSimulator
from tests.simulation.world import Process, World, early_ms_of

_BEGIN_MS: Final = 20_000.0
"""Time at which a cluster without faults has its topics."""


class Schedule(Protocol):
    """The schedule of faults and work."""

    def begin(self) -> None: ...

    def end(self) -> None:
        """End faults and work."""
        ...


class ReplicationSimulator(EventSimulator):
    """Simulator of brokers and clients. Implements Surroundings for brokers and Cluster for clients."""

    kept_lines = KEPT_LINES

    def __init__(
        self,
        seed: int,
        make_schedule: "Callable[[ReplicationSimulator], Schedule]",
        *,
        events: int,
        scenario: Scenario | None = None,
    ) -> None:
        self.nodes: dict[int, Node] = {}
        world = World(early_ms_of(seed))
        self.checker = Checker(self.nodes, lambda: world.now_ms)
        self.scenario = scenario or replace(
            draw_scenario(Random(f"scenario {seed}")),
            compacts=Random(f"compacts {seed}").random() < SHARE,
            new_replicas_max=Random(f"new replicas {seed}").choice((1, 2, 200)),
        )
        super().__init__(seed, world, self.checker, planned_events=events * self.scenario.length)
        self.random = Random(f"history {seed}")
        self.wires = Wires(self.world, Random(f"network {seed}"))
        self.wires.in_bytes, self.wires.pace = self.scenario.in_bytes, self.scenario.pace
        self.service = MetadataService(self.world, seed, self.scenario)
        self.isr_checker = IsrChecker(self.checker, self.nodes, self.scenario, self.wires, self.service)
        self.checker.isr = self.isr_checker
        self.checker.topic_deleted = self._on_topic_deleted
        self.peace = Peace(self.checker, self.nodes)
        self._fencing = FencingChecker(self.checker)
        self.recovery_ms *= self.scenario.pace
        self.service.on_altered = self.isr_checker.on_altered
        self.wires.listen(CONTROLLER, self.service)
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self._create_nodes()
        self.compacted = CompactedTopic(self) if self.scenario.compacts else None
        self._schedule = make_schedule(self)

    def _create_nodes(self) -> None:
        scenario, random = self.scenario, self.random
        for node_id in scenario.broker_ids:
            feed = Feed(
                self.service, self.wires, node_id, Random(f"feed {self.seed} {node_id}"), scenario.metadata_delay_ms
            )
            self.service.feeds.append(feed)
            node = self.nodes[node_id] = Node(
                node_id,
                PartitionDisk(node_id, self.checker),
                feed,
                rate=1.0 + random.uniform(-scenario.drift, scenario.drift),
                wall_offset_ms=1_700_000_000_000 + random.randint(-5_000, 5_000),
            )
            self.wires.own(node.endpoint, node_id)
            self.world.schedule(random.uniform(0.0, 200.0), self.start, node)

    # Requests of clients

    def endpoint_of(self, node_id: int) -> SocketAddress:
        return self.nodes[node_id].endpoint

    def any_broker(self, random: Random) -> int:
        return random.choice(list(self.nodes))

    def topic_id(self, topic: str) -> Uuid:
        image = self.service.image.topics.by_name(topic)
        return ZERO_UUID if image is None else image.id

    def registration(self, name: ReplicaName) -> PartitionRegistration | None:
        """Return the registration by the latest decided metadata."""
        topic = self.service.decided.topics.by_name(name.topic)
        return None if topic is None else topic.partition(name.partition)

    def _on_topic_deleted(self, name: ReplicaName) -> None:
        for client in clients_of(self):
            if client.name == name:
                self.world.schedule(0.0, self.world.run, client.process, client.on_topic_deleted)

    # Running

    def close(self) -> None:
        brokers = (node.broker.process for node in self.nodes.values() if node.broker is not None)
        for process in (self.service.process, *(client.process for client in clients_of(self)), *brokers):
            process.die()

    def begin(self) -> None:
        self.create_cluster()
        self.wires.weather = self.scenario.weather
        if self.compacted is not None:
            self.compacted.begin()
        self._schedule.begin()

    def create_cluster(self) -> None:
        """Start brokers, create topics, then start clients, without faults."""
        self.world.run(self.service.process, self.service.quorum.elect)
        while len(list(self.service.image.brokers.alive())) < self.scenario.brokers:
            self._step_to("the brokers are not registered")
        for topic in self.scenario.topics:
            self.create_topic(topic)
        while any(self.topic_id(topic.name) == ZERO_UUID for topic in self.scenario.topics):
            self._step_to("topics are not created")
        self._create_clients()

    def _step_to(self, reason: str) -> None:
        self.step()
        if self.world.now_ms > _BEGIN_MS:
            self.checker.fail("Liveness", f"without any fault, {reason}")

    def create_topic(self, topic: TopicScenario) -> None:
        assignments = [
            CreatableReplicaAssignment(
                index, list(topic.assignment) or self.random.sample(list(self.scenario.broker_ids), topic.factor)
            )
            for index in range(topic.partitions)
        ]
        configs = [CreatableTopicConfig("min.insync.replicas", str(topic.min_insync_replicas))]
        if not topic.is_clean:
            configs.append(CreatableTopicConfig("unclean.leader.election.enable", "true"))
        for index in range(topic.partitions):
            name = ReplicaName(topic.name, index)
            self.checker.histories.setdefault(name, History(name, is_clean=topic.is_clean))
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic.name, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=configs
                )
            ]
        )
        self.service.command(lambda controller, _now: controller.create_topics(request), _nothing)

    def _create_clients(self) -> None:
        scenario, ids = self.scenario, iter(range(FIRST_CLIENT_ID, FIRST_CLIENT_ID + 100))
        for name in self.checker.histories:
            for _ in range(scenario.producers):
                node_id = next(ids)
                producer = Producer(
                    self,
                    self.checker,
                    node_id,
                    name,
                    Random(f"producer {self.seed} {node_id}"),
                    acks=1 if self.random.random() < 0.25 else ACKS_ALL,
                    timeout_ms=scenario.request_timeout_ms,
                    delivery_timeout_ms=scenario.delivery_timeout_ms,
                    rate=1.0 + self.random.uniform(-scenario.drift, scenario.drift),
                    sends_ahead=True,
                )
                producer.slow_down(scenario.pace)
                self.producers.append(producer)
            for _ in range(scenario.consumers):
                node_id = next(ids)
                consumer = Consumer(
                    self,
                    self.checker,
                    node_id,
                    name,
                    Random(f"consumer {self.seed} {node_id}"),
                    timeout_ms=scenario.request_timeout_ms,
                    rate=1.0,
                )
                consumer.slow_down(scenario.pace)
                self.consumers.append(consumer)
                consumer.start()

    def step(self) -> None:
        super().step()
        self.checker.on_time()

    def observe(self, process: Process) -> None:
        if process is self.service.process:
            self.checker.on_controller_event(self.service.decided, self.service.image)
            if self.compacted is not None:
                self.compacted.on_controller_event()
            return
        node = self.nodes.get(process.node_id)
        if node is not None and node.broker is not None and node.broker.process is process:
            self.checker.on_broker_event(node)

    def on_power_failure(self, process: Process) -> None:
        node = self.nodes[process.node_id]
        self.checker.note(f"node {node.id} loses its power in the middle of an operation")
        process.die()
        self.checker.on_broker_event(node)
        self.crash(node, power=True)
        self.start_later(node)

    def on_error(self, process: Process | None, error: Exception) -> None:
        node = None if process is None else self.nodes.get(process.node_id)
        if node is not None and node.broker is not None:
            self.on_end(node, node.broker, error)
        else:
            super().on_error(process, error)

    # Recovery

    def stop_faults(self) -> None:
        self.isr_checker.look()
        self._schedule.end()
        if self.compacted is not None:
            self.compacted.end()
        self.wires.clear_up()
        for feed in self.service.feeds:
            feed.hurry()
        self._bury_some()
        for node in self.nodes.values():
            node.disk.stop_faults()
            if not node.is_up:
                self.start_later(node)
            elif node.broker is not None and node.broker.has_lost_directory:
                self.crash(node, power=False)
                self.start_later(node)
        for producer in self.producers:
            self.world.run(producer.process, producer.produce)

    def _bury_some(self) -> None:
        """Let a minority of the brokers stay dead, with some seeds."""
        random = Random(f"dead {self.seed}")
        if random.random() >= self.scenario.mortality:
            return
        count = random.randint(1, (len(self.nodes) - 1) // 2)
        self.peace.dead.update(random.sample(sorted(self.nodes), count))
        self.checker.note(f"nodes {sorted(self.peace.dead)} stay dead")
        self.checker.counts.add("dead for good", count)
        for node_id in sorted(self.peace.dead):
            self.crash(self.nodes[node_id], power=False)

    def unsettled_reason(self) -> str | None:
        reason = self.peace.unsettled_reason(self.producers, self.consumers, self.registration)
        if reason is None and self.compacted is not None:
            reason = self.compacted.unsettled_reason()
        return reason

    # Start and stop of nodes

    def start(self, node: Node) -> None:
        """Start a process on the node's disk, unless one is running."""
        if node.is_up or node.id in self.peace.dead:
            return
        node.starts += 1
        if node.starts > 1:
            self.checker.counts.add("restarts")
        self.checker.note(f"node {node.id} starts")
        node.is_leaving = False
        node.disk.has_failed = False
        broker = node.broker = Broker(node, self, self.seed)
        broker.on_served = self._on_served
        self.wires.own(node.endpoint, node.id)
        self.world.run(broker.process, broker.start)

    def start_later(self, node: Node) -> None:
        mean_ms = 100.0 if self.is_recovering else self.scenario.restart_mean_ms
        mean_ms = (mean_ms or self.random.choice((50.0, 1_000.0, 4_000.0))) * self.scenario.pace
        self.world.schedule(self.random.expovariate(1.0 / mean_ms), self.start, node)

    def crash(self, node: Node, *, power: bool, luck: Random | None = None) -> None:
        """Kill the process; with `power`, also lose all or some unsynced data. The caller must restart the node."""
        if node.broker is not None:
            node.broker.process.die()
        node.broker = None
        node.feed.stop()
        self.checker.on_stop(node)
        node.disk.fail_after = node.disk.error_after = None
        node.disk.is_starting = False
        if power:
            self.checker.on_loss(node)
            self.checker.counts.add("power losses")
            node.disk.crash(luck or self.random)
        else:
            node.disk.forget_process()

    def wipe(self, node: Node) -> None:
        """Replace the disk of a stopped node by an empty one."""
        self.checker.on_loss(node)
        self.checker.counts.add("wiped disks")
        node.lives += 1
        node.disk = PartitionDisk(node.id, self.checker)

    def note_directory_failure(self, node: Node) -> None:
        self.checker.counts.add("directory failures")
        self.checker.note(f"a log directory of node {node.id} fails")

    def note_fetch(self, node: Node, request: FetchRequest) -> None:
        if self.scenario.flush_messages != 1:
            return
        for topic in request.topics:
            image = self.service.image.topics.by_id(topic.topic_id)
            if image is not None:
                for each in topic.partitions:
                    self.checker.on_acknowledged_offset(
                        node, ReplicaName(image.name, each.partition), each.fetch_offset
                    )

    def _on_served(self, node: Node, request: Any, answer: Any) -> None:
        self._fencing.on_served(node, request, answer)
        if isinstance(request, FetchRequest):
            self.isr_checker.on_served(node, request, answer)

    def on_end(self, node: Node, broker: Broker, error: BaseException | None) -> None:
        """Handle the end of a broker's process, allowed after a disk failure or while registration is impossible."""
        if node.broker is not broker:
            return
        if error is not None:
            may_end = isinstance(error, OSError | LogDirFailure | NoLogDir) and node.disk.has_failed
            if not may_end and not isinstance(error, RegistrationTimedOut):
                self.fail_on_error(f"node {node.id}", "ended itself:", error)
        self.checker.note(f"node {node.id} ends: {error or 'it has shut down'}")
        self.checker.on_broker_event(node)
        self.crash(node, power=False)
        self.start_later(node)


def clients_of(simulation: ReplicationSimulator) -> list[Client]:
    """Return producers and consumers."""
    keyed = [] if simulation.compacted is None else [simulation.compacted.producer]
    return [*simulation.producers, *simulation.consumers, *keyed]


def _nothing(_: Any) -> None:
    """Ignore the result."""
