"""RequestMetrics: counts, times and errors of requests by API."""

from collections.abc import Callable, Iterable

from broker.metrics.family import Family, Sample
from broker.metrics.histogram import Histogram
from protocol.api_keys import API_BY_KEY
from protocol.errors import ErrorCode

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)  # the quantiles that Kafka's histograms export
ROTATION_MS = 60_000.0  # quantiles cover the last one to two of these periods

_PREFIX = "kafka_network_requestmetrics_"


class _Route:
    """An API in one version."""

    __slots__ = ("count", "times")

    def __init__(self, times: Histogram) -> None:
        self.count = 0
        self.times = times


class RequestMetrics:
    """Counts requests that were answered, or that need no answer. Only served versions may be counted."""

    __slots__ = ("_errors", "_monotonic_ms", "_rotated_ms", "_routes", "_times")

    def __init__(self, monotonic_ms: Callable[[], float]) -> None:
        self._monotonic_ms = monotonic_ms
        self._rotated_ms = monotonic_ms()
        self._routes: dict[tuple[int, int], _Route] = {}
        self._times: dict[int, Histogram] = {}  # microseconds, by API
        self._errors: dict[tuple[int, int], int] = {}

    def on_request(self, api_key: int, api_version: int, elapsed_ms: float) -> None:
        """Count a request that was done `elapsed_ms` after its frame was complete."""
        route = self._routes.get((api_key, api_version))
        if route is None:
            times = self._times.setdefault(api_key, Histogram())
            route = self._routes[api_key, api_version] = _Route(times)
        route.count += 1
        route.times.record(int(elapsed_ms * 1000))

    def on_error(self, api_key: int, code: int) -> None:
        """Count a request that failed as a whole."""
        key = (api_key, code)
        self._errors[key] = self._errors.get(key, 0) + 1

    def families(self) -> list[Family]:
        """Return counts by API and version, times by API, errors by API and code."""
        return [
            Family(f"{_PREFIX}requests_total", "Requests by API and version", "counter", self._read_counts),
            Family(
                f"{_PREFIX}errors_total",
                "Requests that failed as a whole, by API and error",
                "counter",
                self._read_errors,
            ),
            Family(
                f"{_PREFIX}totaltimems",
                "Milliseconds from a complete request to its response; quantiles over the last minute or two",
                "summary",
                self._read_times,
            ),
        ]

    def _read_counts(self) -> Iterable[Sample]:
        for (api_key, version), route in list(self._routes.items()):
            yield Sample(route.count, {"request": API_BY_KEY[api_key].name, "version": str(version)})

    def _read_errors(self) -> Iterable[Sample]:
        for (api_key, code), count in list(self._errors.items()):
            yield Sample(count, {"request": API_BY_KEY[api_key].name, "error": ErrorCode(code).name})

    def _read_times(self) -> Iterable[Sample]:
        for api_key, times in list(self._times.items()):
            labels = {"request": API_BY_KEY[api_key].name}
            for quantile, micros in zip(QUANTILES, times.quantiles(QUANTILES), strict=True):
                yield Sample(micros / 1000, {**labels, "quantile": str(quantile)})
            yield Sample(times.count, labels, "_count")
            yield Sample(times.total / 1000, labels, "_sum")
        self._rotate_when_due()

    def _rotate_when_due(self) -> None:
        """Rotate the histograms on reading, so that recording needs no clock. Quantiles of rare readers cover a longer
        time.
        """
        now_ms = self._monotonic_ms()
        if now_ms - self._rotated_ms >= ROTATION_MS:
            self._rotated_ms = now_ms
            for times in self._times.values():
                times.rotate()
