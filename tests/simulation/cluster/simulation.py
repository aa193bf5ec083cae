"""Simulator of a cluster: three controllers, brokers and clients, under faults and in recovery.

After the faults a controller is active and all live nodes follow it; every partition with an eligible replica has a
leader, all live replicas are in sync and equal, and producers get acknowledgements again. A minority of the controllers
and one broker may be dead for good.
"""

from collections.abc import Callable
from random import Random
from typing import Final, Protocol, TypeVar

from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.partition import PartitionRegistration
from broker.net.peer import SocketAddress
from broker.runtime.controller.broker_lifecycle import RegistrationTimedOut
from broker.runtime.controller.driver import Command
from protocol.messages.fetch import FetchRequest
from protocol.primitives import ZERO_UUID, Uuid
from storage.directories.log_dir import NoLogDir
from storage.errors import LogDirFailure
from tests.simulation.cluster.broker import ClusterBroker, Machine, ObserverFeed
from tests.simulation.cluster.checker import ClusterChecker
from tests.simulation.cluster.controller import ControllerProcess, open_controller
from tests.simulation.cluster.coordinators.applications import Applications, Work
from tests.simulation.cluster.disks import DataDisk, MetadataDisk
from tests.simulation.cluster.links import Links
from tests.simulation.cluster.recovery import Recovery
from tests.simulation.cluster.replica import MetadataReplica, format_metadata
from tests.simulation.cluster.scenario import draw_metadata_scenario, draw_scenario, with_coordinators, with_roles
from tests.simulation.cluster.tier import Tier
from tests.simulation.cluster.tier_checker import TIERED_NAME, TierChecker
from tests.simulation.cluster.tier_consumer import TieredConsumer
from tests.simulation.cluster.topics import create_clients, create_topics
from tests.simulation.cluster.watch import EndedProcesses
from tests.simulation.quorum.network import Network
from tests.simulation.quorum.node import Node as QuorumNode
from tests.simulation.replication.broker import Broker, Node
from tests.simulation.replication.checker import KEPT_LINES
from tests.simulation.replication.clients import Client
from tests.simulation.replication.consumers import Consumer
from tests.simulation.replication.disk import ReplicaName
from tests.simulation.replication.metadata import Refusal
from tests.simulation.replication.network import Wires
from tests.simulation.replication.process import TaskProcess
from tests.simulation.replication.producers import Producer
from tests.simulation.simulator import EventSimulator
from tests.simulation.world import PowerFailure, Process, World, early_ms_of

R = TypeVar("R")
_COORDINATED_LENGTH: Final = 2
"""Factor of the events of a history with coordinators."""
_FILL_EVERY_MS: Final = 25.0
_FILL_MS: Final = 5_000.0
_BEGIN_MS: Final = 30_000.0
"""Time at which a cluster without faults has its topics."""


class Schedule(Protocol):
    """The schedule of faults and work."""

    def begin(self) -> None: ...

    def end(self) -> None:
        """End faults and work."""
        ...

    @property
    def is_on_trial(self) -> bool:
        """Whether a phase without faults goes on, which must not be cut short."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether no request is pending."""
        ...


