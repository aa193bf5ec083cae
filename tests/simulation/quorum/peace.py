"""Peace with a minority dead for good: faults pause, some nodes stay down, the others must work within a bound.

A leader must appear and commit, all live nodes must follow it, and in some peaces it must trim its log, although dead
replicas lack the records. A peace can begin in every state of a voter change. The bound runs while some live node could
win an election by its disk; without such a node the peace ends early and proves nothing.
"""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from tests.simulation.quorum.electability import electable
from tests.simulation.quorum.node import Node

if TYPE_CHECKING:
    from tests.simulation.quorum.simulation import QuorumSimulator

_LEADER_TIMEOUTS: Final = 20
"""Fetch time-outs within which a leader must have committed something."""
_SETTLED_MS: Final = 90_000.0
"""Time in which all live nodes must follow and have everything; imports may wait for a slow snapshot store."""
_TRIM_SLACK_TIMEOUTS: Final = 6
_MOST_TRIM_WAIT_MS: Final = 8_000
_MOST_TRIM_BYTES: Final = 4_000


class MinorityPeace:
    """The peaces of a history, one at a time. `over` runs at the end of each."""

    def __init__(
        self, simulation: "QuorumSimulator", random: Random, append: Callable[[int], None], over: Callable[[], None]
    ) -> None:
        self._simulation = simulation
        self._random = random
        self._append = append
        self._over = over
        self._fetch_timeout_ms = simulation.scenario.fetch_timeout_ms
        self._has_tried_trimming = False
        self._forget()

    def _forget(self) -> None:
        self._led_by: float | None = None
        self._settled_by: float | None = None
        self._trim_start: int | None = None
        self._trimmed_by: float | None = None

    # Beginning

    def choose_dead(self, first: list[Node], spared: list[Node]) -> list[Node]:
        """Return nodes whose death leaves an electable node, `first` before others; as many as possible, or fewer.

        With `spared` nodes, which stay alive, as many as possible die.
        """
        nodes = list(self._simulation.nodes.values())
        others = [node for node in nodes if node not in first and node not in spared]
        self._random.shuffle(others)
        dead: list[Node] = []
        most = len(nodes) if spared else self._random.choice((1, len(nodes)))
        for node in (*first, *others):
            alive = [each for each in nodes if each not in dead and each is not node]
            if len(dead) < most and self._electable(alive):
                dead.append(node)
        return dead

    def begin(self, dead: list[Node]) -> None:
        simulation = self._simulation
        simulation.checker.note(f"peace, dead for good: {[node.id for node in dead]}")
        simulation.checker.counts.add("minority-dead peaces")
        seen = [simulation.checker.observed(node.id) for node in dead]
        simulation.checker.counts.add(
            "leaders of a dead minority", sum(now is not None and now.is_leader for now in seen)
        )
        for node in dead:
            node.is_dead = True
            simulation.crash(node, power=self._random.random() < 0.3)
        self._forget()
        simulation.calm()
        self._poll_again()

    @property
    def _alive(self) -> list[Node]:
        return [node for node in self._simulation.nodes.values() if not node.is_dead]

    def _electable(self, alive: list[Node]) -> list[Node]:
        simulation = self._simulation
        seen = {node.id: simulation.checker.observed(node.id) for node in alive}
        return electable(alive, simulation.static_voters, seen)

    # Polls

    def _poll_again(self) -> None:
        self._simulation.world.schedule(self._fetch_timeout_ms / 3, self._poll)

    def _poll(self) -> None:
        simulation, now_ms = self._simulation, self._simulation.world.now_ms
        for node in self._alive:
            if not node.is_up:
                self._led_by = None
                simulation.start(node)
        if not self._electable(self._alive):
            self._end("no node can win")
            return
        if self._settled_by is None:
            self._await_leader(now_ms)
        elif self._trimmed_by is None:
            self._await_settled(now_ms)
        else:
            self._await_trimmed(now_ms)

    def _await_leader(self, now_ms: float) -> None:
        simulation = self._simulation
        reason = simulation.settling.unled_reason()
        if self._led_by is None:
            self._led_by = now_ms + _LEADER_TIMEOUTS * self._fetch_timeout_ms
        if reason is None:
            self._settled_by = now_ms + _SETTLED_MS
        elif now_ms > self._led_by:
            able = [node.id for node in self._electable(self._alive)]
            simulation.checker.fail("LeaderWithMinorityDead", f"{reason}, although {able} could win")
        self._poll_again()

    def _await_settled(self, now_ms: float) -> None:
        assert self._settled_by is not None
        simulation = self._simulation
        reason = simulation.settling.unsettled_replica_reason()
        if reason is not None:
            if now_ms > self._settled_by:
                simulation.checker.fail("SettledWithMinorityDead", reason)
            self._poll_again()
        elif self._is_about_trimming:
            self._begin_trimming(now_ms)
        else:
            self._end("all live nodes have everything")

    # Trimming

    @property
    def _is_about_trimming(self) -> bool:
        scenario = self._simulation.scenario
        return (
            not self._has_tried_trimming
            and self._trim_wait_ms <= _MOST_TRIM_WAIT_MS
            and scenario.retention_bytes <= _MOST_TRIM_BYTES
        )

    @property
    def _trim_wait_ms(self) -> float:
        """Time after which dead replicas must not hold back trimming any more."""
        scenario = self._simulation.scenario
        return min(scenario.observer_session_timeout_ms, scenario.start_offset_lag_time_max_ms)

    def _begin_trimming(self, now_ms: float) -> None:
        simulation = self._simulation
        self._has_tried_trimming = True
        simulation.checker.counts.add("trimming peaces")
        leader = simulation.settling.leader
        assert leader is not None
        self._trim_start = leader[1].log_start_offset
        waits_ms = 1.2 * self._trim_wait_ms + simulation.scenario.trim_interval_ms
        self._trimmed_by = now_ms + waits_ms + _TRIM_SLACK_TIMEOUTS * self._fetch_timeout_ms
        self._append(20)
        self._poll_again()

    def _await_trimmed(self, now_ms: float) -> None:
        assert self._trimmed_by is not None
        assert self._trim_start is not None
        simulation = self._simulation
        leader = simulation.settling.leader
        if leader is not None and leader[1].log_start_offset > self._trim_start:
            self._end(f"the leader has trimmed its log to {leader[1].log_start_offset}")
            return
        size = 0 if leader is None else leader[0].disk.size_of_log
        is_large = size > 3 * simulation.scenario.retention_bytes + 3 * simulation.scenario.snapshot_bytes
        if now_ms > self._trimmed_by and is_large:
            simulation.checker.fail("TrimsWithMinorityDead", f"the log start stays at {self._trim_start}, {size} bytes")
        self._append(1 if is_large else 20)
        self._poll_again()

    # The end

    def _end(self, text: str) -> None:
        self._simulation.checker.note(f"the peace ends: {text}")
        for node in self._simulation.nodes.values():
            node.is_dead = False
        self._over()
