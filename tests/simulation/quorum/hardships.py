"""Rare hardships of a quorum: peace with a minority dead, leaders that wake hours later, bad links, disks and clocks.

They have their own random source and are added to the faults of `schedule.py`, with the same rules: a disk may rot only
where the schedule may wipe it.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, Protocol

from broker.quorum.identity import ReplicaKey
from broker.quorum.membership.voters import VoterSet
from broker.quorum.messages import FetchRequest, Request, Response, VoteRequest
from protocol.ids import BrokerId, LeaderEpoch, Offset
from tests.simulation.quorum.node import Node, directory_id_of
from tests.simulation.quorum.peace import MinorityPeace
from tests.simulation.quorum.rot import rot, rot_log
from tests.simulation.quorum.scenario import MOST_OBSERVERS

if TYPE_CHECKING:
    from tests.simulation.quorum.simulation import QuorumSimulator

_HOUR_MS: Final = 3_600_000.0
_PAUSE: Final = 2.5
"""Mean time between two hardships, in mean times between two faults."""
_DISTURBED_CHANGES: Final = 0.2
"""Share of new voter sets, counted at each node, after which something happens at once."""
_HIDDEN_ADDITIONS: Final = 0.4
"""Share of added voters that do not hear of their addition before the leader dies."""
_ADDITION_TRIES: Final = 20
_SLOW_CHECKS: Final = 0.8
"""Share of snapshots fetched by voters that a slow disk checks while the leader changes."""
_POLL_MS: Final = 5.0
_MOST_PAUSE_MS: Final = 600.0
_CRASHES_AFTER_TRUNCATION: Final = 0.2
"""Share of truncations after which the node crashes at once, before it fetches what it has truncated."""
_MOST_PEACES: Final = 4
_KEPT_REQUESTS: Final = 20
_GHOST_ID: Final = 1_000


class Operator(Protocol):
    """The operations of the random schedule that hardships use."""

    def append(self, count: int) -> None:
        """Append batches on every node that believes to be leader."""
        ...

    def may_lose(self, node: Node) -> bool:
        """Whether the others form a majority of every voter set without the node's disk."""
        ...

    def add_caught_up_voter(self) -> bool:
        """Add a voter that has the leader's whole log. Return False if there is none now."""
        ...

    def add_two_voters(self, pause: Callable[[Node, float, float], None]) -> bool:
        """Add a voter that responds late, then at once another; `pause` takes shares of the request time-out. Return
        False if this is impossible now.
        """
        ...

    def shrink_to(self, node: Node) -> None:
        """Remove all other voters one by one."""
        ...


