"""The composition root: builds a node from its parts, starts the parts in order, and stops them in reverse order.

Order of a start, with reasons. The node locks and checks its directories, then takes its ports, so that a mistake in
either costs nothing. The replica of the metadata log opens next; on a controller it serves other nodes from then on,
since no quorum forms otherwise. Metadata is replayed before partition logs open, because it holds their configuration.
Then the broker registers, and takes up its roles when it reads its registration in the metadata. Requests are served
once the controller unfences the broker (KIP-631). Health checks are served from the beginning, since operators watch
them during a long recovery.

Everything that runs is a task of one group: when one task fails, the node stops, and `run` raises the failure.
"""

import asyncio
import contextlib
import gc
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from broker.api.pipeline.pipeline import RequestPipelines
from broker.api.pipeline.tracing import RequestTracing
from broker.clock import SystemClock
from broker.config.broker_config import BrokerConfig
from broker.http.routes import node_routes
from broker.logs import EventLog
from broker.metrics.exposition import Exposition
from broker.metrics.family import Family
from broker.metrics.loop_lag import LoopLag
from broker.metrics.requests import RequestMetrics
from broker.net.request import ConnectionInfo, Dispatch
from broker.net.server import Server
from broker.node.audit import AuditPart
from broker.node.broker import BrokerPart, build_client_metrics, build_client_quotas, build_lifecycle, load_data
from broker.node.client_pipelines import build_client_pipelines
from broker.node.connection_quotas import ConnectionQuotas
from broker.node.console import NodeConsole
from broker.node.controller import build_controller_pipelines, build_registrar, build_watch
from broker.node.data import DataPart, build_data
from broker.node.description.node_status import NodeStatus
from broker.node.directories import NodeDirectories, open_directories
from broker.node.http import build_http
from broker.node.listeners import open_ports
from broker.node.metadata import MetadataPart, build_metadata
from broker.node.metrics import controller_node_families
from broker.node.monitoring.otel import OtelPart
from broker.node.quorum import build_quorum
from broker.node.runtime import NodeRuntime
from broker.node.security.authorization import (
    authorization_families,
    build_authorizer,
    early_listeners,
    follow_metadata,
)
from broker.node.security.logins import NodeLogins
from broker.node.security.sasl import NodeSasl
from broker.node.tasks import NodeTasks, StopRequested
from broker.node.tls import NodeTls
from broker.node.tracing import TracingConfig
from broker.quorum.identity import Instant
from broker.runtime.controller.loggers import ProcessLoggers
from broker.runtime.loop.io_thread import IoThread
from broker.runtime.loop.scheduling import apply_policy
from broker.runtime.loop.thread_pool import ThreadPool
from broker.runtime.loop.waiters import Deadlines
from broker.runtime.partitions.log_store import DirectoryFailures
from broker.runtime.remote_log.startup_check import check_nothing_is_remote
from storage.directories.formatting import random_id
from storage.directories.log_dir import LogDir
from storage.files import OsFileSystem
from storage.log import Log

if TYPE_CHECKING:
    from broker.node.remote import RemoteStoragePart

DRAIN_TIMEOUT_S = 10.0
IMPORT_STOP_S = 2.0

# Longest time for which a pure-Python thread (recovery, the IO thread's own bytecode) holds the interpreter before the
# loop gets it back. The default of 5 ms would be the tail latency of every request.
SWITCH_INTERVAL_S = 0.0005

_log = EventLog("ottla")


async def run(config: BrokerConfig) -> None:
    """Run a node until SIGINT or SIGTERM. Raise the node's failure (StorageError, ListenError, ConfigError, …)."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    apply_policy(config.ottla_scheduling_policy)
    async with asyncio.TaskGroup() as tasks, _stop_signal() as stop:
        node = Node(config, tasks, stop)
        try:
            await node.start()
            await node.run_until_stopped()
        except StopRequested:
            _log.info("Stopping before the start was complete", node=config.node_id)
        finally:
            await node.stop()


@contextlib.asynccontextmanager
async def _stop_signal() -> AsyncIterator[asyncio.Event]:
    """Yield an event that SIGINT or SIGTERM sets."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


