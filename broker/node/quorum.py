"""A node's replica of the metadata log: its disk, core and connections, and its settings."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.metadata.snapshot.check import SnapshotCheck
from broker.net.peer import NetworkClient, PeerSettings
from broker.node.directories import NodeDirectories
from broker.node.own_host import own_host
from broker.node.runtime import NodeRuntime
from broker.quorum.core import QuorumCore
from broker.quorum.identity import Instant, ListenerEndpoint, Listeners, ReplicaKey, SocketAddress
from broker.quorum.settings import QuorumSettings, StaticVoter
from broker.runtime.controller.controller_router import ControllerLocation
from broker.runtime.loop.io_thread import BlockingIo
from broker.runtime.loop.thread_pool import WorkPool
from broker.runtime.quorum.driver import QuorumDriver
from broker.runtime.quorum.metadata_log import RaftMetadataLog
from broker.runtime.quorum.quorum import METADATA_LOG_NAME
from broker.runtime.quorum.replica_io import ReplicaIo
from broker.runtime.quorum.snapshot_import import SnapshotImporter
from broker.runtime.quorum.snapshot_store import SnapshotObjectStore
from broker.runtime.quorum.state_file import QuorumStateFile
from broker.runtime.quorum.transport import NetworkTransport
from protocol.ids import BrokerId
from protocol.lazy_dataclass import lazy_dataclass
from storage.config import CleanupPolicy, LogConfig
from storage.files import join

STORE_PATIENCE_MS: Final = 10_000
"""Timeout of one request to a snapshot store, with all attempts."""

BoundAddresses = Mapping[str, tuple[str, int]]
"""Host and port by listener name, as bound by a server."""


@lazy_dataclass(frozen=True, slots=True)
class QuorumPart:
    """The components of the replica, built; `driver.start()` starts them."""

    log: RaftMetadataLog
    driver: QuorumDriver
    transport: NetworkTransport
    listener: str
    importer: SnapshotImporter | None

    def controller(self) -> ControllerLocation:
        """Return the active controller, as far as this node knows it, and its address."""
        leader = self.driver.leader.leader_id
        return ControllerLocation(leader, None if leader is None else self._endpoint(leader))

    def _endpoint(self, node_id: int) -> SocketAddress | None:
        hint = self.driver.facts.leader_hint
        if hint.leader_id != node_id:
            return None
        return next((each.endpoint for each in hint.listeners if each.name == self.listener), None)

    def close(self) -> None:
        """Leave the quorum's protocol, close connections, and close the log. Blocks for an fsync."""
        self.driver.close()
        if self.importer is not None:
            self.importer.close()
        self.transport.close()
        self.log.close()


def build_quorum(
    runtime: NodeRuntime,
    config: BrokerConfig,
    directories: NodeDirectories,
    bound: BoundAddresses,
    snapshot_io: BlockingIo,
    import_pool: WorkPool,
    on_fatal: Callable[[BaseException], None],
) -> QuorumPart:
    """Open the metadata log and build the replica on it. `bound` are the controller listeners. Blocks.

    `runtime.io` writes and syncs the log and the election state; `snapshot_io` does what may take long beside that.
    `import_pool` has one thread, which waits for the snapshot store, if there is one.

    Raise StorageError, UnusableMetadataLog or InvalidQuorumState.
    """
    clock = runtime.clock
    directory = join(directories.metadata_directory, METADATA_LOG_NAME)
    log = RaftMetadataLog.open(runtime.files, directory, log_config(config), clock.now_ms())
    state_file = QuorumStateFile(runtime.files, directory)
    settings = quorum_settings(config, directories, bound)
    now = Instant(clock.monotonic_ms(), clock.now_ms())
    recovered = replace(log.recovered, election=state_file.read())
    core = QuorumCore(settings, recovered, random.Random(), now)
    transport = _transport(runtime, config, settings.default_listener)
    importer = _importer(runtime, config, directories, log, import_pool)
    replica_io = ReplicaIo(
        log, state_file, transport, election=recovered.election, imports=importer, snapshot_io=snapshot_io
    )
    driver = QuorumDriver(core, replica_io, runtime, on_fatal=on_fatal)
    return QuorumPart(log, driver, transport, settings.default_listener, importer)


