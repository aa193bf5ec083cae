"""Counters of one listener as plain numbers, read when metrics are rendered."""

from protocol.lazy_dataclass import lazy_dataclass


@lazy_dataclass(slots=True, eq=False)
class ListenerStats:
    """Counts since the start, except `connections`, the number of open ones."""

    connections: int = 0
    accepted: int = 0
    closed: int = 0
    refused_per_ip: int = 0
    throttled_per_ip: int = 0
    expired_idle: int = 0
    expired_unauthenticated: int = 0
    evicted: int = 0
    authenticated: int = 0
    reauthenticated: int = 0
    failed_authentications: int = 0
    requests: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
