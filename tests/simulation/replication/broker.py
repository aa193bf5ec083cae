"""A simulated broker: the data side of a node, composed in the product's order, with simulated disk, clock and network.

`Node` is the machine, which outlives its processes; `Broker` is one process on it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple, Protocol

from broker.api.fetch import FetchHandler
from broker.api.list_offsets import ListOffsetsHandler
from broker.api.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from broker.api.produce import ProduceHandler
from broker.api.serving.context import RequestContext
from broker.fetch.service import FetchService
from broker.fetch.sessions import FetchSessions
from broker.metadata.image.cluster_image import RegisteredEndpoint
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.features import SUPPORTED_FEATURES
from broker.metadata.image.image_difference import difference
from broker.metadata.image.loader import MetadataLoader, Publication, RecordBatch
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage
from broker.metadata.image.slices import finish
from broker.net.peer import SocketAddress
from broker.node.data import set_aside_strays, settle_duplicates
from broker.replication.fetch_plan import FetcherSettings, Sender
from broker.runtime.controller.broker_lifecycle import BrokerIdentity, BrokerLifecycle, LifecycleTimes
from broker.runtime.controller.controller_router import ControllerUnavailable
from broker.runtime.controller.directory_assignments import DirectoryAssignments
from broker.runtime.controller.driver import MetadataPublisher
from broker.runtime.controller.metadata_cache import MetadataCache
from broker.runtime.loop.runtime import Runtime
from broker.runtime.loop.waiters import Deadlines
from broker.runtime.partitions.alter_partition_manager import AlterPartitionManager
from broker.runtime.partitions.broker_view import MetadataBrokerView
from broker.runtime.partitions.hosted_roles import HostedRoles
from broker.runtime.partitions.isr_shrinking import IsrShrinking
from broker.runtime.partitions.log_flusher import LogFlusher
from broker.runtime.partitions.log_operations import StoredLogOperations
from broker.runtime.partitions.log_store import DirectoryFailures, LogStore
from broker.runtime.partitions.log_tasks import LogTasks, LogTaskSettings
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.registry import Partitions
from broker.runtime.partitions.replica_assignments import ReplicaAssignments
from broker.runtime.replication.fetch_transport import EpochEndsDone, FetchDone, OffsetsDone, Unanswered
from broker.runtime.replication.replica_fetcher_manager import ReplicaFetcherManager
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerEpoch, BrokerId
from protocol.messages import Message
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.broker_registration import BrokerRegistrationRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from protocol.messages.produce import ProduceRequest
from protocol.primitives import Uuid
from storage.compaction.cleaner import LogCleaner
from storage.config import LogConfig
from storage.directories.checkpoints import TopicPartition
from storage.directories.log_dir import LogDir
from storage.directories.log_dirs import LogDirs
from storage.directories.removals import PendingRemovals
from storage.log import Log
from tests.simulation.replication.disk import PartitionDisk, ReplicaName
from tests.simulation.replication.metadata import CONTROLLER, Feed, Refusal
from tests.simulation.replication.network import LISTENER, Call, Connection, Outcome, Wires
from tests.simulation.replication.process import TaskProcess
from tests.simulation.replication.scenario import CLUSTER_ID, Scenario
from tests.simulation.world import SimulatedIo, World
from tests.support.fakes.runtimes import make_runtime

FETCH_VERSION: Final = 17
LIST_OFFSETS_VERSION: Final = 9
EPOCH_ENDS_VERSION: Final = 4
_CONTROLLER_VERSIONS: Final[dict[type, int]] = {
    BrokerRegistrationRequest: 4,
    BrokerHeartbeatRequest: 1,
    AlterPartitionRequest: 3,
    AssignReplicasToDirsRequest: 0,
}
_SLOTS: Final = 20


class Whereabouts(NamedTuple):
    """A client's metadata request: the leader of a partition, by the metadata of one broker."""

    topic: str
    partition: int


class LeaderSeen(NamedTuple):
    """The response; a leader of -1 means none."""

    leader_id: int
    leader_epoch: int


