"""Consumers that have fallen behind read a tiered topic, from both brokers: MB/s, and the brokers' processor time.

Ottla reads from a real S3 server, Apache Kafka from files of the local disk (see `cluster.py`). More is stored than the
caches of Ottla hold, so that each run reads from the store.
"""

import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from tests.benchmarks.replication_cluster import IDS, Trio
from tests.benchmarks.tiered.cluster import EARLIEST_LOCAL, PATIENCE_S, await_shrunk, offsets, tiered
from tests.benchmarks.workloads import HIGHER, LOWER, Consume, costs, fill, options

THREADS: Final = 4
RECORD_BYTES: Final = 1000
SEGMENT_BYTES: Final = 16 * 1024 * 1024
RATE: Final = "catch-up from the tier of three brokers"
COST: Final = "catch-up from the tier of three brokers, brokers' CPU"


@dataclass(frozen=True)
class Span:
    """Records of a partition to be consumed."""

    topic: str
    partition: int
    first: int
    count: int


class CatchUp:
    """The workload; the first run fills the topic. One consumer per partition reads up to the leader's local log."""

    def __init__(self, megabytes: int, runs: int) -> None:
        self.runs = runs + 1
        self.figures = {RATE: ("MB/s", HIGHER), COST: ("ms/MB", LOWER)}
        self._records = megabytes * 1_000_000 // RECORD_BYTES
        self._topics: dict[str, str] = {}

    def run(self, side: Trio) -> dict[str, float]:
        """Read all remote records once. The clients' start and end do not count."""
        topic = self._topics.get(side.name) or self._topics.setdefault(side.name, self._filled(side))
        ends = offsets(side.bootstrap, topic, EARLIEST_LOCAL)
        overhead_s = drain(side.bootstrap, [Span(topic, number, end, 1) for number, end in ends.items()])
        before = side.cpu()
        took = drain(side.bootstrap, [Span(topic, number, 0, end) for number, end in ends.items()])
        used = side.cpu() - before
        megabytes = sum(ends.values()) * RECORD_BYTES / 1e6
        return {RATE: megabytes / (took - overhead_s), **costs(COST, used, 1000 / megabytes)}

    def _filled(self, side: Trio) -> str:
        topic = f"behind-{uuid.uuid4().hex}"
        side.create_topic(topic, config=tiered(SEGMENT_BYTES, SEGMENT_BYTES))
        fill(side.bootstrap, topic, RECORD_BYTES, self._records, acks="all")
        await_shrunk(side.bootstrap, topic, len(IDS), 3 * SEGMENT_BYTES // RECORD_BYTES)
        return topic


def drain(bootstrap: str, spans: Sequence[Span]) -> float:
    """Return the seconds until librdkafka's consumers have all records. With kcat, one process per partition."""
    started = time.monotonic()
    if shutil.which("kcat") is None:
        _drain_with_confluent(bootstrap, spans)
    else:
        in_parallel(lambda span: _drain_with_kcat(bootstrap, span), spans)
    return time.monotonic() - started


def in_parallel(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Return the results of `work` on `THREADS` threads, in order."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(work, items))


def _drain_with_kcat(bootstrap: str, span: Span) -> None:
    command = ["kcat", "-C", "-q", "-b", bootstrap, "-t", span.topic, "-p", str(span.partition)]
    command += ["-o", str(span.first), "-c", str(span.count), *options(Consume.PREFETCH)]
    subprocess.run(command, check=True, timeout=PATIENCE_S, stdout=subprocess.DEVNULL)


def _drain_with_confluent(bootstrap: str, spans: Sequence[Span]) -> None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, **Consume.PREFETCH}
    )
    consumer.assign([TopicPartition(span.topic, span.partition, span.first) for span in spans])
    left = sum(span.count for span in spans)
    while left > 0:
        left -= len(consumer.consume(min(left, 10_000), timeout=5))
    consumer.close()
