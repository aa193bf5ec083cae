"""Metrics of the standard authorizer, under the names of Kafka's plug-in metrics (KIP-877)."""

from collections.abc import Callable, Iterable
from typing import Protocol

from broker.metrics.family import Family, Sample
from broker.metrics.quorum import RecentRate

_PLUGINS = "kafka_server_plugins_"
_LABELS = {"config": "authorizer.class.name", "class": "StandardAuthorizer"}
_SECONDS_PER_MINUTE = 60


class AuthorizerCounts(Protocol):
    """Decisions since the start, and the number of ACLs."""

    allowed: int
    denied: int

    @property
    def acl_count(self) -> int: ...


def authorizer_families(counts: AuthorizerCounts, monotonic_ms: Callable[[], float]) -> list[Family]:
    """Return the families of an authorizer."""

    def per_minute(name: str, help_text: str, count: Callable[[], float]) -> Family:
        rate = RecentRate(count, monotonic_ms)
        return _gauge(f"authorization_{name}_rate_per_minute", help_text, lambda: _SECONDS_PER_MINUTE * rate.read())

    return [
        _gauge("acls_total_count", "ACLs that the node knows", lambda: counts.acl_count),
        per_minute("allowed", "Decisions per minute that allow", lambda: counts.allowed),
        per_minute("denied", "Decisions per minute that deny", lambda: counts.denied),
        per_minute("request", "Decisions per minute", lambda: counts.allowed + counts.denied),
    ]


def _gauge(name: str, help_text: str, read: Callable[[], float]) -> Family:
    def samples() -> Iterable[Sample]:
        return [Sample(read(), _LABELS)]

    return Family(_PLUGINS + name, help_text, "gauge", samples)
