"""Sensors by client: created when needed, dropped an hour after their last use, and limited in number."""

from collections.abc import Callable, Hashable, Iterator
from itertools import islice
from typing import Final, Generic, TypeVar

from broker.rates.windowed_rate import QuotaWindows, WindowedRate

SENSOR_EXPIRATION_MS: Final = 3_600_000
SENSORS_MAX: Final = 10_000
_AVERAGE_MS: Final = 30_000

K = TypeVar("K", bound=Hashable)
S = TypeVar("S", bound="Sensor")


class RecentAverage:
    """The average of values of the last 30 to 60 seconds (Kafka: `Avg` over 2 samples of 30 s)."""

    __slots__ = ("_began_ms", "_count", "_former", "_sum")

    def __init__(self) -> None:
        self._began_ms = 0.0
        self._count, self._sum = 0, 0.0
        self._former = (0, 0.0)

    def record(self, value: float, now_ms: float) -> None:
        """Add a value."""
        self._advance(now_ms)
        self._count += 1
        self._sum += value

    def average(self, now_ms: float) -> float:
        """Return the average, 0 without values."""
        self._advance(now_ms)
        count = self._count + self._former[0]
        return (self._sum + self._former[1]) / count if count else 0.0

    def _advance(self, now_ms: float) -> None:
        age_ms = now_ms - self._began_ms
        if age_ms >= _AVERAGE_MS:
            self._former = (self._count, self._sum) if age_ms < 2 * _AVERAGE_MS else (0, 0.0)
            self._count, self._sum = 0, 0.0
            self._began_ms = now_ms


class Sensor:
    """The measurements of clients that share a quota: their rate, and their throttle times in milliseconds.

    `refused_ms` is the time of the first refusal since the last delivery, None without one.
    """

    __slots__ = ("rate", "refused_ms", "throttles", "used_ms")

    def __init__(self, windows: QuotaWindows) -> None:
        self.rate = WindowedRate(windows)
        self.refused_ms: float | None = None
        self.throttles = RecentAverage()
        self.used_ms = 0.0


class SensorTable(Generic[K, S]):
    """Sensors by key, made by `new_sensor`. All operations take amortized constant time.

    A sensor expires an hour after its last use, as in Kafka.

    The least recently used sensor is dropped where there are more than `SENSORS_MAX`: its clients begin with an empty
    window.
    """

    def __init__(self, new_sensor: Callable[[], S]) -> None:
        self._new_sensor = new_sensor
        self._sensors: dict[K, S] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sensors)

    def get(self, key: K, now_ms: float) -> S:
        """Return the sensor of a key."""
        sensors = self._sensors
        sensor = sensors.pop(key, None)
        if sensor is None:
            self._expire(now_ms)
            sensor = self._new_sensor()
        sensors[key] = sensor
        sensor.used_ms = now_ms
        return sensor

    def recent(self, limit: int) -> Iterator[tuple[K, S]]:
        """Yield the `limit` most recently used sensors, of a copy made now."""
        return iter(list(islice(reversed(self._sensors.items()), limit)))

    def clear(self) -> None:
        """Drop all sensors."""
        self._sensors.clear()

    def _expire(self, now_ms: float) -> None:
        """Drop unused sensors, and make room for one more."""
        sensors = self._sensors
        while sensors:
            oldest = next(iter(sensors))
            if len(sensors) < SENSORS_MAX and now_ms - sensors[oldest].used_ms < SENSOR_EXPIRATION_MS:
                return
            del sensors[oldest]
