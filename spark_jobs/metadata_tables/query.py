"""`python -m spark_jobs.metadata_tables.query`: run an example query or a given query on the tables."""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click
from pyspark.sql import SparkSession

from broker.cli.shared.output import print_columns, print_json, width_of
from spark_jobs.metadata_tables.opening import session_of
from spark_jobs.metadata_tables.views import QUERIES, query

_PARAMETER: Final = re.compile(r"(?<![:\w]):([a-z_]+)\b")
_COMMENT: Final = re.compile(r"^\s*--\s*(.*)$", re.MULTILINE)
_LITERAL: Final = re.compile(r"'[^']*'")


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.argument("example", required=False)
@click.option("--tables", metavar="URI", help="Location of the job's tables.")
@click.option("--sql", metavar="SQL", help="A query in Spark SQL instead of an example.")
@click.option("--param", "given", multiple=True, metavar="NAME=VALUE", help="Value of :NAME in the query.")
@click.option("--limit", type=click.IntRange(1), default=1000, show_default=True, help="Maximum rows to print.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects.")
def main(
    example: str | None, tables: str | None, sql: str | None, given: tuple[str, ...], limit: int, as_json: bool
) -> None:
    """Query the history of a cluster's metadata. Without EXAMPLE and --sql, list the examples.

    Views are changes, topics, partitions, brokers, configs, acls, quotas, features, and <table>_now for the current
    state. Times are UTC.
    """
    if example is None and sql is None:
        _print_examples()
        return
    if example is not None and sql is not None:
        raise click.UsageError("An example and --sql exclude each other.")
    if tables is None:
        raise click.UsageError("Missing option '--tables'.")
    text = sql if sql is not None else _example(example)
    values = _values(text, given)
    with session_of(tables, "Cluster metadata query") as spark:
        names, rows, is_cut = answer(spark, text, values, limit)
    _print(names, rows, as_json=as_json)
    if is_cut:
        click.echo(f"Only the first {limit} rows: --limit shows more.", err=True)


def answer(
    spark: SparkSession, text: str, values: Mapping[str, str], limit: int
) -> tuple[list[str], list[tuple[Any, ...]], bool]:
    """Return columns, rows with times in the session's zone, and whether there are more rows."""
    found = spark.sql(text, args=dict(values)).limit(limit + 1).toArrow()
    rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    return found.schema.names, rows[:limit], len(rows) > limit


def parameters_of(text: str) -> list[str]:
    """Return the names of the query's parameters."""
    return sorted({*_PARAMETER.findall(_LITERAL.sub("", _COMMENT.sub("", text)))})


def _example(name: str | None) -> str:
    names = [file.stem for file in QUERIES.glob("*.sql")]
    if name not in names:
        raise click.UsageError(f"There is no example {name}; there are {', '.join(sorted(names))}.")
    return query(name)


def _values(text: str, given: Iterable[str]) -> dict[str, str]:
    values = dict(each.partition("=")[::2] for each in given)
    missing = [name for name in parameters_of(text) if name not in values]
    if missing:
        raise click.UsageError(f"The query needs {' '.join(f'--param {name}=…' for name in missing)}.")
    return values


def _print_examples() -> None:
    for file in sorted(QUERIES.glob("*.sql")):
        text = file.read_text()
        wanted = "".join(f" --param {name}=…" for name in parameters_of(text))
        click.echo(f"{file.stem}{wanted}")
        for line in _COMMENT.findall(text):
            click.echo(f"    {line}")


def _print(names: Sequence[str], rows: Sequence[Sequence[object]], *, as_json: bool) -> None:
    if as_json:
        print_json([dict(zip(names, map(_plain, row), strict=True)) for row in rows])
        return
    texts = [[_text(value) for value in row] for row in rows]
    widths = [width_of((row[at] for row in texts), len(name)) for at, name in enumerate(names)]
    print_columns(names, texts, [f"{{:<{width}}}" for width in widths])


def _plain(value: object) -> object:
    """Convert a value for JSON."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value if value is None or isinstance(value, bool | int | float | str) else _text(value)


def _text(value: object) -> str:
    match value:
        case None:
            return ""
        case datetime():
            return value.astimezone(UTC).isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
        case timedelta():
            return str(timedelta(seconds=round(value.total_seconds())))
        case list():
            return f"[{', '.join(map(_text, value))}]"
        case _:
            return str(value)


if __name__ == "__main__":
    sys.exit(main())
