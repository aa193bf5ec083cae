"""The composition root: builds a node from its parts, starts them in order, and stops them in the order reversed.

Order of a start, and why. Directories are locked and checked, then ports are taken, so that a mistake in either costs
nothing. The replica of the metadata log is opened and, on a controller, serves the others from then on, since no quorum
comes about otherwise. Metadata is replayed before partition logs are opened, because it says how they are configured.
Then the broker registers, and takes up its roles when it reads of that; requests are served once the controller lets it
(KIP-631). Health is served from the beginning, since a long recovery is when people look.

Everything that runs is a task of one group: when one fails, the node stops, and `run` raises what it failed with.
"""

import asyncio
import contextlib
import gc
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.clock import SystemClock
from broker.config.broker_config import BrokerConfig
from broker.config.errors import ConfigError
from broker.http.routes import node_routes
from broker.http.server import HttpServer
from broker.logs import EventLog
from broker.metadata.image.features import SUPPORTED_FEATURES
from broker.metrics.exposition import Exposition
from broker.metrics.loop_lag import LoopLag
from broker.metrics.requests import RequestMetrics
from broker.net.request import Dispatch, EncodedResponse, Request
from broker.net.server import Server
from broker.node.controller import build_controller_dispatcher, build_registrar, build_watch
from broker.node.data import DataPart, build_data, load_logs, set_aside_strays, settle_duplicates
from broker.node.directories import NodeDirectories, open_directories
from broker.node.front import advertised_endpoints, build_dispatcher, open_ports
from broker.node.metadata import MetadataPart, build_metadata
from broker.node.metrics import controller_node_families, node_families
from broker.node.quorum import build_quorum
from broker.runtime.controller.broker_lifecycle import BrokerIdentity, BrokerLifecycle, LifecycleTimes
from broker.runtime.controller.directory_assignments import DirectoryAssignments
from broker.runtime.controller.loggers import ProcessLoggers
from broker.runtime.loop.io_thread import IoThread
from broker.runtime.loop.thread_pool import ThreadPool
from broker.runtime.partitions.log_store import DirectoryFailures
from broker.runtime.remote_log.startup_check import check_nothing_is_cut_off, check_nothing_is_remote
from protocol.ids import BrokerEpoch, BrokerId
from protocol.primitives import Uuid
from storage.directories.checkpoints import TopicPartition
from storage.directories.formatting import random_id
from storage.directories.log_dir import LogDir
from storage.directories.log_dirs import LogDirs
from storage.files import OsFileSystem
from storage.log import Log

if TYPE_CHECKING:
    from broker.node.remote import RemoteStoragePart

DRAIN_TIMEOUT_S = 10.0
IMPORT_STOP_S = 2.0

# Pure-Python threads (recovery, the IO thread's own bytecode) hold the interpreter this long at most before the loop
# gets it back; the default of 5 ms would be the tail latency of every request.
SWITCH_INTERVAL_S = 0.0005

_log = EventLog("ottla")


async def run(config: BrokerConfig) -> None:
    """Run a node until SIGINT or SIGTERM. Raises what made it fail (StorageError, ListenError, ConfigError, …)."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _check_served(config)
    async with asyncio.TaskGroup() as tasks, _stop_signal() as stop:
        node = Node(config, tasks, stop)
        try:
            await node.start()
            await node.run_until_stopped()
        except _ToldToStop:
            _log.info("Stopping before the start was complete", node=config.node_id)
        finally:
            await node.stop()


def _check_served(config: BrokerConfig) -> None:
    """Refuse a configuration that asks for what this version does not do. Raises ConfigError."""
    for listener in (*config.client_listeners, *config.controller_listeners):
        if listener.protocol != "PLAINTEXT":
            raise ConfigError(
                "listener.security.protocol.map", f"{listener.protocol} listeners have not landed in this version yet"
            )


@contextlib.asynccontextmanager
async def _stop_signal() -> AsyncIterator[asyncio.Event]:
    """An event that SIGINT or SIGTERM sets."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


class _ToldToStop(Exception):
    """Somebody wants the node to stop while it waits for something else."""


