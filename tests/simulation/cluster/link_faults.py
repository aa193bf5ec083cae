"""Faults of the network: cut links, deposed leaders that do not know it, and weather."""

from collections.abc import Iterable

from broker.metadata.image.partition import PartitionRegistration
from broker.metadata.image.topic_names import TRANSACTION_STATE_TOPIC
from tests.simulation.cluster.fault_source import FaultSource
from tests.simulation.cluster.tier_checker import TIERED_NAME
from tests.simulation.weather import Weather, draw_weather

Links = frozenset[tuple[int, int]]


class LinkFaults(FaultSource):
    """Faults of the network."""

    def _cut(self, links: Iterable[tuple[int, int]]) -> None:
        """Cut links for a while: some recover before a session ends, others long after."""
        cut = frozenset(links)
        for_ms = self._random.choice((0.5, 1.5, 4.0)) * self._simulation.scenario.session_timeout_ms
        self._note(f"cut links for {for_ms:.0f} ms: {sorted(cut)[:12]}")
        self._simulation.links.cut(cut, for_ms)

    def cut_some(self) -> None:
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

    def cut_two(self) -> None:
        """Cut the link between two nodes alone, in both directions or in one."""
        one, other = self._random.sample(list(self._simulation.quorum_nodes), 2)
        self._cut([(one, other)] if self._random.random() < 0.5 else [(one, other), (other, one)])

    def cut_broker_from_controllers(self) -> None:
        """Cut a broker off from the controllers alone: it goes on believing that it leads."""
        node_id = self._random.choice(list(self._simulation.nodes))
        self._count("brokers cut off from the controllers")
        self._cut(_both_ways([node_id], self._simulation.controller_ids))

    def cut_tiered_leader(self) -> None:
        """Cut the leader of the tiered topic off from the controllers alone, long enough for its successor to copy."""
        registration = self._simulation.registration(TIERED_NAME)
        is_led = registration is not None and registration.leader in self._simulation.nodes
        if registration is not None and is_led and not self._simulation.links.has_lasting_cut:
            self._count("brokers cut off from the controllers")
            self._depose(registration.leader, is_quiet=False)

    def depose_if_possible(self) -> bool:
        """Depose the tiered leader if another broker can lead at once; return whether it is deposed."""
        registration = self._simulation.registration(TIERED_NAME)
        can_depose = registration is not None and not self._simulation.links.has_lasting_cut
        if registration is not None and can_depose and self._can_succeed(registration):
            self._depose(registration.leader, is_quiet=True)
            return True
        return False

    def depose_coordinator(self) -> None:
        """Cut the leader of a partition of `__transaction_state` off from the controllers alone, for long."""
        names = [name for name in self._partitions() if name.topic == TRANSACTION_STATE_TOPIC]
        registration = self._simulation.registration(self._random.choice(names)) if names else None
        if registration is None or registration.leader < 0 or self._simulation.links.has_lasting_cut:
            return
        for_ms = self._random.uniform(3.0, 8.0) * self._simulation.scenario.session_timeout_ms
        self._note(
            f"the transaction coordinator {registration.leader} is cut off from the controllers for {for_ms:.0f} ms"
        )
        self._count("brokers cut off from the controllers")
        links = _both_ways([registration.leader], self._simulation.controller_ids)
        self._simulation.links.cut(frozenset(links), for_ms, is_lasting=True)

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
        others = list(simulation.controller_ids)
        if is_quiet:
            self._note("clients leave it, and there are no other faults")
            self._state.quiet_until_ms = self._world.now_ms + for_ms
            simulation.links.heal()
            self._clear_up(for_ms)
            others += [client.process.node_id for client in simulation.clients]
        simulation.links.cut(frozenset(_both_ways([leader], others)), for_ms, is_lasting=True)

    def _clear_up(self, for_ms: float) -> None:
        """Let the network lose, repeat and delay nothing for a while."""
        wires, network = self._simulation.wires, self._simulation.network
        before = network.weather
        wires.weather = network.weather = Weather()

        def restore() -> None:
            wires.weather = network.weather = before

        self._after(for_ms, restore)

    def cut_active_controller(self) -> None:
        """Cut the active controller off from the other controllers, or from some nodes, or let it be deaf."""
        active = self._simulation.active()
        if active is None:
            return
        ids, own = list(self._simulation.quorum_nodes), active.process.node_id
        others = [node_id for node_id in self._simulation.controller_ids if node_id != own]
        match self._random.randrange(4):
            case 0:
                self._cut(_both_ways([own], others))
            case 1:
                self._cut(_both_ways([own], ids))
            case 2:
                self._cut((node_id, own) for node_id in ids if node_id != own)
            case _:
                self._cut((own, node_id) for node_id in ids if node_id != own)

    def heal(self) -> None:
        self._note("all links restored")
        self._simulation.links.heal()

    def change_weather(self) -> None:
        weather = draw_weather(self._random)
        self._simulation.wires.weather = self._simulation.network.weather = weather


def _both_ways(some: Iterable[int], others: Iterable[int]) -> list[tuple[int, int]]:
    """Return the links between some nodes and others, in both directions."""
    pairs = [(a, b) for a in some for b in others if a != b]
    return [*pairs, *((b, a) for a, b in pairs)]
