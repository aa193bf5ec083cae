"""`ottla producer-perf`: Kafka's kafka-producer-perf-test. One request per broker is in flight at a time."""

import random
import time
import uuid
from collections import deque
from typing import NamedTuple

import click

from broker.cli.console.producer import ALL, Producer, ProducerSettings
from broker.cli.console.properties import gather, number
from broker.cli.console.transactional_producer import TransactionalProducer
from broker.cli.console_producer import acks_of, codec_of
from broker.cli.perf.latency import LatencyStats
from broker.cli.perf.pacing import Pacer
from broker.cli.perf.payloads import Payload, file_payload, monotonic_payload, random_payload
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.progress import ProgressBar
from broker.cli.shared.session import session

CLIENT_ID = "perf-producer-client"
TRANSACTIONAL_ID_PREFIX = "performance-producer-"
TRANSACTION_DURATION_MS = 3000
DEFAULT_BATCH_BYTES = 16_384
DEFAULT_LINGER_MS = 5
PROPERTY_OPTIONS = ("--command-property", "--producer-props")


class _PropertyLists(click.Command):
    """Command whose property options take several values, as in `--command-property acks=1 linger.ms=5`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        expanded: list[str] = []
        option = ""
        for word in args:
            if word.startswith("-"):
                option = word if word in PROPERTY_OPTIONS else ""
            elif option and expanded[-1] != option:
                expanded.append(option)
            expanded.append(word)
        return super().parse_args(ctx, expanded)


@click.command(
    "producer-perf", cls=_PropertyLists, short_help="Measure the throughput and the latencies of a producer."
)
@click.option("--topic", required=True, metavar="TOPIC", help="The topic to write to.")
@click.option("--num-records", required=True, type=click.IntRange(min=1), metavar="N", help="Number of records.")
@click.option("--throughput", required=True, type=float, metavar="RATE", help="Records per second; -1: no limit.")
@click.option("--bootstrap-server", metavar="HOST:PORT[,…]", help="One or more brokers of the cluster.")
@click.option("--record-size", type=click.IntRange(min=1), metavar="BYTES", help="Size of random values.")
@click.option("--payload-file", metavar="FILE", type=click.Path(), help="UTF-8 file to draw the values from.")
@click.option("--payload-delimiter", default="\\n", metavar="TEXT", show_default=True, help="Separator in that file.")
@click.option("--payload-monotonic", is_flag=True, help="Values that count from 0.")
@click.option(
    *PROPERTY_OPTIONS,
    "properties",
    multiple=True,
    metavar="K=V",
    help="Producer properties: acks, batch.size, linger.ms, compression.type ….",
)
@click.option(
    "--command-config", "--producer.config", "config", metavar="FILE", type=click.Path(), help="Producer properties."
)
@click.option("--transactional-id", metavar="ID", help="Write in transactions with this id.")
@click.option(
    "--transaction-duration-ms",
    type=click.IntRange(min=1),
    metavar="MS",
    help=f"Write in transactions of this duration. [default: {TRANSACTION_DURATION_MS}]",
)
@click.option(
    "--warmup-records", type=click.IntRange(min=0), default=0, metavar="N", help="Records before the steady state."
)
@click.option(
    "--reporting-interval",
    type=click.IntRange(min=1),
    default=5000,
    show_default=True,
    metavar="MS",
    help="Time between two lines of progress.",
)
def producer_perf(
    topic: str,
    num_records: int,
    throughput: float,
    bootstrap_server: str | None,
    record_size: int | None,
    payload_file: str | None,
    payload_delimiter: str,
    payload_monotonic: bool,
    properties: tuple[str, ...],
    config: str | None,
    transactional_id: str | None,
    transaction_duration_ms: int | None,
    warmup_records: int,
    reporting_interval: int,
) -> None:
    """Write records and print throughput and latencies (kafka-producer-perf-test)."""
    payload = _payload(record_size, payload_file, payload_delimiter, payload_monotonic)
    if warmup_records >= num_records:
        raise click.UsageError("--warmup-records must be fewer than --num-records.")
    if throughput == 0:
        raise click.UsageError("--throughput must not be 0.")
    producer = gather(config, properties, "--command-property")
    servers = bootstrap_server or producer.get("bootstrap.servers")
    if servers is None:
        raise click.UsageError("--bootstrap-server is missing.")
    name = transactional_id or producer.get("transactional.id")
    if name is None and transaction_duration_ms is not None:
        name = f"{TRANSACTIONAL_ID_PREFIX}{uuid.uuid4()}"
    settings = ProducerSettings(
        topic=topic,
        acks=acks_of(producer.get("acks", "all")),
        codec=codec_of(producer.get("compression.type", "none")),
        batch_bytes=number(producer, "batch.size", DEFAULT_BATCH_BYTES),
        timeout_ms=number(producer, "request.timeout.ms", 30_000),
        transactional_id=name,
        transaction_timeout_ms=number(producer, "transaction.timeout.ms", 60_000),
    )
    if name is not None and settings.acks != ALL:
        raise CommandFailed("transactions need acks=all.")
    plan = _Plan(
        num_records, warmup_records, throughput, reporting_interval, number(producer, "linger.ms", DEFAULT_LINGER_MS)
    )
    with session(servers, None, {"client.id": CLIENT_ID} | producer) as client:
        rng = random.Random()
        if name is None:
            load = _Load(Producer(client, settings, rng), None, plan)
        else:
            transactional = TransactionalProducer(client, settings, rng)
            load = _Load(transactional, transaction_duration_ms or TRANSACTION_DURATION_MS, plan)
        load.run(payload)


class _Plan(NamedTuple):
    records: int
    warmup: int
    rate: float
    interval_ms: int
    linger_ms: int


class _Sent(NamedTuple):
    """A record that is not acknowledged yet."""

    at_ms: int
    size: int
    steady: LatencyStats | None
    """The statistics of the steady state, if the record belongs to it."""


class _Load:
    """One run of a producer; `duration_ms` is the length of its transactions, None without them."""

    def __init__(self, producer: Producer, duration_ms: int | None, plan: _Plan) -> None:
        self._producer = producer
        self._duration_ms = duration_ms
        self._plan = plan
        self._sent: deque[_Sent] = deque()
        self._stats: LatencyStats | None = None
        self._steady: LatencyStats | None = None
        self._progress = ProgressBar("records acknowledged", plan.records)

    def run(self, payload: Payload) -> None:
        plan, producer = self._plan, self._producer
        producer.start()
        if plan.warmup:
            click.echo(
                f"Warmup first {plan.warmup} records. Steady state results will print after the complete test summary."
            )
        begun_ms = _now_ms()
        self._stats = LatencyStats(plan.records, plan.interval_ms, begun_ms)
        with self._progress:
            self._send_all(payload, begun_ms)
        now_ms = _now_ms()
        click.echo(self._stats.total(now_ms))
        if self._steady is not None:
            click.echo(self._steady.total(now_ms))

    def _send_all(self, payload: Payload, transaction_ms: int) -> None:
        """Send the records and wait for their acknowledgements; `transaction_ms` is the start of a transaction."""
        plan, producer = self._plan, self._producer
        pacer = Pacer(plan.rate, time.monotonic())
        for sent in range(plan.records):
            if plan.warmup and sent == plan.warmup:
                click.echo("In steady state.")
                self._steady = LatencyStats(plan.records - plan.warmup, plan.interval_ms, _now_ms(), is_steady=True)
            value, now_ms = payload(sent), _now_ms()
            producer.send(now_ms, None, value, ())
            self._sent.append(_Sent(now_ms, len(value), self._steady))
            self._collect()
            if self._duration_ms is not None and now_ms - transaction_ms >= self._duration_ms:
                self._commit()
                transaction_ms = _now_ms()
            elif self._sent and now_ms - self._sent[0].at_ms >= plan.linger_ms:
                producer.flush()
                self._collect()
            pacer.wait(sent + 1, time.monotonic())
        producer.flush()
        self._collect()
        self._commit()

    def _commit(self) -> None:
        if isinstance(self._producer, TransactionalProducer):
            self._producer.commit()
            self._collect()

    def _collect(self) -> None:
        """Count the records that a flush has acknowledged."""
        now_ms = _now_ms()
        assert self._stats is not None
        while len(self._sent) > self._producer.pending:
            self._progress.advance()
            sent = self._sent.popleft()
            line = self._stats.record(now_ms - sent.at_ms, sent.size, now_ms)
            if sent.steady is not None:
                line = sent.steady.record(now_ms - sent.at_ms, sent.size, now_ms)
            if line is not None:
                click.echo(line)


def _payload(size: int | None, path: str | None, delimiter: str, is_monotonic: bool) -> Payload:
    """Return the values. Raises UsageError unless exactly one kind is given."""
    if [size is not None, path is not None, is_monotonic].count(True) != 1:
        raise click.UsageError("Provide exactly one of --record-size, --payload-file or --payload-monotonic.")
    if size is not None:
        return random_payload(size)
    return monotonic_payload() if path is None else file_payload(path, delimiter.replace("\\n", "\n"))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
