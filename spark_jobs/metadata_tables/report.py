"""`python -m spark_jobs.metadata_tables.report --tables URI --out FILE`: one HTML page about a cluster's history.

The data comes from the queries beside this file; the page contains its plots and needs no other file. Times are UTC.
The page of a large cluster shows the most notable rows and says that others are left out.
"""

import html
import io
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click
import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from spark_jobs.metadata_tables.opening import session_of
from spark_jobs.metadata_tables.views import query, register_tables
from storage.tiered.loading.store_uri import parse_store_uri

MAX_ROWS: Final = 50
"""Rows of each table on the page; the query decides on their order."""

MAX_HOURS: Final = 5_000
MAX_DAYS: Final = 30
MAX_BROKERS: Final = 8
"""Number of brokers with a colour of their own."""
MAX_BARS: Final = 40

_SIZE_INCHES: Final = (8, 3)
_TALL_INCHES: Final = (8, 4.5)
_STYLE: Final = """body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
svg { max-width: 100%; height: auto } section { overflow-x: auto }
table { border-collapse: collapse } th, td { padding: .2rem .8rem; text-align: left; border-bottom: 1px solid #ddd }
td { font-variant-numeric: tabular-nums } p.note { color: #666 }"""
_NONE: Final = "<p class=note>None.</p>"


def report(spark: SparkSession, uri: str, now: datetime) -> str:
    """Return the page for the tables at a URI as of now."""
    register_tables(spark, uri)
    with mpl.rc_context({"date.converter": "concise", "timezone": "UTC"}):
        sections = _sections(spark, now)
    title = "Cluster metadata"
    place = html.escape(str(parse_store_uri(uri)))
    made = f"<p>Generated {now:%Y-%m-%d %H:%M} UTC from the tables in {place}. All times are UTC.</p>"
    head = (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{title}</title><style>{_STYLE}</style>"
    )
    return f"{head}<h1>{title}</h1>{made}{''.join(sections)}</html>\n"


def _sections(spark: SparkSession, now: datetime) -> list[str]:
    return [
        _section(
            "Topics and partitions", growth_plot(_latest(_found(spark, "partition_growth"), "hour", MAX_HOURS), now)
        ),
        _section("Replicas that left in-sync sets, by broker", shrinks_plot(_last_days(_found(spark, "isr_churn")))),
        _section("Who leads", balance_plot(_found(spark, "leader_balance").collect())),
        _section("Partitions with the most leader changes", table_of(_first(_found(spark, "leader_moves")))),
        _section("Under-replicated now", table_of(_first(_found(spark, "under_replicated")))),
        _section("Broker absences, the latest first", table_of(_first(_found(spark, "broker_absences")))),
    ]


def _found(spark: SparkSession, name: str) -> DataFrame:
    return spark.sql(query(name))


def _latest(frame: DataFrame, time: str, count: int) -> list[Row]:
    """Return the last `count` rows, in order."""
    return frame.orderBy(F.desc(time)).limit(count).collect()[::-1]


def _last_days(churn: DataFrame) -> list[Row]:
    """Return the rows of the last days with data."""
    lost = churn.where("shrinks > 0")
    last: date | None = lost.agg(F.max("day")).collect()[0][0]
    return [] if last is None else lost.where(F.col("day") > last - timedelta(days=MAX_DAYS)).collect()


def _first(frame: DataFrame) -> list[Row]:
    """Return the rows to show, and one more if there are more."""
    return frame.limit(MAX_ROWS + 1).collect()


def _section(title: str, body: str) -> str:
    return f"<section><h2>{html.escape(title)}</h2>{body}</section>"


def _note(text: str) -> str:
    return f"<p class=note>{html.escape(text)}</p>"


# -- plots -------------------------------------------------------------------------------------------------------------


def growth_plot(rows: Sequence[Row], now: datetime) -> str:
    """Plot the growth up to now, so that a single old change is a line too."""
    if not rows:
        return _NONE
    figure = Figure(figsize=_TALL_INCHES, layout="constrained")
    hours = [row["hour"].astimezone(UTC) for row in rows]
    end = max(now, hours[-1] + timedelta(hours=1))
    upper, lower = figure.subplots(2, sharex=True)
    for axes, name in ((upper, "topics"), (lower, "partitions")):
        counts = [row[name] for row in rows]
        axes.step([*hours, end], [*counts, counts[-1]], where="post")
        axes.set_ylim(bottom=0)
        _count(axes, name)
    lower.set_xlabel("time (UTC)")
    return _svg(figure, "Number of topics and partitions over time")


