"""A node's replica of the metadata log, with the controller on top: composed as in `broker.node.quorum` and
`broker.node.metadata`, on a simulated disk, clock and network.

Controllers and brokers run the same parts. On a node that is only a broker the replica is an observer, and its
controller never leads.
"""

from asyncio import Future
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Protocol, cast

from broker.metadata.controller.controller import Controller, LocalBroker
from broker.metadata.controller.state import ControllerSettings
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.snapshot.codec import voters_checkpoint
from broker.metrics.snapshots import SnapshotMetrics
from broker.node.metadata import ControllerQuorumView
from broker.node.quorum import QuorumPart
from broker.quorum.core import QuorumCore
from broker.quorum.identity import Instant, KRaftVersions, LeaderAndEpoch, SnapshotId, SocketAddress
from broker.quorum.membership.voters import VoterNode, VoterSet
from broker.quorum.messages import Request, Response, SendFailure
from broker.quorum.settings import QuorumSettings
from broker.quorum.snapshots.rules import SnapshotTrigger, TriggerSettings
from broker.runtime.controller.driver import ControllerDriver
from broker.runtime.quorum.driver import QuorumDriver
from broker.runtime.quorum.metadata_log import RaftMetadataLog
from broker.runtime.quorum.quorum import VOTERS_CHECKPOINT, CommittedBatch, RawSnapshotReader
from broker.runtime.quorum.replica_io import ReplicaIo
from broker.runtime.quorum.snapshot_generator import SnapshotGenerator
from broker.runtime.quorum.state_file import QuorumStateFile
from broker.runtime.quorum.transport import NetworkTransport
from protocol.primitives import Uuid
from protocol.records.compression import Codec
from protocol.records.quorum_control import ControlState
from storage.config import LogConfig
from storage.files import join, parent, replace_file
from tests.broker.metadata.images import PlainSchema
from tests.simulation.cluster.scenario import MetadataScenario
from tests.simulation.quorum.disk import METADATA_DIRECTORY
from tests.simulation.quorum.history import Observed
from tests.simulation.quorum.network import Network
from tests.simulation.quorum.node import LISTENER
from tests.simulation.quorum.node import Node as QuorumNode
from tests.simulation.replication.metadata import _bootstrap
from tests.simulation.replication.process import TaskProcess
from tests.simulation.replication.scenario import CLUSTER_ID, Scenario
from tests.simulation.world import SimulatedIo
from tests.support.fakes.runtimes import make_runtime

if TYPE_CHECKING:
    from tests.simulation.cluster.checker import ClusterChecker
    from tests.simulation.cluster.watch import EndedProcesses

_FORMATTED_AT_MS = 1_600_000_000_000


class MetadataSurroundings(Protocol):
    """The simulation, as far as replicas of the metadata log use it."""

    @property
    def scenario(self) -> Scenario: ...

    @property
    def metadata_scenario(self) -> MetadataScenario: ...

    @property
    def network(self) -> Network: ...

    @property
    def quorum_nodes(self) -> dict[int, QuorumNode]: ...

    @property
    def checker(self) -> "ClusterChecker": ...

    @property
    def ends(self) -> "EndedProcesses": ...


def format_metadata(node: QuorumNode, voters: Sequence[QuorumNode]) -> None:
    """Format a metadata disk; `voters` are the first voters on the disk of a voter, else none."""
    disk = node.disk
    disk.make_directory(METADATA_DIRECTORY)
    disk.sync_directory("/")
    disk.sync_directory(parent(METADATA_DIRECTORY))
    if voters:
        voter_set = VoterSet(VoterNode(each.key, each.listeners, KRaftVersions()) for each in voters)
        control = ControlState(1, voter_set.to_record())
        replace_file(disk, join(METADATA_DIRECTORY, VOTERS_CHECKPOINT), voters_checkpoint(control, _FORMATTED_AT_MS))


