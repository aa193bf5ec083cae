"""The random schedule of a quorum: appends, faults and operations at random moments drawn from the seed.

Two rules keep the quorum recoverable, as an operator must. First, disks are wiped and nodes move to unknown addresses
only at kraft.version 1, and only on fewer than a majority of each voter set in force on any node. Second, no live voter
is removed while another voter is lost. Everything else may happen at any time, to any number of nodes.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from broker.quorum.identity import ReplicaKey
from broker.quorum.membership.voters import VoterSet
from broker.quorum.messages import AddVoterRequest, ChangeVotersResponse, RemoveVoterRequest, Response
from protocol.errors import ErrorCode
from tests.simulation.quorum.hardships import HardshipSchedule
from tests.simulation.quorum.node import LISTENER, Node
from tests.simulation.quorum.offers import OfferSchedule
from tests.simulation.quorum.simulation import QuorumSimulator
from tests.simulation.quorum.state_machine import frame_of
from tests.simulation.weather import draw_weather
from tests.simulation.world import Process

_REQUEST_TIMEOUT_MS: Final = 30_000.0
"""Time after which an operator gives up on a voter change whose node is gone; the change may still happen."""
_IMPATIENCE: Final = 0.2
_TRY_AGAIN: Final = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER)
CLUSTER_ID: Final = "simulated-cluster-0001"


class RandomSchedule:
    """The random schedule. Implements Schedule."""

    def __init__(self, simulation: QuorumSimulator) -> None:
        self._simulation = simulation
        self._random = Random(f"schedule {simulation.seed}")
        self._world = simulation.world
        self._nodes = simulation.nodes
        self._offers = OfferSchedule(simulation, self._wipe)
        self._hardships = HardshipSchedule(simulation, self)
        self._is_over = False
        self._number = 0
        self._open: dict[int, str] = {}
        """Requested voter changes without a response, not given up."""
        self._faults: tuple[tuple[int, Callable[[], None]], ...] = (
            (14, self._crash),
            (10, self._cut_power_soon),
            (2, self._fail_disk_soon),
            (6, self._shut_down),
            (6, self._stall),
            (12, self._partition),
            (8, self._heal),
            (6, self._change_weather),
            (8, self._snapshot),
            (5, self._resign),
            (9, self._add_voter),
            (7, self._remove_voter),
            (4, self._move),
            (5, self._wipe),
            (2, self._upgrade),
            (4, self._burst),
        )
        self._operations = (self._add_voter, self._add_voter, self._remove_voter, self._move, self._wipe)
        self._weights = [weight for weight, _ in self._faults]

    def begin(self) -> None:
        scenario = self._simulation.scenario
        self._after(self._random.expovariate(1.0 / scenario.append_every_ms), self._append_again)
        self._after(1_000.0 + self._random.expovariate(1.0 / scenario.fault_every_ms), self._fault_again)

        self._offers.begin()
        self._hardships.begin()
        self._simulation.checker.on_elected = self._on_elected

    def _on_elected(self) -> None:
        """Request voter changes from a new leader at once, as some operators do."""
        if not self._is_quiet and self._random.random() < _IMPATIENCE:
            self._after(self._random.choice((0.0, 0.0, 10.0)), self._random.choice((self._remove_voter, self._operate)))

    def end(self) -> None:
        self._is_over = True
        self._offers.end()
        self._hardships.end()

    @property
    def is_over(self) -> bool:
        return not self._open

    @property
    def _is_quiet(self) -> bool:
        """Whether neither faults nor work may begin."""
        return self._is_over or self._simulation.is_peaceful

    def _after(self, delay_ms: float, action: Callable[[], None]) -> None:
        self._world.schedule(delay_ms, action)

    def _fault_again(self) -> None:
        if not self._is_over:
            is_calm = self._random.random() < self._simulation.scenario.calm_share
            self._after(self._pause_ms(is_calm), self._fault_again)  # before the fault: a node may lose power in it
            if self._is_quiet:
                return
            if is_calm:
                self._calm_down()
            else:
                (_, fault) = self._random.choices(self._faults, self._weights)[0]
                fault()

    def _pause_ms(self, is_calm: bool) -> float:
        """Return the time until the next fault; a calm is long enough for an election and more."""
        scenario = self._simulation.scenario
        if is_calm:
            return self._random.uniform(1.0, 6.0) * scenario.fetch_timeout_ms
        return self._random.expovariate(1.0 / scenario.fault_every_ms)

    def _calm_down(self) -> None:
        """Leave time for operations that need a leader, such as voter changes."""
        self._note("calm")
        self._simulation.network.clear_up()
        self._after(self._random.uniform(0.5, 5.0) * self._simulation.scenario.fetch_timeout_ms, self._operate)

    def _operate(self) -> None:
        operation = self._random.choice(self._operations) if self._is_dynamic() else self._upgrade
        if not self._is_quiet:
            operation()

    def _note(self, text: str) -> None:
        self._simulation.checker.note(text)

    def _any(self, nodes: list[Node]) -> Node | None:
        return self._random.choice(nodes) if nodes else None

    def _up(self) -> list[Node]:
        return [node for node in self._nodes.values() if node.is_up]

    def _leaders(self) -> list[Node]:
        """Return all nodes that believe to be leader."""
        checker = self._simulation.checker
        return [node for node in self._up() if (now := checker.observed(node.id)) is not None and now.is_leader]

    # Work

    def _append_again(self) -> None:
        if not self._is_over:
            delay_ms = self._random.expovariate(1.0 / self._simulation.scenario.append_every_ms)
            self._after(delay_ms, self._append_again)
            if not self._is_quiet:
                self.append(1)

    def append(self, count: int) -> None:
        for node in self._leaders():
            replica = node.replica
            for _ in range(count):
                if replica is not None and replica.process.is_alive:
                    self._world.run(replica.process, replica.append, self._frames())

    def _frames(self) -> list[bytes]:
        frames = []
        for _ in range(self._random.choice((1, 1, 2, 5))):
            self._number += 1
            frames.append(frame_of(self._number, self._random.choice((0, 10, 40, 150))))
        return frames

    def _burst(self) -> None:
        self.append(self._random.randint(5, 20))

    # Restarts

    def _crash(self) -> None:
        """Crash one node, or sometimes all at once."""
        up = self._up()
        victims = up if self._random.random() < 0.1 else self._random.sample(up, min(1, len(up)))
        power = self._random.random() < 0.6
        for node in victims:
            self._note(f"node {node.id} {'loses power' if power else 'is killed'}")
            self._simulation.crash(node, power=power)
            self._start_later(node)

    def _start_later(self, node: Node) -> None:
        mean_ms = self._random.choice((50.0, 1_000.0, 4_000.0))
        self._after(self._random.expovariate(1.0 / mean_ms), lambda: self._simulation.start(node))

    def _cut_power_soon(self) -> None:
        """Cut a node's power in the middle of its next operations."""
        node = self._any(self._up())
        if node is not None:
            node.disk.fail_after = self._random.randint(0, 40)

    def _fail_disk_soon(self) -> None:
        node = self._any(self._up())
        if node is not None:
            node.disk.error_after = self._random.randint(0, 20)

    def _shut_down(self) -> None:
        node = self._any([node for node in self._up() if not node.is_leaving])
        if node is None or node.replica is None:
            return
        self._note(f"node {node.id} shuts down")
        replica, node.is_leaving = node.replica, True

        def gone(_: object) -> None:
            if node.replica is replica:
                replica.close()
                self._note(f"node {node.id} has shut down")
                self._simulation.crash(node, power=False)
                self._start_later(node)

        self._world.run(replica.process, lambda: replica.shut_down().add_done_callback(gone))

    def _stall(self) -> None:
        """Pause a machine: only its clocks continue."""
        node = self._any(self._up())
        if node is not None and node.replica is not None:
            pause_ms = self._random.choice((50.0, 800.0, 3_000.0))
            self._note(f"node {node.id} stalls for {pause_ms:.0f} ms")
            node.replica.process.stalled_until_ms = self._world.now_ms + pause_ms

    def _move(self) -> None:
        """Restart a controller with another address."""
        node = self._any([node for node in self._up() if node.can_vote])
        if node is not None and self.may_lose(node):
            self._note(f"node {node.id} moves")
            self._simulation.crash(node, power=False)
            node.moves += 1
            self._start_later(node)

    # The network

    def _partition(self) -> None:
        """Cut some links, each in one direction, or partition the nodes into two groups, or isolate a node."""
        ids = list(self._nodes)
        links = {(a, b) for a in ids for b in ids if a != b}
        match self._random.randrange(4):
            case 0:
                blocked = {link for link in sorted(links) if self._random.random() < 0.3}
            case 1:
                group = {node_id for node_id in ids if self._random.random() < 0.5}
                blocked = {(a, b) for a, b in links if (a in group) != (b in group)}
            case 2:
                alone = self._random.choice(ids)
                blocked = {(a, b) for a, b in links if alone in (a, b)}
            case _:
                deaf = self._random.choice(ids)
                blocked = {(a, b) for a, b in links if b == deaf}
        self._note(f"cut links: {sorted(blocked)}")
        self._simulation.network.block(frozenset(blocked))

    def _heal(self) -> None:
        self._note("all links restored")
        self._simulation.network.block(frozenset())

    def _change_weather(self) -> None:
        self._simulation.network.weather = draw_weather(self._random)

    # Snapshots, leadership

    def _snapshot(self) -> None:
        """Generate a snapshot on demand."""
        node = self._any(self._up())
        if node is not None and node.replica is not None:
            self._world.run(node.replica.process, node.replica.snapshot)

    def _resign(self) -> None:
        node = self._any(self._leaders())
        if node is not None and node.replica is not None:
            self._note(f"node {node.id} resigns")
            self._world.run(node.replica.process, node.replica.resign)

    # Membership

    def _ask(
        self,
        request: AddVoterRequest | RemoveVoterRequest,
        what: str,
        tries: int = 6,
        then: Callable[[], None] | None = None,
    ) -> None:
        """Send a request to a node that believes to be leader, or to any node; repeat it, as operators do, if it
        failed. `then` follows the last response at once.
        """
        asked = self._up() if self._random.random() < 0.1 else self._leaders()
        node = self._any(asked)
        if self._is_quiet or node is None or node.replica is None:
            return
        if isinstance(request, AddVoterRequest) and self._is_lost(request.voter):
            return  # an operator looks up the directory id of the replica to add
        self._number += 1
        number, name = self._number, node.id
        self._open[number] = what
        self._note(f"node {name} receives the request to {what}")

        def answered(response: Response) -> None:
            self._open.pop(number, None)
            assert isinstance(response, ChangeVotersResponse)
            self._note(f"node {name} responds to {what}: {response.error.name} {response.message or ''}")
            if response.error in _TRY_AGAIN and tries > 1:
                self._after(self._random.uniform(100.0, 1_000.0), lambda: self._ask(request, what, tries - 1, then))
            elif then is not None:
                self._after(0.0, then)

        self._world.schedule(_REQUEST_TIMEOUT_MS, self._give_up, number, node.replica.process)
        self._simulation.ask(node, request, answered)

    def _give_up(self, number: int, asked: Process) -> None:
        """Give up on a request, later than any timeout of the protocol."""
        what = self._open.pop(number, None)
        if what is not None and asked.is_alive:
            self._simulation.checker.fail("EveryRequestIsAnswered", f"node {asked.node_id} was asked to {what}")

    def _add_voter(self) -> None:
        voters = {key for voters in self._voter_sets() for key in voters.keys}
        controllers = [node for node in self._nodes.values() if node.can_vote]
        node = self._any([node for node in controllers if node.key not in voters] or controllers)
        if node is not None and self._is_dynamic():
            self._ask(self._add_request(node), f"add {node.id}")

    def _remove_voter(self) -> None:
        """Remove a voter, a lost one before others; live voters only while all others are reachable."""
        sets = self._voter_sets()
        keys = sorted({key for voters in sets for key in voters.keys})
        lost = [key for key in keys if self._is_lost(key)]
        may_shrink = min((len(voters) for voters in sets), default=0) > 1 and not any(map(self._away, sets))
        candidates = lost or (keys if may_shrink else [])
        if candidates and self._is_dynamic():
            key = self._random.choice(candidates)
            self._ask(RemoveVoterRequest(CLUSTER_ID, key), f"remove {key.id}", tries=1)

    def _upgrade(self) -> None:
        node = self._any(self._leaders())
        if node is not None and node.replica is not None and not self._is_dynamic():
            self._note(f"node {node.id} is asked to upgrade kraft.version")
            self._world.run(node.replica.process, node.replica.upgrade)

    def _voter_sets(self) -> list[VoterSet]:
        """Return all voter sets in force on any node, including nodes that are down."""
        found = [voters for node in self._nodes.values() if (voters := node.disk.replayed_voters()) is not None]
        found += [
            now.voters
            for node in self._nodes.values()
            if (now := self._simulation.checker.observed(node.id)) is not None
        ]
        return found

    def _is_lost(self, key: ReplicaKey) -> bool:
        node = self._nodes.get(key.id)
        return node is None or node.rotten_bytes > 0 or not node.key.matches(key)

    def _is_dynamic(self) -> bool:
        """Whether a leader is at kraft.version 1."""
        seen = (self._simulation.checker.observed(node.id) for node in self._leaders())
        return any(now is not None and now.kraft_version > 0 for now in seen)

    def _away(self, voters: VoterSet) -> set[int]:
        """Return the nodes that are lost, or have moved to addresses unknown to these voters."""
        return {
            voter.key.id
            for voter in voters
            if self._is_lost(voter.key) or voter.endpoint(LISTENER) not in self._nodes[voter.key.id].endpoints
        }

    def _wipe(self) -> None:
        """Replace a disk by an empty one."""
        node = self._any(list(self._nodes.values()))
        if node is None or not self.may_lose(node):
            return
        self._note(f"the disk of node {node.id} is wiped")
        self._simulation.crash(node, power=True)
        self._simulation.wipe(node)
        self._start_later(node)

    # Operations of hardships

    def add_caught_up_voter(self) -> bool:
        """Add a voter that has the leader's whole log. Return False if there is none now."""
        leaders = self._leaders()
        if len(leaders) != 1 or not self._is_dynamic() or self._open:
            return False
        voters = {key for voters in self._voter_sets() for key in voters.keys}
        end = leaders[0].disk.log_end
        nodes = [
            node
            for node in self._nodes.values()
            if node.can_vote and node.key not in voters and node.is_up and node.disk.log_end == end
        ]
        node = self._any(nodes)
        if node is not None:
            self._ask(self._add_request(node), f"add {node.id}", tries=1)
        return node is not None

    def add_two_voters(self, pause: Callable[[Node, float, float], None]) -> bool:
        """Add a voter that responds after the leader's time-out; when the request ends, add another one at once.

        Return False if this is impossible now.
        """
        voters = {key for voters in self._voter_sets() for key in voters.keys}
        nodes = [node for node in self._nodes.values() if node.can_vote and node.key not in voters and node.is_up]
        leaders = self._leaders()
        if len(nodes) < 2 or len(leaders) != 1 or not self._is_dynamic() or self._open:
            return False
        first, second = self._random.sample(nodes, 2)

        def add_second() -> None:
            self._ask(self._add_request(second), f"add {second.id}")
            pause(second, 0.0, 0.3)

        timeout = min(1.0, 1.0 / leaders[0].rate)
        pause(first, timeout, max(1.0, timeout + self._simulation.scenario.late_timeouts))
        self._ask(self._add_request(first), f"add {first.id}", tries=1, then=add_second)
        return True

    def shrink_to(self, kept: Node) -> None:
        """Remove all voters but one, one after the other, while all of them are reachable."""
        sets = self._voter_sets()
        others = sorted({key for voters in sets for key in voters.keys} - {kept.key})
        if self._is_quiet or not others or not self._is_dynamic() or any(map(self._away, sets)) or self._open:
            return
        if all(kept.key in voters.keys for voters in sets):
            key = self._random.choice(others)
            self._ask(RemoveVoterRequest(CLUSTER_ID, key), f"remove {key.id}", 3, then=partial(self.shrink_to, kept))

    def _add_request(self, node: Node) -> AddVoterRequest:
        return AddVoterRequest(CLUSTER_ID, node.key, node.listeners)

    def may_lose(self, node: Node) -> bool:
        """Whether the other nodes can still find each other and form a majority of every voter set."""
        if self._simulation.scenario.kraft_version == 0 or self._open:
            return not node.can_vote
        return all(
            len(self._away(voters) | ({node.id} & set(voters.ids))) <= len(voters) - voters.majority
            for voters in self._voter_sets()
        )
