"""`ottla console-producer`: Kafka's kafka-console-producer."""

import random
import sys
import time

import click

from broker.cli.console.lines import LineFormat, read_lines
from broker.cli.console.producer import ALL, Producer, ProducerSettings
from broker.cli.console.properties import gather, is_true, number
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.options import DEFAULT_BOOTSTRAP
from broker.cli.shared.session import session
from protocol.records.compression import Codec

DEFAULT_LINGER_MS = 1000
DEFAULT_BATCH_BYTES = 16_384
PROMPT = ">"
STANDARD_READER = "org.apache.kafka.tools.LineMessageReader"


@click.command("console-producer", short_help="Send lines from standard input.")
@click.option("--topic", required=True, metavar="TOPIC", help="The topic to write to.")
@click.option(
    "--bootstrap-server",
    metavar="HOST:PORT[,…]",
    default=DEFAULT_BOOTSTRAP,
    show_default=True,
    help="One or more brokers of the cluster.",
)
@click.option(
    "--property",
    "--reader-property",
    "properties",
    multiple=True,
    metavar="K=V",
    help="Line format: parse.key, parse.headers, key.separator, headers.delimiter, headers.separator,"
    " headers.key.separator, null.marker, ignore.error.",
)
@click.option("--reader-config", metavar="FILE", type=click.Path(), help="File of line format properties.")
@click.option(
    "--producer-property",
    "--command-property",
    "producer_properties",
    multiple=True,
    metavar="K=V",
    help="Producer properties: acks, batch.size, linger.ms, compression.type, enable.idempotence ….",
)
@click.option(
    "--producer.config",
    "--command-config",
    "producer_config",
    metavar="FILE",
    type=click.Path(),
    help="File of producer properties.",
)
@click.option(
    "--compression-codec",
    is_flag=False,
    flag_value="gzip",
    metavar="[CODEC]",
    help="none, gzip (the default without a value), snappy, lz4 or zstd.",
)
@click.option("--sync", is_flag=True, help="Send each line in its own request and wait for the acknowledgement.")
@click.option("--request-required-acks", metavar="ACKS", help="all (-1), 0 or 1.")
@click.option(
    "--batch-size",
    "--max-partition-memory-bytes",
    "batch_size",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help=f"Maximum size of a batch. [default: {DEFAULT_BATCH_BYTES}]",
)
@click.option(
    "--timeout",
    type=click.IntRange(min=0),
    metavar="MS",
    help=f"Time to fill a batch. [default: {DEFAULT_LINGER_MS}]",
)
@click.option("--request-timeout-ms", type=click.IntRange(min=1), metavar="MS", help="Time limit of a request.")
@click.option("--max-block-ms", type=click.IntRange(min=1), metavar="MS", help="Time limit of a record with retries.")
@click.option("--retry-backoff-ms", type=click.IntRange(min=1), metavar="MS", help="Pause before a retry.")
@click.option(
    "--message-send-max-retries", type=int, metavar="N", help="Accepted for compatibility; time limits retries."
)
@click.option("--line-reader", default=STANDARD_READER, metavar="CLASS", help="Only the standard reader exists.")
def console_producer(
    topic: str,
    bootstrap_server: str,
    properties: tuple[str, ...],
    reader_config: str | None,
    producer_properties: tuple[str, ...],
    producer_config: str | None,
    compression_codec: str | None,
    sync: bool,
    request_required_acks: str | None,
    batch_size: int | None,
    timeout: int | None,
    request_timeout_ms: int | None,
    max_block_ms: int | None,
    retry_backoff_ms: int | None,
    message_send_max_retries: int | None,
    line_reader: str,
) -> None:
    """Send each line of standard input as a record (kafka-console-producer)."""
    if line_reader != STANDARD_READER:
        raise CommandFailed(f"--line-reader {line_reader} is not supported; use {STANDARD_READER}.")
    line_format = LineFormat.from_properties(gather(reader_config, properties, "--property"))
    producer = gather(producer_config, producer_properties, "--producer-property") | _given(
        {
            "acks": request_required_acks,
            "batch.size": batch_size,
            "linger.ms": timeout,
            "compression.type": compression_codec,
            "request.timeout.ms": request_timeout_ms,
            "default.api.timeout.ms": max_block_ms,
            "retry.backoff.ms": retry_backoff_ms,
        }
    )
    settings = ProducerSettings(
        topic=topic,
        acks=acks_of(producer.get("acks", "all")),
        codec=codec_of(producer.get("compression.type", "none")),
        batch_bytes=1 if sync else number(producer, "batch.size", DEFAULT_BATCH_BYTES),
        timeout_ms=number(producer, "request.timeout.ms", 30_000),
        idempotent=is_true(producer, "enable.idempotence", True),
    )
    linger_seconds = number(producer, "linger.ms", DEFAULT_LINGER_MS) / 1000
    with session(bootstrap_server, None, {"client.id": "console-producer"} | producer) as client:
        sender = Producer(client, settings, random.Random())
        sender.start()
        _pump(sender, line_format, linger_seconds, sync)


def _given(options: dict[str, object]) -> dict[str, str]:
    return {key: str(value) for key, value in options.items() if value is not None}


def _pump(sender: Producer, line_format: LineFormat, linger_seconds: float, sync: bool) -> None:
    """Send lines until the input ends. Lines before a malformed one are sent before its error is raised."""
    is_interactive = sys.stdin.isatty() and sys.stdout.isatty()
    line_number = 0
    flush_at = time.monotonic() + linger_seconds
    try:
        _prompt(is_interactive)
        for lines in read_lines(sys.stdin.fileno(), max(linger_seconds, 0.001)):
            now_ms = int(time.time() * 1000)
            for line in lines:
                line_number += 1
                record = line_format.parse(line, line_number)
                sender.send(now_ms, record.key, record.value, record.headers)
            if not lines or sync or time.monotonic() >= flush_at:
                sender.flush()
                flush_at = time.monotonic() + linger_seconds
            _prompt(is_interactive and bool(lines))
    except (CommandFailed, KeyboardInterrupt):
        sender.flush()
        raise
    sender.flush()


def _prompt(wanted: bool) -> None:
    if wanted:
        click.echo(PROMPT, nl=False)


def acks_of(text: str) -> int:
    """Return the value of `acks`. Raises CommandFailed."""
    acks = {"all": ALL, "-1": ALL, "0": 0, "1": 1}.get(text.strip().lower())
    if acks is None:
        raise CommandFailed(f"acks={text}: use all, 0 or 1.")
    return acks


def codec_of(text: str) -> Codec:
    """Return the codec of `compression.type`. Raises CommandFailed."""
    try:
        return Codec[text.strip().upper()]
    except KeyError as error:
        raise CommandFailed(f"compression {text}: use none, gzip, snappy, lz4 or zstd.") from error
