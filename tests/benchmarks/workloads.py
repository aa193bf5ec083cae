"""Workloads. A workload runs against one broker and returns its figures by name."""

import contextlib
import itertools
import select
import shutil
import socket
import ssl
import statistics
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from broker.client import Client, ClientConfig
from protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from tests.benchmarks.report import rows
from tests.benchmarks.report.rows import USER
from tests.benchmarks.sides import NOTHING_MORE, Cpu, Side
from tests.benchmarks.wire import Wire, check_produced, fetch_frame, fetched_bytes, produce_frame

HIGHER, LOWER = "higher", "lower"
TOPIC = 2
ACLS_PER_REQUEST = 1000


Workload = rows.Workload[Side]


def costs(name: str, used: Cpu, factor: float) -> dict[str, float]:
    """Return processor time times `factor` as the figure `name`, with its user part."""
    return {name: used.total * factor, name + USER: used.user * factor}


def create_topic(side: Side, name: str) -> None:
    """Create a topic with one partition, and wait until it is ready."""
    admin = AdminClient({"bootstrap.servers": side.bootstrap, **side.client})  # its calls end when it is deleted
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)


@contextlib.contextmanager
def new_topic(side: Side, name: str) -> Iterator[str]:
    """Use a new topic for one run, so that little dirty data accumulates."""
    unique = f"{name}-{uuid.uuid4().hex}"
    create_topic(side, unique)
    yield unique
    delete_topic(side, unique)


def load_acls(bootstrap: str, count: int) -> None:
    """Add `count` ACLs of other principals, a fifth of them prefixed, and one that allows the measured topics."""
    creations = [
        AclCreation(
            TOPIC, f"team-{number % 1000}.topic-{number}", 4 if number % 5 == 0 else 3, f"User:u{number}", "*", 3, 3
        )
        for number in range(count - 1)
    ]
    creations.append(AclCreation(TOPIC, "single", 4, "User:*", "*", 2, 3))
    with Client(ClientConfig.parse(bootstrap, {})) as client:
        for start in range(0, count, ACLS_PER_REQUEST):
            request = CreateAclsRequest(creations[start : start + ACLS_PER_REQUEST])
            results = client.call(request, CreateAclsResponse).results
            assert not any(result.error_code for result in results), results


def delete_topic(side: Side, name: str) -> None:
    """Delete a topic."""
    admin = AdminClient({"bootstrap.servers": side.bootstrap, **side.client})
    admin.delete_topics([name])[name].result(30)


def fill(
    bootstrap: str, topic: str, size: int, count: int, acks: str = "1", client: Mapping[str, str] = NOTHING_MORE
) -> None:
    """Produce `count` records of `size` random printable bytes at librdkafka's full speed, with `client` settings."""
    settings = {"acks": acks, "linger.ms": "5", **client}
    if shutil.which("kcat") is None:
        _fill_with_confluent({"bootstrap.servers": bootstrap, **settings}, topic, size, count)
        return
    settings |= {"queue.buffering.max.messages": "1000000", "queue.buffering.max.kbytes": "262144"}
    lines = str(write_lines(size, count))
    subprocess.run(
        ["kcat", "-P", "-b", bootstrap, "-t", topic, *options(settings), "-l", lines], check=True, timeout=600
    )


def options(settings: Mapping[str, str]) -> list[str]:
    """Return settings of librdkafka as options of kcat."""
    return [part for key, value in settings.items() for part in ("-X", f"{key}={value}")]


def _fill_with_confluent(settings: Mapping[str, str], topic: str, size: int, count: int) -> None:
    producer = confluent_kafka.Producer({**settings})
    value = next(_texts(size))
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)
    assert producer.flush(600) == 0


def write_lines(size: int, count: int) -> Path:
    """Return a file of `count` lines of `size` bytes, created once per machine and run."""
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
    """MB/s to one partition, acks=1, and the broker's processor time per MB."""

    def __init__(self, size: int, count: int, condition: str = "") -> None:
        self._size, self._count = size, count
        self._rate, self._cost = f"produce {size} B{condition}", f"produce {size} B, broker CPU{condition}"
        self.figures = {self._rate: ("MB/s", HIGHER), self._cost: ("ms/MB", LOWER)}

    def run(self, side: Side) -> dict[str, float]:
        """Run once."""
        write_lines(self._size, self._count)
        with new_topic(side, "produce") as topic:
            started, cpu = time.monotonic(), side.cpu()
            fill(side.bootstrap, topic, self._size, self._count, client=side.client)
            took, used = time.monotonic() - started, side.cpu() - cpu
        megabytes = self._size * self._count / 1e6
        return {self._rate: megabytes / took, **costs(self._cost, used, 1000 / megabytes)}


