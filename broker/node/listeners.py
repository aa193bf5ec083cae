"""The ports of a node: listeners with their limits, and the endpoints that a broker advertises."""

from collections.abc import Mapping, Sequence

from broker.api.pipeline.yielding import yields
from broker.clock import Clock
from broker.config.broker_config import BrokerConfig
from broker.config.definitions import LISTENER_PREFIX
from broker.config.listeners import ConfiguredListener
from broker.metadata.image.cluster_image import RegisteredEndpoint
from broker.net.limits import ListenerLimits, NetLimits
from broker.net.listening import ListenAddress
from broker.net.request import OpenPipeline
from broker.net.server import Server
from broker.net.tls_accept import TlsServing
from broker.node.own_host import own_host
from broker.rates.windowed_rate import QuotaWindows

SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


def open_ports(
    listeners: Sequence[ConfiguredListener],
    config: BrokerConfig,
    open_pipeline: OpenPipeline,
    clock: Clock,
    tls: Mapping[str, TlsServing],
) -> Server:
    """Take the ports of listeners without serving them yet. Raise ListenError."""
    places = [ListenAddress(each.name, each.host, each.port, each.protocol) for each in listeners]
    protected = config.inter_broker_listener_name if config.is_broker and len(places) > 1 else None
    limits = net_limits(config, listeners)
    own_tls = {each.name: tls[each.name] for each in places if each.name in tls}
    server = Server(
        open_pipeline, limits, places, clock=clock, protected_listener=protected, tls=own_tls, yields=yields
    )
    server.open()
    return server


def advertised_endpoints(config: BrokerConfig, server: Server) -> dict[str, RegisteredEndpoint]:
    """Return the endpoints to register, with the actual ports in place of 0."""
    bound = server.addresses
    return {
        each.name: RegisteredEndpoint(
            each.host or own_host(),
            each.port or bound[each.name][1],
            SECURITY_PROTOCOL_IDS[each.protocol],
        )
        for each in config.advertised_listeners
    }


def net_limits(config: BrokerConfig, listeners: Sequence[ConfiguredListener]) -> NetLimits:
    """Return the configured limits of a server with these listeners."""
    return NetLimits(
        socket_request_max_bytes=config.socket_request_max_bytes,
        sasl_server_max_receive_size=config.sasl_server_max_receive_size,
        queued_max_requests=config.queued_max_requests,
        queued_max_request_bytes=config.queued_max_request_bytes,
        max_connections=config.max_connections,
        max_connections_per_ip=config.max_connections_per_ip,
        max_connections_per_ip_overrides=config.max_connections_per_ip_overrides,
        max_connection_creation_rate=config.max_connection_creation_rate,
        by_listener={each.name: _listener_limits(config, each.name) for each in listeners},
        quota_windows=QuotaWindows(config.quota_window_num, config.quota_window_size_seconds * 1000),
        connections_max_idle_ms=config.connections_max_idle_ms,
        tls_handshake_timeout_ms=config.ottla_ssl_handshake_timeout_ms,
        authentication_timeout_ms=config.ottla_authentication_timeout_ms,
        socket_listen_backlog_size=config.socket_listen_backlog_size,
        socket_send_buffer_bytes=_buffer_bytes(config, "socket.send.buffer.bytes"),
        socket_receive_buffer_bytes=_buffer_bytes(config, "socket.receive.buffer.bytes"),
    )


def _listener_limits(config: BrokerConfig, listener: str) -> ListenerLimits:
    """Return the limits of one listener: the keys below its prefix, else those of the broker, as in Kafka."""
    prefix = f"{LISTENER_PREFIX}{listener.lower()}."
    connections = config.layers.find(f"{prefix}max.connections")
    rate = config.layers.find(f"{prefix}max.connection.creation.rate")
    return ListenerLimits(
        config.max_connections if connections is None else int(connections),
        config.max_connection_creation_rate if rate is None else int(rate),
    )


def _buffer_bytes(config: BrokerConfig, key: str) -> int:
    """Return the configured size, else -1.

    A fixed receive buffer disables the kernel's own tuning: with Kafka's default of 100 KB, receiving a megabyte cost
    250-320 us of processor time instead of 85-100.
    """
    given = config.layers.find(key)
    return -1 if given is None else int(given)
