"""The random schedule of a cluster: work, faults and operations at random moments drawn from the seed.

Kafka's guarantees have conditions, and the schedule keeps to them. A broker loses unsynced data, its disks or its life
only while every partition of it has another in-sync or eligible replica, by the committed metadata and by the decisions
of every controller; unsynced data and disks only with eligible leader replicas. At most one controller and one broker
die for good. Everything else may happen at any time, to any number of nodes.
"""

from collections.abc import Callable, Iterable
from random import Random
from typing import Final

from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.partition import PartitionRegistration
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.broker_registration import BrokerRegistrationRequest
from protocol.messages.create_topics import CreateTopicsResponse
from protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.simulation.cluster.broker import ClusterBroker
from tests.simulation.cluster.connections import ControllerWires
from tests.simulation.cluster.controller import ControllerProcess
from tests.simulation.cluster.disks import StallableIo
from tests.simulation.cluster.replica import MetadataReplica
from tests.simulation.cluster.scenario import CONTROLLER_IDS
from tests.simulation.cluster.simulation import ClusterSimulator, create_topic_request
from tests.simulation.cluster.tier_checker import TIERED_NAME
from tests.simulation.replication.broker import Node
from tests.simulation.replication.disk import ReplicaName
from tests.simulation.replication.metadata import Refusal
from tests.simulation.replication.producers import Producer
from tests.simulation.replication.scenario import TopicScenario
from tests.simulation.weather import Weather, draw_weather

_PENDING_MAX: Final = 12
"""Number of waiting batches at which a producer pauses."""
_PREFERRED: Final = 0
_CLOCK_STEPS_MS: Final = (1_500, 60_000, 3_600_000)
_PROBE_MS: Final = 1_000.0
_ASK_AGAIN_MS: Final = 200.0
_QUIET_SHARE: Final = 0.6
"""Share of tiered histories in which a leader stays deposed until its successor has copied segments."""

Links = frozenset[tuple[int, int]]


