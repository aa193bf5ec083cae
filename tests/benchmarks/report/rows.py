"""Rows of the report: one figure of Ottla beside Apache Kafka's, with the spread of the runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol, TypeVar

DIGITS = 3
USER = ":user"
"""End of the name of a figure that is the user part of the processor time of the figure before the colon."""

Spread = tuple[float, float]


class Named(Protocol):
    """One side of a comparison: "ottla" or "kafka"."""

    @property
    def name(self) -> str: ...


S = TypeVar("S", bound=Named)
S_contra = TypeVar("S_contra", bound=Named, contravariant=True)


class Workload(Protocol[S_contra]):
    """A workload. `figures` has the names of the results of `run`, with unit and better direction."""

    figures: dict[str, tuple[str, str]]

    def run(self, side: S_contra, /) -> Mapping[str, float]:
        """Run once; return each figure."""
        ...


@dataclass(frozen=True)
class Row:
    """One row of the report. A figure is the median of the runs, None where a broker has none.

    Spreads are the lowest and the highest run, None for a single run. `user` is the share of user time in processor
    time, by broker. `runs`: counted runs a side.
    """

    name: str
    ottla: float | None
    kafka: float | None
    unit: str
    better: str
    ottla_spread: Spread | None = None
    kafka_spread: Spread | None = None
    user: Mapping[str, float] | None = None
    runs: int = 1

    @property
    def ratio(self) -> float | None:
        """Return Ottla's figure divided by Kafka's."""
        return None if self.ottla is None or not self.kafka else round(self.ottla / self.kafka, DIGITS)

    @property
    def advantage(self) -> float | None:
        """Return how many times better Ottla's figure is; below 1, Apache Kafka's is better."""
        ratio = self.ratio
        if not ratio:
            return None
        return ratio if self.better == "higher" else 1 / ratio


def once(name: str, ottla: float | None, kafka: float | None, unit: str, better: str) -> Row:
    """Return the row of a figure that was measured once a side."""
    return Row(name, _rounded(ottla), _rounded(kafka), unit, better)


def compared(workload: Workload[S], sides: Sequence[S], runs: int, *, warm_up: bool = True) -> list[Row]:
    """Run a workload `runs` times on each side, alternately, after a run of each that does not count with `warm_up`;
    print and return its rows.
    """
    results: dict[str, list[Mapping[str, float]]] = {side.name: [] for side in sides}
    for number in range(runs + warm_up):
        for side in sides:
            figures = workload.run(side)
            if number >= warm_up:
                results[side.name].append(figures)
    rows = of_runs(workload.figures, results)
    for row in rows:
        print(f"{row.name}: {row.ottla} against {row.kafka} {row.unit}", flush=True)
    return rows


def of_runs(figures: Mapping[str, tuple[str, str]], results: Mapping[str, Sequence[Mapping[str, float]]]) -> list[Row]:
    """Return the rows of `figures` (unit and better direction by name) from the results of each run, by broker."""
    return [_of_runs(name, unit, better, results) for name, (unit, better) in figures.items()]


def _of_runs(name: str, unit: str, better: str, results: Mapping[str, Sequence[Mapping[str, float]]]) -> Row:
    runs = {broker: [run[name] for run in each] for broker, each in results.items() if each}
    medians = {broker: median(each) for broker, each in runs.items()}
    spreads = {broker: (round(min(each), DIGITS), round(max(each), DIGITS)) for broker, each in runs.items()}
    user = {
        broker: round(median(run[name + USER] / run[name] for run in each), 2)
        for broker, each in results.items()
        if each and all(run.get(name + USER) and run[name] for run in each)
    }
    return Row(
        name,
        _rounded(medians.get("ottla")),
        _rounded(medians.get("kafka")),
        unit,
        better,
        spreads.get("ottla"),
        spreads.get("kafka"),
        user or None,
        max(map(len, results.values())),
    )


def _rounded(figure: float | None) -> float | None:
    return None if figure is None else round(figure, DIGITS)
