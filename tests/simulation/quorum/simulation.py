"""Simulator of a KRaft quorum under faults and in recovery.

After the faults a leader must exist that has everything committed; every node must have applied everything up to the
high watermark, with nothing pending.
"""

from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from broker.quorum.membership.voters import VoterSet
from broker.quorum.messages import Request, Response
from broker.quorum.settings import StaticVoter
from broker.runtime.quorum.metadata_recovery import UnusableMetadataLog
from broker.runtime.quorum.state_file import InvalidQuorumState
from storage.errors import LogDirFailure
from tests.simulation.quorum.checker import Checker
from tests.simulation.quorum.disk import SimulatedDisk
from tests.simulation.quorum.network import Network
from tests.simulation.quorum.node import LISTENER, Node, Replica
from tests.simulation.quorum.offers import CLUSTER_ID, OfferedSnapshots
from tests.simulation.quorum.scenario import Scenario, draw_scenario
from tests.simulation.quorum.settling import Settling
from tests.simulation.simulator import EventSimulator
from tests.simulation.world import Process, World, early_ms_of

START_ERRORS: Final = (OSError, LogDirFailure, UnusableMetadataLog, InvalidQuorumState)


def _ignore(_node: Node) -> None:
    """Ignore the call."""


class ReplicaFactory(Protocol):
    """Creates the replica under test on a node's disk; raises the exceptions of a start."""

    def format(self, node: Node, scenario: Scenario, initial: list[Node] | None) -> None:
        """Format a disk; `initial` are the first voters, None for a node that joins later."""
        ...

    def start(self, node: Node, process: Process, simulation: "QuorumSimulator") -> Replica: ...


class Schedule(Protocol):
    """The schedule of faults and work."""

    def begin(self) -> None: ...

    def end(self) -> None:
        """End faults and work."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether no request is pending."""
        ...