class ClusterSimulator(EventSimulator):
    """Simulator of a cluster. Implements Surroundings for brokers and Cluster for clients.

    `nodes` are the brokers, `quorum_nodes` the metadata side of all machines.
    """

    kept_lines = KEPT_LINES

    def __init__(
        self,
        seed: int,
        make_schedule: "Callable[[ClusterSimulator], Schedule]",
        *,
        events: int,
        tiered: bool | None = None,
        coordinators: bool | None = None,
        work: Work | None = None,
        watches: bool = False,
    ) -> None:
        self.nodes: dict[int, Node] = {}
        self.quorum_nodes: dict[int, QuorumNode] = {}
        drawn = draw_metadata_scenario(Random(f"metadata scenario {seed}"))
        self.metadata_scenario = with_roles(drawn, tiered=tiered, coordinators=coordinators)
        self.scenario = draw_scenario(Random(f"scenario {seed}"), tiered=self.metadata_scenario.tiered)
        if self.metadata_scenario.coordinators:
            self.scenario = with_coordinators(self.scenario, Random(f"coordinators {seed}"))
        world = World(early_ms_of(seed))
        self.checker = ClusterChecker(
            self.nodes, self.quorum_nodes, lambda: world.now_ms, self.scenario.session_timeout_ms
        )
        length = _COORDINATED_LENGTH if self.metadata_scenario.coordinators else 1
        super().__init__(seed, world, self.checker, planned_events=events * length)
        self.random = Random(f"history {seed}")
        self.tier: Tier | None = None
        if self.metadata_scenario.tiered:
            self.tier = Tier(world, Random(f"tier {seed}"), lambda: self.checker.counts.add("remote reads"))
            self.checker.tier = TierChecker(self.checker, self.tier, self.nodes)
        self.applications: Applications | None = None
        if self.metadata_scenario.coordinators:
            self.applications = Applications(self, work)
            self.scenario = self.applications.fitting(self.scenario)
            self.checker.coordinators = self.applications.checker
        self.wires = Wires(world, Random(f"wires {seed}"))
        self.ends = self.checker.sessions.ends = EndedProcesses(seed, self.wires, self.nodes, is_on=watches)
        self.network = Network(world, Random(f"network {seed}"), self.checker.quorum)
        self.wires.in_bytes = self.network.in_bytes = self.scenario.in_bytes
        self.controllers: dict[int, ControllerProcess] = {}
        """Running controllers."""
        self.dead: set[int] = set()
        """Machines that are dead for good."""
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.links = Links(world, self.wires, self.network, lambda: self.is_recovering)
        self._recovery = Recovery(self)
        self._create_nodes()
        self._schedule = make_schedule(self)

    def _create_nodes(self) -> None:
        random = self.random
        for node_id in sorted({*self.controller_ids, *self.scenario.broker_ids}):
            rate = 1.0 + random.uniform(-self.scenario.drift, self.scenario.drift)
            wall_offset_ms = 1_700_000_000_000 + random.randint(-5_000, 5_000)
            self.quorum_nodes[node_id] = QuorumNode(
                node_id,
                can_vote=node_id in self.controller_ids,
                disk=MetadataDisk(node_id, self.checker.quorum),
                rate=rate,
                wall_offset_ms=wall_offset_ms,
            )
            if node_id in self.scenario.broker_ids:
                disk = DataDisk(node_id, self.checker.data)
                feed = ObserverFeed().as_feed()
                node = self.nodes[node_id] = Machine(node_id, disk, feed, rate=rate, wall_offset_ms=wall_offset_ms)
                self.wires.own(node.endpoint, node_id)
        voters = [self.quorum_nodes[node_id] for node_id in self.metadata_scenario.first_voters]
        for quorum_node in self.quorum_nodes.values():
            format_metadata(quorum_node, voters if quorum_node in voters else [])
            self.wires.own(quorum_node.endpoint, quorum_node.id)
            self.world.schedule(random.uniform(0.0, 200.0), self.start, quorum_node.id)

    @property
    def controller_ids(self) -> tuple[int, ...]:
        """Return the ids of all nodes that can vote."""
        return self.metadata_scenario.controller_ids

    # Metadata requests of clients

    def endpoint_of(self, node_id: int) -> SocketAddress:
        return self.nodes[node_id].endpoint

    def any_broker(self, random: Random) -> int:
        return random.choice(list(self.nodes))

    def topic_id(self, topic: str) -> Uuid:
        found = self.checker.committed.image.topics.by_name(topic)
        return ZERO_UUID if found is None else found.id

    # Controllers

    def active(self) -> ControllerProcess | None:
        """Return the active controller of the newest epoch."""
        found = [each for each in self.controllers.values() if each.replica.driver.is_active]
        return max(found, key=lambda each: each.replica.quorum.leader.epoch, default=None)

    def views(self) -> list[MetadataImage]:
        """Return the committed image and the decided images of all controllers that believe to be active."""
        decided = [each.replica for each in self.controllers.values() if each.replica.driver.is_active]
        return [self.checker.committed.image, *(replica.controller.image for replica in decided)]

    def command(self, command: Command[R], done: Callable[[R | Refusal], None]) -> None:
        """Run an operator's request on the active controller, if there is one."""
        active = self.active()
        if active is not None:
            active.command(command, done)

    # Both phases

    @property
    def is_on_trial(self) -> bool:
        return self._schedule.is_on_trial

    @property
    def is_schedule_over(self) -> bool:
        return self._schedule.is_over

    def begin(self) -> None:
        self.create_cluster()
        self._planned_events += self.events
        self.wires.weather = self.network.weather = self.scenario.weather
        self._schedule.begin()

    def create_cluster(self) -> None:
        """Start all nodes, create topics, then start clients, without faults."""
        while len(self.checker.committed.image.brokers.alive()) < self.scenario.brokers:
            self._step_to("the brokers are not registered")
        names = create_topics(self)
        while any(self.topic_id(name) == ZERO_UUID for name in names):
            self._step_to("topics are not created")
        create_clients(self)
        if self.checker.tier is not None:
            self._fill_tier(self.checker.tier)

    def _fill_tier(self, tier: TierChecker) -> None:
        """Produce to the tiered topic until some of its records are in remote storage alone, or for a while: the store
        may fail already.
        """
        (producer,) = (each for each in self.producers if each.name == TIERED_NAME)
        until_ms = self.world.now_ms + _FILL_MS

        def is_over() -> bool:
            return self.world.now_ms > until_ms or tier.is_filled(self.registration(TIERED_NAME))

        def produce() -> None:
            if not is_over():
                self.world.schedule(_FILL_EVERY_MS, produce)
                self.world.run(producer.process, producer.produce)

        produce()
        while not is_over():
            self.step()

    def _step_to(self, reason: str) -> None:
        self.step()
        if self.world.now_ms > _BEGIN_MS:
            self.checker.fail("Liveness", f"without any fault, {reason}")

    def close(self) -> None:
        brokers = (node.broker.process for node in self.nodes.values() if node.broker is not None)
        controllers = (each.process for node_id, each in self.controllers.items() if node_id not in self.nodes)
        clients = (client.process for client in self.clients)
        for process in (*controllers, *clients, *brokers):
            process.die()
        if self.applications is not None:
            self.applications.close()

    @property
    def clients(self) -> list[Client]:
        return [*self.producers, *self.consumers]

    def observe(self, process: Process) -> None:
        controller = self.controllers.get(process.node_id)
        if controller is not None and controller.process is process:
            self.checker.on_controller_event(controller.replica)
        node = self.nodes.get(process.node_id)
        if node is not None and node.broker is not None and node.broker.process is process:
            self.checker.on_broker_event(node, replica_of(node.broker))

    def on_power_failure(self, process: Process) -> None:
        self.checker.note(f"node {process.node_id} loses its power in the middle of an operation")
        process.die()
        self._look_once_more(process.node_id)
        self.crash(process.node_id, power=True)
        self.start_later(process.node_id)

    def _look_once_more(self, node_id: int) -> None:
        """Observe a node once more: its messages and writes before its end count."""
        node, controller = self.nodes.get(node_id), self.controllers.get(node_id)
        if controller is not None:
            self.checker.quorum.on_event(controller.replica.node, controller.replica.observe())
        if node is not None and node.broker is not None:
            self.checker.on_broker_event(node, replica_of(node.broker))

    def on_error(self, process: Process | None, error: Exception) -> None:
        node_id = -1 if process is None else process.node_id
        node = self.nodes.get(node_id)
        if node is not None and node.broker is not None:
            self.on_end(node, node.broker, error)
        elif node_id in self.controller_ids:
            self.on_controller_end(node_id, error)
        else:
            super().on_error(process, error)

    # Recovery

    def stop_faults(self) -> None:
        self.checker.data.acknowledged.clear()
        for consumer in self.consumers:
            if isinstance(consumer, TieredConsumer):
                consumer.begin_again()
        for node_id in self.quorum_nodes:  # first: requests of the end may write
            self._repair(node_id)
        self._schedule.end()
        if self.applications is not None:
            self.applications.stop()
        self.links.heal()
        self.wires.clear_up()
        self.network.clear_up()
        self._recovery.begin()
        for node_id in self.quorum_nodes:
            node = self.nodes.get(node_id)
            if not self.is_up(node_id):
                self.start_later(node_id)
            elif node is not None and node.broker is not None and node.broker.has_lost_directory:
                self.crash(node_id, power=False)
                self.start_later(node_id)

    def _repair(self, node_id: int) -> None:
        for disk in self.disks(node_id):
            disk.fail_after = disk.error_after = None
            disk.is_full = False

    def disks(self, node_id: int) -> list[MetadataDisk | DataDisk]:
        """Return the disks of a machine."""
        metadata = self.quorum_nodes[node_id].disk
        assert isinstance(metadata, MetadataDisk)
        node = self.nodes.get(node_id)
        if node is None:
            return [metadata]
        assert isinstance(node.disk, DataDisk)
        return [metadata, node.disk]

    def unsettled_reason(self) -> str | None:
        return self._recovery.unsettled_reason()

    def registration(self, name: ReplicaName) -> PartitionRegistration | None:
        """Return the committed registration of a partition."""
        topic = self.checker.committed.image.topics.by_name(name.topic)
        return None if topic is None else topic.partition(name.partition)

    # Start and stop of nodes

    def is_up(self, node_id: int) -> bool:
        node = self.nodes.get(node_id)
        return node_id in self.controllers if node is None else node.is_up

    def replica(self, node_id: int) -> MetadataReplica | None:
        """Return the running replica of the metadata log on a node."""
        controller, node = self.controllers.get(node_id), self.nodes.get(node_id)
        if controller is not None:
            return controller.replica
        return None if node is None or node.broker is None else replica_of(node.broker)

    def process(self, node_id: int) -> TaskProcess | None:
        """Return the running process of a node."""
        controller, node = self.controllers.get(node_id), self.nodes.get(node_id)
        if controller is not None:
            return controller.process
        return None if node is None or node.broker is None else node.broker.process

    def start(self, node_id: int) -> None:
        """Start a process on a machine, unless one is running or the machine is dead."""
        if self.is_up(node_id) or node_id in self.dead:
            return
        quorum_node = self.quorum_nodes[node_id]
        quorum_node.starts += 1
        self.checker.note(f"node {node_id} starts")
        self.checker.counts.add("restarts", int(quorum_node.starts > 1))
        quorum_node.disk.has_failed = False
        self.checker.quorum.on_start(quorum_node)
        node = self.nodes.get(node_id)
        if node is None:
            self._start_controller(quorum_node)
        else:
            self._start_broker(node, quorum_node)

    def _start_controller(self, node: QuorumNode) -> None:
        process = TaskProcess(self.world, node.id, rate=node.rate, wall_offset_ms=node.wall_offset_ms)
        self.world.run(process, self._open_controller, node, process)

    def _open_controller(self, node: QuorumNode, process: TaskProcess) -> None:
        random = Random(f"controller {self.seed} {node.id} {node.starts}")
        node.disk.is_starting = True
        try:
            controller = open_controller(
                node, process, self, random, lambda error: self.on_controller_end(node.id, error)
            )
        except (OSError, LogDirFailure) as error:
            process.die()
            self.on_controller_end(node.id, error)
            return
        except PowerFailure:
            process.die()
            raise
        finally:
            node.disk.is_starting = False
        self.serve_controller(node, controller)
        controller.replica.start()

    def serve_controller(self, node: QuorumNode, controller: ControllerProcess) -> None:
        """Let requests reach a controller."""
        self.controllers[node.id] = controller
        self.network.listen(node.endpoint, controller.replica)
        self.wires.listen(node.endpoint, controller)

    def _start_broker(self, node: Node, quorum_node: QuorumNode) -> None:
        node.starts += 1
        node.is_leaving = False
        node.disk.has_failed = False
        broker = node.broker = ClusterBroker(node, quorum_node, self, self.seed)
        self.wires.own(node.endpoint, node.id)
        self.world.run(broker.process, broker.start)

    def start_later(self, node_id: int) -> None:
        mean_ms = 100.0 if self.is_recovering else self.random.choice((20.0, 300.0, 2_000.0))
        self.world.schedule(self.random.expovariate(1.0 / mean_ms), self.start, node_id)

    def crash(self, node_id: int, *, power: bool) -> None:
        """Kill the process of a machine; with `power`, also lose unsynced data. The caller must restart the node."""
        process, node, quorum_node = self.process(node_id), self.nodes.get(node_id), self.quorum_nodes[node_id]
        self.ends.note_end(node_id, power=power)
        if process is not None:
            process.die()
            self.checker.on_stop(process)
        self.controllers.pop(node_id, None)
        self.checker.quorum.on_stop(quorum_node)
        if node is not None:
            node.broker = None
            self.checker.data.on_stop(node)
            if power:
                self.checker.data.on_loss(node)
        for disk in self.disks(node_id):
            disk.fail_after = disk.error_after = None
            disk.is_starting = False
            if power:
                disk.crash(self.random)
            else:
                disk.forget_process()

    def wipe(self, node: Node) -> None:
        """Replace the disks of a stopped broker by empty ones."""
        self.checker.data.on_loss(node)
        node.lives += 1
        node.disk = DataDisk(node.id, self.checker.data)
        quorum_node = self.quorum_nodes[node.id]
        self.wipe_metadata(quorum_node)

    def wipe_metadata(self, node: QuorumNode) -> None:
        """Replace the metadata disk of a stopped node by an empty one."""
        self.checker.quorum.lost_disks[node.key] = node.disk
        node.lose_disk(MetadataDisk(node.id, self.checker.quorum))
        format_metadata(node, [])

    def note_directory_failure(self, node: Node) -> None:
        self.checker.note(f"a log directory of node {node.id} fails")

    def note_fetch(self, node: Node, request: FetchRequest) -> None:
        if self.scenario.flush_messages != 1:
            return
        for topic in request.topics:
            image = self.checker.committed.image.topics.by_id(topic.topic_id)
            for each in topic.partitions if image is not None else ():
                assert image is not None
                name = ReplicaName(image.name, each.partition)
                self.checker.data.on_acknowledged_offset(node, name, each.fetch_offset)

    def on_end(self, node: Node, broker: Broker, error: BaseException | None) -> None:
        """Handle the end of a broker's process, allowed after a disk failure or while registration is impossible."""
        if node.broker is not broker:
            return
        if error is not None:
            failed = any(disk.has_failed for disk in self.disks(node.id))
            may_end = isinstance(error, OSError | LogDirFailure | NoLogDir) and failed
            if not may_end and not isinstance(error, RegistrationTimedOut):
                self.fail_on_error(f"node {node.id}", "ended itself:", error)
        self.checker.note(f"node {node.id} ends: {error or 'it has shut down'}")
        self._look_once_more(node.id)
        self.crash(node.id, power=False)
        self.start_later(node.id)

    def on_controller_end(self, node_id: int, error: BaseException) -> None:
        """Handle the end of a controller's process, allowed after a disk failure."""
        if not isinstance(error, OSError | LogDirFailure) or not self.quorum_nodes[node_id].disk.has_failed:
            self.fail_on_error(f"controller {node_id}", "ended itself:", error)
        self.checker.note(f"controller {node_id} ends itself: {error}")
        self._look_once_more(node_id)
        self.crash(node_id, power=self.random.random() < 0.5)
        self.start_later(node_id)


def replica_of(broker: Broker) -> MetadataReplica | None:
    assert isinstance(broker, ClusterBroker)
    return broker.replica
