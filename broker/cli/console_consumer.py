"""`ottla console-consumer`: Kafka's kafka-console-consumer.

Without --group it reads all partitions; with --group it joins the group and commits offsets as it prints.
"""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click

from broker.cli.console import remote_metadata
from broker.cli.console.fetcher import ISOLATION, ConsumerRecord, Fetcher, FetchSettings
from broker.cli.console.formatting import JsonWriter, LineWriter, RecordWriter
from broker.cli.console.properties import gather, number
from broker.cli.console.readers import AssignedReader, GroupReader, Subscription, member_settings, no_records
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.offsets import EARLIEST, LATEST
from broker.cli.shared.options import DEFAULT_BOOTSTRAP
from broker.cli.shared.session import session
from protocol.lazy_dataclass import lazy_dataclass

STANDARD_FORMATTERS = ("DefaultMessageFormatter", "NoOpMessageFormatter")


@lazy_dataclass(frozen=True, slots=True)
class _Limits:
    """Conditions to stop. None: no limit."""

    max_messages: int | None
    timeout_ms: int | None


@click.command("console-consumer", short_help="Print records to standard output.")
@click.option("--topic", metavar="TOPIC", help="The topic to read.")
@click.option("--include", metavar="REGEX", help="Read all matching topics.")
@click.option(
    "--bootstrap-server",
    metavar="HOST:PORT[,…]",
    default=DEFAULT_BOOTSTRAP,
    show_default=True,
    help="One or more brokers of the cluster.",
)
@click.option("--from-beginning", is_flag=True, help="Start at the earliest record where no offset is committed.")
@click.option("--partition", type=click.IntRange(min=0), metavar="P", help="Read this partition only.")
@click.option("--offset", metavar="N|earliest|latest", help="Start offset in --partition. [default: latest]")
@click.option("--group", metavar="GROUP", help="Read as a member of this group.")
@click.option("--max-messages", type=click.IntRange(min=0), metavar="N", help="Stop after N records.")
@click.option("--timeout-ms", type=click.IntRange(min=1), metavar="MS", help="Stop after MS without a record.")
@click.option(
    "--isolation-level",
    type=click.Choice(list(ISOLATION)),
    default="read_uncommitted",
    show_default=True,
    help="Isolation level: read_committed skips records of open and aborted transactions.",
)
@click.option(
    "--property",
    "--formatter-property",
    "properties",
    multiple=True,
    metavar="K=V",
    help="Formatter properties: print.timestamp, print.partition, print.offset, print.epoch, print.headers, print.key,"
    " print.value, key.separator, line.separator, headers.separator, null.literal, key.deserializer ….",
)
@click.option("--formatter-config", metavar="FILE", type=click.Path(), help="File of formatter properties.")
@click.option(
    "--formatter",
    default=STANDARD_FORMATTERS[0],
    metavar="CLASS",
    help="DefaultMessageFormatter, NoOpMessageFormatter or RemoteLogMetadataFormatter.",
)
@click.option("--key-deserializer", metavar="CLASS", help="Key format: StringDeserializer, LongDeserializer ….")
@click.option("--value-deserializer", metavar="CLASS", help="Value format.")
@click.option(
    "--consumer-property",
    "--command-property",
    "consumer_properties",
    multiple=True,
    metavar="K=V",
    help="Consumer properties: group.id, auto.offset.reset, fetch.max.bytes, session.timeout.ms ….",
)
@click.option(
    "--consumer.config",
    "--command-config",
    "consumer_config",
    metavar="FILE",
    type=click.Path(),
    help="File of consumer properties.",
)
@click.option("--json", "as_json", is_flag=True, help="Print each record as one line of JSON.")
@click.option("--skip-message-on-error", is_flag=True, help="Skip records that cannot be printed.")
def console_consumer(
    topic: str | None,
    include: str | None,
    bootstrap_server: str,
    from_beginning: bool,
    partition: int | None,
    offset: str | None,
    group: str | None,
    max_messages: int | None,
    timeout_ms: int | None,
    isolation_level: str,
    properties: tuple[str, ...],
    formatter_config: str | None,
    formatter: str,
    key_deserializer: str | None,
    value_deserializer: str | None,
    consumer_properties: tuple[str, ...],
    consumer_config: str | None,
    skip_message_on_error: bool,
    as_json: bool,
) -> None:
    """Print records of topics, one per line (kafka-console-consumer)."""
    consumer = gather(consumer_config, consumer_properties, "--consumer-property")
    group = group or consumer.get("group.id")
    start = _start(offset, from_beginning, consumer)
    _check(topic, include, partition, offset, group, from_beginning)
    shown = gather(formatter_config, properties, "--property")
    shown |= {} if key_deserializer is None else {"key.deserializer": key_deserializer}
    shown |= {} if value_deserializer is None else {"value.deserializer": value_deserializer}
    printer = _Printer(_writer(formatter, shown, as_json), _is_silent(formatter), skip_message_on_error)
    settings = FetchSettings(
        reset=start if start < 0 else LATEST,
        isolation_level=ISOLATION[consumer.get("isolation.level", isolation_level)],
        max_wait_ms=number(consumer, "fetch.max.wait.ms", 500),
        min_bytes=number(consumer, "fetch.min.bytes", 1),
        max_bytes=number(consumer, "fetch.max.bytes", 50 << 20),
        partition_max_bytes=number(consumer, "max.partition.fetch.bytes", 1 << 20),
    )
    subscription = Subscription(topic, include, partition, start)
    limits = _Limits(max_messages, timeout_ms)
    try:
        with _interruptible(), session(bootstrap_server, None, {"client.id": "console-consumer"} | consumer) as client:
            fetcher = Fetcher(client, settings)
            reader = (
                AssignedReader(client, fetcher, subscription)
                if group is None
                else GroupReader(client, fetcher, subscription, member_settings(group, consumer), consumer)
            )
            _consume(reader, fetcher, printer, limits)
    finally:
        printer.finish()


