"""Limits on new connections per second: of a broker, of a listener, and of an address (KIP-612).

A listener above its own or the broker's rate pauses. An address above its rate is refused, and its connection counts
for no rate. No pause is longer than one window. The listener between brokers is exempt from the broker's rate.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final

from broker.rates.sensor_table import RecentAverage, Sensor, SensorTable
from broker.rates.windowed_rate import QuotaWindows, WindowedRate

UNLIMITED: Final = 2**31 - 1


class ListenerRate:
    """The connections of one listener: their rate, and the pauses for its limits and for those of addresses."""

    __slots__ = ("host_throttles", "limit", "rate", "throttles")

    def __init__(self, windows: QuotaWindows) -> None:
        self.limit: float = UNLIMITED
        self.rate = WindowedRate(windows)
        self.throttles = RecentAverage()
        self.host_throttles = RecentAverage()


class ConnectionRates:
    """Rates of one server. Times are milliseconds of one monotonic clock."""

    def __init__(self, windows: QuotaWindows, *, exempt_listener: str | None = None) -> None:
        self.limit: float = UNLIMITED
        self.default_host_limit: float = UNLIMITED
        self.rate = WindowedRate(windows)
        self._windows = windows
        self._exempt = exempt_listener
        self._listeners: dict[str, ListenerRate] = {}
        self._host_limits: dict[str, float] = {}
        self._hosts: SensorTable[str, Sensor] = SensorTable(partial(Sensor, windows))

    def listener(self, name: str) -> ListenerRate:
        """Return the rate of a listener."""
        found = self._listeners.get(name)
        if found is None:
            found = self._listeners[name] = ListenerRate(self._windows)
        return found

    def listeners(self) -> Iterator[tuple[str, ListenerRate]]:
        """Yield the listeners with connections or limits."""
        return iter(list(self._listeners.items()))

    def set_host_limit(self, host: str, limit: float | None) -> None:
        """Set the limit of an address, None to return to the default."""
        if limit is None:
            self._host_limits.pop(host, None)
        else:
            self._host_limits[host] = limit

    def host_limit(self, host: str) -> float:
        """Return the limit of an address."""
        return self._host_limits.get(host, self.default_host_limit)

    def admit(self, listener: str, host: str, now_ms: float) -> tuple[int, int]:
        """Count a new connection. Return the pauses of its listener and of its address, 0 within the limits.

        If the address has to pause, the connection must not be served, and counts for no rate.
        """
        own = self.listener(listener)
        own.rate.record(1, now_ms)
        pause_ms = self._pause_ms(own.rate, own.limit, now_ms)
        if listener != self._exempt:
            self.rate.record(1, now_ms)
            pause_ms = max(pause_ms, self._pause_ms(self.rate, self.limit, now_ms))
        limit = self.host_limit(host)
        if limit >= UNLIMITED:
            host_pause_ms = 0
        else:
            rate = self._hosts.get(host, now_ms).rate
            rate.record(1, now_ms)
            host_pause_ms = self._pause_ms(rate, limit, now_ms)
            if host_pause_ms:
                rate.record(-1, now_ms)
        if host_pause_ms:
            own.rate.record(-1, now_ms)
            if listener != self._exempt:
                self.rate.record(-1, now_ms)
            own.host_throttles.record(host_pause_ms, now_ms)
            return 0, host_pause_ms
        if pause_ms:
            own.throttles.record(pause_ms, now_ms)
        return pause_ms, 0

    def _pause_ms(self, rate: WindowedRate, limit: float, now_ms: float) -> int:
        if limit >= UNLIMITED:
            return 0
        if limit <= 0:
            return self._windows.size_ms
        return min(rate.throttle_ms(limit, now_ms), self._windows.size_ms)