class Consume:
    """MB/s from one partition in the page cache, and the broker's processor time per MB. The client's start and end,
    measured with a single record, do not count.

    The client's read-ahead is unlimited. By default librdkafka stops fetching while 100,000 records are unread and
    checks again after a second: it would be idle most of the time, and longer with the faster broker.
    """

    PREFETCH: ClassVar[Mapping[str, str]] = {
        "queued.min.messages": "10000000",
        "queued.max.messages.kbytes": "1048576",
        "check.crcs": "false",
    }

    def __init__(self, size: int, count: int, condition: str = "") -> None:
        self._size, self._count = size, count
        self._rate, self._cost = f"consume {size} B{condition}", f"consume {size} B, broker CPU{condition}"
        self.figures = {self._rate: ("MB/s", HIGHER), self._cost: ("ms/MB", LOWER)}
        self._topics: dict[str, str] = {}

    def run(self, side: Side) -> dict[str, float]:
        """Run once over a topic that is filled once per broker."""
        topic = self._topics.get(side.name)
        if topic is None:
            topic = self._topics[side.name] = f"consume-{uuid.uuid4().hex}"
            create_topic(side, topic)
            self._fill(side, topic)
        drain = self._drain_with_confluent if shutil.which("kcat") is None else self._drain
        overhead_s = drain(side, topic, 1)
        cpu = side.cpu()
        took, used = drain(side, topic, self._count) - overhead_s, side.cpu() - cpu
        megabytes = self._size * self._count / 1e6
        return {self._rate: megabytes / took, **costs(self._cost, used, 1000 / megabytes)}

    def _fill(self, side: Side, topic: str) -> None:
        fill(side.bootstrap, topic, self._size, self._count, client=side.client)

    def _drain(self, side: Side, topic: str, count: int) -> float:
        command = ["kcat", "-C", "-q", "-b", side.bootstrap, "-t", topic, "-o", "beginning", "-c", str(count)]
        command += options({**self.PREFETCH, **side.client})
        started = time.monotonic()
        subprocess.run(command, check=True, timeout=600, stdout=subprocess.DEVNULL)
        return time.monotonic() - started

    def _drain_with_confluent(self, side: Side, topic: str, count: int) -> float:
        """Consume with confluent-kafka, slower by a Python object per record."""
        started = time.monotonic()
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": side.bootstrap,
                "group.id": "bench",
                "enable.auto.commit": False,
                **self.PREFETCH,
                **side.client,
            }
        )
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        read = 0
        while read < count:
            read += len(consumer.consume(min(count, 10_000), timeout=5))
        consumer.close()
        return time.monotonic() - started


class OneMessageRequests:
    """Requests per second with one record each, five in flight, and the broker's processor time per request."""

    COUNT = 30_000

    def __init__(self, condition: str = "") -> None:
        self._rate, self._cost = (
            f"one-message produce requests{condition}",
            f"one-message produce request, broker CPU{condition}",
        )
        self.figures = {self._rate: ("1/s", HIGHER), self._cost: ("us", LOWER)}

    def run(self, side: Side) -> dict[str, float]:
        """Run once."""
        with new_topic(side, "single") as topic:
            return self._send(side, topic)

    def _send(self, side: Side, topic: str) -> dict[str, float]:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": side.bootstrap, "acks": 1, "linger.ms": 0, "batch.num.messages": 1, **side.client}
        )
        producer.list_topics(topic, timeout=30)
        value = b"x" * 100
        started, cpu = time.monotonic(), side.cpu()
        for _ in range(self.COUNT):
            producer.produce(topic, value)
        assert producer.flush(300) == 0
        took, used = time.monotonic() - started, side.cpu() - cpu
        return {self._rate: self.COUNT / took, **costs(self._cost, used, 1e6 / self.COUNT)}