def _importer(
    runtime: NodeRuntime, config: BrokerConfig, directories: NodeDirectories, log: RaftMetadataLog, pool: WorkPool
) -> SnapshotImporter | None:
    """Build the snapshot importer; None where the configuration has no snapshot store."""
    if not config.ottla_metadata_snapshot_import_uri:
        return None
    from storage.tiered.loading.store_uri import open_store, parse_store_uri  # local import: few nodes need it

    uri = parse_store_uri(config.ottla_metadata_snapshot_import_uri)
    timeout_ms = config.ottla_metadata_snapshot_import_timeout_ms
    patience_ms = min(timeout_ms, STORE_PATIENCE_MS)
    store = SnapshotObjectStore(
        partial(
            open_store,
            uri,
            fs=runtime.files,
            must_exist=True,
            call_timeout_ms=patience_ms,
            attempt_timeout_ms=patience_ms,
        ),
        directories.cluster_id,
        config.ottla_metadata_snapshot_import_max_bytes,
        SnapshotCheck,
    )
    return SnapshotImporter(store, log.snapshots, uri=str(uri), timeout_ms=timeout_ms, pool=pool, clock=runtime.clock)


def _transport(runtime: NodeRuntime, config: BrokerConfig, listener: str) -> NetworkTransport:
    connect = runtime.connect_to(listener)

    def connections() -> NetworkClient:
        limits = PeerSettings(frame_bytes_max=config.socket_request_max_bytes)
        return NetworkClient(runtime.loop, connect, client_id=f"raft-client-{config.node_id}", settings=limits)

    return NetworkTransport(connections(), connections(), listener=listener)


def quorum_settings(config: BrokerConfig, directories: NodeDirectories, bound: BoundAddresses) -> QuorumSettings:
    """Return the quorum's settings from the configuration."""
    listeners = own_listeners(config, bound)
    own = {listener.name: listener.endpoint for listener in listeners}
    default_listener = config.controller_listener_names[0]
    return QuorumSettings(
        key=ReplicaKey(config.node_id, directories.metadata_directory_id),
        cluster_id=directories.cluster_id,
        can_vote=config.is_controller,
        listeners=listeners,
        default_listener=default_listener,
        static_voters=tuple(
            # An address that only the node itself can know (port 0, any interface) is allowed for its own voter.
            StaticVoter(BrokerId(voter.id), own[default_listener])
            if voter.id == config.node_id
            else StaticVoter(BrokerId(voter.id), SocketAddress(voter.address.host, voter.address.port))
            for voter in config.voters
        ),
        bootstrap=tuple(SocketAddress(server.host, server.port) for server in config.bootstrap_servers),
        election_timeout_ms=config.controller_quorum_election_timeout_ms,
        fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
        election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
        append_linger_ms=config.controller_quorum_append_linger_ms,
        request_timeout_ms=config.controller_quorum_request_timeout_ms,
        retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
        auto_join=config.controller_quorum_auto_join_enable and config.is_controller,
        fetch_max_bytes=config.controller_quorum_fetch_max_bytes,
        fetch_snapshot_max_bytes=max(
            1, min(config.controller_quorum_fetch_snapshot_max_bytes, config.replica_fetch_response_max_bytes)
        ),
        max_observers=config.ottla_controller_quorum_max_observers,
        start_offset_lag_time_max_ms=config.metadata_start_offset_lag_time_max_ms,
        retention_bytes=config.metadata_max_retention_bytes,
        retention_ms=config.metadata_max_retention_ms,
        import_timeout_ms=(
            config.ottla_metadata_snapshot_import_timeout_ms if config.ottla_metadata_snapshot_import_uri else 0
        ),
    )


_ANY_INTERFACE: Final = ("", "0.0.0.0", "::")


def own_listeners(config: BrokerConfig, bound: BoundAddresses) -> Listeners:
    """Return this node's controller listeners as other nodes reach them, with the actual ports in place of 0.

    Where the quorum's listener has no host, other nodes use this node's address from `controller.quorum.voters`.
    """
    known = {config.controller_listener_names[0]: host} if (host := _own_voter_host(config)) else {}
    return tuple(
        ListenerEndpoint(
            each.name,
            each.host or known.get(each.name) or own_host(),
            each.port or bound[each.name][1],
        )
        for each in config.advertised_controller_listeners
    )


def _own_voter_host(config: BrokerConfig) -> str:
    """Return the host of this node's static voter; empty without such a voter, or where its address is unusable."""
    hosts = (voter.address.host for voter in config.voters if voter.id == config.node_id)
    return next((host for host in hosts if host not in _ANY_INTERFACE), "")


def log_config(config: BrokerConfig) -> LogConfig:
    """Return the metadata log's own settings. Only the quorum's rules delete from it."""
    return LogConfig(
        segment_bytes=config.internal_metadata_log_segment_bytes or config.metadata_log_segment_bytes,
        segment_ms=config.metadata_log_segment_ms,
        retention_bytes=-1,
        retention_ms=-1,
        cleanup_policy=frozenset({CleanupPolicy.DELETE}),
        max_message_bytes=config.internal_metadata_max_batch_size_in_bytes,
    )