class HardshipSchedule:
    """Begins hardships at random moments, until `end`."""

    def __init__(self, simulation: "QuorumSimulator", operator: Operator) -> None:
        self._simulation = simulation
        self._operator = operator
        self._random = Random(f"hardships {simulation.seed}")
        self._log_random = Random(f"hardships of logs {simulation.seed}")
        self._peace = MinorityPeace(simulation, self._random, operator.append, self._on_peace_over)
        self._peaces = 0
        self._weather = simulation.network.weather
        self._is_over = False
        self._sent: deque[VoteRequest] = deque(maxlen=_KEPT_REQUESTS)
        additions = 40 if simulation.scenario.changes_voters else 4
        self._kinds: tuple[tuple[int, Callable[[], None]], ...] = (
            (4, self._begin_peace),
            (2, self._suspend),
            (8, self._cut_pair),
            (6, self._stall_disk),
            (2, self._fill_disk),
            (4, self._step_clock),
            (3, self._rot),
            (8, self._stray),
            (additions, partial(self._add, operator.add_caught_up_voter)),
            (additions, partial(self._add, partial(operator.add_two_voters, self._respond_late))),
            (3, self._shrink),
        )
        self._weights = [weight for weight, _ in self._kinds]

    def begin(self) -> None:
        simulation = self._simulation
        simulation.checker.on_new_voters = self._on_new_voters
        simulation.checker.on_real_vote = self._sent.append
        simulation.checker.on_last_page = self._on_last_page
        simulation.checker.on_truncation = self._on_truncation
        simulation.on_refused_start = self._on_refused_start
        self._again()

    def end(self) -> None:
        self._is_over = True

    @property
    def _is_quiet(self) -> bool:
        return self._is_over or self._simulation.is_peaceful

    def _again(self) -> None:
        if not self._is_over:
            mean_ms = _PAUSE * min(self._simulation.scenario.fault_every_ms, _MOST_PAUSE_MS)
            self._simulation.world.schedule(self._random.expovariate(1.0 / mean_ms), self._again)
            (kind,) = self._random.choices([each for _, each in self._kinds], self._weights)
            if not self._is_quiet:
                kind()

    def _after(self, delay_ms: float, action: Callable[[], None]) -> None:
        self._simulation.world.schedule(delay_ms, action)

    def _note(self, text: str, count: str, number: int = 1) -> None:
        self._simulation.checker.note(text)
        self._simulation.checker.counts.add(count, number)

    def _up(self) -> list[Node]:
        return [node for node in self._simulation.nodes.values() if node.is_up]

    def _leaders(self) -> list[Node]:
        checker = self._simulation.checker
        return [node for node in self._up() if (now := checker.observed(node.id)) is not None and now.is_leader]

    def _leader_or_any(self) -> Node | None:
        """Return a leader with preference, else any node that is up."""
        candidates = self._leaders() if self._random.random() < 0.6 else []
        candidates = candidates or self._up()
        return self._random.choice(candidates) if candidates else None

    # Peace

    def _on_new_voters(self, node_id: int) -> None:
        """Disturb a voter change when a leader appends it, or when a node receives it."""
        if self._is_quiet:
            return
        node, seen = self._simulation.nodes[node_id], self._simulation.checker.observed(node_id)
        is_leader = seen is not None and seen.is_leader
        if is_leader and self._added(node) and self._random.random() < _HIDDEN_ADDITIONS:
            self._hide_from_new_voters(node)
        elif self._random.random() >= _DISTURBED_CHANGES:
            return
        elif is_leader and self._random.random() < 0.5:
            self._resign_alone(node)
        else:
            delay_ms = self._random.choice((0.0, 0.0, 1.0, 5.0, 30.0, self._simulation.scenario.fetch_timeout_ms))
            self._after(delay_ms, self._begin_peace)

    def _added(self, leader: Node) -> list[Node]:
        """Return the voters that do not know of their addition by a leader."""
        seen = self._simulation.checker.observed(leader.id)
        nodes = self._simulation.nodes.values()
        return [
            node
            for node in nodes
            if seen is not None
            and seen.voters.has(node.key)
            and not (node.disk.replayed_voters() or VoterSet()).has(node.key)
        ]

    def _hide_from_new_voters(self, leader: Node) -> None:
        """Hide the record from the voters that it adds, and let the leader die for good when all others have it."""
        added = self._added(leader)
        self._note(
            f"nodes {[node.id for node in added]} do not hear of their addition by node {leader.id}",
            "hidden additions",
        )
        self._simulation.network.clear_up()
        self._simulation.network.cut(frozenset((leader.id, other.id) for other in added))
        until_ms = self._simulation.world.now_ms + self._simulation.scenario.fetch_timeout_ms / 2
        self._after(_POLL_MS, partial(self._lose_leader, leader, added, until_ms))

    def _lose_leader(self, leader: Node, added: list[Node], until_ms: float) -> None:
        """Begin the peace when all old voters know the new ones, or after a while."""
        seen = self._simulation.checker.observed(leader.id)
        if self._is_quiet or seen is None or not seen.is_leader:
            return
        keys = [node.key for node in added]
        old = [
            node
            for node in self._simulation.nodes.values()
            if seen.voters.has(node.key) and node not in (leader, *added)
        ]
        known = [(node.disk.replayed_voters() or VoterSet()) for node in old]
        if all(voters.has(key) for voters in known for key in keys) or self._simulation.world.now_ms > until_ms:
            self._begin_peace([leader, *old], spared=added)
        else:
            self._after(_POLL_MS, partial(self._lose_leader, leader, added, until_ms))

    def _resign_alone(self, leader: Node) -> None:
        """Let a leader resign before anyone has the record."""
        others = [other for other in self._simulation.nodes if other != leader.id]
        self._simulation.checker.note(f"node {leader.id} resigns alone")
        self._simulation.network.cut(frozenset((leader.id, other) for other in others))
        self._after(self._random.uniform(0.0, 20.0), lambda: self._resign(leader))

    def _resign(self, leader: Node) -> None:
        if leader.replica is not None:
            self._simulation.world.run(leader.replica.process, leader.replica.resign)

    def _begin_peace(self, first: list[Node] | None = None, spared: list[Node] | None = None) -> None:
        if self._is_quiet or self._peaces >= _MOST_PEACES:
            return
        if first is None:
            first = self._leaders() if self._random.random() < 0.7 else []
        dead = self._peace.choose_dead(first, spared or [])
        if dead:
            self._peaces += 1
            self._weather = self._simulation.network.weather
            self._peace.begin(dead)

    def _on_peace_over(self) -> None:
        simulation = self._simulation
        simulation.is_peaceful = False
        simulation.network.weather = self._weather
        for node in simulation.nodes.values():
            if not node.is_up:
                simulation.world.schedule(self._random.uniform(0.0, 3_000.0), simulation.start, node)

    # Time

    def _suspend(self) -> None:
        """Suspend a leader while the others elect another, then all nodes for hours; the leader wakes first.

        A monotonic clock may miss the pause, so that the deposed leader takes itself for the leader until a response.
        """
        node = self._leader_or_any()
        if node is None or node.replica is None:
            return
        process = node.replica.process
        pause_ms = self._random.uniform(1.5, 5.0) * self._simulation.scenario.fetch_timeout_ms
        process.stalled_until_ms = self._simulation.world.now_ms + pause_ms
        self._simulation.checker.note(f"node {node.id} is suspended")

        def wake() -> None:
            if self._is_quiet or not process.is_alive:
                return
            hours = self._random.randint(1, 5)
            self._note(f"all machines sleep for {hours} hours, node {node.id} wakes first", "zombie hours", hours)
            self._simulation.world.skip(hours * _HOUR_MS)
            now_ms = self._simulation.world.now_ms
            others_wake_ms = now_ms + self._random.choice((0.0, 100.0, 1_000.0))
            for other in self._up():
                if other.replica is not None:
                    other.replica.process.stalled_until_ms = others_wake_ms
                    if self._random.random() < 0.3:
                        other.replica.process.miss(hours * _HOUR_MS)
            process.stalled_until_ms = now_ms
            if self._random.random() < 0.7:
                process.miss(pause_ms)

        self._after(pause_ms * 0.98, wake)

    def _step_clock(self) -> None:
        """Step the wall clock of a machine, by seconds or by hours."""
        node = self._leader_or_any()
        if node is not None and node.replica is not None:
            by_ms = int(self._random.choice((-1, 1)) * self._random.choice((2_000.0, 60_000.0, 5 * _HOUR_MS)))
            node.wall_offset_ms += by_ms
            node.replica.process.step_wall_clock(by_ms)
            self._note(f"the clock of node {node.id} is stepped by {by_ms} ms", "clock steps")

    # The network

    def _cut_pair(self) -> None:
        """Cut the link between two nodes alone, mostly in one direction."""
        node = self._leader_or_any()
        others = [other for other in self._up() if other is not node]
        if node is None or not others:
            return
        link = (node.id, self._random.choice(others).id)
        links = [link if self._random.random() < 0.5 else link[::-1]]
        if self._random.random() < 0.3:
            links.append(links[0][::-1])
        self._note(f"cut links: {links}", "one-way cuts", int(len(links) == 1))
        self._simulation.network.cut(frozenset(links))

    # Disks

    def _stall_disk(self) -> None:
        """Let a disk complete nothing for up to some fetch time-outs, while messages arrive."""
        loading = [node for node in self._up() if node.disk.has_partial_snapshot]
        node = self._random.choice(loading) if loading else self._leader_or_any()
        if node is not None and node.replica is not None:
            stall_ms = self._random.uniform(0.2, 3.0) * self._simulation.scenario.fetch_timeout_ms
            self._note(f"the disk of node {node.id} stalls for {stall_ms:.0f} ms", "disk stalls")
            node.replica.stall_disk(self._simulation.world.now_ms + stall_ms)
            if loading and self._random.random() < 0.5:
                for leader in self._leaders():
                    self._after(self._random.uniform(0.0, 50.0), partial(self._resign, leader))

    def _on_last_page(self, node_id: int) -> None:
        """Let a disk take long to check a fetched snapshot, and let the leader resign meanwhile."""
        node, seen = self._simulation.nodes[node_id], self._simulation.checker.observed(node_id)
        is_voter = seen is not None and seen.voters.has(node.key)
        if self._is_quiet or node.replica is None or not is_voter or self._random.random() >= _SLOW_CHECKS:
            return
        stall_ms = self._random.uniform(0.5, 3.0) * self._simulation.scenario.fetch_timeout_ms
        self._note(f"node {node.id} takes {stall_ms:.0f} ms to check a snapshot", "slow checks")
        node.replica.stall_disk(self._simulation.world.now_ms + stall_ms)
        for leader in self._leaders():
            self._after(self._random.uniform(0.0, 50.0), partial(self._resign, leader))

    def _fill_disk(self) -> None:
        """Fill a disk for some seconds."""
        node = self._leader_or_any()
        if node is None:
            return
        disk = node.disk
        self._note(f"the disk of node {node.id} is almost full", "full disks")
        disk.fill(self._random.choice((0, 100, 1_500)))

        def free() -> None:
            disk.capacity_bytes = None

        self._after(self._random.uniform(500.0, 5_000.0), free)

    def _rot(self) -> None:
        """Flip a bit in a durable file of a node that can be spared, and restart the node."""
        node = self._leader_or_any()
        if node is None or not self._operator.may_lose(node):
            return
        strikes_log = self._log_random.random() < 0.6
        self._simulation.crash(node, power=not strikes_log or self._log_random.random() < 0.5)
        what = rot_log(node.disk, self._log_random) if strikes_log else rot(node.disk, self._random)
        if what is not None:
            node.rotten_bytes += 1
            node.has_rotten_log = strikes_log
            self._simulation.checker.counts.add("rotten logs", int(strikes_log))
            self._note(f"a bit of {what} of node {node.id} rots", "rotten bytes")
        self._after(self._random.uniform(0.0, 1_000.0), lambda: self._simulation.start(node))

    def _on_truncation(self, node_id: int) -> None:
        if self._is_quiet or self._log_random.random() >= _CRASHES_AFTER_TRUNCATION:
            return

        def crash() -> None:
            node = self._simulation.nodes[node_id]
            if node.is_up and not self._is_quiet:
                self._simulation.checker.note(f"node {node_id} crashes after a truncation")
                self._simulation.crash(node, power=self._log_random.random() < 0.5)
                self._after(self._log_random.uniform(0.0, 1_000.0), lambda: self._simulation.start(node))

        self._after(self._log_random.uniform(0.0, 10.0), crash)

    def _on_refused_start(self, node: Node) -> None:
        """Replace a rotten disk, as an operator does when the node refuses to start."""
        self._note(f"node {node.id} refuses its rotten disk", "nodes stopped by rot")
        self._simulation.wipe(node)

    # Requests that no correct peer sends, or sends late

    def _stray(self) -> None:
        """Deliver a fetch without an epoch, fetches of unknown replicas, or a vote request of an earlier epoch."""
        node = self._leader_or_any()
        if node is None:
            return
        requests = self._random.choice((self._epochless_fetch, self._ghost_fetches, self._late_vote))(node)
        for request in requests:
            self._simulation.ask(node, request, _ignore)
        if requests:
            self._note(f"node {node.id} receives stray requests: {type(requests[0]).__name__}", "stray requests")

    def _epochless_fetch(self, node: Node) -> list[Request]:
        others = [other for other in self._simulation.nodes.values() if other is not node and other.can_vote]
        return [self._fetch_of(self._random.choice(others).key, node, -1)] if others else []

    def _ghost_fetches(self, node: Node) -> list[Request]:
        """Return fetches of replicas that fetch once and never again."""
        seen = self._simulation.checker.observed(node.id)
        ids = (
            _GHOST_ID + self._random.randrange(1_000) for _ in range(self._random.choice((1, 1, 3, 2 * MOST_OBSERVERS)))
        )
        return (
            []
            if seen is None
            else [
                self._fetch_of(ReplicaKey(BrokerId(each), directory_id_of(each, 1)), node, seen.epoch) for each in ids
            ]
        )

    def _fetch_of(self, replica: ReplicaKey, node: Node, epoch: int) -> FetchRequest:
        last = node.disk.log_end
        return FetchRequest(
            self._simulation.cluster_id, replica, LeaderEpoch(epoch), last.end_offset, last.epoch, 0, 1_000, Offset(-1)
        )

    def _late_vote(self, node: Node) -> list[Request]:
        late = [each for each in self._sent if each.voter is not None and each.voter.matches(node.key)]
        return [self._random.choice(late)] if late else []

    # Voter changes

    def _add(self, add: Callable[[], bool], tries: int = _ADDITION_TRIES) -> None:
        """Restore all links, and add voters as soon as the quorum permits it."""
        if self._is_quiet:
            return
        if tries == _ADDITION_TRIES:
            self._simulation.network.clear_up()
        if not add() and tries > 1:
            self._after(self._simulation.scenario.fetch_timeout_ms / 4, partial(self._add, add, tries - 1))

    def _respond_late(self, node: Node, least: float, most: float) -> None:
        """Pause a node for a share of the request time-out."""
        if node.replica is not None:
            pause_ms = self._random.uniform(least, most) * self._simulation.scenario.fetch_timeout_ms
            node.replica.process.stalled_until_ms = self._simulation.world.now_ms + pause_ms

    def _shrink(self) -> None:
        node = self._leader_or_any()
        if node is not None:
            self._operator.shrink_to(node)


def _ignore(_response: Response) -> None:
    """Ignore the response."""
