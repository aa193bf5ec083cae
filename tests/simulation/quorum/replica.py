"""A real replica on a simulated node: QuorumCore, QuorumDriver, MetadataLog and storage.Log, composed as in the
product.

`Parts` names the classes, so that a planted bug can replace one of them.
"""

from asyncio import Future
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from broker.metadata.snapshot.codec import voters_checkpoint
from broker.quorum.core import NotLeader, QuorumCore
from broker.quorum.identity import Instant, LeaderAndEpoch, SnapshotId, SocketAddress
from broker.quorum.membership.voters import VoterNode, VoterSet
from broker.quorum.messages import ProbeRequest, ProbeResponse, Request, Response, SendFailure
from broker.quorum.settings import QuorumSettings, StoredSnapshot
from broker.quorum.state import FollowerState, LeaderState, ObserverState
from broker.runtime.quorum.driver import QuorumDriver
from broker.runtime.quorum.listener_feeds import _committed_batches
from broker.runtime.quorum.metadata_log import RaftMetadataLog
from broker.runtime.quorum.quorum import VOTERS_CHECKPOINT, CommittedBatch
from broker.runtime.quorum.replica_io import ReplicaIo
from broker.runtime.quorum.snapshot_import import SnapshotImporter
from broker.runtime.quorum.snapshot_store import SnapshotObjectStore
from broker.runtime.quorum.state_file import QuorumStateFile
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, Offset
from protocol.records.quorum_control import ControlState
from storage.config import LogConfig
from storage.errors import LogDirFailure
from storage.files import join, parent, replace_file
from tests.simulation.quorum.disk import METADATA_DIRECTORY
from tests.simulation.quorum.history import Observed
from tests.simulation.quorum.node import LISTENER, Node
from tests.simulation.quorum.offers import Offered, any_records
from tests.simulation.quorum.scenario import MOST_OBSERVERS, Scenario
from tests.simulation.quorum.simulation import QuorumSimulator
from tests.simulation.quorum.state_machine import State, StateMachine
from tests.simulation.world import Process, SimulatedIo
from tests.support.fakes.runtimes import make_runtime
from tests.support.quorum_values import make_static_voter

CLUSTER_ID: Final = "simulated-cluster-0001"
_FORMATTED_AT_MS: Final = 1_600_000_000_000


@dataclass(frozen=True, slots=True)
class Parts:
    """The classes of a replica."""

    core: type[QuorumCore] = QuorumCore
    driver: type[QuorumDriver] = QuorumDriver
    log: type[RaftMetadataLog] = RaftMetadataLog
    state_file: type[QuorumStateFile] = QuorumStateFile


@dataclass(slots=True)
class RealReplicas:
    """Implements ReplicaFactory."""

    parts: Parts = field(default_factory=Parts)

    def format(self, node: Node, scenario: Scenario, initial: list[Node] | None) -> None:
        disk = node.disk
        disk.make_directory(METADATA_DIRECTORY)
        disk.sync_directory("/")
        disk.sync_directory(parent(METADATA_DIRECTORY))
        if initial is not None and scenario.kraft_version > 0:
            control = ControlState(scenario.kraft_version, _voters(initial).to_record())
            replace_file(
                disk, join(METADATA_DIRECTORY, VOTERS_CHECKPOINT), voters_checkpoint(control, _FORMATTED_AT_MS)
            )

    def start(self, node: Node, process: Process, simulation: QuorumSimulator) -> "RealReplica":
        return RealReplica(self.parts, node, process, simulation)


def _voters(nodes: list[Node]) -> VoterSet:
    return VoterSet(VoterNode(node.key, node.listeners, node.versions) for node in nodes)