class Surroundings(Protocol):
    """The simulation, as far as brokers use it."""

    @property
    def world(self) -> World: ...

    @property
    def wires(self) -> Wires: ...

    @property
    def scenario(self) -> Scenario: ...

    def note_directory_failure(self, node: "Node") -> None: ...

    def note_fetch(self, node: "Node", request: FetchRequest) -> None:
        """Record that a broker sends a fetch to a leader."""

    def on_end(self, node: "Node", broker: "Broker", error: BaseException | None) -> None:
        """Handle the end of a process by itself: after `error`, or after a requested shutdown."""


class Node:
    """A machine. `broker` is None while it is down."""

    def __init__(self, node_id: int, disk: PartitionDisk, feed: Feed, *, rate: float, wall_offset_ms: int) -> None:
        self.id = node_id
        self.disk = disk
        self.feed = feed
        self.rate = rate
        self.wall_offset_ms = wall_offset_ms
        self.lives = 1
        """Number of disks so far."""
        self.starts = 0
        self.moves = 0
        """Number of address changes so far."""
        self.recovered: dict[ReplicaName, int] = {}
        """Log end offsets at the start of the process: data found then may be unsynced."""
        self.broker: Broker | None = None
        self.is_leaving = False

    @property
    def is_up(self) -> bool:
        return self.broker is not None

    @property
    def endpoint(self) -> SocketAddress:
        return SocketAddress(f"node-{self.id}", 9000 + self.moves)


