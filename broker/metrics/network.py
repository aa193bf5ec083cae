"""SocketServer and socket-server-metrics: counts of the listeners and their request queues, under Kafka's names."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from broker.metrics.family import Family, Kind, Sample, gauge
from broker.net.backlog import RequestBacklog
from broker.net.stats import ListenerStats
from broker.rates.connection_rates import ConnectionRates, ListenerRate

_SERVER = "kafka_server_socket_server_metrics_"

_PER_LISTENER: tuple[tuple[str, str, Kind, Callable[[ListenerStats], int]], ...] = (
    ("connection_count", "Open connections", "gauge", lambda stats: stats.connections),
    ("connection_creation_total", "Connections accepted", "counter", lambda stats: stats.accepted),
    ("connection_close_total", "Connections closed", "counter", lambda stats: stats.closed),
    ("request_total", "Requests received", "counter", lambda stats: stats.requests),
    ("incoming_byte_total", "Bytes received", "counter", lambda stats: stats.bytes_in),
    ("outgoing_byte_total", "Bytes sent", "counter", lambda stats: stats.bytes_out),
    (
        "successful_authentication_total",
        "Authentications by TLS or SASL",
        "counter",
        lambda stats: stats.authenticated,
    ),
    (
        "successful_reauthentication_total",
        "Re-authentications by SASL",
        "counter",
        lambda stats: stats.reauthenticated,
    ),
    (
        "failed_authentication_total",
        "Authentications by TLS or SASL that failed",
        "counter",
        lambda stats: stats.failed_authentications,
    ),
    (
        "connections_refused_per_ip_total",
        "Connections closed at once for max.connections.per.ip",
        "counter",
        lambda stats: stats.refused_per_ip,
    ),
    (
        "connections_throttled_per_ip_total",
        "Connections closed after a pause for the connection_creation_rate of their address",
        "counter",
        lambda stats: stats.throttled_per_ip,
    ),
    (
        "connections_expired_unauthenticated_total",
        "Connections closed because they did not authenticate within ottla.authentication.timeout.ms",
        "counter",
        lambda stats: stats.expired_unauthenticated,
    ),
)


def network_families(stats: Mapping[str, ListenerStats], backlogs: Sequence[RequestBacklog]) -> list[Family]:
    """Return families over all listeners of a node. The event loop counts as network processor 0.

    Clients and controllers have a request queue each, so that neither starves the other; the families show the sum.
    """
    return [
        *(_per_listener(stats, *row) for row in _PER_LISTENER),
        gauge(
            "kafka_network_socketserver_expiredconnectionskilledcount",
            "Connections closed for connections.max.idle.ms",
            lambda: sum(listener.expired_idle for listener in stats.values()),
        ),
        gauge(
            "kafka_network_socketserver_memorypoolused",
            "Bytes of requests that are arriving, waiting or unanswered",
            lambda: sum(backlog.bytes for backlog in backlogs),
        ),
        gauge(
            "kafka_network_socketserver_memorypoolavailable",
            "Bytes left of queued.max.request.bytes, -1 without such a bound",
            lambda: _bytes_left(backlogs),
        ),
        gauge(
            "kafka_network_requestchannel_requestqueuesize",
            "Requests that wait for an earlier one of their connection",
            lambda: sum(backlog.parked for backlog in backlogs),
        ),
    ]


def connection_rate_families(rates: Sequence[ConnectionRates], monotonic_ms: Callable[[], float]) -> list[Family]:
    """Return families of connection rates and of throttle times, over the servers of a node (KIP-612)."""

    def read(value: Callable[[ListenerRate, float], float]) -> Iterable[Sample]:
        now_ms = monotonic_ms()
        for each in rates:
            for name, listener in each.listeners():
                yield Sample(value(listener, now_ms), {"listener": name})

    return [
        Family(
            f"{_SERVER}connection_accept_rate",
            "Connections accepted per second, by listener",
            "gauge",
            lambda: read(lambda listener, now_ms: listener.rate.per_second(now_ms)),
        ),
        Family(
            f"{_SERVER}connection_accept_throttle_time",
            "Average pause in milliseconds for the limits of listener and broker, by listener",
            "gauge",
            lambda: read(lambda listener, now_ms: listener.throttles.average(now_ms)),
        ),
        Family(
            f"{_SERVER}ip_connection_accept_throttle_time",
            "Average pause in milliseconds of connections from addresses above their limit, by listener",
            "gauge",
            lambda: read(lambda listener, now_ms: listener.host_throttles.average(now_ms)),
        ),
    ]


def _bytes_left(backlogs: Sequence[RequestBacklog]) -> int:
    left = [backlog.bytes_left for backlog in backlogs]
    return -1 if min(left) < 0 else sum(left)


def _per_listener(
    stats: Mapping[str, ListenerStats], name: str, text: str, kind: Kind, value: Callable[[ListenerStats], int]
) -> Family:
    def read() -> Iterable[Sample]:
        for listener, counts in list(stats.items()):
            yield Sample(value(counts), {"listener": listener, "networkProcessor": "0"})

    return Family(f"{_SERVER}{name}", f"{text}, by listener", kind, read)
