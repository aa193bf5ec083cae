"""The page `docs/benchmarks.md` and its plots, from the details of the last run."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.benchmarks.report.files import GroupResult, Report
from tests.benchmarks.report.plots import advantages
from tests.benchmarks.report.reasons import reason_for
from tests.benchmarks.report.rows import Row, Spread

IMAGES: Final = "images"
OTHER: Final = "(against "
"""Mark in the names of rows that compare with something else than Apache Kafka."""
INTRODUCTION: Final = """# Benchmarks

`make bench` measures Ottla and Apache Kafka in one run, on one machine, with the same clients; `python -m
tests.benchmarks.report` writes this page from its result. Runs of both alternate, the first of each is discarded, and a
figure is the median of the others; in brackets the lowest and the highest. Clients and brokers share the cores. The
share of user time in the processor time of the brokers stands after the slash. The three nodes of an Ottla
cluster run under `ottla.scheduling.policy=batch`, as `ottla cluster` starts them; Apache Kafka's nodes keep the
system's default policy. Rows that compare with something else name it after "against"; its figure stands in the column
of Apache Kafka. [Performance](performance.md) says what the figures mean.
"""


def write_page(report: Report, docs: Path) -> Path:
    """Write the page and one plot per group with figures of both brokers; return the path of the page."""
    images = docs / IMAGES
    images.mkdir(parents=True, exist_ok=True)
    for old in images.glob("benchmark-*.svg"):
        old.unlink()
    for group in report.groups:
        if any(row.advantage for row in group.rows):
            (images / _image(group)).write_text(advantages(group.name, group.rows))
    page = docs / "benchmarks.md"
    page.write_text("\n".join(_lines(report)) + "\n")
    return page


def _lines(report: Report) -> Iterator[str]:
    yield INTRODUCTION
    yield from ["| | |", "|---|---|"]
    yield from (f"| {topic} | {fact} |" for topic, fact in report.facts.items())
    yield from _losses(report.rows)
    for group in report.groups:
        yield from ["", f"## {group.name}", ""]
        if group.failure:
            yield from [f"The group failed: `{group.failure}`", ""]
        if any(row.advantage for row in group.rows):
            yield from [f"![{group.name}: times better than Apache Kafka]({IMAGES}/{_image(group)})", ""]
        yield from _table(group.rows)
        yield from ["", f"The group took {group.seconds / 60:.1f} min; counted runs of a row: {_runs(group)}."]


def _runs(group: GroupResult) -> str:
    return " or ".join(map(str, sorted({row.runs for row in group.rows}))) or "none"


def _losses(rows: Iterable[Row]) -> Iterator[str]:
    """Yield the rows on which Apache Kafka is better, worst first, each with the reason and the next idea."""
    compared = [row for row in rows if OTHER not in row.name]
    lost = [(row.advantage, row) for row in compared if row.advantage is not None and row.advantage < 1]
    lost.sort(key=lambda each: each[0])
    yield from ["", "## Where Apache Kafka is better", ""]
    if not lost:
        yield "In no row."
        return
    yield from ["| | Ottla | Apache Kafka | ratio | reason | next idea |", "|---|---:|---:|---:|---|---|"]
    for _, row in lost:
        reason = reason_for(row.name)
        figures = f"{_figure(row.ottla)} {row.unit} | {_figure(row.kafka)} {row.unit} | {row.ratio}"
        yield f"| {row.name} | {figures} | {reason.reason} | {reason.idea} |"


def _table(rows: Sequence[Row]) -> Iterator[str]:
    yield from ["| | Ottla | Apache Kafka | unit | ratio | better |", "|---|---:|---:|---|---:|---|"]
    for row in rows:
        sides = (
            _with_spread(figure, spread) + _user(row, broker)
            for broker, figure, spread in (
                ("ottla", row.ottla, row.ottla_spread),
                ("kafka", row.kafka, row.kafka_spread),
            )
        )
        ratio = "" if row.ratio is None else str(row.ratio)
        yield f"| {row.name} | {' | '.join(sides)} | {row.unit} | {ratio} | {row.better} |"


def _with_spread(figure: float | None, spread: Spread | None) -> str:
    if figure is None:
        return ""
    several = spread is not None and spread[0] != spread[1]
    return _figure(figure) + (f" ({_figure(spread[0])}–{_figure(spread[1])})" if spread and several else "")


def _user(row: Row, broker: str) -> str:
    return f" / {row.user[broker]:.0%}" if row.user and broker in row.user else ""


def _figure(figure: float | None) -> str:
    """Return three digits that count, without an exponent."""
    if figure is None:
        return ""
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"


def _image(group: GroupResult) -> str:
    return f"benchmark-{re.sub('[^a-z0-9]+', '-', group.name.lower()).strip('-')}.svg"