class Broker:
    """One broker process. Implements Server, MetadataReader and FetchTransport."""

    def __init__(self, node: Node, around: Surroundings, seed: int) -> None:
        scenario = around.scenario
        self.node = node
        self.around = around
        self._random = Random(f"broker {seed} {node.id} {node.starts}")
        self.process = TaskProcess(around.world, node.id, rate=node.rate, wall_offset_ms=node.wall_offset_ms)
        self.io = SimulatedIo(
            self.process, self._random, inline_share=scenario.io_inline_share, delay_ms=scenario.io_delay_ms
        )
        self.incarnation_id = Uuid(self._random.randbytes(16))
        self._publishers: list[MetadataPublisher] = []
        self._loader = MetadataLoader()
        self.cache = MetadataCache()
        self._first_image = asyncio.Event()
        self.data: DataPart | None = None
        self.lifecycle: BrokerLifecycle | None = None
        self.has_lost_directory = False

    def start(self) -> None:
        """Start the process; later failures are reported to the surroundings."""
        self.process.spawn(self._guarded(self._live))

    def shut_down(self) -> None:
        """Shut down gracefully."""
        self.process.spawn(self._guarded(self._leave))

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001  whatever it is, the process ends
            self.around.on_end(self.node, self, error)

    # ---- ---- lifecycle, as in broker.app

    async def _live(self) -> None:
        node, scenario = self.node, self.around.scenario
        failures = DirectoryFailures(self.process)
        log_dirs = LogDirs.open(node.disk, node.disk.directories(scenario.directories), failures)
        log_dirs.adopt(CLUSTER_ID, node.id, lambda: Uuid(self._random.randbytes(16)))
        failures.listen(self._on_directory_failed)
        self._loader = MetadataLoader(node.feed.start(self))
        self._publish(Publication(_whole(self._loader.image), self._loader.image))
        await self._first_image.wait()
        image = self._loader.image
        node.disk.is_starting = True
        log_dirs.load(partial(self._config, image), now_ms=self.process.now_ms())
        node.disk.is_starting = False
        self._note_recovered(log_dirs)
        self.lifecycle = lifecycle = self._build_lifecycle(log_dirs)
        self.data = data = DataPart(self, log_dirs, failures, lifecycle)
        self._add_publisher(lifecycle)
        self.process.spawn(self._guarded(lifecycle.run))
        await lifecycle.wait_caught_up()
        self._take_up_roles(data)
        lifecycle.become_ready()
        await lifecycle.wait_unfenced()
        if not node.is_leaving:
            self.around.wires.listen(node.endpoint, self)

    def _note_recovered(self, log_dirs: LogDirs) -> None:
        self.node.recovered = {ReplicaName(log.topic, log.partition): log.log_end_offset for log in log_dirs}

    def _take_up_roles(self, data: "DataPart") -> None:
        """Apply the roles once the metadata contains this registration."""
        image = self.cache.image
        self.node.disk.is_starting = True
        settle_duplicates(data.store, data.log_dirs, partial(self._config, image), image, self.node.id)
        self.node.disk.is_starting = False
        self._note_recovered(data.log_dirs)
        set_aside_strays(data.store, data.log_dirs, self.cache.image, self.node.id)
        for publisher in (data.fetchers, data.replica_assignments):
            self._add_publisher(publisher)
        data.fetchers.begin()
        data.start_tasks()

    def _build_lifecycle(self, log_dirs: LogDirs) -> BrokerLifecycle:
        scenario, endpoint = self.around.scenario, self.node.endpoint
        identity = BrokerIdentity(
            BrokerId(self.node.id),
            CLUSTER_ID,
            self.incarnation_id,
            {LISTENER: RegisteredEndpoint(*endpoint)},
            SUPPORTED_FEATURES,
            tuple(directory.id for directory in log_dirs.online),
            previous_epoch=BrokerEpoch(log_dirs.previous_broker_epoch),
        )
        times = LifecycleTimes(scenario.heartbeat_interval_ms, scenario.session_timeout_ms, 60_000, 30_000)
        return BrokerLifecycle(identity, ControllerPath(self, "membership"), clock=self.process, times=times)

    async def _leave(self) -> None:
        data, lifecycle = self.data, self.lifecycle
        if data is None or lifecycle is None:
            self.around.on_end(self.node, self, None)
            return
        data.store.stop_creating()
        data.partitions.roles.begin_controlled_shutdown()
        await lifecycle.shut_down(controlled=True)
        data.close_replication()
        await self.io.submit(_nothing)
        data.log_dirs.close(broker_epoch=lifecycle.epoch)
        data.log_dirs.unlock()
        self.around.on_end(self.node, self, None)

    def _on_directory_failed(self, directory: LogDir, lost: Sequence[Log]) -> None:
        assert directory.failure is not None
        self.has_lost_directory = True
        self.around.note_directory_failure(self.node)
        if self.data is None or not self.data.log_dirs.online:
            self.around.on_end(self.node, self, directory.failure)
        elif self.lifecycle is not None:
            self.lifecycle.on_directory_failure(directory.id)

    def _config(self, image: MetadataImage, topic: str) -> LogConfig:
        return log_config(self.around.scenario, image, topic)

    # ---- metadata

    def on_batches(self, batches: Sequence[RecordBatch]) -> None:
        try:
            self._publish(self._loader.load(batches))
        except Exception as error:  # noqa: BLE001  whatever it is, the process ends
            self.around.on_end(self.node, self, error)

    def _publish(self, publication: Publication) -> None:
        self.cache.on_metadata(*publication)
        if not publication.image.is_empty:
            self._first_image.set()
        for publisher in self._publishers:
            publisher.on_metadata(*publication)

    def _add_publisher(self, publisher: MetadataPublisher) -> None:
        publisher.on_metadata(_whole(self.cache.image), self.cache.image)
        self._publishers.append(publisher)

    # ---- ---- requests from clients and brokers

    def serve(self, call: Call) -> "asyncio.Future[Any] | Any":
        message = call.message
        if isinstance(message, Whereabouts):
            return self._whereabouts(message)
        context = RequestContext(
            call.version, call.request.header.client_id or "", call.request.connection, call.request
        )
        assert self.data is not None
        return self.data.handlers[type(message)](message, context)

    def _whereabouts(self, asked: Whereabouts) -> LeaderSeen:
        topic = self.cache.image.topics.by_name(asked.topic)
        registration = None if topic is None else topic.partition(asked.partition)
        if registration is None:
            return LeaderSeen(-1, -1)
        return LeaderSeen(registration.leader, registration.leader_epoch)

    def partition(self, topic: str, index: int) -> Partition | None:
        """Return the partition if this broker hosts it."""
        hosted = None if self.data is None else self.data.partitions.by_name.get(topic)
        return None if hosted is None else hosted.partitions.get(index)

    # ---- ---- requests of this broker

    def connect(self, endpoint: SocketAddress, client_id: str) -> "LeaderPath":
        scenario = self.around.scenario
        connection = Connection(self.around.wires, self.process, endpoint, client_id, scenario.socket_timeout_ms)
        return LeaderPath(connection, partial(self.around.note_fetch, self.node))