class HandShakes:
    """Full TLS 1.3 hand-shakes per second from a few threads, and the broker's processor time of each."""

    COUNT, THREADS = 2_000, 4

    def __init__(self) -> None:
        self.figures = {"TLS hand-shakes": ("1/s", HIGHER), "TLS hand-shake, broker CPU": ("us", LOWER)}

    def run(self, side: Side) -> dict[str, float]:
        """Run once."""
        context = ssl.create_default_context(cafile=side.client["ssl.ca.location"])
        host, _, port = side.bootstrap.rpartition(":")

        def shake(_: int) -> None:
            with (
                socket.create_connection((host, int(port)), timeout=30) as connection,
                context.wrap_socket(connection, server_hostname=host) as secured,
            ):
                assert secured.version() == "TLSv1.3"

        started, cpu = time.monotonic(), side.cpu_s()
        with ThreadPoolExecutor(self.THREADS) as threads:
            list(threads.map(shake, range(self.COUNT)))
        took, used = time.monotonic() - started, side.cpu_s() - cpu
        return {"TLS hand-shakes": self.COUNT / took, "TLS hand-shake, broker CPU": used * 1e6 / self.COUNT}


class SyncProduce:
    """Milliseconds per record, each awaited, on an idle broker."""

    COUNT = 5_000

    def __init__(self) -> None:
        self.figures = {"sync produce p50": ("ms", LOWER), "sync produce p99": ("ms", LOWER)}

    def run(self, side: Side) -> dict[str, float]:
        """Run once."""
        latencies = []
        with new_topic(side, "sync") as topic, Wire(side.bootstrap) as wire:
            frame = produce_frame(topic)
            for _ in range(self.COUNT):
                started = time.perf_counter()
                wire.send(frame)
                answer = wire.answer()
                latencies.append((time.perf_counter() - started) * 1000)
            check_produced(answer)
        hundredths = statistics.quantiles(latencies, n=100)
        return {"sync produce p50": hundredths[49], "sync produce p99": hundredths[98]}


class HalfLoad:
    """Milliseconds from the due time of a batch to its arrival at a waiting consumer.

    Requests have ten records of 1000 bytes, at a constant rate: half of the maximum of the slower broker, so that both
    have the same load. A client behind schedule delays both.
    """

    RECORDS, SIZE = 10, 1000
    FLOOD = 6_000
    PACED_S = 3.0

    def __init__(self) -> None:
        self.figures = {"half load, end to end p50": ("ms", LOWER), "half load, end to end p99": ("ms", LOWER)}
        self._maxima: dict[str, float] = {}

    def run(self, side: Side) -> dict[str, float]:
        """Run once; the first run of each broker measures its maximum."""
        if side.name not in self._maxima:
            with new_topic(side, "flood") as topic:
                self._maxima[side.name] = self._flood(side, topic)
        with new_topic(side, "half") as topic:
            latencies = self._pace(side, topic, min(self._maxima.values()) / 2)
        hundredths = statistics.quantiles(latencies, n=100)
        return {"half load, end to end p50": hundredths[49], "half load, end to end p99": hundredths[98]}

    def _flood(self, side: Side, topic: str) -> float:
        """Return requests per second with five in flight."""
        frame = produce_frame(topic, records=self.RECORDS, size=self.SIZE)
        started, sent, answered = time.monotonic(), 5, 0
        with Wire(side.bootstrap) as wire:
            wire.send(frame * sent)
            while answered < self.FLOOD:
                for _ in wire.answers():
                    answered += 1
                    if sent < self.FLOOD:
                        wire.send(frame)
                        sent += 1
        return self.FLOOD / (time.monotonic() - started)

    def _pace(self, side: Side, topic: str, rate: float) -> list[float]:
        """Send on schedule and receive by long polling, both in one thread; return the latency of each batch."""
        frame = produce_frame(topic, records=self.RECORDS, size=self.SIZE)
        count, arrived, sent = int(rate * self.PACED_S), 0, 0
        latencies: list[float] = []
        with Wire(side.bootstrap) as producer, Wire(side.bootstrap) as consumer:
            producer.send(frame)
            check_produced(producer.answer())
            consumer.send(fetch_frame(topic, 0))
            batch_bytes, offset = fetched_bytes(consumer.answer()), self.RECORDS
            consumer.send(fetch_frame(topic, offset))
            started = time.perf_counter()
            while arrived < count:
                due = started + sent / rate - time.perf_counter() if sent < count else 1.0
                if due <= 0:
                    producer.send(frame)
                    sent += 1
                    continue
                readable, _, _ = select.select([producer.socket, consumer.socket], (), (), due)
                if producer.socket in readable:
                    producer.answers()
                for answer in consumer.answers() if consumer.socket in readable else ():
                    now, batches = time.perf_counter(), fetched_bytes(answer) // batch_bytes
                    latencies += [(now - started - index / rate) * 1000 for index in range(arrived, arrived + batches)]
                    arrived += batches
                    offset += batches * self.RECORDS
                    consumer.send(fetch_frame(topic, offset))
        return latencies