class RealReplica:
    """A replica of the product's parts. Implements Replica and Server, and observes its state machine."""

    def __init__(self, parts: Parts, node: Node, process: Process, simulation: QuorumSimulator) -> None:
        self.process = process
        self._node = node
        self._simulation = simulation
        self._checker = simulation.checker
        self._random = Random(f"replica {simulation.seed} {node.id} {node.starts}")
        scenario = simulation.scenario
        self._snapshot_bytes = scenario.snapshot_bytes
        self._io = SimulatedIo(
            process, self._random, inline_share=scenario.io_inline_share, delay_ms=scenario.io_delay_ms
        )
        self._snapshot_io = SimulatedIo(
            process, self._random, inline_share=scenario.io_inline_share, delay_ms=scenario.io_delay_ms
        )
        self._is_generating = False
        self._proposed: dict[tuple[int, int], list[bytes]] = {}
        config = LogConfig(segment_bytes=scenario.segment_bytes)
        self._log = parts.log.open(node.disk, METADATA_DIRECTORY, config, process.now_ms())
        state_file = parts.state_file(node.disk, METADATA_DIRECTORY)
        recovered = replace(self._log.recovered, election=state_file.read())
        now = Instant(process.monotonic_ms(), process.now_ms())
        self._core = parts.core(settings_of(node, simulation), recovered, self._random, now)
        self._machine = StateMachine(self, self._defer)
        self._driver = parts.driver(
            self._core,
            ReplicaIo(
                self._log,
                state_file,
                self,
                imports=self._importer() if scenario.imports else None,
                snapshot_io=self._snapshot_io,
            ),
            make_runtime(process, clock=process, io=self._io, files=node.disk),
            on_fatal=lambda error: simulation.on_fatal(node, error),
        )
        self._driver.add_listener(self._machine)
        self._driver.start()

    def _importer(self) -> SnapshotImporter:
        scenario = self._simulation.scenario
        pool = SimulatedIo(self.process, self._random, inline_share=0.2, delay_ms=scenario.import_delay_ms)
        store = SnapshotObjectStore(lambda: self._simulation.offers.place, CLUSTER_ID, 1_000_000, any_records)
        timeout_ms = scenario.import_timeout_ms
        files, clock = self._log.snapshots, self.process
        return SnapshotImporter(store, files, uri="the store", timeout_ms=timeout_ms, pool=pool, clock=clock)

    # Replica

    @property
    def state(self) -> State:
        return self._machine.state

    @property
    def driver(self) -> QuorumDriver:
        return self._driver

    def observe(self) -> Observed:
        facts, leader = self._driver.facts, self._driver.facts.leader
        replica = self._core._replica
        log, role = replica.log, replica.role
        trusts = isinstance(role, FollowerState | ObserverState) and role.has_fetched and not role.leader_ended
        observers = len(role.progress._observers) if isinstance(role, LeaderState) else 0
        return Observed(
            leader.epoch,
            leader.leader_id,
            facts.role == "leader",
            self._driver.high_watermark,
            self._log.log_start_offset,
            facts.log_end_offset,
            facts.log_end_epoch,
            facts.voters,
            facts.kraft_version,
            self._node.disk.version,
            facts.high_watermark,
            log.end,
            log.synced_end,
            log.start,
            trusts,
            observers,
            facts.role == "leader" and self._driver.leader == LeaderAndEpoch(BrokerId(self._node.id), leader.epoch),
        )

    def append(self, frames: list[bytes]) -> None:
        leader = self._driver.leader
        try:
            appended = self._driver.append(leader.epoch, frames)
        except NotLeader:
            return
        self._proposed[leader.epoch, appended.base_offset] = frames

    def snapshot(self) -> None:
        state = self._machine.state
        snapshot_id = self._driver.can_snapshot_at(state.offset)
        if snapshot_id is None or self._is_generating or self._machine.is_loading:
            return
        if snapshot_id != state.snapshot_id:
            self._checker.fail("SnapshotIds", f"{snapshot_id} is offered for the state at {state.snapshot_id}")
        self._checker.on_event(self._node, self.observe())  # while the log still has all records of the snapshot
        self._is_generating = True
        control = self._core.control_before(Offset(state.offset))
        content = state.write(control.kraft_version, control.voters)
        self._machine.bytes_since_snapshot = 0
        self._write_snapshot(snapshot_id, content, state.timestamp_ms)

    def _write_snapshot(self, snapshot_id: SnapshotId, content: bytes, timestamp_ms: int) -> None:
        def write() -> StoredSnapshot:
            writer = self._driver.begin_snapshot(snapshot_id)
            try:
                writer.append(content)
                return writer.commit(timestamp_ms)
            except OSError:
                writer.abandon()
                raise

        def written(done: "Future[StoredSnapshot]") -> None:
            self._is_generating = False
            if done.exception() is None:
                self._driver.on_snapshot_generated(done.result())

        self._snapshot_io.submit(write).add_done_callback(written)

    def imagine(self, random: Random) -> Offered | None:
        state = replace(self._machine.state, values=dict(self._machine.state.values))
        if self._machine.is_loading or self._driver.is_truncating or state.offset < self._log.log_start_offset:
            return None
        while random.random() < 0.9 and state.offset < self._log.log_end_offset:
            chunk = self._log.read(state.offset, 1, self._log.log_end_offset).data
            state.apply(next(_committed_batches(chunk, state.offset)))
        newest = self._core._replica.log.newest_snapshot
        if state.offset <= (0 if newest is None else newest.end_offset):  # the control records there are forgotten
            return None
        control = self._core.control_before(Offset(state.offset))
        return Offered(state.snapshot_id, state.write(control.kraft_version, control.voters))

    def stall_disk(self, until_ms: float) -> None:
        self._io.stalled_until_ms = self._snapshot_io.stalled_until_ms = until_ms

    def resign(self) -> None:
        self._driver.resign(self._driver.leader.epoch)

    def shut_down(self) -> "Future[None]":
        return self._driver.shut_down()

    def close(self) -> None:
        """Close the node after `shut_down`."""
        self._driver.close()
        try:
            self._log.close()
        except LogDirFailure:
            assert self._node.disk.has_failed, "a log must close on a sound disk"

    def upgrade(self) -> "Future[Response] | None":
        return self._driver.upgrade_kraft_version(1)

    @property
    def is_busy(self) -> bool:
        return self._is_generating or self._machine.is_loading

    # Server and transport

    def receive(self, request: Request, answer: Callable[[Response], None]) -> None:
        if isinstance(request, ProbeRequest):
            answer(ProbeResponse(ErrorCode.NONE, self._node.versions))
            return

        def done(future: "Future[Response]") -> None:
            if future.exception() is None:
                answer(future.result())

        self._driver.handle(request).add_done_callback(done)

    def send(
        self,
        to_id: int,
        to: SocketAddress,
        request: Request,
        timeout_ms: int,
        done: Callable[[Response | SendFailure], None],
    ) -> None:
        self._simulation.network.send(self.process, to, request, timeout_ms, done)

    # Calls of the state machine

    def on_batch(self, batch: CommittedBatch) -> None:
        """Acknowledge the batch if it equals this node's proposal in the batch's epoch."""
        frames = self._proposed.pop((batch.epoch, batch.base_offset), None)
        if frames is not None:
            if frames != [bytes(frame) for frame in batch.frames]:
                self._checker.fail(
                    "ProposalsCommitAsTheyAre", f"node {self._node.id} proposed something else at {batch.base_offset}"
                )
            self._checker.on_acknowledged(self._node, batch.base_offset, batch.epoch)

    def on_applied(self, state: State) -> None:
        self._checker.on_state(self._node, state.offset, state.digest)
        if self._machine.bytes_since_snapshot >= self._snapshot_bytes and not self._does_without_new_snapshots:
            self.process.call_soon(self.snapshot)

    @property
    def _does_without_new_snapshots(self) -> bool:
        """Whether no new snapshots are generated after the last fault (every second seed): nodes must recover with the
        present ones.
        """
        return self._simulation.is_recovering and self._simulation.seed % 2 == 0

    def on_load(self, snapshot_id: SnapshotId) -> None:
        self._checker.on_load(self._node, snapshot_id)

    def on_gap(self, expected: int, base_offset: int) -> None:
        self._checker.fail(
            "ListenersSeeEveryOffset", f"node {self._node.id} received {base_offset} instead of {expected}"
        )

    def on_leader(self, leader: LeaderAndEpoch) -> None:
        if leader.leader_id == self._node.id:
            self._checker.on_own_leadership(self._node, leader.epoch, self._machine.state.epoch)

    def _defer(self, load: Callable[[], None]) -> "Future[None] | None":
        if self._random.random() < 0.5:
            load()
            return None
        done: Future[None] = self.process.create_future()

        def finish() -> None:
            load()
            done.set_result(None)

        delay_ms = self._random.expovariate(1.0 / 50.0)
        self._simulation.world.schedule(delay_ms, finish, process=self.process)
        return done