class LeaderPath:
    """Implements LeaderConnection."""

    def __init__(self, connection: Connection, note_fetch: Callable[[FetchRequest], None]) -> None:
        self._connection = connection
        self._note_fetch = note_fetch

    def fetch(self, request: FetchRequest, done: FetchDone) -> None:
        self._note_fetch(request)
        self._connection.ask(request, FETCH_VERSION, done)

    def list_offsets(self, request: ListOffsetsRequest, done: OffsetsDone) -> None:
        self._connection.ask(request, LIST_OFFSETS_VERSION, done)

    def epoch_ends(self, request: OffsetForLeaderEpochRequest, done: EpochEndsDone) -> None:
        self._connection.ask(request, EPOCH_ENDS_VERSION, done)

    def close(self) -> None:
        self._connection.close()


class ControllerPath:
    """Implements MembershipChannel, AlterPartitionChannel and AssignmentChannel."""

    def __init__(self, broker: Broker, name: str) -> None:
        self._process = broker.process
        around = broker.around
        self._connection = Connection(
            around.wires, broker.process, CONTROLLER, name, around.scenario.session_timeout_ms / 2
        )

    def register_broker(self, request: BrokerRegistrationRequest) -> "asyncio.Future[Any]":
        return self._ask(request)

    def heartbeat(self, request: BrokerHeartbeatRequest) -> "asyncio.Future[Any]":
        return self._ask(request)

    def alter_partitions(self, request: AlterPartitionRequest) -> "asyncio.Future[Any]":
        return self._ask(request)

    def assign_directories(self, request: AssignReplicasToDirsRequest) -> "asyncio.Future[Any]":
        return self._ask(request)

    def _ask(self, request: Message) -> "asyncio.Future[Any]":
        answer: asyncio.Future[Any] = self._process.create_future()

        def settle(outcome: Outcome) -> None:
            if answer.done():
                return
            match outcome:
                case Unanswered(reason):
                    answer.set_exception(ControllerUnavailable(reason))
                case Refusal(ErrorCode.NOT_CONTROLLER):
                    answer.set_exception(ControllerUnavailable("there is no active controller"))
                case Refusal(code):
                    answer.set_exception(KafkaError(code))
                case _:
                    answer.set_result(outcome)

        self._connection.ask(request, _CONTROLLER_VERSIONS[type(request)], settle)
        return answer