class QuorumSimulator(EventSimulator):
    """Simulator of a quorum. `network`, `nodes`, `offers` and `world` are used by the schedule and the replicas."""

    def __init__(
        self,
        seed: int,
        factory: ReplicaFactory,
        make_schedule: "Callable[[QuorumSimulator], Schedule]",
        *,
        events: int,
        scenario: Scenario | None = None,
    ) -> None:
        self.nodes: dict[int, Node] = {}
        world = World(early_ms_of(seed))
        self.scenario = scenario or draw_scenario(Random(f"scenario {seed}"))
        self.checker = Checker(self.nodes, lambda: world.now_ms, self.scenario)
        super().__init__(seed, world, self.checker, planned_events=events)
        self.random = Random(f"history {seed}")
        self.cluster_id = CLUSTER_ID
        self.settling = Settling(self)
        self.is_peaceful = False
        """Whether faults pause, see `peace.py`."""
        self.on_refused_start: Callable[[Node], None] = _ignore
        """Called when a node refuses to start on a rotten disk."""
        self.network = Network(self.world, Random(f"network {seed}"), self.checker)
        self.network.weather = self.scenario.weather
        self.network.late_timeouts = self.scenario.late_timeouts
        self.network.in_bytes = self.scenario.in_bytes
        self.offers = OfferedSnapshots()
        self._factory = factory
        self._create_nodes()
        self._schedule = make_schedule(self)

    def _create_nodes(self) -> None:
        scenario, random = self.scenario, self.random
        for node_id in scenario.node_ids:
            self.nodes[node_id] = Node(
                node_id,
                can_vote=scenario.can_vote(node_id),
                disk=SimulatedDisk(node_id, self.checker),
                rate=1.0 + random.uniform(-scenario.drift, scenario.drift),
                wall_offset_ms=1_700_000_000_000 + random.randint(-5_000, 5_000),
            )
        initial = list(self.nodes.values())[: scenario.voters]
        for node in self.nodes.values():
            self._factory.format(node, scenario, initial if node in initial else None)
            self.world.schedule(random.uniform(0.0, 200.0), self.start, node)

    @property
    def static_voters(self) -> VoterSet:
        """Return the configured voters, none at kraft.version 1."""
        if self.scenario.kraft_version > 0:
            return VoterSet()
        voters = (node for node in self.nodes.values() if node.id <= self.scenario.voters)
        return VoterSet.of_static((StaticVoter(node.key.id, node.bootstrap) for node in voters), LISTENER)

    # Running

    def begin(self) -> None:
        self._schedule.begin()

    def close(self) -> None:
        for node in self.nodes.values():
            if node.replica is not None:
                node.replica.process.die()

    def observe(self, process: Process) -> None:
        node = self.nodes[process.node_id]
        if node.replica is not None and node.replica.process is process:
            self.checker.on_event(node, node.replica.observe())

    def on_power_failure(self, process: Process) -> None:
        node = self.nodes[process.node_id]
        self.checker.note(f"node {node.id} loses its power in the middle of an operation")
        process.die()
        self._look_once_more(node)
        self.crash(node, power=True)
        self.world.schedule(self.random.uniform(1.0, 3_000.0), self.start, node)

    def _look_once_more(self, node: Node) -> None:
        """Observe a node once more: its messages and writes before the crash count."""
        if node.replica is not None:
            self.checker.on_event(node, node.replica.observe())

    # Recovery

    def stop_faults(self) -> None:
        self._schedule.end()
        self.network.clear_up()
        for node in self.nodes.values():
            self._repair(node)
            if not node.is_up:
                self.world.schedule(self.random.uniform(0.0, 500.0), self.start, node)

    def calm(self) -> None:
        """End all faults for a while; the caller ends `is_peaceful`."""
        self.is_peaceful = True
        self.network.clear_up()
        for node in self.nodes.values():
            self._repair(node)

    def _repair(self, node: Node) -> None:
        node.disk.fail_after = node.disk.error_after = node.disk.capacity_bytes = None
        if node.replica is not None:
            node.replica.stall_disk(0.0)

    @property
    def is_on_trial(self) -> bool:
        return self.is_peaceful

    def unsettled_reason(self) -> str | None:
        reason = self.settling.unsettled_reason()
        return reason or (None if self._schedule.is_over else "a request is pending")

    # Start and stop of nodes

    def start(self, node: Node) -> None:
        """Start a process on the node's disk, unless one is running."""
        if node.is_up or node.is_dead:
            return
        node.starts += 1
        if node.starts > 1:
            self.checker.counts.add("restarts")
        self.checker.note(f"node {node.id} starts")
        process = Process(self.world, node.id, rate=node.rate, wall_offset_ms=node.wall_offset_ms)
        self.world.current = process
        node.disk.is_starting, node.disk.has_failed = True, False
        node.is_leaving = False
        self.checker.on_start(node)
        try:
            replica = self._factory.start(node, process, self)
        except START_ERRORS as error:
            self._on_failed_start(node, process, error)
            return
        if node.has_rotten_log:
            self.checker.fail("RotIsNoticed", f"node {node.id} starts although a synced record has a rotten bit")
        node.disk.is_starting = False
        node.rotten_bytes = 0
        node.replica = replica
        process.run_soon()
        self.network.listen(node.bootstrap, replica)
        self.network.listen(node.endpoint, replica)

    def _on_failed_start(self, node: Node, process: Process, error: Exception) -> None:
        """Start the node later: the disk has failed or is full, or its content is rotten."""
        if not node.disk.has_failed and not node.rotten_bytes:
            self.fail_on_error(f"node {node.id}", "does not start:", error)
        self.checker.note(f"node {node.id} does not start: {error}")
        process.die()
        self.crash(node, power=False)
        if node.rotten_bytes:
            self.on_refused_start(node)
        self.world.schedule(self.random.uniform(1.0, 3_000.0), self.start, node)

    def crash(self, node: Node, *, power: bool) -> None:
        """Kill the process; with `power`, also lose unsynced data. The caller must restart the node."""
        if node.replica is not None:
            node.replica.process.die()
        node.replica = None
        self.checker.on_stop(node)
        node.disk.fail_after = node.disk.error_after = None
        node.disk.is_starting = False
        if power:
            node.disk.crash(self.random)
        else:
            node.disk.forget_process()

    def on_fatal(self, node: Node, error: BaseException) -> None:
        """Handle the end of a node's process, which is allowed after a disk failure."""
        if not isinstance(error, OSError | LogDirFailure) or not node.disk.has_failed:
            self.fail_on_error(f"node {node.id}", "ended itself:", error)
        self.checker.note(f"node {node.id} ends itself: {error}")
        self._look_once_more(node)
        self.crash(node, power=self.random.random() < 0.5)
        self.world.schedule(self.random.uniform(1.0, 3_000.0), self.start, node)

    def wipe(self, node: Node) -> None:
        """Replace the disk of a stopped node by an empty one."""
        self.checker.lost_disks[node.key] = node.disk
        node.lose_disk(SimulatedDisk(node.id, self.checker))
        self._factory.format(node, self.scenario, None)

    def ask(self, node: Node, request: Request, answer: Callable[[Response], None]) -> None:
        """Run an operator's request as an event of a node; it is lost if the node is down."""
        if node.replica is None:
            return

        def answered(response: Response) -> None:
            self.checker.on_response_leaves(node.id, request, response)
            answer(response)

        self.checker.on_request_arrives(node.id, request)
        self.world.run(node.replica.process, node.replica.receive, request, answered)
