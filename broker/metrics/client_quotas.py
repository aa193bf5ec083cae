"""Client quotas under the names that the usual JMX-exporter rules give them: `kafka_server_quota_*`, by client.

`user` and `clientId` are empty where a quota does not distinguish them. At most `CLIENTS_MAX` clients of each type are
shown, those that were active last: clients choose their ids, and must not fill the monitoring system.
"""

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final, Protocol

from broker.metadata.controller.mutation_quota import MutationFigures
from broker.metadata.image.quota_precedence import Sharers
from broker.metrics.family import Family, Sample
from broker.quotas.client_quotas import BrokerQuotas, ClientQuotaManager, SensorFigures

CLIENTS_MAX: Final = 1_000


class Mutations(Protocol):
    """The mutation quotas that an active controller measures."""

    def mutation_figures(self, now_ms: int, limit: int) -> Iterable[MutationFigures]:
        """Yield the `limit` quotas that were used last."""
        ...


def client_quota_families(
    quotas: BrokerQuotas | None, mutations: Mutations, monotonic_ms: Callable[[], float]
) -> list[Family]:
    """Return the families of a node's quotas; `quotas` is None without the broker role."""
    bytes_of = {} if quotas is None else {"Produce": quotas.produce, "Fetch": quotas.fetch}
    requests = {} if quotas is None else {"Request": quotas.request}

    def mutated(value: Callable[[MutationFigures], float]) -> Iterable[Sample]:
        for figures in mutations.mutation_figures(int(monotonic_ms()), CLIENTS_MAX):
            yield Sample(value(figures), _labels("ControllerMutation", figures.sharers))

    def exempt() -> Iterable[Sample]:
        if quotas is not None:
            yield Sample(quotas.exempt.per_second(monotonic_ms()), {"resource": "Request"})

    return [
        Family(
            "kafka_server_quota_byte_rate",
            "Bytes per second over the quota's windows, by client with a quota",
            "gauge",
            lambda: _samples(bytes_of, _rate, monotonic_ms()),
        ),
        Family(
            "kafka_server_quota_request_time",
            "Percent of the event loop's time, by client with a quota",
            "gauge",
            lambda: _samples(requests, _rate, monotonic_ms()),
        ),
        Family(
            "kafka_server_quota_mutation_rate",
            "Partitions created and deleted per second, by client with a quota",
            "gauge",
            lambda: mutated(lambda figures: figures.rate),
        ),
        Family(
            "kafka_server_quota_tokens",
            "Partitions that may be created and deleted at once, by client with a quota",
            "gauge",
            lambda: mutated(lambda figures: figures.tokens),
        ),
        Family(
            "kafka_server_quota_throttle_time",
            "Average milliseconds of a throttled response, by client with a quota",
            "gauge",
            lambda: chain(
                _samples({**bytes_of, **requests}, _throttle, monotonic_ms()),
                mutated(lambda figures: figures.throttle_ms),
            ),
        ),
        Family(
            "kafka_server_quota_exempt_request_time",
            "Percent of the event loop's time for requests that no quota applies to, while request quotas exist",
            "gauge",
            exempt,
        ),
    ]


def _samples(
    managers: dict[str, ClientQuotaManager], value: Callable[[SensorFigures], float], now_ms: float
) -> Iterable[Sample]:
    for resource, manager in managers.items():
        for figures in manager.figures(now_ms, CLIENTS_MAX):
            yield Sample(value(figures), _labels(resource, figures.sharers))


def _rate(figures: SensorFigures) -> float:
    return figures.rate


def _throttle(figures: SensorFigures) -> float:
    return figures.throttle_ms


def _labels(resource: str, sharers: Sharers) -> dict[str, str]:
    user, client_id = sharers
    return {"resource": resource, "user": user or "", "clientId": client_id or ""}