class MetadataReplica:
    """A running replica and its controller. Implements the quorum network's Server and the core's transport."""

    def __init__(
        self,
        node: QuorumNode,
        process: TaskProcess,
        io: SimulatedIo,
        around: MetadataSurroundings,
        random: Random,
        *,
        on_fatal: Callable[[BaseException], None],
        local_broker: LocalBroker | None = None,
    ) -> None:
        self.node = node
        self.process = process
        self.around = around
        scenario = around.metadata_scenario
        config = LogConfig(segment_bytes=scenario.segment_bytes)
        self.log = RaftMetadataLog.open(node.disk, METADATA_DIRECTORY, config, process.now_ms())
        state_file = QuorumStateFile(node.disk, METADATA_DIRECTORY)
        recovered = replace(self.log.recovered, election=state_file.read())
        now = Instant(process.monotonic_ms(), process.now_ms())
        core = QuorumCore(_quorum_settings(node, around), recovered, random, now)
        runtime = make_runtime(process, clock=process, io=io, files=node.disk)
        replica_io = ReplicaIo(self.log, state_file, self, election=recovered.election)
        self.quorum = QuorumDriver(core, replica_io, runtime, on_fatal=on_fatal)
        self.part = QuorumPart(self.log, self.quorum, cast(NetworkTransport, self), LISTENER, None)
        self.controller = Controller(
            _controller_settings(node.id, around),
            PlainSchema(),
            random=random,
            new_id=lambda: Uuid(random.randbytes(16)),
            quorum=ControllerQuorumView(self.part),
            may_lead=node.can_vote,
        )
        self.driver = ControllerDriver(
            self.controller,
            self.quorum,
            runtime,
            bootstrap=_bootstrap(elr=around.scenario.elr),
            local_broker=local_broker,
        )
        trigger = TriggerSettings(
            min_changed_ratio=scenario.min_changed_ratio,
            min_bytes=scenario.snapshot_bytes,
            interval_ms=scenario.snapshot_interval_ms,
        )
        self.snapshots = SnapshotGenerator(
            self.quorum,
            SnapshotTrigger(trigger, process.monotonic_ms()),
            SnapshotMetrics(process.monotonic_ms()),
            replace(
                runtime,
                io=SimulatedIo(process, random, inline_share=0.5, delay_ms=around.scenario.io_delay_ms),
            ),
            codec=Codec.NONE,
        )
        self.driver.add_log_read_listener(self.snapshots)
        self.driver.add_publisher(self)
        self.driver.add_publisher(self.snapshots)
        self.quorum.add_listener(_WitnessedDriver(self))

    def start(self) -> None:
        self.quorum.start()

    def observe(self) -> Observed:
        facts, leader = self.quorum.facts, self.quorum.facts.leader
        return Observed(
            leader.epoch,
            leader.leader_id,
            facts.role == "leader",
            self.quorum.high_watermark,
            self.log.log_start_offset,
            facts.log_end_offset,
            facts.log_end_epoch,
            facts.voters,
            facts.kraft_version,
            self.node.disk.version,
            facts.high_watermark,
        )

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Check a published image."""
        self.around.checker.on_image(self, delta, image)

    # Server and transport

    def receive(self, request: Request, answer: Callable[[Response], None]) -> None:
        def done(future: "Future[Response]") -> None:
            if not future.cancelled() and future.exception() is None:
                answer(future.result())

        self.quorum.handle(request).add_done_callback(done)

    def send(
        self,
        to_id: int,
        to: SocketAddress,
        request: Request,
        timeout_ms: int,
        done: Callable[[Response | SendFailure], None],
    ) -> None:
        self.around.network.send(self.process, to, request, timeout_ms, done)


class _WitnessedDriver:
    """The controller's driver as a listener of the quorum; the checker sees every callback first."""

    def __init__(self, replica: MetadataReplica) -> None:
        self._replica = replica
        self._checker = replica.around.checker
        self._applied_epoch = -1
        self._has_loaded = False

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        replica = self._replica
        self._checker.quorum.on_event(replica.node, replica.observe())  # while the log still has these batches
        self._checker.on_committed(self._replica, batches)
        if batches:
            self._applied_epoch = batches[-1].epoch
        self._replica.driver.on_commit(batches)

    def on_load_snapshot(self, snapshot_id: SnapshotId, reader: RawSnapshotReader) -> "Future[None] | None":
        self._checker.quorum.on_load(self._replica.node, snapshot_id)
        self._checker.counts.add("snapshot loads")
        self._has_loaded = True
        self._applied_epoch = snapshot_id.epoch
        return self._replica.driver.on_load_snapshot(snapshot_id, reader)

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        replica = self._replica
        if leader.leader_id != replica.node.id:
            replica.driver.on_leader_change(leader)
            return
        self._checker.quorum.on_own_leadership(replica.node, leader.epoch, self._applied_epoch)
        self._checker.on_takeover(replica, from_snapshot=self._has_loaded)
        replica.driver.on_leader_change(leader)


def _quorum_settings(node: QuorumNode, around: MetadataSurroundings) -> QuorumSettings:
    scenario = around.metadata_scenario
    controllers = [other for other in around.quorum_nodes.values() if other.can_vote]
    return QuorumSettings(
        key=node.key,
        cluster_id=CLUSTER_ID,
        can_vote=node.can_vote,
        listeners=node.listeners,
        default_listener=LISTENER,
        bootstrap=tuple(other.endpoint for other in controllers if other is not node),
        election_timeout_ms=scenario.election_timeout_ms,
        fetch_timeout_ms=scenario.fetch_timeout_ms,
        election_backoff_max_ms=scenario.election_timeout_ms,
        append_linger_ms=scenario.append_linger_ms,
        request_timeout_ms=scenario.fetch_timeout_ms,
        fetch_snapshot_max_bytes=scenario.fetch_snapshot_max_bytes,
        fetch_max_wait_ms=scenario.fetch_max_wait_ms,
        observer_session_timeout_ms=scenario.observer_session_timeout_ms,
        start_offset_lag_time_max_ms=scenario.start_offset_lag_time_max_ms,
        retention_bytes=scenario.retention_bytes,
        trim_interval_ms=scenario.trim_interval_ms,
        auto_join=scenario.auto_join and node.can_vote,
    )


def _controller_settings(node_id: int, around: MetadataSurroundings) -> ControllerSettings:
    return ControllerSettings(
        CLUSTER_ID,
        node_id=node_id,
        session_timeout_ms=around.scenario.session_timeout_ms,
        max_idle_interval_ms=around.metadata_scenario.max_idle_interval_ms,
        leader_imbalance_check_interval_ms=3_000,
        unclean_election_interval_ms=1_000,
    )
