"""Limits of the network side, under the names of Kafka's settings."""

from collections.abc import Mapping
from dataclasses import field

from broker.rates.windowed_rate import QuotaWindows
from protocol.lazy_dataclass import lazy_dataclass

UNLIMITED = 2**31 - 1


@lazy_dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Limits of one listener (`listener.name.NAME.…`); those of the server apply as well. The rate is per second."""

    max_connections: int = UNLIMITED
    max_connection_creation_rate: int = UNLIMITED


@lazy_dataclass(frozen=True, slots=True)
class NetLimits:
    """Limits of one server. Sizes in bytes, times in milliseconds.

    `max_connections_per_ip_overrides` maps host names and addresses to the number that replaces
    `max_connections_per_ip` for them. `queued_max_request_bytes` -1 is no limit; buffer sizes -1 leave the choice to
    the system. The latter is the default here, unlike Kafka's 102400: a fixed size turns off the kernel's own tuning,
    and a megabyte then costs three times the CPU (300 instead of 100 µs on the loopback).
    """

    socket_request_max_bytes: int = 104_857_600
    sasl_server_max_receive_size: int = 524_288
    queued_max_requests: int = 500
    queued_max_request_bytes: int = -1
    max_connections: int = UNLIMITED
    max_connections_per_ip: int = UNLIMITED
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    max_connection_creation_rate: int = UNLIMITED
    by_listener: Mapping[str, ListenerLimits] = field(default_factory=dict)
    quota_windows: QuotaWindows = field(default_factory=QuotaWindows)
    connections_max_idle_ms: int = 600_000
    tls_handshake_timeout_ms: int = 10_000
    authentication_timeout_ms: int = 60_000
    socket_listen_backlog_size: int = 50
    socket_send_buffer_bytes: int = -1
    socket_receive_buffer_bytes: int = -1
