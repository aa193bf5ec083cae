"""Load of the run, and the latency of acknowledgements.

Idempotent producers write checkable records at a steady rate; a probe sends single records, so its latency is that of a
client without queueing.
"""

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from tests.support.clients.checkable_records import Recipe

FLUSH_S = 300.0
_SETTINGS = {
    "enable.idempotence": True,
    "acks": "all",
    "delivery.timeout.ms": 240_000,
    "request.timeout.ms": 20_000,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 2000,
    "log_level": 0,
}


class Latency(NamedTuple):
    """Latency of one acknowledgement: its time by the monotonic clock, and the duration. Seconds."""

    at: float
    took: float


def percentile(latencies: Sequence[Latency], share: float) -> float:
    """Return a percentile in milliseconds; not a number without latencies."""
    took = sorted(latency.took for latency in latencies)
    return took[min(len(took) - 1, math.floor(share * len(took)))] * 1000 if took else math.nan


def between(latencies: Sequence[Latency], start: float, end: float) -> list[Latency]:
    """Return the latencies of records sent and acknowledged in this time."""
    return [each for each in latencies if start <= each.at - each.took and each.at <= end]


@dataclass
class Acknowledgements:
    """Acknowledgements. `acknowledged` counts records by partition."""

    acknowledged: dict[int, int] = field(default_factory=dict)
    latencies: list[Latency] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def take(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        partition, expected = message.partition(), self.acknowledged.get(message.partition(), 0)
        if message.offset() != expected and len(self.failures) < 10:
            self.failures.append(f"partition {partition}: acknowledged at {message.offset()}, not {expected}")
        self.acknowledged[partition] = expected + 1
        self.latencies.append(Latency(time.monotonic(), message.latency() or 0.0))


class Writer(threading.Thread):
    """One producer that writes `count` records to each of its partitions, `rate` per second in all."""

    def __init__(
        self, bootstrap: str, topic: str, recipe: Recipe, partitions: Sequence[int], count: int, rate: float
    ) -> None:
        super().__init__(daemon=True)
        self.acknowledgements = Acknowledgements()
        self._topic = topic
        self._recipe = recipe
        self._partitions = partitions
        self._count = count
        self._rate = rate
        self._producer = Producer({**_SETTINGS, "bootstrap.servers": bootstrap, "linger.ms": 50})

    def run(self) -> None:
        began, sent = time.monotonic(), 0
        for number in range(self._count):
            for partition in self._partitions:
                self._send(partition, number)
            sent += len(self._partitions)
            ahead = sent / self._rate - (time.monotonic() - began)
            if ahead > 0.005:
                self._producer.poll(ahead)
            elif ahead < -1.0:
                began -= ahead + 1.0  # do not make up for a pause with a burst
        left = self._producer.flush(FLUSH_S)
        if left:
            self.acknowledgements.failures.append(f"{left} records were not acknowledged")

    def _send(self, partition: int, number: int) -> None:
        recipe = self._recipe
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    recipe.value(partition, number),
                    b"%d" % number,
                    partition,
                    on_delivery=self.acknowledgements.take,
                    timestamp=recipe.timestamp_ms(number),
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return


class Probe(threading.Thread):
    """Single small records to one partition after the other, `RATE` per second, each sent at once."""

    RATE = 50

    def __init__(self, bootstrap: str, topic: str, recipe: Recipe, partitions: int) -> None:
        super().__init__(daemon=True)
        self.acknowledgements = Acknowledgements()
        self._topic = topic
        self._recipe = recipe
        self._partitions = partitions
        self._is_over = threading.Event()
        self._producer = Producer({**_SETTINGS, "bootstrap.servers": bootstrap, "linger.ms": 0})

    def run(self) -> None:
        sent = 0
        while not self._is_over.is_set():
            number, partition = divmod(sent, self._partitions)
            self._producer.produce(
                self._topic,
                self._recipe.value(partition, number),
                b"%d" % number,
                partition,
                on_delivery=self.acknowledgements.take,
                timestamp=self._recipe.timestamp_ms(number),
            )
            sent += 1
            due = time.monotonic() + 1 / self.RATE
            while (left := due - time.monotonic()) > 0:
                self._producer.poll(left)
        if self._producer.flush(FLUSH_S):
            self.acknowledgements.failures.append("records of the probe were not acknowledged")

    def finish(self) -> None:
        self._is_over.set()
        self.join()
