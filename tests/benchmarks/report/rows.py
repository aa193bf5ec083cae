"""Rows of the report: one figure of Ottla beside Apache Kafka's, with the spread of the runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

DIGITS = 3
USER = ":user"
"""End of the name of a figure that is the user part of the processor time of the figure before the colon."""

Spread = tuple[float, float]


@dataclass(frozen=True)
class Row:
    """One row of the report. A figure is the median of the runs, None where a broker has none.

    Spreads are the lowest and the highest run, None for a single run. `user` is the share of user time in processor
    time, by broker.
    """

    name: str
    ottla: float | None
    kafka: float | None
    unit: str
    better: str
    ottla_spread: Spread | None = None
    kafka_spread: Spread | None = None
    user: Mapping[str, float] | None = None

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
    )


def _rounded(figure: float | None) -> float | None:
    return None if figure is None else round(figure, DIGITS)
