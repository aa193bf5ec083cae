"""Faults of links: for a moment between groups of nodes, or for long between two nodes alone, one way or both."""

from collections.abc import Callable
from random import Random
from typing import Final

from tests.simulation.replication.scenario import CONTROLLER_ID
from tests.simulation.replication.simulation import ReplicationSimulator, clients_of
from tests.simulation.weather import draw_weather

_LONG_CUT_SHARES: Final = (1.0, 3.0, 20.0)
"""Lengths of long cuts, as multiples of the longer one of session timeout and replica.lag.time.max.ms."""


class LinkFaults:
    """The faults of links. Node 0 is the controller."""

    def __init__(self, simulation: ReplicationSimulator, random: Random, note: Callable[[str], None]) -> None:
        self._simulation = simulation
        self._random = random
        self._note = note
        self._wires = simulation.wires
        self._ids = [CONTROLLER_ID, *simulation.nodes]

    def partition(self) -> None:
        """Cut some links, each in one direction, or partition the nodes into two groups, or isolate a node."""
        ids, random = self._ids, self._random
        clients = [client.process.node_id for client in clients_of(self._simulation)]
        links = [(a, b) for a in ids for b in ids if a != b]
        match random.randrange(5):
            case 0:
                blocked = {link for link in links if random.random() < 0.3}
            case 1:
                group = {node_id for node_id in (*ids, *clients) if random.random() < 0.5}
                everybody = [*ids, *clients]
                blocked = {(a, b) for a in everybody for b in everybody if (a in group) != (b in group)}
            case 2:
                alone = random.choice(ids[1:])
                blocked = {(a, b) for a, b in links if alone in (a, b)}
            case 3:
                deaf = random.choice(ids)
                blocked = {(a, b) for a, b in links if b == deaf}
            case _:
                cut_off = random.choice(ids[1:])
                blocked = {(0, cut_off), (cut_off, 0)}
        self._note(f"cut links: {sorted(blocked)[:12]}")
        self._wires.block(frozenset(blocked))

    def heal(self) -> None:
        """Restore all links but those that are cut for long."""
        self._note("all links restored")
        self._wires.block(frozenset())

    def change_weather(self) -> None:
        """Change loss and delay of messages."""
        self._wires.weather = draw_weather(self._random)

    def part_two_brokers(self) -> None:
        """Cut the link between two brokers alone for long, one way or both."""
        one, other = self._random.sample(self._ids[1:], 2)
        links = {(one, other)}
        if self._random.random() < 0.5:
            links.add((other, one))
        else:
            self._simulation.checker.counts.add("one-way cuts")
        self._cut_for_long(links)

    def cut_off_from_controller(self) -> None:
        """Cut a broker, mostly a leader, off from the controller alone for long: it learns of no successor."""
        node_id = self._random.choice(self._ids[1:])
        registration = self._simulation.registration(self._random.choice(list(self._simulation.checker.histories)))
        if registration is not None and registration.has_leader and self._random.random() < 0.7:
            node_id = registration.leader
        self._cut_for_long({(CONTROLLER_ID, node_id), (node_id, CONTROLLER_ID)})

    def _cut_for_long(self, links: set[tuple[int, int]]) -> None:
        scenario = self._simulation.scenario
        longer_ms = max(scenario.session_timeout_ms, scenario.lag_time_max_ms)
        length_ms = self._random.choice(_LONG_CUT_SHARES) * longer_ms
        self._note(f"cut links for {length_ms:.0f} ms: {sorted(links)}")
        self._wires.sever(frozenset(links))
        self._simulation.world.schedule(length_ms, self._restore, frozenset(links))

    def _restore(self, links: frozenset[tuple[int, int]]) -> None:
        isr = self._simulation.isr_checker
        isr.look()
        self._wires.restore(links)
        isr.look()
