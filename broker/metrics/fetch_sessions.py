"""Metrics of the fetch session cache (KIP-227): `kafka.server:type=FetchSessionCache`."""

from typing import Protocol

from broker.metrics.family import Family, counter, gauge

_PREFIX = "kafka_server_fetchsessioncache_"


class SessionCacheFigures(Protocol):
    """The cache of incremental fetch sessions."""

    evictions: int

    @property
    def partition_count(self) -> int: ...

    def __len__(self) -> int: ...


def fetch_session_families(sessions: SessionCacheFigures) -> list[Family]:
    """Return sessions, partitions in them, and evictions."""
    return [
        gauge(f"{_PREFIX}numincrementalfetchsessions", "Incremental fetch sessions", lambda: len(sessions)),
        gauge(
            f"{_PREFIX}numincrementalfetchpartitionscached",
            "Partitions in all incremental fetch sessions",
            lambda: sessions.partition_count,
        ),
        counter(
            f"{_PREFIX}incrementalfetchsessionevictions_total",
            "Sessions that were evicted for another session",
            lambda: sessions.evictions,
        ),
    ]
