"""The client quotas of a broker: bytes produced, bytes fetched, and the time that requests occupy the event loop.

Clients that share a quota share a sensor (KIP-13, KIP-55, KIP-124). A client without a quota has none and costs a few
look-ups; a broker without quotas of a type costs nothing.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.quota_image import QuotaEntity
from broker.metadata.image.quota_precedence import AppliedQuota, Sharers, applied_quota
from broker.rates.sensor_table import Sensor, SensorTable
from broker.rates.windowed_rate import QuotaWindows, WindowedRate
from protocol.lazy_dataclass import lazy_dataclass

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"

_PERCENT_PER_MS: Final = 0.1
"""A loop that is busy for a millisecond is busy for a tenth of a percent of a second."""


class QuotaClient(NamedTuple):
    """A client as quotas see it: the name of its principal, without type, and its client id."""

    user: str
    client_id: str


def quota_client(principal: str, client_id: str | None) -> QuotaClient:
    """Return the client of a request by `principal` (`Type:name`)."""
    return QuotaClient(principal.partition(":")[2], client_id or "")


@lazy_dataclass(frozen=True, slots=True)
class SensorFigures:
    """A sensor at one moment: its clients, their rate per second, and their average throttle time in milliseconds."""

    sharers: Sharers
    rate: float
    throttle_ms: float


class ClientQuotaManager:
    """Measures the clients with a quota of one type. `max_throttle_ms` limits a throttle time, None does not.

    `is_enabled` tells whether any client may have a quota. Times are milliseconds of one monotonic clock.
    """

    def __init__(self, windows: QuotaWindows, max_throttle_ms: int | None = None) -> None:
        self.is_enabled = False
        self._windows = windows
        self._max_throttle_ms = max_throttle_ms
        self._rates: dict[QuotaEntity, float] = {}
        self._sensors: SensorTable[Sharers, Sensor] = SensorTable(partial(Sensor, windows))

    def __len__(self) -> int:
        """Return the number of sensors."""
        return len(self._sensors)

    def set_rate(self, entity: QuotaEntity, rate: float | None) -> None:
        """Set the quota of an entity, None to remove it. The next request of each client meets the new quota."""
        if rate is not None:
            self._rates[entity] = rate
        elif self._rates.pop(entity, None) is not None and not self._rates:
            self._sensors.clear()
        self.is_enabled = bool(self._rates)

    def charge(self, client: QuotaClient, value: float, now_ms: float) -> int:
        """Record a value. Return the milliseconds that the client has to pause for; 0 within its quota."""
        applied = self._applied(client)
        if applied is None:
            return 0
        sensor = self._sensors.get(applied.sharers, now_ms)
        sensor.rate.record(value, now_ms)
        throttle_ms = sensor.rate.throttle_ms(applied.rate, now_ms)
        if self._max_throttle_ms is not None:
            throttle_ms = min(throttle_ms, self._max_throttle_ms)
        return throttle_ms

    def charge_delivery(self, client: QuotaClient, value: float, now_ms: float) -> int:
        """Record a value that is delivered only within the quota; otherwise record nothing and return the pause.

        A value above the whole quota of all windows passes if nothing else counts: it could never be delivered. Kafka
        throttles such a client for ever.

        A sample that begins with a delivery after a refusal begins at the refusal. Kafka's begins at the delivery, so
        each sample counts one response without the pause before it, and a client whose samples hold few responses gets
        less than its quota.
        """
        applied = self._applied(client)
        if applied is None:
            return 0
        sensor = self._sensors.get(applied.sharers, now_ms)
        is_first = sensor.rate.is_empty(now_ms)
        sensor.rate.record(value, now_ms, sensor.refused_ms)
        throttle_ms = sensor.rate.throttle_ms(applied.rate, now_ms)
        if throttle_ms == 0 or is_first:
            sensor.refused_ms = None
            return 0
        sensor.rate.record(-value, now_ms)
        if sensor.refused_ms is None:
            sensor.refused_ms = now_ms
        return throttle_ms

    def take_back(self, client: QuotaClient, value: float, now_ms: float) -> None:
        """Take back a value that was recorded and is not delivered after all."""
        self.record(client, -value, now_ms)

    def record(self, client: QuotaClient, value: float, now_ms: float) -> None:
        """Record a value without throttling; the client's next charge sees it."""
        applied = self._applied(client)
        if applied is not None:
            self._sensors.get(applied.sharers, now_ms).rate.record(value, now_ms)

    def on_throttled(self, client: QuotaClient, throttle_ms: float, now_ms: float) -> None:
        """Note that this quota pauses the client."""
        applied = self._applied(client)
        if applied is not None:
            self._sensors.get(applied.sharers, now_ms).throttles.record(throttle_ms, now_ms)

    def burst(self, client: QuotaClient) -> float | None:
        """Return the value that the client may use at once after a pause; None without a quota."""
        applied = self._applied(client)
        return None if applied is None else applied.rate * self._windows.burst_s

    def figures(self, now_ms: float, limit: int) -> Iterator[SensorFigures]:
        """Yield the `limit` most recently used sensors."""
        for sharers, sensor in self._sensors.recent(limit):
            yield SensorFigures(sharers, sensor.rate.per_second(now_ms), sensor.throttles.average(now_ms))

    def _applied(self, client: QuotaClient) -> AppliedQuota | None:
        if not self._rates:
            return None
        return applied_quota(self._rates.get, client.user, client.client_id)


class BrokerQuotas:
    """The client quotas of a broker. Install as a metadata publisher.

    `request` measures percent of the event loop's time. Exempt requests count in `exempt` alone.
    """

    def __init__(self, windows: QuotaWindows) -> None:
        self.produce = ClientQuotaManager(windows)
        self.fetch = ClientQuotaManager(windows)
        self.request = ClientQuotaManager(windows, max_throttle_ms=windows.size_ms)
        self.exempt = WindowedRate(windows)
        self._by_key = {
            PRODUCER_BYTE_RATE: self.produce,
            CONSUMER_BYTE_RATE: self.fetch,
            REQUEST_PERCENTAGE: self.request,
        }

    @property
    def is_enabled(self) -> bool:
        """Whether any client may have a quota of any type."""
        return self.produce.is_enabled or self.fetch.is_enabled or self.request.is_enabled

    def on_metadata(self, delta: MetadataDelta, _image: MetadataImage) -> None:
        """Apply changed quotas."""
        if delta.client_quotas is None:
            return
        for entity, changes in delta.client_quotas.changes.items():
            for key, rate in changes.items():
                manager = self._by_key.get(key)
                if manager is not None:
                    manager.set_rate(entity, rate)


def percent_of_loop(busy_ms: float) -> float:
    """Return the time that a request occupied the event loop as the request quota counts it: percent of a second."""
    return busy_ms * _PERCENT_PER_MS