class Node:
    """A node: broker, controller, or both. Call `start`, `run_until_stopped`, `stop`.

    `stop` also cleans up after a failed start. The caller sets `stop_requested`.
    """

    def __init__(self, config: BrokerConfig, tasks: asyncio.TaskGroup, stop_requested: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        self._config = config
        self._tasks = NodeTasks(tasks, stop_requested, loop)
        self._started_at = time.monotonic()
        self._sasl = NodeSasl(config)
        self._io = IoThread(loop)
        self._runtime = NodeRuntime(
            clock=SystemClock(),
            loop=loop,
            io=self._io,
            files=OsFileSystem(),
            deadlines=Deadlines(loop),
            spawn=self._tasks.spawn,
            tls=NodeTls(config),
            logins=NodeLogins(config),
        )
        self._authorizer = build_authorizer(config)
        self._audit = AuditPart(config, self._runtime.clock, loop)
        self._metadata_io = IoThread(loop, name="ottla-metadata")
        self._snapshot_io = IoThread(loop, name="ottla-snapshots")
        self._import_pool = ThreadPool(1, 16, "ottla-import")
        self._failures = DirectoryFailures(loop)
        self._directories: NodeDirectories | None = None
        self._all_directories: Sequence[LogDir] = ()
        self._metadata: MetadataPart | None = None
        self._broker: BrokerPart | None = None
        self._incarnation_id = random_id()
        self._lag = LoopLag(loop)
        self._client_pipelines: RequestPipelines | None = None
        self._controller_pipelines: RequestPipelines | None = None
        self._loggers = ProcessLoggers()
        self._requests = RequestMetrics(self._runtime.clock.monotonic_ms)
        self._exposition = Exposition([self._lag.family()])  # Replaced once the parts of the node exist.
        self._otel = OtelPart(config, self._runtime.clock, lambda: self._exposition.read())
        self._console = NodeConsole(config, self._runtime, self._authorizer, self._audit.trail)
        self._tracing = RequestTracing(self._runtime.clock, on_trace=self._otel.on_trace)
        self._undo = contextlib.AsyncExitStack()
        self._not_ready = "the node is starting"

    # Starting.

    async def start(self) -> None:
        """Bring the node into service. Raise the failure that prevents it."""
        config, clock = self._config, self._runtime.clock
        self._undo.callback(self._unlock)
        for thread in (self._io, self._metadata_io, self._snapshot_io):
            self._undo.push_async_callback(thread.stop)
        self._undo.push_async_callback(self._stop_imports)
        directories = await asyncio.to_thread(open_directories, self._runtime.files, config, self._failures)
        self._directories = directories
        self._all_directories = directories.log_dirs.directories
        self._failures.listen(self._on_directory_failed)
        await asyncio.to_thread(self._audit.start)
        self._undo.push_async_callback(self._audit.stop)
        await asyncio.to_thread(self._otel.open)
        self._undo.push_async_callback(self._otel.stop)
        tls = self._runtime.tls.listeners
        clients = open_ports(config.client_listeners, config, self._open_client_pipeline, clock, tls)
        self._undo.callback(clients.stop_listening)
        controllers = open_ports(config.controller_listeners, config, self._open_controller_pipeline, clock, tls)
        self._undo.callback(controllers.stop_listening)
        await self._start_http()
        metadata = self._metadata = await self._build_metadata(directories, controllers)
        self._console.serve(directories, metadata, self._open_own_pipeline)
        self._undo.callback(self._console.close)
        status = NodeStatus(config, self._runtime, [clients, controllers], metadata, self._lag)
        if config.is_controller:
            self._serve_controllers(directories, metadata, controllers, status)
        metadata.quorum.driver.start()
        self._undo.push_async_callback(self._leave_quorum, metadata)
        if config.is_broker:
            await self._start_broker(directories, metadata, clients, controllers, status)
        else:
            self._exposition = Exposition(
                [
                    *controller_node_families([controllers], metadata, self._requests, self._lag, clock),
                    *self._more_families(),
                ]
            )
        self._otel.start(self._tasks.spawn)
        self._announce(clients, controllers)

    def _more_families(self) -> list[Family]:
        decisions = authorization_families(self._authorizer, self._runtime.clock)
        return [*self._audit.families(), *decisions, *self._otel.families()]

    async def _build_metadata(self, directories: NodeDirectories, controllers: Server) -> MetadataPart:
        """Build the metadata side of the node; a thread reads the disk.

        The metadata log has a thread of its own, so that its fsyncs do not wait for work on partition logs.
        """
        quorum = await asyncio.to_thread(
            build_quorum,
            replace(self._runtime, io=self._metadata_io),
            self._config,
            directories,
            controllers.addresses,
            self._snapshot_io,
            self._import_pool,
            self._tasks.fail,
        )
        metadata = build_metadata(
            self._runtime,
            self._config,
            directories,
            quorum,
            self._incarnation_id,
            self._snapshot_io,
            self._tasks.fail,
        )
        metadata.driver.add_publisher(self._runtime.tls)
        metadata.driver.add_publisher(TracingConfig(self._tracing, metadata.config.get))
        follow_metadata(self._authorizer, metadata)
        self._tasks.spawn(self._runtime.tls.watch(metadata.config.get))
        self._undo.callback(metadata.close)
        self._undo.push_async_callback(self._tasks.cancel_all)
        return metadata

    async def _stop_imports(self) -> None:
        """Stop snapshot imports, without waiting long for a store that hangs."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._import_pool.stop(drop_waiting=True), IMPORT_STOP_S)

    def _serve_controllers(
        self, directories: NodeDirectories, metadata: MetadataPart, server: Server, status: NodeStatus
    ) -> None:
        """Serve the controller listeners. A quorum forms only once its voters reach each other."""
        registrar = build_registrar(self._config, server, metadata, self._incarnation_id)
        metadata.driver.add_publisher(registrar)
        self._tasks.spawn(registrar.run())
        self._controller_pipelines = build_controller_pipelines(
            self._config,
            directories,
            metadata,
            self._loggers,
            self._runtime.clock,
            self._requests,
            build_watch(self._config, metadata, self._tasks.spawn),
            self._authorizer,
            self._audit.trail,
            self._sasl,
            status,
            self._tracing,
        )
        early = early_listeners(self._config, self._authorizer)
        server.start(early)
        if early != server.addresses.keys():
            self._tasks.spawn(self._serve_late_controllers(metadata, server))
        self._undo.push_async_callback(server.drain, DRAIN_TIMEOUT_S)

    async def _serve_late_controllers(self, metadata: MetadataPart, server: Server) -> None:
        """Serve the controller listeners that wait until the authorizer is ready."""
        await metadata.first_image.wait()
        server.start()

    async def _start_broker(
        self,
        directories: NodeDirectories,
        metadata: MetadataPart,
        server: Server,
        controllers: Server,
        status: NodeStatus,
    ) -> None:
        self._not_ready = "the cluster's metadata is not known yet"
        await self._tasks.wait_for(metadata.first_image.wait())
        self._not_ready = "logs are being loaded"
        await load_data(self._runtime, directories, metadata)
        broker = await self._build_broker(directories, metadata, server)
        self._not_ready = "the broker is not registered yet"
        self._broker = broker
        self._undo.callback(broker.register().close)
        self._undo.push_async_callback(self._close_broker, broker)
        await self._tasks.wait_for(broker.lifecycle.wait_caught_up())
        await broker.settle_duplicates()
        broker.take_up_roles()
        status.serve(broker.data, broker.remote)
        self._client_pipelines = build_client_pipelines(
            broker,
            self._loggers,
            self._requests,
            self._authorizer,
            self._audit.trail,
            self._sasl,
            status,
            self._tracing,
        )
        metadata.driver.add_publisher(ConnectionQuotas(server, metadata.config.get, self._tasks.spawn))
        if metadata.topic is not None:
            metadata.driver.add_publisher(metadata.topic)
        families = [*broker.families([server, controllers], self._requests, self._lag), *self._more_families()]
        self._exposition = Exposition(families, broker.pushed_families)
        broker.lifecycle.become_ready()
        await self._tasks.wait_for(broker.lifecycle.wait_unfenced())
        server.start()
        self._undo.push_async_callback(server.drain, DRAIN_TIMEOUT_S)
        self._undo.push_async_callback(self._withdraw, broker)
        self._undo.callback(broker.data.store.stop_creating)

    async def _build_broker(self, directories: NodeDirectories, metadata: MetadataPart, server: Server) -> BrokerPart:
        """Build the broker role over loaded logs."""
        runtime, config = self._runtime, self._config
        lifecycle = build_lifecycle(runtime, config, directories, metadata, server, self._incarnation_id)
        data = build_data(runtime, directories.log_dirs, self._failures, metadata, lifecycle, self._snapshot_io)
        remote = await self._build_remote(directories, metadata, data)
        quotas = build_client_quotas(config)
        client_metrics = build_client_metrics(config)
        return BrokerPart(config, runtime, directories, metadata, data, lifecycle, quotas, client_metrics, remote)

    async def _build_remote(
        self, directories: NodeDirectories, metadata: MetadataPart, data: DataPart
    ) -> "RemoteStoragePart | None":
        if not self._config.remote_log_storage_system_enable:
            check_nothing_is_remote(metadata.cache.image)
            return None
        # Local import: a node without remote storage does not load it.
        from broker.node.remote import build_remote
        from broker.node.remote_stores import open_remote_stores

        self._not_ready = "remote storage is being opened"
        stores = await asyncio.to_thread(open_remote_stores, self._runtime.files, self._config, directories)
        remote = build_remote(self._runtime, stores, metadata, data)
        self._failures.listen(remote.manager.on_directory_failed)
        return remote

    def _open_client_pipeline(self, connection: ConnectionInfo) -> Dispatch:
        assert self._client_pipelines is not None, "clients are served when the broker is unfenced"
        return self._client_pipelines.open(connection)

    def _open_controller_pipeline(self, connection: ConnectionInfo) -> Dispatch:
        assert self._controller_pipelines is not None, "controllers are served once the metadata log is open"
        return self._controller_pipelines.open(connection)

    def _open_own_pipeline(self, connection: ConnectionInfo) -> Dispatch | None:
        """Return the request path for requests of the console; None before this node serves any."""
        pipelines = self._client_pipelines or self._controller_pipelines
        return None if pipelines is None else pipelines.open(connection)

    async def _start_http(self) -> None:
        routes = node_routes(not_ready_because=self._not_ready_because, render_metrics=self._render_metrics)
        http = await asyncio.to_thread(build_http, self._config, {**routes, **self._console.routes()})
        if http is None:
            return
        http.server.open()
        await http.server.start()
        self._undo.callback(http.server.close)
        self._tasks.spawn(http.watch())
        _log.info("HTTP is served", url=http.server.url)

    def _announce(self, *servers: Server) -> None:
        """Log that the node is in service, for operators and for programs that wait for the line."""
        self._not_ready = ""
        # Objects made by the start live as long as the node: keep them out of full garbage collections.
        gc.collect()
        gc.freeze()
        for server in servers:
            for name, (host, port) in server.addresses.items():
                _log.info("Listening", listener=name, address=f"{host}:{port}")
        took_ms = int((time.monotonic() - self._started_at) * 1000)
        _log.info(f"[KafkaRaftServer nodeId={self._config.node_id}] Kafka Server started")
        _log.info(f"[KafkaServer id={self._config.node_id}] started", took_ms=took_ms)

    # Running.

    async def run_until_stopped(self) -> None:
        """Return when the node is requested to stop. Raise the node's failure."""
        with contextlib.suppress(StopRequested):
            await self._tasks.wait_for_stop()
        _log.info("Stopping", node=self._config.node_id)
        self._not_ready = "the node is stopping"

    def _on_directory_failed(self, directory: LogDir, lost: Sequence[Log]) -> None:
        """Continue on the other log directories, unless the failed one is the metadata's or the last."""
        assert directory.failure is not None
        is_last = not any(each.is_online for each in self._all_directories)
        if directory.path == self._config.metadata_log_dir or is_last:
            self._tasks.fail(directory.failure)
        elif self._broker is not None:
            self._broker.lifecycle.on_directory_failure(directory.id)

    async def _render_metrics(self) -> bytes:
        return await self._exposition.render()

    def _not_ready_because(self) -> str | None:
        now = Instant(self._runtime.clock.monotonic_ms(), self._runtime.clock.now_ms())
        has_controller = self._metadata is not None and self._metadata.quorum.driver.facts.hears_leader(now)
        return self._not_ready or (None if has_controller else "no active controller is known")

    # Stopping.

    async def _withdraw(self, broker: BrokerPart) -> None:
        """Leave the cluster. A node that failed leaves at once, since the controller may be what failed."""
        await broker.withdraw(controlled=self._config.controlled_shutdown_enable and not self._tasks.has_failed)

    async def _close_broker(self, broker: BrokerPart) -> None:
        """End everything that uses the logs, then close the logs."""
        broker.stop_replication()
        await self._tasks.cancel_all()
        await broker.close()

    async def _leave_quorum(self, metadata: MetadataPart) -> None:
        is_released = self._broker is not None and self._broker.lifecycle.is_released
        await metadata.leave_quorum(is_controlled=is_released)

    def _unlock(self) -> None:
        """Unlock the directories, last: the next owner relies on free ports and on no further writes."""
        if self._directories is not None:
            self._directories.unlock()

    async def stop(self) -> None:
        """Undo the start in reverse order."""
        self._lag.stop()
        await self._undo.aclose()
        self._tasks.close()