def _check(
    topic: str | None,
    include: str | None,
    partition: int | None,
    offset: str | None,
    group: str | None,
    beginning: bool,
) -> None:
    if (topic is None) == (include is None):
        raise click.UsageError("Exactly one of the following arguments is required: --topic, --include")
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic.")
    if partition is None and offset is not None:
        raise click.UsageError("The partition is required when offset is specified.")
    if partition is not None and group is not None:
        raise click.UsageError("--group and --partition cannot be specified together.")
    if beginning and offset is not None:
        raise click.UsageError("--from-beginning and --offset cannot be specified together.")


def _start(offset: str | None, from_beginning: bool, consumer: dict[str, str]) -> int:
    """Return an offset, EARLIEST or LATEST. Raises UsageError."""
    if offset is None:
        reset = consumer.get("auto.offset.reset", "latest")
        return EARLIEST if from_beginning or reset == "earliest" else LATEST
    special = {"earliest": EARLIEST, "latest": LATEST}.get(offset.lower())
    if special is not None:
        return special
    if not offset.isdigit():
        raise click.UsageError(f"--offset {offset}: use a number, earliest or latest.")
    return int(offset)


def _writer(formatter: str, properties: dict[str, str], as_json: bool) -> RecordWriter:
    """Return the record writer. Raises CommandFailed for unknown formatters and properties."""
    name = formatter.rpartition(".")[2]
    if name not in STANDARD_FORMATTERS and name not in remote_metadata.FORMATTERS:
        known = ", ".join((*STANDARD_FORMATTERS, remote_metadata.FORMATTERS[1]))
        raise CommandFailed(f"--formatter {formatter} is unknown; use one of {known}.")
    line_writer = LineWriter.from_properties(properties)
    if name in remote_metadata.FORMATTERS:
        return remote_metadata.RemoteMetadataWriter()
    return JsonWriter() if as_json else line_writer


def _is_silent(formatter: str) -> bool:
    return formatter.rpartition(".")[2] == "NoOpMessageFormatter"


class _Printer:
    """Printer of records to standard output, with a count."""

    def __init__(self, writer: RecordWriter, silent: bool, skip_errors: bool) -> None:
        self._writer = writer
        self._silent = silent
        self._skip_errors = skip_errors
        self.count = 0

    def print(self, fetched: ConsumerRecord) -> None:
        try:
            line = self._writer.line(fetched.partition, fetched.header, fetched.record)
        except CommandFailed as error:
            if not self._skip_errors:
                raise
            click.echo(f"Error: {error.message}", err=True)
            return
        self.count += 1
        if not self._silent:
            sys.stdout.buffer.write(line)

    def flush(self) -> None:
        sys.stdout.buffer.flush()

    def finish(self) -> None:
        click.echo(f"Processed a total of {self.count} messages", err=True)


def _consume(reader: AssignedReader | GroupReader, fetcher: Fetcher, printer: _Printer, limits: _Limits) -> None:
    """Poll until a limit or an interrupt; offsets of printed records are committed in both cases."""
    try:
        idle_since = time.monotonic()
        while limits.max_messages is None or printer.count < limits.max_messages:
            before = printer.count
            for fetched in fetcher.poll() if fetcher.positions else no_records():
                printer.print(fetched)
                if printer.count == limits.max_messages:
                    break
            printer.flush()
            if printer.count > before:
                idle_since = time.monotonic()
            elif limits.timeout_ms is not None and (time.monotonic() - idle_since) * 1000 >= limits.timeout_ms:
                return
            reader.keep_alive()
    finally:
        reader.close()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C: commit offsets and leave the group."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
