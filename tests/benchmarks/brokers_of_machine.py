"""`ottla start --brokers N`: several brokers of one machine against one Apache Kafka on the same cores.

Each workload has two clients at once, because one cannot load two brokers, and topics of eight partitions with one
replica each.
"""

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Final

import psutil

from tests.benchmarks import sides
from tests.benchmarks.clients.measured import Topics, delete_topic
from tests.benchmarks.report.rows import Row, compared
from tests.benchmarks.sides import NOTHING_MORE, SETTINGS, Cpu, Side
from tests.benchmarks.workloads import HIGHER, LOWER, costs, fill, write_lines
from tests.support.processes.ottla_machine import OttlaMachine

CLIENTS: Final = 2
PARTITIONS: Final = 8
BROKERS: Final = (1, 2, 4, 8)
PER_BROKER: Final = ", per broker"


class MachineSide(Side):
    """A machine of brokers; its processor time is that of the supervisor and all brokers."""

    def cpu(self) -> Cpu:
        """Return the processor time so far."""
        return sum((Cpu.of(each) for each in (self.process, *self.process.children())), Cpu(0.0, 0.0))


@contextlib.contextmanager
def ottla_machine(directory: Path, brokers: int) -> Iterator[Side]:
    """Run `brokers` brokers of Ottla under one supervisor."""
    with OttlaMachine(directory, brokers, SETTINGS) as machine:
        yield MachineSide("ottla", machine.bootstrap, psutil.Process(machine.process.pid))


def broker_counts(cores: int) -> Sequence[int]:
    """Return the numbers of brokers to measure: 1 and 2, and more where there are cores for them."""
    return [count for count in BROKERS if count <= max(2, cores)]


def label(brokers: int) -> str:
    """Return the beginning of the names of rows."""
    return f"{brokers} broker{'s' if brokers > 1 else ''} of one machine"


class LargeBatches:
    """MB/s of records of 1000 bytes, acks=1, and the processor time of the brokers per MB."""

    SIZE, COUNT = 1000, 300_000
    """Bytes of a record; records of each client."""

    def __init__(self, brokers: int) -> None:
        self._rate = f"{label(brokers)}, produce {self.SIZE} B"
        self._cost = f"{self._rate}, brokers' CPU"
        self.figures = {self._rate: ("MB/s", HIGHER), self._cost: ("ms/MB", LOWER)}

    def run(self, side: Side) -> dict[str, float]:
        """Run once, with a new topic."""
        took_s, used = produce(side, self.SIZE, self.COUNT, NOTHING_MORE)
        megabytes = CLIENTS * self.SIZE * self.COUNT / 1e6
        return {self._rate: megabytes / took_s, **costs(self._cost, used, 1000 / megabytes)}


class OneMessageRequests:
    """Requests per second with one record of 100 bytes each, acks=1, and the processor time of the brokers."""

    SIZE, COUNT = 100, 30_000
    CLIENT: ClassVar[Mapping[str, str]] = {
        "linger.ms": "0",
        "batch.num.messages": "1",
        # By default all records of ten milliseconds go to one partition, and so to one broker.
        "sticky.partitioning.linger.ms": "0",
    }

    def __init__(self, brokers: int) -> None:
        self._rate = f"{label(brokers)}, one-message produce requests"
        self._cost = f"{self._rate}, brokers' CPU"
        self.figures = {self._rate: ("1/s", HIGHER), self._cost: ("us", LOWER)}

    def run(self, side: Side) -> dict[str, float]:
        """Run once, with a new topic."""
        took_s, used = produce(side, self.SIZE, self.COUNT, self.CLIENT)
        requests = CLIENTS * self.COUNT
        return {self._rate: requests / took_s, **costs(self._cost, used, 1e6 / requests)}


def produce(side: Side, size: int, count: int, client: Mapping[str, str]) -> tuple[float, Cpu]:
    """Send `count` records of `size` bytes from each of the clients, with more settings of librdkafka; return the
    seconds, and the processor time of the brokers.
    """
    write_lines(size, count)
    topic = Topics(PARTITIONS).create(side, "machine")
    started, cpu = time.monotonic(), side.cpu()
    with ThreadPoolExecutor(CLIENTS) as threads:
        sent = [threads.submit(fill, side.bootstrap, topic, size, count, client=client) for _ in range(CLIENTS)]
        for each in sent:
            each.result()
    took_s, used = time.monotonic() - started, side.cpu() - cpu
    delete_topic(side, topic)
    return took_s, used


def measure(only: str, runs: int) -> Iterator[Row]:
    """Return the rows with `only` in their names: totals of all brokers against one Apache Kafka, and each broker's
    part where there are several.
    """
    workloads = {
        count: (LargeBatches(count), OneMessageRequests(count)) for count in broker_counts(os.cpu_count() or 1)
    }
    for count, each in workloads.items():
        wanted = [workload for workload in each if any(only in name for name in workload.figures)]
        if not wanted:
            continue
        with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
            both = [stack.enter_context(ottla_machine(Path(directory) / "ottla", count))]
            if sides.kafka_unavailable() is None:
                both.append(stack.enter_context(sides.kafka(Path(directory) / "kafka")))
            for workload in wanted:
                rows = compared(workload, both, runs)
                yield from rows
                if count > 1:
                    yield per_broker(rows[0], count)


def per_broker(total: Row, brokers: int) -> Row:
    """Return the row of one broker's part of a rate, which has no counterpart at Apache Kafka."""
    assert total.ottla is not None
    spread = total.ottla_spread and (total.ottla_spread[0] / brokers, total.ottla_spread[1] / brokers)
    return replace(
        total,
        name=total.name + PER_BROKER,
        ottla=total.ottla / brokers,
        kafka=None,
        ottla_spread=spread,
        kafka_spread=None,
    )
