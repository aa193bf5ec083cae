"""A simulated broker: the data side of a node, composed in the product's order, with simulated disk, clock and network.

`Node` is the machine, which outlives its processes; `Broker` is one process on it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple, Protocol

from broker.api.serving.context import RequestContext
from broker.metadata.image.cluster_image import RegisteredEndpoint
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.features import SUPPORTED_FEATURES
from broker.metadata.image.image_difference import difference
from broker.metadata.image.loader import MetadataLoader, Publication, RecordBatch
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage
from broker.metadata.image.slices import finish
from broker.net.peer import SocketAddress
from broker.node.data import set_aside_strays, settle_duplicates
from broker.runtime.controller.broker_lifecycle import BrokerIdentity, BrokerLifecycle, LifecycleTimes
from broker.runtime.controller.channel import ControllerChannel
from broker.runtime.controller.driver import MetadataPublisher
from broker.runtime.controller.metadata_cache import MetadataCache
from broker.runtime.partitions.log_store import DirectoryFailures
from broker.runtime.partitions.partition import Partition
from protocol.ids import BrokerEpoch, BrokerId
from protocol.messages.fetch import FetchRequest
from protocol.primitives import ZERO_UUID, Uuid
from storage.config import LogConfig
from storage.directories.log_dir import LogDir
from storage.directories.log_dirs import LogDirs
from storage.log import Log
from tests.simulation.replication.channels import ControllerPath, LeaderPath
from tests.simulation.replication.data_part import DataPart, log_config
from tests.simulation.replication.disk import PartitionDisk, ReplicaName
from tests.simulation.replication.metadata import Feed
from tests.simulation.replication.network import LISTENER, Call, Connection, Wires
from tests.simulation.replication.process import StallingIo, TaskProcess
from tests.simulation.replication.scenario import CLUSTER_ID, RACKS, Scenario
from tests.simulation.world import SimulatedIo, World


class Whereabouts(NamedTuple):
    """A client's metadata request: the leader of a partition, by the metadata of one broker."""

    topic: str
    partition: int


class LeaderSeen(NamedTuple):
    """The response; a leader of -1 means none."""

    leader_id: int
    leader_epoch: int
    topic_id: Uuid = ZERO_UUID


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
        self.io: SimulatedIo = StallingIo(
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
        self.on_served: Callable[[Node, Any, Any], None] | None = None
        """Called with each handled request and its response, or the future one."""

    @property
    def registered_epoch(self) -> int:
        """The broker epoch of this process, -1 before it is registered."""
        return -1 if self.lifecycle is None else self.lifecycle.epoch

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
        image = self.cache.image
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
        assert not log_dirs.losses or self.node.disk.is_rotten, f"flushed records are lost: {log_dirs.losses}"
        self.node.recovered = {ReplicaName(log.topic, log.partition): log.log_end_offset for log in log_dirs}

    def _take_up_roles(self, data: DataPart) -> None:
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
            rack=RACKS[self.node.id % len(RACKS)],
        )
        times = LifecycleTimes(
            scenario.heartbeat_interval_ms,
            scenario.session_timeout_ms,
            int(60_000 * scenario.pace),
            int(30_000 * scenario.pace),
        )
        return BrokerLifecycle(identity, self.controller_path("membership"), clock=self.process, times=times)

    async def _leave(self) -> None:
        data, lifecycle = self.data, self.lifecycle
        if data is None or lifecycle is None:
            self.around.on_end(self.node, self, None)
            return
        data.store.stop_creating()
        data.partitions.roles.begin_controlled_shutdown()
        await lifecycle.shut_down(controlled=True)
        self._close_roles(data)
        await self.io.submit(_nothing)
        data.log_dirs.close(broker_epoch=lifecycle.epoch)
        data.log_dirs.unlock()
        self.around.on_end(self.node, self, None)

    def _close_roles(self, data: DataPart) -> None:
        data.close_replication()

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
        context = self._context(call)
        assert self.data is not None
        answer = self.data.handlers[type(message)](message, context)
        if self.on_served is not None:
            self.on_served(self.node, message, answer)
        return answer

    def _context(self, call: Call) -> RequestContext:
        return RequestContext(call.version, call.request.header.client_id or "", call.request.connection, call.request)

    def _whereabouts(self, asked: Whereabouts) -> LeaderSeen:
        topic = self.cache.image.topics.by_name(asked.topic)
        registration = None if topic is None else topic.partition(asked.partition)
        if topic is None or registration is None:
            return LeaderSeen(-1, -1)
        return LeaderSeen(registration.leader, registration.leader_epoch, topic.id)

    def partition(self, topic: str, index: int) -> Partition | None:
        """Return the partition if this broker hosts it."""
        hosted = None if self.data is None else self.data.partitions.by_name.get(topic)
        return None if hosted is None else hosted.partitions.get(index)

    # ---- ---- requests of this broker

    def connect(self, endpoint: SocketAddress, client_id: str) -> LeaderPath:
        scenario = self.around.scenario
        connection = Connection(self.around.wires, self.process, endpoint, client_id, scenario.socket_timeout_ms)
        return LeaderPath(connection, partial(self.around.note_fetch, self.node))

    def controller_path(self, name: str) -> "ControllerPath | ControllerChannel":
        """Return a channel to the controller over a connection of its own."""
        return ControllerPath(self, name)


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
