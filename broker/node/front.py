"""The client side of a node: its ports and their limits, what it advertises, and the handlers behind them."""

import asyncio
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from broker.api.serving.dispatch import Dispatcher
from broker.api.serving.routes import BrokerServices, broker_routes
from broker.clock import Clock
from broker.config.broker_config import BrokerConfig
from broker.config.listeners import ConfiguredListener
from broker.metadata.image.cluster_image import RegisteredEndpoint
from broker.metrics.requests import RequestMetrics
from broker.net.limits import NetLimits
from broker.net.listening import ListenAddress
from broker.net.request import Dispatch
from broker.net.server import Server
from broker.node.data import DataPart
from broker.node.directories import NodeDirectories
from broker.node.metadata import MetadataPart
from broker.node.own_host import own_host
from broker.runtime.controller.broker_lifecycle import BrokerLifecycle
from broker.runtime.controller.forwarding import Forwarder
from broker.runtime.controller.loggers import ProcessLoggers
from broker.runtime.controller.producer_ids import ControllerBlocks, ProducerIds
from broker.runtime.loop.io_thread import BlockingIo
from broker.runtime.partitions.creation_wait import CreationWait
from broker.runtime.partitions.fetch_sessions import FetchSessions
from broker.runtime.quorum.kraft_upgrade import KraftUpgrade
from storage.files import FileSystem

if TYPE_CHECKING:
    from broker.node.remote import RemoteStoragePart

# An ordinary topic is in service within this time, so that whoever is told of it can use it. One of a thousand
# partitions is not: its creator is told of the commit alone, as by Kafka, and clients retry as they do there.
HOSTING_WAIT_MAX_MS = 500

SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class ForwardingBroker(NamedTuple):
    """The node that clients of this broker are told to send controller requests to: this broker, which forwards them.

    Kafka names any broker that is alive. To name the active controller would save a hop, and cost clients a failover:
    librdkafka asks again who it is only after ten seconds when the node it was told of is gone.
    """

    controller_id: int


def open_ports(
    listeners: Sequence[ConfiguredListener], config: BrokerConfig, dispatch: Dispatch, clock: Clock
) -> Server:
    """A server that holds the ports of listeners and serves none of them yet. Raises ListenError."""
    places = [ListenAddress(each.name, each.host, each.port) for each in listeners]
    server = Server(dispatch, _limits(config), places, clock=clock)
    server.open()
    return server


def advertised_endpoints(config: BrokerConfig, server: Server) -> dict[str, RegisteredEndpoint]:
    """What to register, with the ports that were picked where 0 was asked for."""
    bound = server.addresses
    return {
        each.name: RegisteredEndpoint(
            each.host or own_host(),
            each.port or bound[each.name][1],
            SECURITY_PROTOCOL_IDS[each.protocol],
        )
        for each in config.advertised_listeners
    }


def build_dispatcher(
    config: BrokerConfig,
    directories: NodeDirectories,
    metadata: MetadataPart,
    data: DataPart,
    lifecycle: BrokerLifecycle,
    loggers: ProcessLoggers,
    fs: FileSystem,
    clock: Clock,
    io: BlockingIo,
    loop: asyncio.AbstractEventLoop,
    requests: RequestMetrics,
    remote: "RemoteStoragePart | None",
) -> Dispatcher:
    """The handlers of a client listener over the parts of the node."""
    hosting = CreationWait(data.partitions, wait_max_ms=HOSTING_WAIT_MAX_MS)
    metadata.driver.add_publisher(hosting)
    quorum = metadata.quorum.driver
    created = metadata.topics if config.auto_create_topics_enable else None
    services = BrokerServices(
        cluster_id=directories.cluster_id,
        node_id=config.node_id,
        kraft_version=lambda: quorum.core.kraft_version,
        config=metadata.config.get,
        clock=clock,
        loop=loop,
        deadlines=data.deadlines,
        io=io,
        metadata=metadata.cache,
        controller=metadata.driver,
        forwarder=Forwarder(metadata.forwarding_router),
        created_partitions=hosting,
        active_controller=ForwardingBroker(config.node_id),
        topic_creator=created if remote is None else remote.topic_creator(created),
        create_internal_topic=metadata.topics.ensure_internal_topic,
        partitions=data.partitions,
        log_dirs=directories.log_dirs,
        fs=fs,
        fetch_sessions=FetchSessions(config.max_incremental_fetch_session_cache_slots, _pick_session_id),
        throttles=data.throttles,
        groups=data.groups,
        producer_ids=ProducerIds(ControllerBlocks(metadata.forwarding_channel, lifecycle, config.node_id)),
        loggers=loggers,
        metadata_topic=metadata.topic,
        snapshots=metadata.snapshots,
        kraft_upgrade=KraftUpgrade(quorum),
        quorum=quorum,
        remote_reads=None if remote is None else remote.reads,
        remote_offsets=None if remote is None else remote.offsets,
    )
    return Dispatcher(broker_routes(services), clock, requests)


def _limits(config: BrokerConfig) -> NetLimits:
    return NetLimits(
        socket_request_max_bytes=config.socket_request_max_bytes,
        queued_max_requests=config.queued_max_requests,
        queued_max_request_bytes=config.queued_max_request_bytes,
        max_connections=config.max_connections,
        max_connections_per_ip=config.max_connections_per_ip,
        max_connections_per_ip_overrides=config.max_connections_per_ip_overrides,
        connections_max_idle_ms=config.connections_max_idle_ms,
        socket_listen_backlog_size=config.socket_listen_backlog_size,
        socket_send_buffer_bytes=_buffer_bytes(config, "socket.send.buffer.bytes"),
        socket_receive_buffer_bytes=_buffer_bytes(config, "socket.receive.buffer.bytes"),
    )


def _buffer_bytes(config: BrokerConfig, key: str) -> int:
    """The size that somebody set, else -1.

    A fixed receive buffer turns off the kernel's own tuning: with Kafka's default of 100 KB, a megabyte received cost
    250-320 us of processor time instead of 85-100.
    """
    given = config.layers.find(key)
    return -1 if given is None else int(given)


def _pick_session_id() -> int:
    return random.randrange(1, 2**31)
