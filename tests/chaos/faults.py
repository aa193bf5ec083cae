"""Node faults of a chaos run: one at a time, each undone before the next."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.chaos.availability import Fault
from tests.chaos.network import CLIENTS, Link, Network, Plane
from tests.chaos.nodes import ChaosCluster

# Pause between the end of a fault and the begin of the next.
REST_S = (0.3, 1.5)
# Longer than followers need to leave the ISR and a session to expire: nodes.SETTINGS.
STARVATION_S = 6.5
ABSENCE_S = 5.0
# Time for the other brokers to remove a dead node from every ISR; the last replica of an ISR stays.
NOTICED_S = 10.0

# Longer than a session, a retention check, the local retention and the grace of the collection: tier.NODE_SETTINGS.
ISOLATION_S = (14.0, 20.0)
# The share of the run after which one node is dead for good.
DEATH_AT = 0.75
# Time for all replicas to be in sync before that death.
IN_SYNC_S = 120.0
DEAD = "dead for good"
PAIR_CUT = "cut off from one broker"
PAIR_CUT_ONE_WAY = "cut off from one broker, one way"
WITHOUT_CONTROLLERS = "cut off from the controllers"
DELETED = "deleted a remote segment"
REQUIRED = (DEAD, PAIR_CUT, PAIR_CUT_ONE_WAY, WITHOUT_CONTROLLERS)
"""Faults that a long run must contain."""

Act = Callable[[int], None]


@dataclass
class Faults:
    """A generator of faults in random order with equal counts per kind, and random victims."""

    cluster: ChaosCluster
    network: Network
    random: random.Random
    unclean: bool
    tiered: Sequence[str] = ()  # topics whose local replicas may be wiped, since their records are remote
    on_done: Callable[[Fault], None] = lambda _fault: None
    done: list[Fault] = field(default_factory=list)
    isolated_deletions: int = 0  # remote segments that nodes deleted while they were cut off from the controllers
    forced: int = 0  # nodes that were killed because they did not stop

    def run(self, until: float) -> None:
        """Inject faults until `time.monotonic()` reaches `until`; late in that time one node dies for good."""
        now = time.monotonic()
        self._run_kinds(self.kinds(), now + DEATH_AT * (until - now))
        self._bury(until)
        self._run_kinds(self.kinds_after_death(), until)

    def _run_kinds(self, kinds: Sequence[tuple[str, Act]], until: float) -> None:
        for name, act in self._endless(kinds):
            if time.monotonic() >= until:
                return
            victim = self._victim(name)
            begun_ms = _now_ms()
            act(victim)
            self._note(Fault(name, victim, begun_ms, _now_ms()))
            time.sleep(self.random.uniform(*REST_S))

    def _victim(self, kind: str) -> int:
        """Choose a node; one that leads a partition of each tiered topic, if there is one, for an isolation."""
        ids = self.cluster.ids
        if kind == WITHOUT_CONTROLLERS:
            ids = [each for each in ids if all(map(self.cluster[each].leads, self.tiered))] or ids
        return self.random.choice(ids)

    def _note(self, fault: Fault) -> None:
        self.done.append(fault)
        self.on_done(fault)
        seconds = (fault.ended_ms - fault.begun_ms) / 1000
        print(f"{len(self.done):4} node {fault.node} {fault.kind}, {seconds:.1f} s", flush=True)

    def _endless(self, kinds: Sequence[tuple[str, Act]]) -> Iterator[tuple[str, Act]]:
        while True:
            yield from self.random.sample(kinds, len(kinds))

    def _bury(self, until: float) -> None:
        """Kill a node until the end of the run, once every partition has another replica in sync."""
        deadline = time.monotonic() + IN_SYNC_S
        while not all(node.is_fully_replicated() for node in self.cluster.living):
            assert time.monotonic() < deadline, "not all replicas are in sync before a node dies for good"
            time.sleep(0.1)
        victim, begun_ms = self.random.choice(self.cluster.ids), _now_ms()
        self.cluster.bury(victim)
        self._note(Fault(DEAD, victim, begun_ms, begun_ms + max(0, int((until - time.monotonic()) * 1000))))

    def kinds(self) -> Sequence[tuple[str, Act]]:
        """Return the kinds of fault that this machine supports."""
        kinds: list[tuple[str, Act]] = [("killed", self._kill), ("paused", self._pause), ("restarted", self._restart)]
        if self.tiered:
            kinds.append(("killed, tiered logs lost", self._kill_and_lose_logs))
        if self.network.refusal is None:
            kinds += [
                ("incoming packets dropped", self._drop_incoming),
                ("outgoing packets dropped", self._drop_outgoing),
                ("partitioned", self._partition),
                ("partitioned from nodes", self._partition_from_nodes),
                ("not replicated", self._block_fetches),
                (PAIR_CUT, self._cut_pair),
                (PAIR_CUT_ONE_WAY, self._cut_pair_one_way),
                (WITHOUT_CONTROLLERS, self._cut_off_from_controllers),
            ]
            if self.unclean:
                kinds += [("not replicated, killed", self._block_fetches_and_kill)] * 2
        return kinds

    def kinds_after_death(self) -> Sequence[tuple[str, Act]]:
        """Return the kinds of fault that two of three nodes can survive: each ends before the next, within seconds."""
        return [("killed", self._kill), ("paused", self._pause), ("restarted", self._restart)]

    # Processes

    def _kill(self, victim: int) -> None:
        self.cluster[victim].kill()
        time.sleep(self.random.uniform(0, 2))
        self._start(victim)

    def _kill_and_lose_logs(self, victim: int) -> None:
        """Wipe replicas once they are out of every ISR: a replica that lacks acknowledged records must not lead."""
        self.cluster[victim].kill()
        deadline = time.monotonic() + NOTICED_S
        while len(lost := self._out_of_sync(victim)) < len(self.tiered) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.cluster[victim].lose_logs(lost)
        self._start(victim)

    def _out_of_sync(self, victim: int) -> list[str]:
        """Return the topics without an in-sync replica on the victim, according to all other nodes."""
        others = [self.cluster[each] for each in self.cluster.ids if each != victim]
        views = {topic: [other.in_sync(topic) for other in others] for topic in self.tiered}
        return [topic for topic, said in views.items() if all(view is not None and victim not in view for view in said)]

    def _pause(self, victim: int) -> None:
        """Pause for between a moment and longer than a session."""
        self.cluster[victim].pause()
        time.sleep(self.random.choice((0.5, 2, 5, 8)))
        self.cluster[victim].resume()

    def _restart(self, victim: int) -> None:
        self.forced += not self.cluster[victim].terminate()
        self._start(victim)

    def _start(self, victim: int) -> None:
        self.cluster[victim].launch()
        self.cluster[victim].wait_ready()

    # Links

    def _drop_incoming(self, victim: int) -> None:
        """Drop what others send to the victim."""
        self._cut_for_a_while([Link(other, victim) for other in self._others(victim)])

    def _drop_outgoing(self, victim: int) -> None:
        """Drop what the victim sends."""
        self._cut_for_a_while([Link(victim, other) for other in self._others(victim)])

    def _partition(self, victim: int) -> None:
        """Drop packets in both directions, from nodes and possibly clients."""
        self._cut_for_a_while(
            [Link(*pair) for other in self._others(victim) for pair in ((victim, other), (other, victim))]
        )

    def _partition_from_nodes(self, victim: int) -> None:
        """Drop packets between nodes. Clients still reach the victim, which may consider itself leader."""
        others = [other for other in self._others(victim) if other != CLIENTS]
        self._cut_for_a_while([Link(*pair) for other in others for pair in ((victim, other), (other, victim))])

    def _block_fetches(self, victim: int) -> None:
        """Block fetches from the victim while controllers still reach it: its followers leave the ISR."""
        self._cut_for_a_while(self._fetches_from(victim))

    def _block_fetches_and_kill(self, victim: int) -> None:
        """Kill the victim while it is the only in-sync replica, so that the next leader lacks records."""
        links = self._fetches_from(victim)
        self.network.cut(links)
        time.sleep(STARVATION_S)
        self.cluster[victim].kill()
        self.network.heal(links)
        time.sleep(ABSENCE_S)
        self._start(victim)

    def _cut_pair(self, victim: int) -> None:
        """Cut the broker listeners of two nodes off from each other. Both reach the controllers and all clients."""
        other = self._another(victim)
        self._cut_for_a_while([Link(victim, other, Plane.DATA), Link(other, victim, Plane.DATA)])

    def _cut_pair_one_way(self, victim: int) -> None:
        """Cut the victim off from the broker listener of one other node."""
        self._cut_for_a_while([Link(victim, self._another(victim), Plane.DATA)])

    def _cut_off_from_controllers(self, victim: int) -> None:
        """Cut the victim off from all other controllers for longer than its session.

        Clients, followers and the store still reach it: it leads without knowing its successor, and its tier expires.
        """
        others = [other for other in self.cluster.ids if other != victim]
        links = [Link(*pair, Plane.CONTROL) for other in others for pair in ((victim, other), (other, victim))]
        before = self.cluster[victim].log_bytes
        self._cut_for_a_while(links, ISOLATION_S)
        self.isolated_deletions += self.cluster[victim].log_since(before).count(DELETED)

    def _another(self, victim: int) -> int:
        return self.random.choice([other for other in self.cluster.ids if other != victim])

    def _others(self, victim: int) -> list[int]:
        """Return the other nodes and, at random, the clients, which are then partitioned from the victim too."""
        nodes = [each for each in self.cluster.ids if each != victim]
        return [*nodes, CLIENTS] if self.random.random() < 0.5 else nodes

    def _fetches_from(self, victim: int) -> list[Link]:
        return [Link(other, victim, Plane.DATA) for other in self.cluster.ids if other != victim]

    def _cut_for_a_while(self, links: Sequence[Link], lasts_s: tuple[float, float] = (2.0, 9.0)) -> None:
        self.network.cut(links)
        time.sleep(self.random.uniform(*lasts_s))
        self.network.heal(links)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
