"""Options that the perf tools of consumers share, and the warning of a run that ended early."""

from collections.abc import Callable
from typing import Final, TypeVar

import click

from broker.cli.perf.consumption import TimeFormat

F = TypeVar("F", bound=Callable[..., object])

_OPTIONS: Final = (
    click.option(
        "--num-records",
        "--messages",
        "records",
        required=True,
        type=click.IntRange(min=0),
        metavar="N",
        help="Number of records.",
    ),
    click.option(
        "--command-property", "properties", multiple=True, metavar="K=V", help="Consumer properties: client.id …."
    ),
    click.option(
        "--command-config",
        "--consumer.config",
        "config",
        metavar="FILE",
        type=click.Path(),
        help="Consumer properties.",
    ),
    click.option("--show-detailed-stats", is_flag=True, help="Print a line for each reporting interval."),
    click.option(
        "--reporting-interval",
        type=click.IntRange(min=1),
        default=5000,
        show_default=True,
        metavar="MS",
        help="The interval.",
    ),
    click.option(
        "--timeout",
        type=int,
        default=10_000,
        show_default=True,
        metavar="MS",
        help="Stop after this time without a record.",
    ),
    click.option(
        "--date-format",
        "times",
        default="yyyy-MM-dd HH:mm:ss:SSS",
        show_default=True,
        metavar="PATTERN",
        callback=lambda _context, _parameter, pattern: _time_format(pattern),
        help="Times.",
    ),
    click.option("--hide-header", is_flag=True, help="Print no header."),
)


def run_options(command: F) -> F:
    """Add the options of a run: records, properties, config, show_detailed_stats, reporting_interval, timeout, times
    (a TimeFormat) and hide_header.
    """
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def warn_of_early_end(timeout_ms: int) -> None:
    """Print Kafka's line for a run that ended before the requested number of records."""
    click.echo(
        f"WARNING: Exiting before consuming the expected number of records: timeout ({timeout_ms} ms) exceeded."
        " You can use the --timeout option to increase the timeout."
    )


def _time_format(pattern: str) -> TimeFormat:
    try:
        return TimeFormat(pattern)
    except ValueError as error:
        raise click.UsageError(f"--date-format: {error}.") from error
