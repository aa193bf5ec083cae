"""`python -m spark_jobs.metadata_tables.report --tables URI --out FILE`: one HTML page about a cluster's history.

What is shown comes from the queries beside this file; the page holds its plots and needs nothing else.
"""

import html
import io
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import matplotlib as mpl
from matplotlib.figure import Figure
from pyspark.sql import Row, SparkSession

from broker.cli.failure import CommandFailed
from spark_jobs.metadata_tables.views import query, register_tables
from spark_jobs.session import open_session, unavailable_reason
from storage.tiered.store_uri import StoreUriError, parse_store_uri

MAX_ROWS = 50
"""Of each table on the page; which rows come first is for the query to say."""

MAX_DAYS = 30
MAX_BROKERS = 8

_SIZE_INCHES = (8, 3)
_STYLE = """body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
svg { max-width: 100%; height: auto }
table { border-collapse: collapse } th, td { padding: .2rem .8rem; text-align: left; border-bottom: 1px solid #ddd }
td { font-variant-numeric: tabular-nums } p.none { color: #777 }"""


def report(spark: SparkSession, uri: str, now: datetime) -> str:
    """The page, of the tables at a URI as they are now."""
    register_tables(spark, uri)
    sections = [
        _section("Topics and partitions", _growth(_rows(spark, "partition_growth"))),
        _section("In-sync replicas lost, by broker", _shrinks(_rows(spark, "isr_churn"))),
        _section("Who leads", _balance(_rows(spark, "leader_balance"))),
        _section("Partitions whose leader moved most", _table(_rows(spark, "leader_moves"))),
        _section("Under-replicated now", _table(_rows(spark, "under_replicated"))),
        _section("Brokers that were away", _table(_rows(spark, "broker_absences"))),
    ]
    title = "Cluster metadata"
    made = f"<p>Made {now:%Y-%m-%d %H:%M} UTC from the tables in {html.escape(str(parse_store_uri(uri)))}.</p>"
    head = f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>"
    return f"{head}<h1>{title}</h1>{made}{''.join(sections)}</html>\n"


def _rows(spark: SparkSession, name: str) -> list[Row]:
    return spark.sql(query(name)).limit(10_000).collect()


def _section(title: str, body: str) -> str:
    return f"<h2>{html.escape(title)}</h2>{body}"


def _growth(rows: Sequence[Row]) -> str:
    if not rows:
        return _NONE
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    axes = figure.subplots()
    for name in ("partitions", "topics"):
        axes.step([row["hour"] for row in rows], [row[name] for row in rows], where="post", label=name)
    axes.set_ylim(bottom=0)
    axes.legend()
    return _svg(figure)


def _shrinks(rows: Sequence[Row]) -> str:
    """A bar for each of the last days, a part of it for each of the brokers that lost most."""
    if not rows:
        return _NONE
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    axes = figure.subplots()
    days = sorted({row["day"] for row in rows})[-MAX_DAYS:]
    by_broker: dict[str, dict[Any, int]] = {}
    worst = [broker for broker, _ in _totals(rows).most_common(MAX_BROKERS)]
    for row in rows:
        name = f"broker {row['broker']}" if row["broker"] in worst else "others"
        of_broker = by_broker.setdefault(name, {})
        of_broker[row["day"]] = of_broker.get(row["day"], 0) + int(row["shrinks"])
    floor = [0] * len(days)
    for name, by_day in sorted(by_broker.items()):
        heights = [by_day.get(day, 0) for day in days]
        axes.bar([f"{day:%d %b}" for day in days], heights, bottom=floor, label=name)
        floor = [below + height for below, height in zip(floor, heights, strict=True)]
    axes.tick_params(axis="x", rotation=90)
    axes.legend(fontsize="small")
    return _svg(figure)


def _totals(rows: Sequence[Row]) -> Counter[int]:
    totals: Counter[int] = Counter()
    for row in rows:
        totals[row["broker"]] += int(row["shrinks"])
    return totals


def _balance(rows: Sequence[Row]) -> str:
    if not rows:
        return _NONE
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    axes = figure.subplots()
    places = range(len(rows))
    for shift, name, label in ((-0.2, "leads", "leads"), (0.2, "preferred", "is preferred")):
        axes.bar([place + shift for place in places], [row[name] for row in rows], width=0.4, label=label)
    axes.set_xticks(list(places), [str(row["broker"]) for row in rows])
    axes.set_xlabel("broker")
    axes.legend()
    return _svg(figure)


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "ottla", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


def _table(rows: Sequence[Row]) -> str:
    if not rows:
        return _NONE
    names = list(rows[0].asDict())
    head = "".join(f"<th>{html.escape(name.replace('_', ' '))}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(row[name])}</td>' for name in names)}</tr>" for row in rows[:MAX_ROWS])
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return html.escape(", ".join(map(str, value)) if isinstance(value, list) else str(value))


_NONE = "<p class=none>None.</p>"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--tables", required=True, metavar="URI", help="Where the job keeps its tables.")
@click.option("--out", required=True, metavar="FILE", type=click.Path(dir_okay=False), help="The page to write.")
def main(tables: str, out: str) -> None:
    """Write an HTML page about the history of a cluster's metadata: growth, in-sync sets, leaders, absences."""
    try:
        parse_store_uri(tables)
    except StoreUriError as error:
        raise CommandFailed(f"--tables: {error}.") from error
    if (reason := unavailable_reason()) is not None:
        raise CommandFailed(reason)
    spark = open_session("Cluster metadata report")
    try:
        Path(out).write_text(report(spark, tables, datetime.now(UTC)))
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
