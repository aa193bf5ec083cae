"""The ports of a node: listeners with their limits, and the endpoints that a broker advertises."""

from collections.abc import Sequence

from broker.clock import Clock
from broker.config.broker_config import BrokerConfig
from broker.config.listeners import ConfiguredListener
from broker.metadata.image.cluster_image import RegisteredEndpoint
from broker.net.limits import NetLimits
from broker.net.listening import ListenAddress
from broker.net.request import OpenPipeline
from broker.net.server import Server
from broker.node.own_host import own_host

SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


def open_ports(
    listeners: Sequence[ConfiguredListener], config: BrokerConfig, open_pipeline: OpenPipeline, clock: Clock
) -> Server:
    """Take the ports of listeners without serving them yet. Raise ListenError."""
    places = [ListenAddress(each.name, each.host, each.port) for each in listeners]
    server = Server(open_pipeline, _limits(config), places, clock=clock)
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
    """Return the configured size, else -1.

    A fixed receive buffer disables the kernel's own tuning: with Kafka's default of 100 KB, receiving a megabyte cost
    250-320 us of processor time instead of 85-100.
    """
    given = config.layers.find(key)
    return -1 if given is None else int(given)
