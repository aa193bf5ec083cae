"""Faults of machines: processes that end or pause, lost power, lost disks, new addresses, late requests and clocks."""

from typing import Final

from broker.metadata.image.metadata_image import MetadataImage
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.broker_registration import BrokerRegistrationRequest
from tests.simulation.cluster.broker import ClusterBroker
from tests.simulation.cluster.connections import ControllerWires
from tests.simulation.cluster.fault_source import FaultSource, ScheduleState
from tests.simulation.cluster.tier_checker import TIERED_NAME
from tests.simulation.cluster.voter_changes import VoterChanges
from tests.simulation.replication.broker import Node
from tests.simulation.replication.disk import ReplicaName

_CLOCK_STEPS_MS: Final = (1_500, 60_000, 3_600_000)


class NodeFaults(FaultSource):
    """Faults of machines and their processes."""

    def __init__(self, state: ScheduleState, voters: VoterChanges) -> None:
        super().__init__(state)
        self._voters = voters

    def _kill(self, node_id: int, *, power: bool = False) -> None:
        node = self._simulation.nodes.get(node_id)
        power = power and (node is None or self.may_lose(node))
        self._note(f"node {node_id} {'loses power' if power else 'is killed'}")
        self._simulation.crash(node_id, power=power)
        self._simulation.start_later(node_id)

    def kill_broker(self) -> None:
        """Kill one broker, or sometimes all at once."""
        up = self._brokers()
        for node in up if self._random.random() < 0.1 else self._random.sample(up, min(1, len(up))):
            self._kill(node.id)

    def kill_controller(self) -> None:
        """Kill one controller, or sometimes all at once, with or without loss of power."""
        up = self._controllers()
        power = self._random.random() < 0.6
        for controller in up if self._random.random() < 0.1 else self._random.sample(up, min(1, len(up))):
            self._kill(controller.process.node_id, power=power)

    def kill_active_controller(self) -> None:
        active = self._simulation.active()
        if active is not None:
            self._kill(active.process.node_id, power=self._random.random() < 0.6)

    def lose_power(self) -> None:
        node = self._any([node for node in self._brokers() if self.may_lose(node)])
        if node is not None:
            self._kill(node.id, power=True)

    def lose_power_soon(self) -> None:
        """Cut a node's power in the middle of its next operations, if that is still allowed then."""
        node_id = self._any_node()
        if node_id is None:
            return
        node = self._simulation.nodes.get(node_id)
        for disk in self._simulation.disks(node_id):
            disk.fail_after = self._random.randint(0, 40)
            if node is not None:
                disk.may_fail = lambda: self.may_lose(node)

    def wipe(self) -> None:
        """Replace the disks of a broker by empty ones."""
        node = self._any([node for node in self._brokers() if self._may_lose_disks(node)])
        if node is not None:
            self._note(f"the disks of node {node.id} are wiped")
            self._count("wiped disks")
            self._simulation.crash(node.id, power=False)
            self._simulation.wipe(node)
            self._simulation.start_later(node.id)

    def move(self) -> None:
        """Restart a broker with another address."""
        node = self._any(self._brokers())
        if node is not None:
            self._note(f"node {node.id} moves")
            self._simulation.crash(node.id, power=False)
            node.moves += 1
            self._simulation.wires.own(node.endpoint, node.id)
            self._simulation.start_later(node.id)

    def restart_behind_stall(self) -> None:
        """Restart a broker while its last requests to the controllers are still on the way, for long."""
        node = self._any(self._brokers())
        if node is not None and isinstance(node.broker, ClusterBroker):
            self._note(f"the connections of node {node.id} to the controllers stall")
            until_ms = self._world.now_ms + self._random.choice((1_000.0, 3_000.0))
            for connections in node.broker.controller_wires:
                connections.stall(until_ms)
            delay_ms = self._random.uniform(0.5, 1.2) * self._simulation.scenario.heartbeat_interval_ms
            self._after(delay_ms, lambda: self._restart(node))

    def delay_first_requests(self) -> None:
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

    def die(self) -> None:
        """Let a broker or a controller die for good, at most one of each."""
        simulation = self._simulation
        if self._random.random() < 0.5:
            node_id = self._random.choice(simulation.controller_ids)
            is_first = not simulation.dead & set(simulation.controller_ids)
            if is_first and node_id not in simulation.nodes and self._voters.may_lose(node_id):
                self._bury(node_id)
        elif simulation.scenario.elr and not simulation.dead & set(simulation.nodes):
            node = self._any([node for node in self._brokers() if self._may_lose_disks(node)])
            if node is not None:
                simulation.checker.data.on_loss(node)
                self._bury(node.id)

    def _bury(self, node_id: int) -> None:
        self._note(f"node {node_id} dies for good")
        self._count("deaths for good")
        self._simulation.crash(node_id, power=False)
        self._simulation.dead.add(node_id)

    def may_lose(self, node: Node) -> bool:
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

    def _may_lose_disks(self, node: Node) -> bool:
        """Whether the other nodes have all records, and a majority of the voters if the node is a controller."""
        return self.may_lose(node) and self._voters.may_lose(node.id)

    def _is_held(self, view: MetadataImage, name: ReplicaName, without: int) -> bool:
        topic = view.topics.by_name(name.topic)
        registration = None if topic is None else topic.partition(name.partition)
        if registration is None:
            return False
        return not {*registration.isr, *registration.elr} <= {without, *self._simulation.dead}

    def shut_down(self) -> None:
        node = self._any([node for node in self._brokers() if not node.is_leaving])
        if node is not None and node.broker is not None:
            self._note(f"node {node.id} shuts down")
            node.is_leaving = True
            self._world.run(node.broker.process, node.broker.shut_down)

    def stall(self) -> None:
        """Pause a machine: only its clocks continue."""
        node_id = self._any_node()
        process = None if node_id is None else self._simulation.process(node_id)
        if process is not None:
            pause_ms = self._random.choice((50.0, 800.0, 3_000.0))
            self._note(f"node {node_id} stalls for {pause_ms:.0f} ms")
            process.stalled_until_ms = self._world.now_ms + pause_ms

    def step_clock(self) -> None:
        """Step the wall clock of a machine, forward or back."""
        node_id = self._any_node()
        if node_id is not None:
            self._step(node_id)

    def step_clock_of_active_controller(self) -> None:
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
