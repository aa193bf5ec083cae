"""`ottla e2e-latency`: Kafka's kafka-e2e-latency. One record at a time is written and read back."""

import random
import time
from collections.abc import Sequence
from typing import NamedTuple

import click

from broker.cli.console.fetcher import Fetcher, FetchSettings
from broker.cli.console.producer import ALL, Producer, ProducerSettings
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.offsets import LATEST
from broker.cli.shared.output import print_json
from broker.cli.shared.progress import ProgressBar
from broker.cli.shared.session import session
from broker.client import Client, raise_for
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from protocol.records.reader import FullRecord
from storage.directories.checkpoints import TopicPartition

POLL_TIMEOUT_S = 60
REPORT_EVERY = 1000
PARTITIONS = REPLICAS = 1
"""Counts of a topic that the command creates."""

PERCENTILES = {"50th": 0.5, "99th": 0.99, "99.9th": 0.999}
NEW_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
POSITIONAL = ("bootstrap-server", "topic", "num-records", "producer-acks", "record-size", "command-config")
FIRST_LETTER, LETTERS = 65, 26


class Shape(NamedTuple):
    """Sizes of a record's parts in bytes, and the number of its headers."""

    value: int
    key: int
    headers: int
    header_key: int
    header_value: int


class _Content(NamedTuple):
    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes | None]]