class DataPart:
    """The data side of a broker, composed as in `broker.node.data`."""

    def __init__(
        self, broker: Broker, log_dirs: LogDirs, failures: DirectoryFailures, lifecycle: BrokerLifecycle
    ) -> None:
        scenario, process, node, io = broker.around.scenario, broker.process, broker.node, broker.io
        config_of: Callable[[MetadataImage, str], LogConfig] = partial(log_config, scenario)
        self.process = process
        self.log_dirs = log_dirs
        self.deadlines = Deadlines(process)
        removals = PendingRemovals(node.disk)
        cleaner = LogCleaner(node.disk, dedupe_buffer_bytes=1_000_000, make_durable=log_dirs.checkpoints.make_durable)
        self.store = LogStore(log_dirs, cleaner, removals, io, process, delete_delay_ms=1_000)
        self.store.discard_leftovers()
        flusher = LogFlusher(io, self.deadlines)
        isr_channel = ControllerPath(broker, "isr")
        self.fetchers = ReplicaFetcherManager(
            Runtime(clock=process, loop=process, io=io, files=node.disk, deadlines=self.deadlines, spawn=process.spawn),
            broker,
            broker.cache,
            lambda: Sender(node.id, lifecycle.epoch),
            listener=LISTENER,
            settings=FetcherSettings(
                wait_max_ms=scenario.fetch_wait_max_ms,
                partition_max_bytes=scenario.fetch_partition_max_bytes,
                backoff_ms=scenario.fetch_backoff_ms,
            ),
            fetcher_count=lambda: scenario.fetchers,
        )
        self.alter_partition_manager = AlterPartitionManager(node.id, isr_channel, lifecycle, process)
        self.partitions = Partitions(
            broker.cache,
            process,
            MetadataBrokerView(node.id, broker.cache, lag_time_max_ms=scenario.lag_time_max_ms),
            StoredLogOperations(self.store, flusher, process),
            HostedRoles(node.id, self.fetchers, self.alter_partition_manager, broker.cache),
        )
        self.replica_assignments = ReplicaAssignments(node.id, self.partitions, self.store, config_of)
        self.isr_shrinking = IsrShrinking(
            self.partitions.roles.isr_updaters, process, self.deadlines, lag_time_max_ms=scenario.lag_time_max_ms
        )
        self.isr_shrinking.start()
        failures.listen(self.partitions.on_directory_failed)
        self.assignments = DirectoryAssignments(
            BrokerId(node.id),
            ControllerPath(broker, "assignments"),
            broker.cache,
            lifecycle,
            self._directory_of,
            process,
        )
        self.partitions.roles.add_listener(self.assignments)
        self.tasks = LogTasks(
            self.partitions, log_dirs, cleaner, removals, flusher, io, process, lambda: LogTaskSettings()
        )
        self._scenario = scenario
        self.handlers = self._build_handlers(io, broker)

    def _build_handlers(self, io: SimulatedIo, broker: Broker) -> dict[type, Callable[[Any, RequestContext], Any]]:
        process, random = self.process, Random(f"sessions {broker.node.id} {broker.node.starts}")
        runtime = make_runtime(process, clock=process, io=io, deadlines=self.deadlines)
        return {
            FetchRequest: FetchHandler(
                FetchService(
                    self.partitions,
                    FetchSessions(_SLOTS, lambda: random.randint(1, 2**31 - 1)),
                    runtime,
                    max_bytes=10_000_000,
                )
            ),
            ProduceRequest: ProduceHandler(self.partitions, runtime),
            ListOffsetsRequest: ListOffsetsHandler(self.partitions),
            OffsetForLeaderEpochRequest: OffsetForLeaderEpochHandler(self.partitions),
        }

    def start_tasks(self) -> None:
        """Start the maintenance of logs, at short intervals."""
        scenario, tasks = self._scenario, self.tasks
        for job, interval_ms in (
            (tasks.checkpoint_high_watermarks, scenario.checkpoint_interval_ms),
            (tasks.checkpoint_recovery_points, 4 * scenario.checkpoint_interval_ms),
            (tasks.checkpoint_log_starts, 4 * scenario.checkpoint_interval_ms),
            (tasks.apply_retention, scenario.retention_interval_ms),
            (tasks.remove_files, 1_000),
        ):
            self.process.spawn(self._repeat(job, interval_ms))

    async def _repeat(self, job: Callable[[], Any], interval_ms: float) -> None:
        while not self.is_closed:
            await asyncio.sleep(interval_ms / 1000)
            if not self.is_closed:
                await job()

    is_closed = False

    def close_replication(self) -> None:
        """Stop fetchers, ISR changes and responses."""
        self.is_closed = True
        self.assignments.close()
        self.fetchers.close()
        self.isr_shrinking.close()
        self.alter_partition_manager.close()
        self.deadlines.close()

    def _directory_of(self, topic: str, index: int) -> Uuid | None:
        directory = self.log_dirs.directory_of(TopicPartition(topic, index))
        return None if directory is None else directory.id


def log_config(scenario: Scenario, image: MetadataImage, topic: str) -> LogConfig:
    """Return a topic's log configuration: that of the metadata, with the scenario's sizes."""
    configs = image.configs.topic(topic)
    return replace(
        _base_config(scenario),
        min_insync_replicas=int(configs.get("min.insync.replicas", "1")),
        unclean_leader_election_enable=configs.get("unclean.leader.election.enable") == "true",
    )


def _base_config(scenario: Scenario) -> LogConfig:
    return LogConfig(
        segment_bytes=scenario.segment_bytes,
        index_interval_bytes=100,
        flush_messages=scenario.flush_messages,
        retention_ms=-1,
        file_delete_delay_ms=500,
        message_timestamp_after_max_ms=2**63 - 1,
    )


def _whole(image: MetadataImage) -> MetadataDelta:
    """Return the delta from an empty image to `image`, in an order that is the same in every process."""
    delta = finish(difference(EMPTY_IMAGE, image))
    if delta.topics is not None:
        delta.topics.changed = dict(sorted(delta.topics.changed.items()))
    if delta.configs is not None:
        delta.configs.changes = dict(sorted(delta.configs.changes.items()))
    return delta


def _nothing() -> None:
    """Do nothing; the completion follows all earlier file work."""