def settings_of(node: Node, simulation: QuorumSimulator) -> QuorumSettings:
    """Return the configuration of a node."""
    scenario = simulation.scenario
    controllers = [other for other in simulation.nodes.values() if other.can_vote]
    static = [other for other in controllers if other.id <= scenario.voters]
    return QuorumSettings(
        key=node.key,
        cluster_id=CLUSTER_ID,
        can_vote=node.can_vote,
        listeners=node.listeners,
        versions=node.versions,
        default_listener=LISTENER,
        static_voters=()
        if scenario.kraft_version > 0
        else tuple(make_static_voter(other.id, other.bootstrap) for other in static),
        bootstrap=tuple(other.bootstrap for other in controllers if other is not node),
        election_timeout_ms=scenario.election_timeout_ms,
        fetch_timeout_ms=scenario.fetch_timeout_ms,
        election_backoff_max_ms=scenario.election_timeout_ms,
        append_linger_ms=scenario.append_linger_ms,
        request_timeout_ms=scenario.fetch_timeout_ms,
        auto_join=scenario.auto_join and node.can_vote,
        fetch_max_bytes=scenario.fetch_max_bytes,
        fetch_snapshot_max_bytes=scenario.fetch_snapshot_max_bytes,
        fetch_max_wait_ms=scenario.fetch_max_wait_ms,
        max_observers=MOST_OBSERVERS,
        observer_session_timeout_ms=scenario.observer_session_timeout_ms,
        start_offset_lag_time_max_ms=scenario.start_offset_lag_time_max_ms,
        retention_bytes=scenario.retention_bytes,
        trim_interval_ms=scenario.trim_interval_ms,
        import_timeout_ms=scenario.import_timeout_ms if scenario.imports else 0,
        import_min_records=scenario.import_min_records,
    )
