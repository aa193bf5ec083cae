"""Renders metric families in Prometheus' text format, through a collector for prometheus_client.

prometheus_client is imported at the first scrape: it costs tens of milliseconds of start-up and a few megabytes, which
a node without monitoring does not need.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

from broker.metrics.family import Family, Sample

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SAMPLES_PER_SLICE = 100  # about a millisecond of rendering before the event loop runs other callbacks


class Exposition:
    """Renders `families`, prometheus_client's own metrics about the process and its garbage collector, and `more`.

    `more` returns families whose names are known only at a scrape. Their names must differ from all others.
    """

    def __init__(self, families: Sequence[Family], more: Callable[[], Iterable[Family]] | None = None) -> None:
        names = [family.name for family in families]
        assert len(names) == len(set(names)), "two families of one name"
        self._families = families
        self._more = more
        self._process: CollectorRegistry | None = None

    async def render(self) -> bytes:
        """Render the page. Other callbacks run between slices, so values are not all of one instant."""
        from prometheus_client.exposition import generate_latest

        parts = [generate_latest(self._process_registry())]
        for family in chain(self._families, () if self._more is None else self._more()):
            samples = iter(family.read())
            parts.append(generate_latest(_Slice(family, list(islice(samples, SAMPLES_PER_SLICE)))))
            await asyncio.sleep(0)
            while more := list(islice(samples, SAMPLES_PER_SLICE)):
                parts.append(_without_head(generate_latest(_Slice(family, more))))
                await asyncio.sleep(0)
        return b"".join(parts)

    async def read(self) -> AsyncIterator[tuple[Family, Sequence[Sample]]]:
        """Yield the samples of every family in slices, those of the process first. Other callbacks run in between."""
        more = () if self._more is None else self._more()
        for family in chain(_process_families(self._process_registry()), self._families, more):
            samples = iter(family.read())
            while piece := list(islice(samples, SAMPLES_PER_SLICE)):
                yield family, piece
                await asyncio.sleep(0)

    def _process_registry(self) -> "CollectorRegistry":
        if self._process is None:
            from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector

            self._process = CollectorRegistry()
            ProcessCollector(registry=self._process)
            GCCollector(registry=self._process)
        return self._process


def rendered(families: Iterable[Family]) -> bytes:
    """Render a small page at once, for a process without event loop."""
    from prometheus_client.exposition import generate_latest

    return b"".join(generate_latest(_Slice(family, list(family.read()))) for family in families)


def _process_families(registry: "CollectorRegistry") -> Iterator[Family]:
    """Yield prometheus_client's own metrics as families."""
    for metric in registry.collect():
        samples = [Sample(each.value, each.labels) for each in metric.samples]
        if metric.type == "counter":
            yield Family(f"{metric.name}_total", metric.documentation, "counter", partial(iter, samples))
        else:
            yield Family(metric.name, metric.documentation, "gauge", partial(iter, samples))


class _Slice:
    """A collector of some samples of one family, for prometheus_client."""

    def __init__(self, family: Family, samples: list[Sample]) -> None:
        self._family = family
        self._samples = samples

    def collect(self) -> "Iterable[Metric]":
        """Yield the samples as prometheus_client's collector interface requires."""
        from prometheus_client.core import Metric

        name = self._family.name
        metric = Metric(name.removesuffix("_total"), self._family.help, self._family.kind)
        for sample in self._samples:
            metric.add_sample(name + sample.suffix, dict(sample.labels), sample.value)
        yield metric


def _without_head(text: bytes) -> bytes:
    """Return the values without the HELP and TYPE lines, which a page has once per family."""
    return text.split(b"\n", 2)[2]