@click.command("e2e-latency", short_help="Measure the time from a producer to a consumer.")
@click.argument("positional", nargs=-1, metavar="[SERVER TOPIC RECORDS ACKS SIZE [CONFIG]]")
@click.option("--bootstrap-server", metavar="HOST:PORT[,…]", help="One or more brokers of the cluster.")
@click.option("--topic", metavar="TOPIC", help="The topic; created with one partition if missing.")
@click.option("--num-records", type=click.IntRange(min=1), metavar="N", help="Number of records.")
@click.option("--producer-acks", type=click.Choice(["1", "all"]), help="Acknowledgements of the producer.")
@click.option("--record-size", type=click.IntRange(min=1), metavar="BYTES", help="Size of the values.")
@click.option("--record-key-size", type=click.IntRange(min=0), default=0, metavar="BYTES", help="Size of the keys.")
@click.option("--num-headers", type=click.IntRange(min=0), default=0, metavar="N", help="Headers of each record.")
@click.option("--record-header-key-size", type=click.IntRange(min=0), default=0, metavar="BYTES", help="Header keys.")
@click.option("--record-header-size", type=click.IntRange(min=0), default=0, metavar="BYTES", help="Header values.")
@click.option("--command-config", metavar="FILE", type=click.Path(), help="Client properties.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
def e2e_latency(
    positional: tuple[str, ...],
    record_key_size: int,
    num_headers: int,
    record_header_key_size: int,
    record_header_size: int,
    as_json: bool,
    **named: str | int | None,
) -> None:
    """Write records one by one, read each back, and print the latencies (kafka-e2e-latency).

    The positional form is Kafka's former one and deprecated there.
    """
    values = {name.replace("_", "-"): value for name, value in named.items()} | _named(positional)
    missing = [f"--{name}" for name in POSITIONAL[:-1] if values[name] is None]
    if missing:
        raise click.UsageError(f"Missing option {missing[0]}.")
    shape = Shape(
        int(values["record-size"] or 0), record_key_size, num_headers, record_header_key_size, record_header_size
    )
    topic, records = str(values["topic"]), int(values["num-records"] or 0)
    acks = ALL if values["producer-acks"] == "all" else 1
    config = values["command-config"]
    with session(str(values["bootstrap-server"]), None if config is None else str(config)) as client:
        _create_if_missing(client, topic, is_quiet=as_json)
        latencies_ns = _RoundTrips(client, topic, acks, shape).measure(records, is_quiet=as_json)
    _print(latencies_ns, as_json)


def _named(positional: tuple[str, ...]) -> dict[str, str]:
    """Return positional arguments by the names of options. Raises UsageError."""
    if not positional:
        return {}
    if len(positional) not in (len(POSITIONAL) - 1, len(POSITIONAL)):
        raise click.UsageError(f"Expected 5 or 6 arguments, got {len(positional)}; use the named options.")
    found = dict(zip(POSITIONAL, positional, strict=False))
    for name in ("num-records", "record-size"):
        if not found[name].isdigit() or int(found[name]) == 0:
            raise click.UsageError(f"{name} {found[name]}: use a whole number above 0.")
    if found["producer-acks"] not in ("1", "all"):
        raise click.UsageError(f"producer-acks {found['producer-acks']}: use 1 or all, a latency needs an answer.")
    click.echo("WARNING: positional arguments are deprecated; use the named options.", err=True)
    return found


def _create_if_missing(client: Client, topic: str, *, is_quiet: bool) -> None:
    (found,) = client.metadata([topic]).topics
    if found.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise_for(found.error_code, f"topic {topic!r}")
        return
    if not is_quiet:
        click.echo(
            f'Topic "{topic}" does not exist. Will create topic with {PARTITIONS} partition(s) and replication factor ='
            f" {REPLICAS}"
        )
    request = CreateTopicsRequest([CreatableTopic(topic, PARTITIONS, REPLICAS)], client.config.request_timeout_ms)
    for result in client.call(request, CreateTopicsResponse).topics:
        raise_for(result.error_code, f"topic {topic!r}", result.error_message)


class _RoundTrips:
    """Records that are written and read back one after another."""

    def __init__(self, client: Client, topic: str, acks: int, shape: Shape) -> None:
        self._rng = random.Random()
        self._shape = shape
        settings = ProducerSettings(topic, acks, idempotent=False)
        self._producer = Producer(client, settings, self._rng)
        self._fetcher = Fetcher(client, FetchSettings(max_wait_ms=500))
        self._producer.start()
        partitions = client.retrying(lambda: client.leaders([topic]), NEW_TOPIC)[topic].partitions
        self._fetcher.assign({TopicPartition(topic, each.partition_index): LATEST for each in partitions})

    def measure(self, records: int, *, is_quiet: bool) -> list[int]:
        """Return the latency of each record in ns. Raises CommandFailed for a record that is lost or changed."""
        latencies = []
        with ProgressBar("records", records) as progress:
            for number in range(records):
                content = self._content()
                begun = time.monotonic_ns()
                self._producer.send(time.time_ns() // 1_000_000, *content[:2], content.headers)
                self._producer.flush()
                found = self._next()
                latencies.append(time.monotonic_ns() - begun)
                _check(content, found)
                progress.advance()
                if number % REPORT_EVERY == 0 and not is_quiet:
                    click.echo(f"{number}\t{latencies[-1] / 1e6}")
        return latencies

    def _next(self) -> Sequence[FullRecord]:
        deadline = time.monotonic() + POLL_TIMEOUT_S
        while time.monotonic() < deadline:
            if found := [fetched.record for fetched in self._fetcher.poll()]:
                return found
        raise CommandFailed(f"no record arrived within {POLL_TIMEOUT_S} s; is the topic's partition without a leader?")

    def _content(self) -> _Content:
        shape = self._shape
        headers: list[tuple[str, bytes | None]] = [
            (self._text(shape.header_key).decode(), self._text(shape.header_value)) for _ in range(shape.headers)
        ]
        return _Content(self._text(shape.key) if shape.key else None, self._text(shape.value), headers)

    def _text(self, size: int) -> bytes:
        return bytes(FIRST_LETTER + each % LETTERS for each in self._rng.randbytes(size))


def _check(sent: _Content, found: Sequence[FullRecord]) -> None:
    """Raise CommandFailed unless exactly the sent record was read."""
    if len(found) != 1:
        raise CommandFailed(f"{len(found)} records were read instead of 1; use a topic that nobody else writes to.")
    record = found[0]
    read = _Content(record.key, record.value or b"", list(record.headers))
    if read != sent:
        raise CommandFailed("the record that was read is not the one sent; use a topic that nobody else writes to.")


def _print(latencies_ns: Sequence[int], as_json: bool) -> None:
    """Print the mean in ms and the percentiles in whole ms."""
    ordered = sorted(latency // 1_000_000 for latency in latencies_ns)
    mean_ms = sum(latencies_ns) / len(latencies_ns) / 1e6
    shares = {name: ordered[int(share * len(ordered))] for name, share in PERCENTILES.items()}
    if as_json:
        print_json({"averageMs": mean_ms, "percentilesMs": shares})
        return
    click.echo(f"Avg latency: {mean_ms:.4f} ms")
    click.echo("Percentiles: " + ", ".join(f"{name} = {value}" for name, value in shares.items()))
