"""The controller listeners of a node: request pipelines, registration, and the watch over brokers."""

from broker.api.cluster.describe_node import NodeDescription
from broker.api.pipeline.audit import AuditTrail
from broker.api.pipeline.authorization import Authorizer
from broker.api.pipeline.pipeline import RequestPipelines
from broker.api.pipeline.tracing import RequestTracing
from broker.api.serving.controller_routes import ControllerServices, controller_routes
from broker.api.serving.dispatch import Dispatcher
from broker.clock import Clock
from broker.config.broker_config import BrokerConfig
from broker.metadata.image.cluster_image import RegisteredEndpoint
from broker.metadata.image.features import SUPPORTED_FEATURES
from broker.metrics.controller import HeartbeatDeadline
from broker.metrics.requests import RequestMetrics
from broker.net.peer import PeerSettings
from broker.net.server import Server
from broker.node.directories import NodeDirectories
from broker.node.listeners import SECURITY_PROTOCOL_IDS
from broker.node.metadata import MetadataPart
from broker.node.quorum import own_listeners
from broker.node.security.sasl import NodeSasl
from broker.runtime.controller.broker_watch import BrokerWatch, Spawn, probe
from broker.runtime.controller.loggers import ProcessLoggers
from broker.runtime.controller.registration import ControllerIdentity, ControllerRegistrar
from broker.runtime.quorum.kraft_upgrade import KraftUpgrade
from protocol.primitives import Uuid


def build_controller_pipelines(
    config: BrokerConfig,
    directories: NodeDirectories,
    metadata: MetadataPart,
    loggers: ProcessLoggers,
    clock: Clock,
    requests: RequestMetrics,
    watch: BrokerWatch | None,
    authorizer: Authorizer | None,
    audit: AuditTrail | None,
    sasl: NodeSasl,
    node: NodeDescription,
    tracing: RequestTracing,
) -> RequestPipelines:
    """Build the request pipelines of the controller listeners."""
    quorum = metadata.quorum.driver
    services = ControllerServices(
        cluster_id=directories.cluster_id,
        node_id=config.node_id,
        kraft_version=lambda: quorum.facts.kraft_version,
        config=metadata.config.get,
        metadata=metadata.cache,
        controller=metadata.driver,
        active_controller=metadata.active_controller,
        quorum=quorum,
        loggers=loggers,
        snapshots=metadata.snapshots,
        node=node,
        kraft_upgrade=KraftUpgrade(quorum),
        watch=watch,
        authorizer=authorizer,
        heartbeat_deadline=HeartbeatDeadline(
            metadata.driver.metrics, clock.monotonic_ms, config.broker_heartbeat_interval_ms / 2
        ),
    )
    dispatcher = Dispatcher(controller_routes(services), clock, requests, None, authorizer, audit, tracing)
    return RequestPipelines(dispatcher, sasl.services(lambda: metadata.cache.image, clock, audit))


def build_watch(config: BrokerConfig, metadata: MetadataPart, spawn: Spawn) -> BrokerWatch | None:
    """Build the watch that notices brokers whose processes end; it follows the metadata from now on. None when
    disabled.
    """
    if not config.ottla_controller_broker_watch_enable:
        return None
    timeout_s = PeerSettings().connect_timeout_ms / 1000
    watch = BrokerWatch(
        config.node_id,
        config.inter_broker_listener_name,
        metadata.driver,
        lambda endpoint: probe(endpoint, timeout_s=timeout_s),
        spawn=spawn,
    )
    metadata.driver.add_publisher(watch)
    metadata.driver.watch_activation(watch.on_active)
    return watch


def build_registrar(
    config: BrokerConfig, server: Server, metadata: MetadataPart, incarnation_id: Uuid
) -> ControllerRegistrar:
    """Build the publisher that keeps this controller registered; the caller runs `run`."""
    protocols = {listener.name: SECURITY_PROTOCOL_IDS[listener.protocol] for listener in config.controller_listeners}
    listeners = {
        own.name: RegisteredEndpoint(own.host, own.port, protocols[own.name])
        for own in own_listeners(config, server.addresses)
    }
    identity = ControllerIdentity(config.node_id, incarnation_id, listeners, SUPPORTED_FEATURES)
    return ControllerRegistrar(identity, metadata.heartbeat_channel)