class Node:
    """One combined node. `start`, then `run_until_stopped`, then `stop`, which also cleans up after a failed start.

    `told_to_stop` is set from outside.
    """

    def __init__(self, config: BrokerConfig, tasks: asyncio.TaskGroup, told_to_stop: asyncio.Event) -> None:
        self._config = config
        self._tasks = tasks
        self._told_to_stop = told_to_stop
        self._loop = asyncio.get_running_loop()
        self._started_at = time.monotonic()
        self._clock = SystemClock()
        self._fs = OsFileSystem()
        self._io = IoThread(self._loop)
        self._snapshot_io = IoThread(self._loop, name="ottla-snapshots")
        self._import_pool = ThreadPool(1, 16, "ottla-import")
        self._failure: asyncio.Future[None] = self._loop.create_future()
        self._failures = DirectoryFailures(self._loop)
        self._directories: NodeDirectories | None = None
        self._all_directories: Sequence[LogDir] = ()
        self._lifecycle: BrokerLifecycle | None = None
        self._incarnation_id = random_id()
        self._loop.set_exception_handler(self._on_loop_error)
        self._lag = LoopLag(self._loop)
        self._client_dispatch_to: Dispatch | None = None
        self._controller_dispatch_to: Dispatch | None = None
        self._loggers = ProcessLoggers()
        self._requests = RequestMetrics(self._clock.monotonic_ms)
        self._exposition = Exposition([self._lag.family()])  # until there is more to tell
        self._background: set[asyncio.Task[None]] = set()
        self._undo = contextlib.AsyncExitStack()
        self._not_ready = "the node is starting"

    # ---- starting

    async def start(self) -> None:
        """Bring the node into service; returns when it is. Raises what makes that impossible."""
        config = self._config
        self._undo.callback(self._unlock)
        self._undo.push_async_callback(self._io.stop)
        self._undo.push_async_callback(self._snapshot_io.stop)
        self._undo.push_async_callback(self._stop_imports)
        directories = await asyncio.to_thread(open_directories, self._fs, config, self._failures)
        self._directories = directories
        self._all_directories = directories.log_dirs.directories
        self._failures.listen(self._on_directory_failed)
        clients = open_ports(config.client_listeners, config, self._dispatch_client, self._clock)
        self._undo.callback(clients.stop_listening)
        controllers = open_ports(config.controller_listeners, config, self._dispatch_controller, self._clock)
        self._undo.callback(controllers.stop_listening)
        await self._start_http()
        metadata = await self._build_metadata(directories, controllers)
        if config.is_controller:
            self._serve_controllers(directories, metadata, controllers)
        metadata.quorum.driver.start()
        self._undo.push_async_callback(self._leave_quorum, metadata)
        if config.is_broker:
            await self._start_broker(directories, metadata, clients, controllers)
        else:
            self._exposition = Exposition(
                controller_node_families([controllers], metadata, self._requests, self._lag, self._clock)
            )
        self._announce(clients, controllers)

    async def _build_metadata(self, directories: NodeDirectories, controllers: Server) -> MetadataPart:
        """On a thread as far as it reads the disk."""
        quorum = await asyncio.to_thread(
            build_quorum,
            self._fs,
            self._config,
            directories,
            controllers.addresses,
            self._clock,
            self._io,
            self._import_pool,
            self._loop,
            self._fail,
        )
        metadata = build_metadata(
            self._fs,
            self._config,
            directories,
            quorum,
            self._incarnation_id,
            self._clock,
            self._io,
            self._snapshot_io,
            self._loop,
            self._spawn,
            self._fail,
        )
        self._undo.callback(metadata.close)
        self._undo.push_async_callback(self._end_background)
        return metadata

    async def _stop_imports(self) -> None:
        """A store that hangs is not waited for."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._import_pool.stop(drop_waiting=True), IMPORT_STOP_S)

    def _serve_controllers(self, directories: NodeDirectories, metadata: MetadataPart, server: Server) -> None:
        """From the beginning, since no quorum comes about before its members talk to each other."""
        registrar = build_registrar(self._config, server, metadata, self._incarnation_id)
        metadata.driver.add_publisher(registrar)
        self._spawn(registrar.run())
        self._controller_dispatch_to = build_controller_dispatcher(
            self._config,
            directories,
            metadata,
            self._loggers,
            self._clock,
            self._requests,
            build_watch(self._config, metadata, self._spawn),
        )
        server.start()
        self._undo.push_async_callback(server.drain, DRAIN_TIMEOUT_S)

    async def _start_broker(
        self, directories: NodeDirectories, metadata: MetadataPart, server: Server, controllers: Server
    ) -> None:
        self._not_ready = "the cluster's metadata is not known yet"
        await self._unless_ended(metadata.first_image.wait())
        data, lifecycle = await self._load_data(directories, metadata, server)
        remote = await self._build_remote(directories, metadata, data)
        self._register(directories, metadata, data, lifecycle, remote)
        await self._unless_ended(lifecycle.wait_caught_up())
        await self._settle_duplicates(directories, metadata, data)
        self._take_up_roles(directories, metadata, data, lifecycle, remote)
        self._exposition = Exposition(
            [
                *node_families(
                    [server, controllers], metadata, data, lifecycle, self._requests, self._lag, self._clock
                ),
                *([] if remote is None else remote.families()),
            ]
        )
        lifecycle.become_ready()
        await self._unless_ended(lifecycle.wait_unfenced())
        server.start()
        self._undo.push_async_callback(server.drain, DRAIN_TIMEOUT_S)
        self._undo.push_async_callback(self._withdraw, data, lifecycle, remote)
        self._undo.callback(data.store.stop_creating)

    async def _load_data(
        self, directories: NodeDirectories, metadata: MetadataPart, server: Server
    ) -> tuple[DataPart, BrokerLifecycle]:
        self._not_ready = "logs are being loaded"
        log_dirs, image = directories.log_dirs, metadata.cache.image
        paths = [directory.path for directory in log_dirs.online]
        config_of = partial(metadata.config.log_config, image)
        await asyncio.to_thread(check_nothing_is_cut_off, self._fs, paths, image, config_of)
        await asyncio.to_thread(load_logs, log_dirs, metadata.config, image, self._clock.now_ms())
        lifecycle = self._build_lifecycle(directories, metadata, server)
        data = build_data(
            self._fs,
            metadata.config,
            log_dirs,
            self._failures,
            metadata.cache,
            metadata.forwarding_channel,
            lifecycle,
            self._clock,
            self._io,
            self._loop,
        )
        return data, lifecycle

    def _build_lifecycle(self, directories: NodeDirectories, metadata: MetadataPart, server: Server) -> BrokerLifecycle:
        """Once the logs are loaded, since the registration says whether all of them were closed well."""
        config = self._config
        return BrokerLifecycle(
            self._identity(directories, server),
            metadata.heartbeat_channel,
            clock=self._clock,
            times=LifecycleTimes(
                config.broker_heartbeat_interval_ms,
                config.broker_session_timeout_ms,
                config.initial_broker_registration_timeout_ms,
                config.log_dir_failure_timeout_ms,
            ),
        )

    async def _build_remote(
        self, directories: NodeDirectories, metadata: MetadataPart, data: DataPart
    ) -> "RemoteStoragePart | None":
        if not self._config.remote_log_storage_system_enable:
            check_nothing_is_remote(metadata.cache.image)
            return None
        # Here, because whoever has no remote storage need not load it.
        from broker.node.remote import build_remote, open_remote_stores

        self._not_ready = "remote storage is being opened"
        stores = await asyncio.to_thread(open_remote_stores, self._fs, self._config, directories)
        remote = build_remote(self._fs, stores, metadata, data, self._clock, self._io, self._loop, self._spawn)
        self._failures.listen(remote.manager.on_directory_failed)
        return remote

    def _register(
        self,
        directories: NodeDirectories,
        metadata: MetadataPart,
        data: DataPart,
        lifecycle: BrokerLifecycle,
        remote: "RemoteStoragePart | None",
    ) -> None:
        self._not_ready = "the broker is not registered yet"
        metadata.driver.add_publisher(lifecycle)
        self._lifecycle = lifecycle
        directory_of = partial(_directory_of, directories.log_dirs)
        assignments = DirectoryAssignments(
            BrokerId(self._config.node_id),
            metadata.forwarding_channel,
            metadata.cache,
            lifecycle,
            directory_of,
            self._loop,
        )
        data.partitions.add_listener(assignments)
        self._undo.callback(assignments.close)
        self._spawn(lifecycle.run())
        self._undo.push_async_callback(self._leave, data, lifecycle, remote)

    async def _settle_duplicates(self, directories: NodeDirectories, metadata: MetadataPart, data: DataPart) -> None:
        """Not earlier, since metadata of another time may name another directory."""
        if directories.log_dirs.contested:
            image = metadata.cache.image
            config_of = partial(metadata.config.log_config, image)
            broker_id = self._config.node_id
            await asyncio.to_thread(settle_duplicates, data.store, directories.log_dirs, config_of, image, broker_id)

    def _take_up_roles(
        self,
        directories: NodeDirectories,
        metadata: MetadataPart,
        data: DataPart,
        lifecycle: BrokerLifecycle,
        remote: "RemoteStoragePart | None",
    ) -> None:
        """Once the metadata holds the own registration. What this node knew before may be of another time, in which it
        led what others lead now."""
        config = self._config
        set_aside_strays(data.store, directories.log_dirs, metadata.cache.image, config.node_id)
        for publisher in (data.throttles, data.fetchers, data.partitions, data.groups):
            metadata.driver.add_publisher(publisher)
        if remote is not None:
            for follower in remote.publishers:
                metadata.driver.add_publisher(follower)
            self._spawn(remote.run())
        data.fetchers.begin()
        self._spawn(data.tasks.run())
        self._spawn(data.groups.run())
        self._client_dispatch_to = build_dispatcher(
            config,
            directories,
            metadata,
            data,
            lifecycle,
            self._loggers,
            self._fs,
            self._clock,
            self._io,
            self._loop,
            self._requests,
            remote,
        )
        if metadata.topic is not None:
            metadata.driver.add_publisher(metadata.topic)

    def _identity(self, directories: NodeDirectories, server: Server) -> BrokerIdentity:
        return BrokerIdentity(
            broker_id=BrokerId(self._config.node_id),
            cluster_id=directories.cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=advertised_endpoints(self._config, server),
            features=SUPPORTED_FEATURES,
            directories=tuple(directory.id for directory in directories.log_dirs.online),
            rack=self._config.broker_rack,
            previous_epoch=BrokerEpoch(directories.log_dirs.previous_broker_epoch),
        )

    def _dispatch_client(self, request: Request) -> EncodedResponse | Awaitable[EncodedResponse]:
        assert self._client_dispatch_to is not None, "clients are served when the broker is unfenced"
        return self._client_dispatch_to(request)

    def _dispatch_controller(self, request: Request) -> EncodedResponse | Awaitable[EncodedResponse]:
        assert self._controller_dispatch_to is not None, "controllers are served once there is a replica"
        return self._controller_dispatch_to(request)

    async def _start_http(self) -> None:
        place = self._config.http_listener
        if place is None:
            return
        routes = node_routes(not_ready_because=self._not_ready_because, render_metrics=self._render_metrics)
        http = HttpServer(routes, place.host, place.port)
        http.open()
        await http.start()
        self._undo.callback(http.close)
        _log.info("HTTP is served", url=f"http://{http.address[0]}:{http.address[1]}")

    def _announce(self, *servers: Server) -> None:
        """The node is in service: say so, to people and to programs that wait for the line."""
        self._not_ready = ""
        # What a start leaves behind lives as long as the node: full collections need not look at it again.
        gc.collect()
        gc.freeze()
        for server in servers:
            for name, (host, port) in server.addresses.items():
                _log.info("Listening", listener=name, address=f"{host}:{port}")
        took_ms = int((time.monotonic() - self._started_at) * 1000)
        _log.info(f"[KafkaServer id={self._config.node_id}] started", took_ms=took_ms)

    # ---- running

    async def run_until_stopped(self) -> None:
        """Return when the node is told to stop; raise when it cannot go on."""
        with contextlib.suppress(_ToldToStop):
            await self._unless_ended(self._told_to_stop.wait())
        _log.info("Stopping", node=self._config.node_id)
        self._not_ready = "the node is stopping"

    async def _unless_ended(self, awaited: Coroutine[Any, Any, Any]) -> None:
        """Wait for something, or raise what comes before it: the node's failure, or _ToldToStop."""
        task, told = asyncio.ensure_future(awaited), asyncio.ensure_future(self._told_to_stop.wait())
        try:
            await asyncio.wait({task, told, self._failure}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            task.cancel()
            told.cancel()
        if self._failure.done():
            self._failure.result()
        if not task.done():
            raise _ToldToStop
        task.result()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something in the background until it ends or the node stops."""
        task = self._tasks.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._on_background_ended)
        return task

    def _on_background_ended(self, task: asyncio.Task[None]) -> None:
        """All others are cancelled with one that failed, so that nobody may be waited for any more."""
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a task in the background failed, and the node with it", _first_of(error))
            self._fail(error)

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback raised. In a transport that costs one connection; anywhere else the node's state is in doubt."""
        error = context.get("exception")
        if error is None or "transport" in context or "protocol" in context:
            _log.warning("the event loop complains", reason=context.get("message"), error=error)
        else:
            _log.error("a callback failed, and the node with it", error)
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)
            self._failure.exception()  # whoever waits for it may have been cancelled already

    def _on_directory_failed(self, directory: LogDir, lost: Sequence[Log]) -> None:
        """The others go on, unless it was the metadata's or the last one: then the node cannot."""
        assert directory.failure is not None
        is_last = not any(each.is_online for each in self._all_directories)
        if directory.path == self._config.metadata_log_dir or is_last:
            self._fail(directory.failure)
        elif self._lifecycle is not None:
            self._lifecycle.on_directory_failure(directory.id)

    async def _render_metrics(self) -> bytes:
        return await self._exposition.render()

    def _not_ready_because(self) -> str | None:
        return self._not_ready or None

    # ---- stopping

    async def _withdraw(self, data: DataPart, lifecycle: BrokerLifecycle, remote: "RemoteStoragePart | None") -> None:
        """Take leave of the controller; a node that failed goes at once, since the controller may be what failed."""
        controlled = self._config.controlled_shutdown_enable and not self._failure.done()
        if controlled and remote is not None:
            await remote.finish()
        if controlled:
            data.partitions.begin_leaving()
        await lifecycle.shut_down(controlled=controlled)

    async def _leave(self, data: DataPart, lifecycle: BrokerLifecycle, remote: "RemoteStoragePart | None") -> None:
        """End what lives on the logs, then flush and close them, with the marker of a clean shutdown."""
        data.groups.close()
        data.close_replication()
        await self._end_background()
        if remote is not None:
            await remote.close()
        data.deadlines.close()
        await self._io.submit(_nothing)  # whatever the IO thread still does to a log is over then
        await asyncio.to_thread(data.log_dirs.close, broker_epoch=lifecycle.epoch)

    async def _end_background(self) -> None:
        """Without this the group of tasks would wait for those that never end by themselves."""
        for task in tuple(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    async def _leave_quorum(self, metadata: MetadataPart) -> None:
        is_released = self._lifecycle is not None and self._lifecycle.is_released
        await metadata.leave_quorum(is_controlled=is_released)

    def _unlock(self) -> None:
        """Last: who waits for the directories takes it that the ports are free as well, and that nothing is written."""
        if self._directories is not None:
            self._directories.unlock()

    async def stop(self) -> None:
        """Undo what was started, in the order reversed."""
        self._lag.stop()
        await self._undo.aclose()
        if not self._failure.done():
            self._failure.cancel()


def _first_of(error: BaseException) -> BaseException:
    """What went wrong first, where tasks of tasks failed with each other."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _nothing() -> None:
    """Comes after everything before it."""


def _directory_of(log_dirs: LogDirs, topic: str, index: int) -> Uuid | None:
    directory = log_dirs.directory_of(TopicPartition(topic, index))
    return None if directory is None else directory.id
