"""The last values of the metrics that clients pushed, limited in number.

A series is a metric of one client instance with its attributes. Deltas are added up, so that a counter grows like any
other. A series above the limit is dropped and counted; series leave with their client instance.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from broker.telemetry.otlp import NumberPoint
from protocol.primitives import Uuid

SERIES_PER_CLIENT_MAX: Final = 500
TEXT_MAX: Final = 200
"""Characters of names and attributes; the rest is cut off."""

CLIENT_LABELS: Final = ("client_instance_id", "client_id", "client_software_name", "client_software_version")
"""Labels that name the client; attributes of these names are ignored."""

_KAFKA_PREFIX: Final = "org.apache.kafka."
_NOT_IN_A_NAME: Final = re.compile(r"[^a-zA-Z0-9_]+")

SeriesKey = tuple[str, tuple[tuple[str, str], ...]]


class ClientSeries(NamedTuple):
    """One series: the metric's name in Prometheus' form, its labels, its value."""

    name: str
    is_counter: bool
    labels: Mapping[str, str]
    value: float


class _Value:
    __slots__ = ("is_counter", "value")

    def __init__(self, *, is_counter: bool) -> None:
        self.is_counter = is_counter
        self.value = 0.0


class _Client:
    __slots__ = ("labels", "series")

    def __init__(self, labels: Mapping[str, str]) -> None:
        self.labels = labels
        self.series: dict[SeriesKey, _Value] = {}


class ReceivedMetrics:
    """The series of all clients, `series_max` at most, and `SERIES_PER_CLIENT_MAX` of one client."""

    def __init__(self, series_max: int) -> None:
        self._series_max = series_max
        self._clients: dict[Uuid, _Client] = {}
        self.count = 0
        self.dropped = 0
        """Points that were dropped for a limit, since the start."""

    def add(self, client_id: Uuid, labels: Mapping[str, str], points: Iterable[NumberPoint]) -> None:
        """Take the points of one push by the client with these labels."""
        client = self._clients.get(client_id)
        if client is None:
            client = self._clients[client_id] = _Client(labels)
        for point in points:
            key = (_metric_name(point), tuple(sorted(_labels(point.attributes).items())))
            series = client.series.get(key)
            if series is None:
                if self.count >= self._series_max or len(client.series) >= SERIES_PER_CLIENT_MAX:
                    self.dropped += 1
                    continue
                series = client.series[key] = _Value(is_counter=point.is_counter)
                self.count += 1
            series.value = series.value + point.value if point.is_delta else point.value

    def forget(self, client_id: Uuid) -> None:
        """Drop the series of a client."""
        client = self._clients.pop(client_id, None)
        if client is not None:
            self.count -= len(client.series)

    def series(self) -> Iterator[ClientSeries]:
        """Yield the series, of a copy made now."""
        for client in list(self._clients.values()):
            for (name, labels), series in list(client.series.items()):
                yield ClientSeries(name, series.is_counter, {**dict(labels), **client.labels}, series.value)


def _metric_name(point: NumberPoint) -> str:
    """Return `kafka_client_…`; the names of counters alone end in `_total`."""
    short = _NOT_IN_A_NAME.sub("_", point.name.removeprefix(_KAFKA_PREFIX)[:TEXT_MAX]).strip("_")
    stem = f"kafka_client_{short}".removesuffix("_total")
    return f"{stem}_total" if point.is_counter else stem


def _labels(attributes: Mapping[str, str]) -> dict[str, str]:
    labels = {}
    for key, value in attributes.items():
        name = _NOT_IN_A_NAME.sub("_", key[:TEXT_MAX]).strip("_")
        if name and not name[0].isdigit() and name not in CLIENT_LABELS:
            labels[name] = value[:TEXT_MAX]
    return labels
