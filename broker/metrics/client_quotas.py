"""Client quotas under the names that the usual JMX-exporter rules give them: `kafka_server_quota_*`, by client.

`user` and `clientId` are empty where a quota does not distinguish them. At most `CLIENTS_MAX` clients of each type are
shown, those that were active last: clients choose their ids, and must not fill the monitoring system.
"""

from collections.abc import Callable, Iterable
from typing import Final

from broker.metrics.family import Family, Sample
from broker.quotas.client_quotas import BrokerQuotas, ClientQuotaManager, SensorFigures

CLIENTS_MAX: Final = 1_000


def client_quota_families(quotas: BrokerQuotas, monotonic_ms: Callable[[], float]) -> list[Family]:
    """Return the families of a broker's client quotas."""
    bytes_of = {"Produce": quotas.produce, "Fetch": quotas.fetch}
    all_of = {**bytes_of, "Request": quotas.request}

    def rate(figures: SensorFigures) -> float:
        return figures.rate

    def throttle(figures: SensorFigures) -> float:
        return figures.throttle_ms

    return [
        Family(
            "kafka_server_quota_byte_rate",
            "Bytes per second over the quota's windows, by client with a quota",
            "gauge",
            lambda: _samples(bytes_of, rate, monotonic_ms()),
        ),
        Family(
            "kafka_server_quota_request_time",
            "Percent of the event loop's time, by client with a quota",
            "gauge",
            lambda: _samples({"Request": quotas.request}, rate, monotonic_ms()),
        ),
        Family(
            "kafka_server_quota_throttle_time",
            "Average milliseconds of a throttled response, by client with a quota",
            "gauge",
            lambda: _samples(all_of, throttle, monotonic_ms()),
        ),
        Family(
            "kafka_server_quota_exempt_request_time",
            "Percent of the event loop's time for requests that no quota applies to, while request quotas exist",
            "gauge",
            lambda: [Sample(quotas.exempt.per_second(monotonic_ms()), {"resource": "Request"})],
        ),
    ]


def _samples(
    managers: dict[str, ClientQuotaManager], value: Callable[[SensorFigures], float], now_ms: float
) -> Iterable[Sample]:
    for resource, manager in managers.items():
        for figures in manager.figures(now_ms, CLIENTS_MAX):
            user, client_id = figures.sharers
            yield Sample(value(figures), {"resource": resource, "user": user or "", "clientId": client_id or ""})
