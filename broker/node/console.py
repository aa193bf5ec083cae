"""The console of a node, built at the first request for it: most nodes are never looked at."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broker.api.pipeline.audit import AuditTrail
from broker.api.pipeline.authorization import Authorizer
from broker.build_form import release
from broker.config.broker_config import BrokerConfig
from broker.http.messages import HttpRequest, HttpResponse, Routes
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.net.peer import NetworkClient, PeerSettings
from broker.net.request import ConnectionInfo, Dispatch
from broker.node.directories import NodeDirectories
from broker.node.metadata import MetadataPart
from broker.node.runtime import NodeRuntime
from broker.quorum.identity import SnapshotId
from protocol.ids import LeaderEpoch, Offset

if TYPE_CHECKING:
    from broker.console.service import ConsoleService

OpenDispatch = Callable[[ConnectionInfo], Dispatch | None]


class NodeConsole:
    """The routes of the console; `serve` connects them with the parts of the node."""

    def __init__(
        self, config: BrokerConfig, runtime: NodeRuntime, authorizer: Authorizer | None, audit: AuditTrail | None
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._authorizer = authorizer
        self._audit = audit
        self._directories: NodeDirectories | None = None
        self._metadata: MetadataPart | None = None
        self._open_dispatch: OpenDispatch | None = None
        self._service: ConsoleService | None = None
        self._connections: Sequence[NetworkClient] = ()
        self._on_metadata: Callable[[MetadataDelta, MetadataImage], None] | None = None
        self._close_service: Callable[[], None] | None = None

    def routes(self) -> Routes:
        """Return the routes of the HTTP server."""
        return {"/": self._get, "/console/*": self._get, "POST /console/*": self._post}

    def serve(self, directories: NodeDirectories, metadata: MetadataPart, open_dispatch: OpenDispatch) -> None:
        """Answer from now on. `open_dispatch` returns None while the node does not serve clients."""
        self._directories = directories
        self._metadata = metadata
        self._open_dispatch = open_dispatch
        metadata.driver.add_publisher(self)

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Tell the console of new metadata, once it is built."""
        if self._on_metadata is not None:
            self._on_metadata(delta, image)

    def close(self) -> None:
        """End all streams, samples and connections."""
        if self._close_service is not None:
            self._close_service()
        for peers in self._connections:
            peers.close()

    async def _get(self, request: HttpRequest) -> HttpResponse:
        service = self._ready()
        return _NOT_READY if service is None else await service.get(request)

    async def _post(self, request: HttpRequest) -> HttpResponse:
        service = self._ready()
        return _NOT_READY if service is None else await service.post(request)

    def _ready(self) -> "ConsoleService | None":
        if self._service is None and self._metadata is not None and self._metadata.first_image.is_there:
            self._service = self._build(self._metadata)
        return self._service

    def _build(self, metadata: MetadataPart) -> "ConsoleService":
        # Local import: a node that nobody looks at does not load the console.
        from broker.console.building import build_console
        from broker.console.cluster import NodeAccess
        from broker.console.history import LogAccess

        assert self._directories is not None
        assert self._open_dispatch is not None
        config, runtime = self._config, self._runtime
        brokers = self._peers(config.inter_broker_listener_name)
        controllers = self._peers(metadata.quorum.listener)
        self._connections = (brokers, controllers)
        node = NodeAccess(
            node_id=config.node_id,
            cluster_id=self._directories.cluster_id,
            release=release(),
            image=lambda: metadata.cache.image,
            leader_id=lambda: metadata.quorum.driver.leader.leader_id,
            broker_listener=config.inter_broker_listener_name,
            controller_listener=metadata.quorum.listener,
            brokers=brokers,
            controllers=controllers,
            open_dispatch=self._open_dispatch,
            authorizer=self._authorizer,
            audit=self._audit,
            clock=runtime.clock,
        )
        built = build_console(
            node,
            min_isr=lambda image, topic: metadata.config.log_config(image, topic).min_insync_replicas,
            has_credentials=bool(config.value("ottla.http.credentials.location")),
            host_names=self._host_names,
            actions_enabled=lambda: bool(metadata.config.get().value("ottla.console.actions.enable")),
            log=LogAccess(
                metadata.quorum.log,
                lambda: metadata.quorum.driver.high_watermark or 0,
                lambda: metadata.quorum.driver.is_truncating,
                lambda: [
                    SnapshotId(Offset(each.end_offset), LeaderEpoch(each.epoch))
                    for each in metadata.quorum.log.snapshots.ids()
                ],
            ),
            runtime=runtime,
        )
        self._on_metadata, self._close_service = built.on_metadata, built.close
        return built.service

    def _host_names(self) -> frozenset[str]:
        """Return the names under which browsers may reach this node, in lower case."""
        assert self._metadata is not None
        image = self._metadata.cache.image.brokers
        own = image.brokers.get(self._config.node_id)
        names = {endpoint.host.lower() for endpoint in own.endpoints.values()} if own is not None else set()
        listener = self._config.http_listener
        return frozenset(names | ({listener.host.lower()} if listener is not None else set()))

    def _peers(self, listener: str) -> NetworkClient:
        runtime = self._runtime
        limits = PeerSettings(frame_bytes_max=self._config.socket_request_max_bytes)
        client_id = f"console-{self._config.node_id}"
        return NetworkClient(runtime.loop, runtime.connect_to(listener), client_id=client_id, settings=limits)


_NOT_READY = HttpResponse(503, b"The node is starting; its metadata are not known yet.\n")
