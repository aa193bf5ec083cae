"""`python -m spark_jobs.metadata_snapshots`, also for `spark-submit`: options, signals, exit codes.

Exit codes: 0 success or an ordered stop of a tail, 1 a failure with one sentence on stderr, 2 wrong usage, 130 and 143
a forced stop by SIGINT and SIGTERM.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.session import read_properties
from spark_jobs.metadata_snapshots.progress import STALLED_AFTER_S
from spark_jobs.metadata_snapshots.schedule import MIN_BYTES, MIN_CHANGED_RATIO, Schedule
from spark_jobs.metadata_snapshots.signals import Interrupted
from spark_jobs.metadata_source.settings import CLIENT_PROPERTIES
from storage.tiered.loading.store_uri import StoreUri, StoreUriError, parse_store_uri

MAX_OFFSET = (1 << 63) - 1
MAX_PORT = 65_535
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--bootstrap-server", required=True, metavar="HOST:PORT[,…]", help="One or more brokers of the cluster.")
@click.option("--out", required=True, metavar="URI", help="Snapshot location: a directory, file://, s3:// or s3a://.")
@click.option("--checkpoint", metavar="URI", help="Location of Spark's offsets, any path that Spark can write to.")
@click.option("--once", is_flag=True, help="Write one snapshot at the current high watermark, and exit.")
@click.option("--at", type=click.IntRange(1), metavar="OFFSET", help="Write the snapshot that ends there, and exit.")
@click.option(
    "--interval",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Write a snapshot at this interval if records were committed, instead of by KIP-630's conditions.",
)
@click.option("--tables", metavar="URI", help="Target of the history tables, as Parquet.")
@click.option(
    "--client-config",
    metavar="FILE",
    type=click.Path(),
    help="Client properties: client.id, security.protocol, sasl.*, ssl.*, timeouts and backoffs.",
)
@click.option(
    "--min-changed-ratio",
    type=click.FloatRange(0, 1),
    default=MIN_CHANGED_RATIO,
    show_default=True,
    help="metadata.snapshot.min.changed_records.ratio of this job.",
)
@click.option(
    "--min-bytes",
    type=click.IntRange(1),
    default=MIN_BYTES,
    show_default=True,
    help="metadata.log.max.record.bytes.between.snapshots of this job.",
)
@click.option(
    "--trigger",
    type=click.FloatRange(0),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Minimum time between starts of micro-batches; 0 starts one for every new record.",
)
@click.option("--max-rows", type=click.IntRange(1), metavar="ROWS", help="Maximum rows of one micro-batch.")
@click.option("--keep", type=click.IntRange(1), metavar="N", help="Keep only the newest N snapshots. [default: all]")
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="Serve /health/live, /health/ready and /metrics there while the job runs. [default: off]",
)
@click.option(
    "--stalled-after",
    type=click.FloatRange(0, min_open=True),
    default=STALLED_AFTER_S,
    show_default=True,
    metavar="SECONDS",
    help="Time after which /health/ready answers 503 if the job is behind and completes no step.",
)
@click.option("--json", "as_json", is_flag=True, help="Print each snapshot's manifest instead of text.")
def metadata_snapshots(
    bootstrap_server: str,
    out: str,
    checkpoint: str | None,
    once: bool,
    at: int | None,
    interval: float | None,
    tables: str | None,
    client_config: str | None,
    min_changed_ratio: float,
    min_bytes: int,
    trigger: float,
    max_rows: int | None,
    keep: int | None,
    http: str | None,
    stalled_after: float,
    as_json: bool,
) -> None:
    """Fold the metadata log of a cluster into snapshots, byte for byte those that its nodes write (KIP-630).

    Without --once or --at the job runs until it is stopped (SIGTERM, Ctrl-C); a restart continues from there. Run one
    such job per --out: of two, the earlier one ends. --at may run beside it. --tables belong to the --out of the job
    that wrote them first; a job with another --out ends.
    """
    if once + (at is not None) + (interval is not None) > 1:
        raise click.UsageError("--once, --at and --interval exclude each other.")
    if at is not None and at > MAX_OFFSET:
        raise click.UsageError(f"--at must be an offset of at most {MAX_OFFSET}.")
    if tables is not None and at is not None:
        raise click.UsageError("--tables cannot be combined with --at.")
    if http is not None and (once or at is not None):
        raise click.UsageError("--http cannot be combined with --once or --at.")
    address = None if http is None else _address(http)
    place = _place(out, "--out")
    history = None if tables is None else _place(tables, "--tables")
    properties = read_properties(client_config)
    if unknown := sorted(properties.keys() - CLIENT_PROPERTIES):
        click.echo(f"Warning: {client_config}: these properties have no effect: {', '.join(unknown)}.", err=True)
    if (reason := _without_spark()) is not None:
        raise CommandFailed(reason)

    from spark_jobs.metadata_snapshots.job import JobSettings
    from spark_jobs.metadata_snapshots.monitoring import ListenAt
    from spark_jobs.metadata_snapshots.running import Mode, run_job
    from spark_jobs.metadata_tables.sink import TablesSink
    from spark_jobs.metadata_tables.table_store import TableStore

    settings = JobSettings(
        bootstrap=bootstrap_server,
        out=place,
        client=properties,
        checkpoint=checkpoint if at is None else None,  # a tail's checkpoint does not apply to --at
        trigger_s=trigger,
        max_rows=max_rows,
        keep=keep,
        sink=None if history is None else TablesSink(TableStore(history), place),
    )
    by_conditions = Schedule.by_conditions(min_changed_ratio, min_bytes)
    schedule = by_conditions if interval is None else Schedule.by_time(interval)
    listen_at = None if address is None else ListenAt(*address, stalled_after)
    run_job(settings, Mode(once, at, schedule), history, as_json=as_json, http=listen_at)


def _address(text: str) -> tuple[str, int]:
    """Return host and port. Raises click.UsageError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > MAX_PORT:
        raise click.UsageError(f"--http must be HOST:PORT, not {text!r}.")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _place(uri: str, option: str) -> StoreUri:
    """Return the location, a directory as an absolute path because executors may have another working directory. Raises
    CommandFailed.
    """
    try:
        place = parse_store_uri(uri)
    except StoreUriError as error:
        raise CommandFailed(f"{option}: {error}.") from error
    return replace(place, directory=str(Path(place.directory).resolve())) if place.directory else place


def _without_spark() -> str | None:
    """Return the reason why Spark is unavailable; imported late, so that --help and usage errors are fast."""
    try:
        from spark_jobs.session import unavailable_reason
    except ImportError as error:
        return f"{error.name} is not installed: pip install 'ottla[spark]'."
    return unavailable_reason()


def run(arguments: Sequence[str]) -> int:
    """Run one command line; return the exit code."""
    try:
        metadata_snapshots.main(list(arguments), prog_name="metadata_snapshots", standalone_mode=False)
    except click.UsageError as error:
        error.show()
        return EXIT_USAGE
    except click.ClickException as error:
        click.echo(f"Error: {error.format_message()}", err=True)
        return error.exit_code
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt) as error:
        cause = error.__cause__ or error
        return cause.exit_code if isinstance(cause, Interrupted) else EXIT_INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
