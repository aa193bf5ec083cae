"""What is done to the nodes of a chaos run: one fault at a time, each undone before the next."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.chaos.availability import Fault
from tests.chaos.network import CLIENTS, Link, Network
from tests.chaos.nodes import ChaosCluster

# From the fault's end to the next one's begin.
REST_S = (0.3, 1.5)
# Longer than it takes followers to leave the in-sync set, and a session to end: nodes.SETTINGS.
STARVATION_S = 6.5
ABSENCE_S = 5.0
# For the others to take a dead node from all in-sync sets; one that is the last of its set stays there.
NOTICED_S = 10.0

Act = Callable[[int], None]


@dataclass
class Faults:
    """Kinds in random order, each as often as the others; random victims."""

    cluster: ChaosCluster
    network: Network
    random: random.Random
    unclean: bool
    tiered: Sequence[str] = ()  # topics whose replicas may be lost: what is gone from a disk is remote
    on_done: Callable[[Fault], None] = lambda _fault: None
    done: list[Fault] = field(default_factory=list)
    forced: int = 0  # how many nodes did not stop when they were asked to

    def run(self, until: float) -> None:
        """One after the other until `time.monotonic()` is `until`."""
        for name, act in self._endless_kinds():
            if time.monotonic() >= until:
                return
            victim = self.random.choice(self.cluster.ids)
            begun_ms = _now_ms()
            act(victim)
            fault = Fault(name, victim, begun_ms, _now_ms())
            self.done.append(fault)
            self.on_done(fault)
            print(f"{len(self.done):4} node {victim} {name}, {(fault.ended_ms - begun_ms) / 1000:.1f} s", flush=True)
            time.sleep(self.random.uniform(*REST_S))

    def _endless_kinds(self) -> Iterator[tuple[str, Act]]:
        kinds = self.kinds()
        while True:
            yield from self.random.sample(kinds, len(kinds))

    def kinds(self) -> Sequence[tuple[str, Act]]:
        """All that can be done on this machine."""
        kinds: list[tuple[str, Act]] = [("killed", self._kill), ("paused", self._pause), ("restarted", self._restart)]
        if self.tiered:
            kinds.append(("killed, tiered logs lost", self._kill_and_lose_logs))
        if self.network.refusal is None:
            kinds += [
                ("deaf", self._deafen),
                ("mute", self._mute),
                ("partitioned", self._partition),
                ("partitioned from nodes", self._partition_from_nodes),
                ("not replicated", self._starve),
            ]
            if self.unclean:
                kinds += [("not replicated, killed", self._starve_and_kill)] * 2
        return kinds

    # Processes

    def _kill(self, victim: int) -> None:
        self.cluster[victim].kill()
        time.sleep(self.random.uniform(0, 2))
        self._start(victim)

    def _kill_and_lose_logs(self, victim: int) -> None:
        """Once it is out of sync everywhere: whoever starts again with less than it had promised must lead nothing."""
        self.cluster[victim].kill()
        deadline = time.monotonic() + NOTICED_S
        while len(lost := self._out_of_sync(victim)) < len(self.tiered) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.cluster[victim].lose_logs(lost)
        self._start(victim)

    def _out_of_sync(self, victim: int) -> list[str]:
        """Topics of which no replica there is in sync, as all others say."""
        others = [self.cluster[each] for each in self.cluster.ids if each != victim]
        views = {topic: [other.in_sync(topic) for other in others] for topic in self.tiered}
        return [topic for topic, said in views.items() if all(view is not None and victim not in view for view in said)]

    def _pause(self, victim: int) -> None:
        """From a moment to longer than a session."""
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

    def _deafen(self, victim: int) -> None:
        """One way: what others send does not reach it."""
        self._without([Link(other, victim) for other in self._others(victim)])

    def _mute(self, victim: int) -> None:
        """One way: what it sends reaches nobody."""
        self._without([Link(victim, other) for other in self._others(victim)])

    def _partition(self, victim: int) -> None:
        """Both ways, from nodes and clients."""
        self._without([Link(*pair) for other in self._others(victim) for pair in ((victim, other), (other, victim))])

    def _partition_from_nodes(self, victim: int) -> None:
        """Both ways; clients reach it still, and may believe it."""
        others = [other for other in self._others(victim) if other != CLIENTS]
        self._without([Link(*pair) for other in others for pair in ((victim, other), (other, victim))])

    def _starve(self, victim: int) -> None:
        """Nobody can fetch from it, and all controllers think well of it: its followers leave the in-sync set."""
        self._without(self._fetches_from(victim))

    def _starve_and_kill(self, victim: int) -> None:
        """It alone is in sync when it dies, so that whoever leads next lacks something."""
        links = self._fetches_from(victim)
        self.network.cut(links)
        time.sleep(STARVATION_S)
        self.cluster[victim].kill()
        self.network.heal(links)
        time.sleep(ABSENCE_S)
        self._start(victim)

    def _others(self, victim: int) -> list[int]:
        """By chance with the clients, who see a partition of their own then."""
        nodes = [each for each in self.cluster.ids if each != victim]
        return [*nodes, CLIENTS] if self.random.random() < 0.5 else nodes

    def _fetches_from(self, victim: int) -> list[Link]:
        return [Link(other, victim, data_only=True) for other in self.cluster.ids if other != victim]

    def _without(self, links: Sequence[Link]) -> None:
        self.network.cut(links)
        time.sleep(self.random.uniform(2, 9))
        self.network.heal(links)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
