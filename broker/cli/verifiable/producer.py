"""`ottla verifiable-producer`: Kafka's kafka-verifiable-producer."""

import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence

import click

from broker.cli.console.producer import Producer, ProducerSettings
from broker.cli.console.properties import number
from broker.cli.console_producer import acks_of, codec_of
from broker.cli.perf.pacing import Pacer
from broker.cli.shared.options import DEFAULT_BOOTSTRAP
from broker.cli.shared.session import read_properties, session
from broker.cli.verifiable.events import emit, ended_by_signals, text
from broker.client import Client, ClientError
from protocol.errors import KafkaError
from protocol.lazy_dataclass import lazy_dataclass
from protocol.records.builder import Record

LINGER_S = 0.005
CLIENT_ID = "verifiable-producer"
NO_LIMIT = -1


@lazy_dataclass(frozen=True, slots=True)
class _Plan:
    """The records to send. -1 is no limit of `records` or `rate`; `create_time_ms` -1 is the present time."""

    records: int
    rate: int
    create_time_ms: int
    prefix: int | None
    keys: int | None

    def contents(self) -> Iterator[tuple[bytes | None, bytes]]:
        """Yield keys and values."""
        numbers = itertools.count() if self.records < 0 else range(self.records)
        for each in numbers:
            value = str(each) if self.prefix is None else f"{self.prefix}.{each}"
            yield None if self.keys is None else b"%d" % (each % self.keys), value.encode()


@click.command("verifiable-producer", short_help="Send numbers and report each acknowledgement as JSON.")
@click.option("--topic", required=True, metavar="TOPIC", help="The topic to write to.")
@click.option(
    "--bootstrap-server", metavar="HOST:PORT[,…]", default=DEFAULT_BOOTSTRAP, show_default=True, help="Brokers."
)
@click.option("--max-messages", type=int, default=NO_LIMIT, metavar="N", help="Number of records. [default: no limit]")
@click.option(
    "--throughput", type=int, default=NO_LIMIT, metavar="RATE", help="Records per second. [default: no limit]"
)
@click.option("--acks", default="-1", show_default=True, metavar="ACKS", help="-1 (all), 0 or 1.")
@click.option(
    "--message-create-time", type=int, default=-1, metavar="MS", help="Time of the first record; + 1 ms each."
)
@click.option("--value-prefix", type=int, metavar="N", help="Send N.0, N.1, … instead of 0, 1, ….")
@click.option(
    "--repeating-keys", type=click.IntRange(min=1), metavar="N", help="Keys from 0 to N - 1, again and again."
)
@click.option(
    "--command-config", "--producer.config", "config", metavar="FILE", type=click.Path(), help="Producer properties."
)
def verifiable_producer(
    topic: str,
    bootstrap_server: str,
    max_messages: int,
    throughput: int,
    acks: str,
    message_create_time: int,
    value_prefix: int | None,
    repeating_keys: int | None,
    config: str | None,
) -> None:
    """Send increasing numbers and print one line of JSON for each outcome (kafka-verifiable-producer)."""
    properties = read_properties(config)
    settings = ProducerSettings(
        topic=topic,
        acks=acks_of(acks),
        codec=codec_of(properties.get("compression.type", "none")),
        batch_bytes=number(properties, "batch.size", 16_384),
        timeout_ms=number(properties, "request.timeout.ms", 30_000),
    )
    plan = _Plan(max_messages, throughput, message_create_time, value_prefix, repeating_keys)
    with session(bootstrap_server, None, {"client.id": CLIENT_ID} | properties) as client:
        _Run(client, settings, plan).run()


class _Run:
    """One run: the producer, its unacknowledged records, and counts."""

    def __init__(self, client: Client, settings: ProducerSettings, plan: _Plan) -> None:
        self._client = client
        self._settings = settings
        self._plan = plan
        self._producer: Producer | None = None
        self._unacknowledged: list[tuple[bytes | None, bytes | None]] = []
        self._sent = self._acked = 0

    def run(self) -> None:
        """Send until the plan or a signal ends it, then report the totals."""
        emit("startup_complete")
        begun = time.monotonic()
        with ended_by_signals():
            self._send_all(Pacer(self._plan.rate, begun))
        with ended_by_signals():
            self._attempt(self._flush)
        emit("shutdown_complete")
        rate = self._acked / max(time.monotonic() - begun, 0.001)
        emit(
            "tool_data",
            sent=self._sent,
            acked=self._acked,
            target_throughput=self._plan.rate,
            avg_throughput=rate,
        )

    def _send_all(self, pacer: Pacer) -> None:
        flush_at = time.monotonic() + LINGER_S
        for key, value in self._plan.contents():
            self._send(key, value)
            now = time.monotonic()
            if now >= flush_at or self._plan.rate >= 0:
                self._attempt(self._flush)
                flush_at = time.monotonic() + LINGER_S
            pacer.wait(self._sent, now)

    def _send(self, key: bytes | None, value: bytes) -> None:
        created_ms = self._plan.create_time_ms
        time_ms = time.time_ns() // 1_000_000 if created_ms < 0 else created_ms + self._sent
        self._sent += 1
        self._unacknowledged.append((key, value))
        self._attempt(lambda: self._started().send(time_ms, key, value, ()))

    def _flush(self) -> None:
        if self._producer is not None:
            self._producer.flush()

    def _started(self) -> Producer:
        if self._producer is None:
            producer = Producer(self._client, self._settings, random.Random(), self._on_acknowledged)
            producer.start()
            self._producer = producer
        return self._producer

    def _attempt(self, work: Callable[[], None]) -> None:
        """Run `work`; report a failure for all records without an acknowledgement, and start a new producer."""
        try:
            work()
        except (KafkaError, ClientError) as error:
            for key, value in self._unacknowledged:
                emit(
                    "producer_send_error",
                    topic=self._settings.topic,
                    key=text(key),
                    value=text(value),
                    exception=error.code.name if isinstance(error, KafkaError) else type(error).__name__,
                    message=error.message if isinstance(error, KafkaError) else str(error),
                )
            self._unacknowledged.clear()
            self._producer = None

    def _on_acknowledged(self, partition: int, base_offset: int, records: Sequence[Record]) -> None:
        for index, record in enumerate(records):
            self._acked += 1
            self._unacknowledged.remove((record.key, record.value))
            offset = base_offset if base_offset < 0 else base_offset + index
            emit(
                "producer_send_success",
                key=text(record.key),
                value=text(record.value),
                topic=self._settings.topic,
                partition=partition,
                offset=offset,
            )
