"""OpenTelemetry's metrics from families and samples.

Every series of `/metrics` becomes a point of a metric of the same name: counters, and the counts and sums of summaries,
become cumulative monotonic sums; gauges and quantiles become gauges.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from broker.metrics.family import Family, Sample

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric, MetricsData

SCOPE: Final = "ottla"
_NO_UNIT: Final = ""


class Points:
    """Collects the samples of one export, up to `max_series`; `dropped` counts samples beyond."""

    def __init__(self, start_ns: int, now_ns: int, max_series: int) -> None:
        self._start_ns = start_ns
        self._now_ns = now_ns
        self._left = max_series
        self._metrics: dict[str, tuple[Family, bool, list[Sample]]] = {}
        self.dropped = 0

    def add(self, family: Family, samples: Sequence[Sample]) -> None:
        """Add some samples of a family."""
        kept = samples[: self._left]
        self.dropped += len(samples) - len(kept)
        self._left -= len(kept)
        for sample in kept:
            is_sum = family.kind == "counter" or bool(sample.suffix)
            self._metrics.setdefault(family.name + sample.suffix, (family, is_sum, []))[2].append(sample)

    def data(self, attributes: Mapping[str, str]) -> "MetricsData":
        """Return everything that was added, of a resource with these attributes. Runs off the event loop."""
        from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        scope = ScopeMetrics(InstrumentationScope(SCOPE), list(self._converted()), "")
        return MetricsData([ResourceMetrics(Resource(dict(attributes)), [scope], "")])

    def _converted(self) -> "Iterable[Metric]":
        from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Metric, NumberDataPoint, Sum

        for name, (family, is_sum, samples) in self._metrics.items():
            points = [
                NumberDataPoint(dict(each.labels), self._start_ns, self._now_ns, float(each.value)) for each in samples
            ]
            data = Sum(points, AggregationTemporality.CUMULATIVE, True) if is_sum else Gauge(points)
            yield Metric(name, family.help, _NO_UNIT, data)
