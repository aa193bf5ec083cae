"""What the brokers are made to do. A workload runs against one side and returns its figures by name."""

import itertools
import shutil
import statistics
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from tests.benchmarks.sides import Side

HIGHER, LOWER = "higher", "lower"


class Workload(Protocol):
    """One thing to measure. `figures` names what `run` returns, with unit and which way is better."""

    figures: dict[str, tuple[str, str]]

    def run(self, side: Side) -> dict[str, float]:
        """Do it once, and return each figure."""
        ...


def create_topic(side: Side, name: str) -> None:
    """A topic with one partition, ready for use."""
    admin = AdminClient({"bootstrap.servers": side.bootstrap})  # its calls end when it is garbage
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)


def delete_topic(side: Side, name: str) -> None:
    """Take the topic away, so that dirty data stays small."""
    admin = AdminClient({"bootstrap.servers": side.bootstrap})
    admin.delete_topics([name])[name].result(30)


def fill(side: Side, topic: str, size: int, count: int) -> None:
    """Produce `count` records of `size` random printable bytes with acks=1 as fast as librdkafka goes."""
    if shutil.which("kcat") is None:
        _fill_with_confluent(side, topic, size, count)
        return
    command = [
        "kcat",
        "-P",
        "-b",
        side.bootstrap,
        "-t",
        topic,
        "-X",
        "acks=1",
        "-X",
        "linger.ms=5",
        "-l",
        str(_lines(size, count)),
    ]
    command += ["-X", "queue.buffering.max.messages=1000000", "-X", "queue.buffering.max.kbytes=262144"]
    subprocess.run(command, check=True, timeout=600)


def _fill_with_confluent(side: Side, topic: str, size: int, count: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": side.bootstrap, "acks": 1, "linger.ms": 5})
    value = next(_texts(size))
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)
    assert producer.flush(600) == 0


def _lines(size: int, count: int) -> Path:
    """A file of `count` lines of `size` bytes, made once per machine and run."""
    path = Path(tempfile.gettempdir()) / f"ottla-bench-{size}-{count}.txt"
    if not path.exists():
        with path.with_suffix(".part").open("wb") as out:
            out.writelines(itertools.islice((text + b"\n" for text in itertools.cycle(_texts(size))), count))
        path.with_suffix(".part").rename(path)
    return path


def _texts(size: int) -> Iterator[bytes]:
    for seed in range(64):
        unit = uuid.UUID(int=seed * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128).hex.encode()
        yield (unit * (size // len(unit) + 1))[:size]


class Produce:
    """MB/s into one partition, acks=1, and the broker's processor time for each MB."""

    def __init__(self, size: int, count: int) -> None:
        self._size, self._count = size, count
        self._rate, self._cost = f"produce {size} B", f"produce {size} B, broker CPU"
        self.figures = {self._rate: ("MB/s", HIGHER), self._cost: ("ms/MB", LOWER)}

    def run(self, side: Side) -> dict[str, float]:
        """One run."""
        topic = f"produce-{uuid.uuid4().hex}"
        create_topic(side, topic)
        _lines(self._size, self._count)
        started, cpu = time.monotonic(), side.cpu_s()
        fill(side, topic, self._size, self._count)
        took, used = time.monotonic() - started, side.cpu_s() - cpu
        delete_topic(side, topic)
        megabytes = self._size * self._count / 1e6
        return {self._rate: megabytes / took, self._cost: used * 1000 / megabytes}


class Consume:
    """MB/s out of one hot partition, and the broker's processor time for each MB."""

    def __init__(self, size: int, count: int) -> None:
        self._size, self._count = size, count
        self._rate, self._cost = f"consume {size} B", f"consume {size} B, broker CPU"
        self.figures = {self._rate: ("MB/s", HIGHER), self._cost: ("ms/MB", LOWER)}
        self._topics: dict[str, str] = {}

    def run(self, side: Side) -> dict[str, float]:
        """One run over a topic that is filled once per side."""
        topic = self._topics.get(side.name)
        if topic is None:
            topic = self._topics[side.name] = f"consume-{uuid.uuid4().hex}"
            create_topic(side, topic)
            fill(side, topic, self._size, self._count)
        started, cpu = time.monotonic(), side.cpu_s()
        self._drain(side, topic)
        took, used = time.monotonic() - started, side.cpu_s() - cpu
        megabytes = self._size * self._count / 1e6
        return {self._rate: megabytes / took, self._cost: used * 1000 / megabytes}

    def _drain(self, side: Side, topic: str) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": side.bootstrap,
                "group.id": "bench",
                "enable.auto.commit": False,
                "queued.max.messages.kbytes": 262_144,
                "fetch.message.max.bytes": 1_048_576,
                "check.crcs": False,
            }
        )
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        read = 0
        while read < self._count:
            read += len(consumer.consume(10_000, timeout=5))
        consumer.close()


class OneMessageRequests:
    """Requests per second with one record in each, five in flight, and the broker's processor time for each."""

    COUNT = 30_000

    def __init__(self) -> None:
        self.figures = {
            "one-message produce requests": ("1/s", HIGHER),
            "one-message produce request, broker CPU": ("us", LOWER),
        }

    def run(self, side: Side) -> dict[str, float]:
        """One run."""
        topic = f"single-{uuid.uuid4().hex}"
        create_topic(side, topic)
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": side.bootstrap, "acks": 1, "linger.ms": 0, "batch.num.messages": 1}
        )
        producer.list_topics(topic, timeout=30)
        value = b"x" * 100
        started, cpu = time.monotonic(), side.cpu_s()
        for _ in range(self.COUNT):
            producer.produce(topic, value)
        assert producer.flush(300) == 0
        took, used = time.monotonic() - started, side.cpu_s() - cpu
        delete_topic(side, topic)
        return {
            "one-message produce requests": self.COUNT / took,
            "one-message produce request, broker CPU": used * 1e6 / self.COUNT,
        }


class SyncProduce:
    """Milliseconds for one record at a time, each awaited, on an idle broker."""

    COUNT = 3_000

    def __init__(self) -> None:
        self.figures = {"sync produce p50": ("ms", LOWER), "sync produce p99": ("ms", LOWER)}

    def run(self, side: Side) -> dict[str, float]:
        """One run."""
        topic = f"sync-{uuid.uuid4().hex}"
        create_topic(side, topic)
        producer = confluent_kafka.Producer({"bootstrap.servers": side.bootstrap, "acks": 1, "linger.ms": 0})
        producer.list_topics(topic, timeout=30)
        latencies = []
        for _ in range(self.COUNT):
            started = time.perf_counter()
            producer.produce(topic, b"x" * 100)
            producer.flush(30)
            latencies.append((time.perf_counter() - started) * 1000)
        delete_topic(side, topic)
        hundredths = statistics.quantiles(latencies, n=100)
        return {"sync produce p50": hundredths[49], "sync produce p99": hundredths[98]}
