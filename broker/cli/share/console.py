"""`ottla console-share-consumer`: Kafka's kafka-console-share-consumer."""

import sys
import time

import click

from broker.cli.console.formatting import JsonWriter, LineWriter
from broker.cli.console.properties import gather
from broker.cli.share.consumer import ACCEPT, REJECT, RELEASE, ShareConsumer, ShareRecord
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.options import DEFAULT_BOOTSTRAP
from broker.cli.shared.session import session
from broker.cli.verifiable.events import ended_by_signals

DEFAULT_GROUP = "console-share-consumer"
FORMATTERS = ("DefaultMessageFormatter", "NoOpMessageFormatter")


@click.command("console-share-consumer", short_help="Print records of a share group to standard output.")
@click.option("--topic", required=True, metavar="TOPIC", help="The topic to read.")
@click.option(
    "--bootstrap-server", metavar="HOST:PORT[,…]", default=DEFAULT_BOOTSTRAP, show_default=True, help="Brokers."
)
@click.option("--group", default=DEFAULT_GROUP, show_default=True, metavar="GROUP", help="The share group.")
@click.option("--max-messages", type=click.IntRange(min=0), metavar="N", help="Stop after N records.")
@click.option("--timeout-ms", type=click.IntRange(min=1), metavar="MS", help="Stop after MS without a record.")
@click.option("--reject", is_flag=True, help="Reject records, so that nobody gets them again.")
@click.option("--release", is_flag=True, help="Release records, so that a consumer gets them again.")
@click.option("--reject-message-on-error", is_flag=True, help="Reject records that cannot be printed.")
@click.option(
    "--property",
    "--formatter-property",
    "properties",
    multiple=True,
    metavar="K=V",
    help="Formatter properties: those of console-consumer, and print.delivery.",
)
@click.option("--formatter-config", metavar="FILE", type=click.Path(), help="File of formatter properties.")
@click.option(
    "--formatter", default=FORMATTERS[0], metavar="CLASS", help="DefaultMessageFormatter, NoOpMessageFormatter."
)
@click.option("--key-deserializer", metavar="CLASS", help="Key format: StringDeserializer, LongDeserializer ….")
@click.option("--value-deserializer", metavar="CLASS", help="Value format.")
@click.option(
    "--consumer-property", "--command-property", "consumer_properties", multiple=True, metavar="K=V", help="Properties."
)
@click.option(
    "--consumer-config", "--command-config", "config", metavar="FILE", type=click.Path(), help="Consumer properties."
)
@click.option("--enable-systest-events", is_flag=True, help="Print shutdown_complete at the end.")
@click.option("--json", "as_json", is_flag=True, help="Print each record as one line of JSON.")
def console_share_consumer(
    topic: str,
    bootstrap_server: str,
    group: str,
    max_messages: int | None,
    timeout_ms: int | None,
    reject: bool,
    release: bool,
    reject_message_on_error: bool,
    properties: tuple[str, ...],
    formatter_config: str | None,
    formatter: str,
    key_deserializer: str | None,
    value_deserializer: str | None,
    consumer_properties: tuple[str, ...],
    config: str | None,
    enable_systest_events: bool,
    as_json: bool,
) -> None:
    """Print records of a topic as a consumer of a share group, and accept them (kafka-console-share-consumer)."""
    if reject and release:
        raise click.UsageError("At most one of --reject and --release may be specified.")
    name = formatter.rpartition(".")[2]
    if name not in FORMATTERS:
        raise CommandFailed(f"--formatter {formatter} is unknown; use one of {', '.join(FORMATTERS)}.")
    shown = gather(formatter_config, properties, "--property")
    shown |= {} if key_deserializer is None else {"key.deserializer": key_deserializer}
    shown |= {} if value_deserializer is None else {"value.deserializer": value_deserializer}
    lines = LineWriter.from_properties(shown)
    printer = _Printer(None if name == FORMATTERS[1] else JsonWriter() if as_json else lines, reject_message_on_error)
    kind = REJECT if reject else RELEASE if release else ACCEPT
    consumer = gather(config, consumer_properties, "--command-property")
    try:
        with session(bootstrap_server, None, {"client.id": DEFAULT_GROUP} | consumer) as client:
            share_consumer = ShareConsumer(client, consumer.get("group.id", group), topic)
            with ended_by_signals():
                _consume(share_consumer, printer, kind, max_messages, timeout_ms)
            share_consumer.close()
    finally:
        click.echo(f"Processed a total of {printer.count} messages", err=True)
    if enable_systest_events:
        click.echo("shutdown_complete")


class _Printer:
    """Printer of records, with a count. `writer` None prints nothing."""

    def __init__(self, writer: LineWriter | JsonWriter | None, rejects_errors: bool) -> None:
        self._writer = writer
        self._rejects_errors = rejects_errors
        self.count = 0

    def print(self, found: ShareRecord) -> bool:
        """Print a record; return False for one that must be rejected. Raises CommandFailed."""
        self.count += 1
        if self._writer is None:
            return True
        try:
            line = self._writer.line(found.partition, found.header, found.record, found.delivery_count)
        except CommandFailed as error:
            if not self._rejects_errors:
                raise
            click.echo(f"Error: {error.message}", err=True)
            return False
        sys.stdout.buffer.write(line)
        return True


def _consume(
    consumer: ShareConsumer, printer: _Printer, kind: int, max_messages: int | None, timeout_ms: int | None
) -> None:
    idle_since = time.monotonic()
    while max_messages is None or printer.count < max_messages:
        found = consumer.poll()
        for record in found:
            if printer.count == max_messages:
                break
            consumer.acknowledge(record, kind if printer.print(record) else REJECT)
        sys.stdout.buffer.flush()
        if found:
            idle_since = time.monotonic()
        elif timeout_ms is not None and (time.monotonic() - idle_since) * 1000 >= timeout_ms:
            return