def shrinks_plot(rows: Sequence[Row]) -> str:
    """Plot a bar for each of the last days, divided by the brokers that lost most."""
    if not rows:
        return _NONE
    totals: Counter[int] = Counter()
    for row in rows:
        totals[row["broker"]] += int(row["shrinks"])
    worst = [broker for broker, _ in totals.most_common(MAX_BROKERS)]
    last = max(row["day"] for row in rows)
    days = [last - timedelta(days=ago) for ago in reversed(range(MAX_DAYS))]
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    axes = figure.subplots()
    floor = [0] * len(days)
    for name, mine in [*((f"broker {each}", {each}) for each in worst), ("others", totals.keys() - set(worst))]:
        by_day: Counter[date] = Counter()
        for row in rows:
            by_day[row["day"]] += int(row["shrinks"]) if row["broker"] in mine else 0
        heights = [by_day[day] for day in days]
        if any(heights):
            axes.bar(days, heights, bottom=floor, label=name)
        floor = [below + height for below, height in zip(floor, heights, strict=True)]
    _count(axes, "replicas that left")
    axes.set_xlabel("day (UTC)")
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    return _svg(figure, "Replicas that left in-sync sets, by day and broker")


def balance_plot(rows: Sequence[Row]) -> str:
    if not rows:
        return _NONE
    shown = sorted(sorted(rows, key=lambda row: -max(row["leads"], row["preferred"]))[:MAX_BARS])
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    axes = figure.subplots()
    places = range(len(shown))
    for shift, name, label in (
        (-0.2, "leads", "leads"),
        (0.2, "preferred", "preferred leader"),
    ):
        axes.bar([place + shift for place in places], [row[name] for row in shown], width=0.4, label=label)
    axes.set_xticks(list(places), [str(row["broker"]) for row in shown], rotation=90 if len(shown) > 20 else 0)
    axes.set_xlabel("broker")
    _count(axes, "partitions")
    figure.legend(fontsize="small", loc="outside upper right", ncols=2)
    leads = [row["leads"] for row in rows]
    summary = f"{len(rows)} brokers lead {sum(leads)} partitions, each from {min(leads)} to {max(leads)}."
    left_out = f" The {MAX_BARS} brokers with the most partitions are shown." if len(rows) > MAX_BARS else ""
    return _svg(figure, "Partitions that each broker leads") + _note(summary + left_out)


def _count(axes: Axes, label: str) -> None:
    axes.set_ylabel(label)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins="auto"))


def _svg(figure: Figure, what: str) -> str:
    text = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": what, "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    body = text.getvalue()[text.getvalue().index("<svg") :]
    return body.replace("<svg", f'<svg role="img" aria-label="{html.escape(what)}"', 1)


# -- tables ------------------------------------------------------------------------------------------------------------


def table_of(rows: Sequence[Row]) -> str:
    if not rows:
        return _NONE
    names = list(rows[0].asDict())
    head = "".join(f"<th>{html.escape(name.replace('_', ' '))}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(row[name])}</td>' for name in names)}</tr>" for row in rows[:MAX_ROWS])
    more = _note(f"Only the first {MAX_ROWS} rows are shown.") if len(rows) > MAX_ROWS else ""
    return f"<table><tr>{head}</tr>{body}</table>{more}"


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
        case timedelta():
            return str(timedelta(seconds=round(value.total_seconds())))
        case list():
            return html.escape(", ".join(map(str, value)))
        case _:
            return html.escape(str(value))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--tables", required=True, metavar="URI", help="Location of the job's tables.")
@click.option("--out", required=True, metavar="FILE", type=click.Path(dir_okay=False), help="The page to write.")
def main(tables: str, out: str) -> None:
    """Write an HTML page about the history of a cluster's metadata: growth, in-sync replicas, leaders, absences."""
    with session_of(tables, "Cluster metadata report") as spark:
        Path(out).write_text(report(spark, tables, datetime.now(UTC)), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