class RandomSchedule:
    """The random schedule. Implements Schedule."""

    def __init__(self, simulation: ClusterSimulator) -> None:
        self._simulation = simulation
        self._random = Random(f"schedule {simulation.seed}")
        self._world = simulation.world
        self._is_over = False
        self._topic_count = 0
        self._quiet_until_ms = 0.0
        """Until then there is no fault, only work."""
        self._faults: tuple[tuple[int, Callable[[], None]], ...] = (
            (10, self._kill_broker),
            (8, self._kill_controller),
            (5, self._kill_active_controller),
            (5, self._lose_power),
            (6, self._lose_power_soon),
            (3, self._wipe),
            (3, self._move),
            (8, self._restart_behind_stall),
            (12, self._delay_first_requests),
            (3, self._fail_disk_soon),
            (3, self._fill_disk),
            (4, self._stall_disk),
            (5, self._shut_down),
            (6, self._stall),
            (6, self._cut_some),
            (6, self._cut_two),
            (8, self._cut_broker_from_controllers),
            (6, self._cut_active_controller),
            (12 if simulation.metadata_scenario.tiered else 0, self._cut_tiered_leader),
            (6, self._heal),
            (3, self._change_weather),
            (8, self._step_clock),
            (6, self._step_clock_of_active_controller),
            (4, self._resign),
            (6, self._move_leader),
            (3, self._reassign),
            (14, self._churn_topics),
            (4, self._burst),
            (10 if simulation.metadata_scenario.deaths else 0, self._die),
            (10 if simulation.metadata_scenario.tiered else 0, self._fail_store),
        )
        self._weights = [weight for weight, _ in self._faults]

    def begin(self) -> None:
        scenario = self._simulation.scenario
        for producer in self._simulation.producers:
            self._after(self._random.expovariate(1.0 / scenario.produce_every_ms), self._producing(producer))
        self._after(self._random.expovariate(1.0 / scenario.fault_every_ms), self._fault_again)
        self._simulation.checker.on_active = self._on_active
        if self._simulation.metadata_scenario.tiered and self._random.random() < _QUIET_SHARE:
            self._after(self._random.uniform(300.0, 1_500.0), self._depose_once)

    def end(self) -> None:
        self._is_over = True
        if self._simulation.tier is not None:
            self._simulation.tier.faults.end()
        for name in self._partitions():
            self._alter(name, None)
        self._probe()

    @property
    def is_on_trial(self) -> bool:
        return self._world.now_ms < self._quiet_until_ms

    @property
    def is_over(self) -> bool:
        return True

    def _probe(self) -> None:
        """Produce to every partition that has no acknowledgement since the faults ended."""
        missing = False
        for producer in self._simulation.producers:
            if producer.name not in self._simulation.checker.data.acknowledged:
                missing = True
                if not producer.pending_count:
                    self._produce(producer)
        if missing:
            self._after(_PROBE_MS, self._probe)

    def _after(self, delay_ms: float, action: Callable[[], None]) -> None:
        self._world.schedule(delay_ms, action)

    def _note(self, text: str) -> None:
        self._simulation.checker.note(text)

    def _count(self, name: str) -> None:
        self._simulation.checker.counts.add(name)

    def _fault_again(self) -> None:
        if self._is_over:
            return
        scenario = self._simulation.scenario
        if self._random.random() < scenario.calm_share:
            self._note("calm")
            self._simulation.heal()
            self._after(self._random.uniform(1.0, 3.0) * scenario.session_timeout_ms, self._fault_again)
            return
        self._after(self._random.expovariate(1.0 / scenario.fault_every_ms), self._fault_again)
        if self._world.now_ms < self._quiet_until_ms:
            self._burst()
            return
        (_, fault) = self._random.choices(self._faults, self._weights)[0]
        fault()

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

    # Nodes

    def _brokers(self) -> list[Node]:
        """Return the running brokers."""
        return [node for node in self._simulation.nodes.values() if node.is_up]

    def _controllers(self) -> list[ControllerProcess]:
        return list(self._simulation.controllers.values())

    def _any_node(self) -> int | None:
        """Return a running node."""
        up = [node_id for node_id in self._simulation.quorum_nodes if self._simulation.is_up(node_id)]
        return self._random.choice(up) if up else None

    def _kill(self, node_id: int, *, power: bool = False) -> None:
        self._note(f"node {node_id} {'loses power' if power else 'is killed'}")
        self._simulation.crash(node_id, power=power)
        self._simulation.start_later(node_id)

    def _kill_broker(self) -> None:
        """Kill one broker, or sometimes all at once."""
        up = self._brokers()
        for node in up if self._random.random() < 0.1 else self._random.sample(up, min(1, len(up))):
            self._kill(node.id)

    def _kill_controller(self) -> None:
        """Kill one controller, or sometimes all at once, with or without loss of power."""
        up = self._controllers()
        power = self._random.random() < 0.6
        for controller in up if self._random.random() < 0.1 else self._random.sample(up, min(1, len(up))):
            self._kill(controller.process.node_id, power=power)

    def _kill_active_controller(self) -> None:
        active = self._simulation.active()
        if active is not None:
            self._kill(active.process.node_id, power=self._random.random() < 0.6)

    def _on_active(self, replica: MetadataReplica) -> None:
        """Disturb some controllers soon after they become active."""
        if not self._is_over and self._random.random() < 0.2:
            disturb = self._random.choice(
                (self._churn_topics, self._kill_active_controller, self._cut_active_controller)
            )
            self._after(self._random.choice((0.0, 5.0, 50.0)), disturb)

    def _lose_power(self) -> None:
        node = self._any([node for node in self._brokers() if self._may_lose(node)])
        if node is not None:
            self._kill(node.id, power=True)

    def _lose_power_soon(self) -> None:
        """Cut a node's power in the middle of its next operations, if that is still allowed then."""
        node_id = self._any_node()
        if node_id is None:
            return
        node = self._simulation.nodes.get(node_id)
        for disk in self._simulation.disks(node_id):
            disk.fail_after = self._random.randint(0, 40)
            if node is not None:
                disk.may_fail = lambda: self._may_lose(node)

    def _wipe(self) -> None:
        """Replace the disks of a broker by empty ones."""
        node = self._any([node for node in self._brokers() if self._may_lose(node)])
        if node is not None:
            self._note(f"the disks of node {node.id} are wiped")
            self._count("wiped disks")
            self._simulation.crash(node.id, power=False)
            self._simulation.wipe(node)
            self._simulation.start_later(node.id)

    def _move(self) -> None:
        """Restart a broker with another address."""
        node = self._any(self._brokers())
        if node is not None:
            self._note(f"node {node.id} moves")
            self._simulation.crash(node.id, power=False)
            node.moves += 1
            self._simulation.wires.own(node.endpoint, node.id)
            self._simulation.start_later(node.id)

    def _restart_behind_stall(self) -> None:
        """Restart a broker while its last requests to the controllers are still on the way, for long."""
        node = self._any(self._brokers())
        if node is not None and isinstance(node.broker, ClusterBroker):
            self._note(f"the connections of node {node.id} to the controllers stall")
            until_ms = self._world.now_ms + self._random.choice((1_000.0, 3_000.0))
            for connections in node.broker.controller_wires:
                connections.stall(until_ms)
            delay_ms = self._random.uniform(0.5, 1.2) * self._simulation.scenario.heartbeat_interval_ms
            self._after(delay_ms, lambda: self._restart(node))

    def _delay_first_requests(self) -> None:
        """Restart a broker; delay its registration and restart it again, or delay a heartbeat of its start."""
        node = self._any(self._brokers())
        if node is None:
            return
        self._restart(node)
        broker = node.broker
        if not isinstance(broker, ClusterBroker):
            return
        is_registration = self._random.random() < 0.5
        scenario, left = self._simulation.scenario, self._random.choice((1, 1, 2))

        def delay(connections: ControllerWires, request: object) -> None:
            nonlocal left
            kind = BrokerRegistrationRequest if is_registration else BrokerHeartbeatRequest
            if not isinstance(request, kind) or self._is_over:
                return
            left -= 1
            if left == 0:
                for_ms = self._random.uniform(1.2, 4.0) * (
                    scenario.session_timeout_ms if is_registration else scenario.heartbeat_interval_ms
                )
                connections.stall(self._world.now_ms + for_ms)
                name = "registration" if is_registration else "start-up heartbeat"
                self._note(f"a {name} of node {node.id} is delayed by {for_ms:.0f} ms")
                self._count(f"delayed {name}s")
                if is_registration:
                    self._after(self._random.uniform(0.2, 1.0) * scenario.heartbeat_interval_ms, restart)

        def restart() -> None:
            if node.broker is broker:
                self._restart(node)

        broker.on_request = delay

    def _restart(self, node: Node) -> None:
        if node.is_up and not self._is_over:
            self._simulation.crash(node.id, power=False)
            self._simulation.start(node.id)

    def _die(self) -> None:
        """Let a broker or a controller die for good, at most one of each."""
        simulation = self._simulation
        if self._random.random() < 0.5:
            if not simulation.dead & set(CONTROLLER_IDS):
                self._bury(self._random.choice(CONTROLLER_IDS))
        elif simulation.scenario.elr and not simulation.dead & set(simulation.nodes):
            node = self._any([node for node in self._brokers() if self._may_lose(node)])
            if node is not None:
                simulation.checker.data.on_loss(node)
                self._bury(node.id)

    def _bury(self, node_id: int) -> None:
        self._note(f"node {node_id} dies for good")
        self._count("deaths for good")
        self._simulation.crash(node_id, power=False)
        self._simulation.dead.add(node_id)

    def _any(self, nodes: list[Node]) -> Node | None:
        return self._random.choice(nodes) if nodes else None

    def _may_lose(self, node: Node) -> bool:
        """Whether the other brokers have all records."""
        simulation = self._simulation
        if self._is_over or not simulation.scenario.elr or simulation.checker.data.lost - {node.id}:
            return False
        views = simulation.views()
        return all(
            (name == TIERED_NAME or not simulation.checker.data.histories[name].is_recovering)
            and all(self._is_held(view, name, node.id) for view in views)
            for name in self._partitions()
        )

    def _is_held(self, view: MetadataImage, name: ReplicaName, without: int) -> bool:
        topic = view.topics.by_name(name.topic)
        registration = None if topic is None else topic.partition(name.partition)
        if registration is None:
            return False
        return not {*registration.isr, *registration.elr} <= {without, *self._simulation.dead}

    def _shut_down(self) -> None:
        node = self._any([node for node in self._brokers() if not node.is_leaving])
        if node is not None and node.broker is not None:
            self._note(f"node {node.id} shuts down")
            node.is_leaving = True
            self._world.run(node.broker.process, node.broker.shut_down)

    def _stall(self) -> None:
        """Pause a machine: only its clocks continue."""
        node_id = self._any_node()
        process = None if node_id is None else self._simulation.process(node_id)
        if process is not None:
            pause_ms = self._random.choice((50.0, 800.0, 3_000.0))
            self._note(f"node {node_id} stalls for {pause_ms:.0f} ms")
            process.stalled_until_ms = self._world.now_ms + pause_ms

    # Disks

    def _fail_disk_soon(self) -> None:
        node_id = self._any_node()
        if node_id is not None:
            disk = self._random.choice(self._simulation.disks(node_id))
            disk.error_after = self._random.randint(0, 20)
            disk.error_path = "/"

    def _fill_disk(self) -> None:
        """Fill a disk for a while: its node stops, or goes on with its other disk."""
        node_id = self._any_node()
        if node_id is None:
            return
        disk = self._random.choice(self._simulation.disks(node_id))
        disk.is_full = True
        self._note(f"a disk of node {node_id} is full")
        self._count("full disks")

        def free() -> None:
            disk.is_full = False

        self._after(self._random.choice((500.0, 3_000.0)), free)

    def _stall_disk(self) -> None:
        node_id = self._any_node()
        if node_id is None:
            return
        stall_ms = self._random.choice((100.0, 500.0, 2_000.0))
        controller, node = self._simulation.controllers.get(node_id), self._simulation.nodes.get(node_id)
        io = (
            controller.io if controller is not None else None if node is None or node.broker is None else node.broker.io
        )
        assert isinstance(io, StallableIo)
        self._note(f"the disks of node {node_id} stall for {stall_ms:.0f} ms")
        self._count("stalled disks")
        io.stall(self._world.now_ms + stall_ms)

    # The object store

    def _fail_store(self) -> None:
        """Let the object store be down, or lose responses, for a while."""
        tier = self._simulation.tier
        if tier is None:
            return
        for_ms = self._random.choice((300.0, 1_000.0, 4_000.0))
        if self._random.random() < 0.5:
            tier.faults.is_down = True
            self._count("store outages")
        else:
            tier.faults.lost_share = self._random.choice((0.2, 0.7))
            self._count("stores that lose responses")
        self._note(f"the store {'is down' if tier.faults.is_down else 'loses responses'} for {for_ms:.0f} ms")
        self._after(for_ms, tier.faults.end)

    # Clocks

    def _step_clock(self) -> None:
        """Step the wall clock of a machine, forward or back."""
        node_id = self._any_node()
        if node_id is not None:
            self._step(node_id)

    def _step_clock_of_active_controller(self) -> None:
        active = self._simulation.active()
        if active is not None:
            self._step(active.process.node_id)

    def _step(self, node_id: int) -> None:
        step_ms = self._random.choice((-1, 1)) * self._random.choice(_CLOCK_STEPS_MS)
        self._note(f"the clock of node {node_id} steps by {step_ms} ms")
        self._count("clock steps")
        process, node = self._simulation.process(node_id), self._simulation.nodes.get(node_id)
        if process is not None:
            process._wall_offset_ms += step_ms
        self._simulation.quorum_nodes[node_id].wall_offset_ms += step_ms
        if node is not None:
            node.wall_offset_ms += step_ms

    # The network

    def _cut(self, links: Iterable[tuple[int, int]]) -> None:
        """Cut links for a while: some recover before a session ends, others long after."""
        cut = frozenset(links)
        for_ms = self._random.choice((0.5, 1.5, 4.0)) * self._simulation.scenario.session_timeout_ms
        self._note(f"cut links for {for_ms:.0f} ms: {sorted(cut)[:12]}")
        self._simulation.cut(cut, for_ms)

    def _cut_some(self) -> None:
        """Cut random links, or partition nodes and clients into two groups, or isolate a node."""
        ids = list(self._simulation.quorum_nodes)
        match self._random.randrange(3):
            case 0:
                self._cut((a, b) for a in ids for b in ids if a != b and self._random.random() < 0.2)
            case 1:
                everybody = [*ids, *(client.process.node_id for client in self._simulation.clients)]
                group = {node_id for node_id in everybody if self._random.random() < 0.5}
                self._cut((a, b) for a in everybody for b in everybody if (a in group) != (b in group))
            case _:
                self._cut(_both_ways([self._random.choice(ids)], ids))

    def _cut_two(self) -> None:
        """Cut the link between two nodes alone, in both directions or in one."""
        one, other = self._random.sample(list(self._simulation.quorum_nodes), 2)
        self._cut([(one, other)] if self._random.random() < 0.5 else [(one, other), (other, one)])

    def _cut_broker_from_controllers(self) -> None:
        """Cut a broker off from the controllers alone: it goes on believing that it leads."""
        node_id = self._random.choice(list(self._simulation.nodes))
        self._count("brokers cut off from the controllers")
        self._cut(_both_ways([node_id], CONTROLLER_IDS))

    def _cut_tiered_leader(self) -> None:
        """Cut the leader of the tiered topic off from the controllers alone, long enough for its successor to copy."""
        registration = self._simulation.registration(TIERED_NAME)
        is_led = registration is not None and registration.leader in self._simulation.nodes
        if registration is not None and is_led and not self._simulation.has_lasting_cut:
            self._count("brokers cut off from the controllers")
            self._depose(registration.leader, is_quiet=False)

    def _depose_once(self) -> None:
        """Depose a tiered leader as soon as another broker can lead, and end all other faults meanwhile."""
        if not self._is_over and not self._depose_if_possible():
            self._after(_ASK_AGAIN_MS, self._depose_once)

    def _depose_if_possible(self) -> bool:
        """Depose the tiered leader if another broker can lead at once; return whether it is deposed."""
        registration = self._simulation.registration(TIERED_NAME)
        can_depose = registration is not None and not self._simulation.has_lasting_cut
        if registration is not None and can_depose and self._can_succeed(registration):
            self._depose(registration.leader, is_quiet=True)
            return True
        return False

    def _can_succeed(self, registration: PartitionRegistration) -> bool:
        """Whether another broker can lead at once, and the leader has committed records."""
        simulation = self._simulation
        node = simulation.nodes.get(registration.leader)
        leader = None if node is None else node.broker
        partition = None if leader is None else leader.partition(*TIERED_NAME)
        successors = [each for each in registration.isr if each != registration.leader and simulation.is_up(each)]
        return (
            simulation.active() is not None
            and bool(successors)
            and partition is not None
            and partition.is_leader
            and partition.log.high_watermark > 0
        )

    def _depose(self, leader: int, *, is_quiet: bool) -> None:
        """Cut a leader off from the controllers; if `is_quiet`, also from clients, and end other faults meanwhile."""
        simulation = self._simulation
        for_ms = self._random.uniform(6.0 if is_quiet else 4.0, 10.0) * simulation.scenario.session_timeout_ms
        self._note(f"the tiered leader {leader} is cut off from the controllers for {for_ms:.0f} ms")
        others = list(CONTROLLER_IDS)
        if is_quiet:
            self._note("clients leave it, and there are no other faults")
            self._quiet_until_ms = self._world.now_ms + for_ms
            simulation.heal()
            self._clear_up(for_ms)
            others += [client.process.node_id for client in simulation.clients]
        simulation.cut(frozenset(_both_ways([leader], others)), for_ms, is_lasting=True)

    def _clear_up(self, for_ms: float) -> None:
        """Let the network lose, repeat and delay nothing for a while."""
        wires, network = self._simulation.wires, self._simulation.network
        before = network.weather
        wires.weather = network.weather = Weather()

        def restore() -> None:
            wires.weather = network.weather = before

        self._after(for_ms, restore)

    def _cut_active_controller(self) -> None:
        """Cut the active controller off from the other controllers, or from some nodes, or let it be deaf."""
        active = self._simulation.active()
        if active is None:
            return
        ids, own = list(self._simulation.quorum_nodes), active.process.node_id
        others = [node_id for node_id in CONTROLLER_IDS if node_id != own]
        match self._random.randrange(4):
            case 0:
                self._cut(_both_ways([own], others))
            case 1:
                self._cut(_both_ways([own], ids))
            case 2:
                self._cut((node_id, own) for node_id in ids if node_id != own)
            case _:
                self._cut((own, node_id) for node_id in ids if node_id != own)

    def _heal(self) -> None:
        self._note("all links restored")
        self._simulation.heal()

    def _change_weather(self) -> None:
        weather = draw_weather(self._random)
        self._simulation.wires.weather = self._simulation.network.weather = weather

    # Operators

    def _resign(self) -> None:
        active = self._simulation.active()
        if active is not None:
            quorum = active.replica.quorum
            self._note(f"controller {active.process.node_id} resigns")
            self._world.run(active.process, quorum.resign, quorum.leader.epoch)

    def _any_partition(self) -> ReplicaName:
        return self._random.choice(self._partitions())

    def _partitions(self) -> list[ReplicaName]:
        checker = self._simulation.checker
        return [*checker.data.histories, *([] if checker.tier is None else [TIERED_NAME])]

    def _move_leader(self) -> None:
        """Make another replica the preferred leader, and then the leader if possible."""
        name = self._any_partition()
        registration = self._simulation.registration(name)
        if registration is None or registration.adding_replicas or registration.removing_replicas:
            return
        replicas = list(registration.replicas)
        self._random.shuffle(replicas)
        self._alter(name, replicas)
        request = ElectLeadersRequest(
            election_type=_PREFERRED,
            topic_partitions=[TopicPartitions(topic=name.topic, partitions=[name.partition])],
        )
        self._simulation.command(lambda controller, _now: controller.elect_leaders(request), _nothing)

    def _reassign(self) -> None:
        """Reassign a partition, never to a dead broker."""
        name = self._any_partition()
        registration = self._simulation.registration(name)
        live = [node_id for node_id in self._simulation.nodes if node_id not in self._simulation.dead]
        if registration is None or self._simulation.dead & set(self._simulation.nodes):
            return
        factor = len(registration.replicas) - len(registration.adding_replicas)
        replicas = self._random.sample(live, min(factor, len(live)))
        self._note(f"{name} is reassigned to {replicas}")
        self._alter(name, replicas)

    def _alter(self, name: ReplicaName, replicas: list[int] | None) -> None:
        partition = ReassignablePartition(partition_index=name.partition, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=name.topic, partitions=[partition])]
        )
        self._simulation.command(lambda controller, _now: controller.alter_reassignments(request), _nothing)

    def _churn_topics(self) -> None:
        """Create a topic, and later delete it; the controller may fail in the middle."""
        self._create_topic()
        if self._random.random() < 0.3:
            self._after(self._random.choice((0.0, 3.0, 20.0)), self._kill_active_controller)

    def _create_topic(self) -> None:
        if self._is_over:
            return
        if self._simulation.active() is None:
            self._after(_ASK_AGAIN_MS, self._create_topic)
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
            self._after(_ASK_AGAIN_MS, lambda: self._delete_topic(name))
            return
        topic_id = topic.id
        self._note(f"topic {name} is deleted")

        def done(response: object) -> None:
            if isinstance(response, dict) and not response[topic_id].error_code:
                self._simulation.checker.on_topic_acknowledged(name, exists=False)

        self._simulation.command(lambda controller, _now: controller.delete_topics([topic_id]), done)


class DeposedTieredLeaders(RandomSchedule):
    """A schedule whose only faults are leaders of the tiered topic that do not learn that they are deposed."""

    def __init__(self, simulation: ClusterSimulator) -> None:
        super().__init__(simulation)
        self._weights = [int(fault == self._burst) for _, fault in self._faults]

    def begin(self) -> None:
        super().begin()
        self._simulation.checker.on_active = _nothing
        self._simulation.wires.weather = self._simulation.network.weather = Weather()
        self._after(self._random.uniform(300.0, 1_500.0), self._depose_again)

    def _depose_again(self) -> None:
        """Depose one leader after another."""
        if not self._is_over:
            self._depose_if_possible()
            self._after(_ASK_AGAIN_MS, self._depose_again)


def _both_ways(some: Iterable[int], others: Iterable[int]) -> list[tuple[int, int]]:
    """Return the links between some nodes and others, in both directions."""
    pairs = [(a, b) for a in some for b in others if a != b]
    return [*pairs, *((b, a) for a, b in pairs)]


def _nothing(_: object) -> None:
    """Ignore the result."""
