"""One small program in each client library: produce numbered lines with a codec, and read them with a group of three
consumers.

A line is the value of a record whose key is its number, so that missing, duplicate and changed lines are found in any
order of partitions and retries.
"""

import asyncio
import contextlib
import queue
import selectors
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import aiokafka
import confluent_kafka
import kafka

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
GROUP_SIZE = 3
READ_DEADLINE_S = 600
STALL_DEADLINE_S = 60


@dataclass
class Tally:
    """Lines read by a group, by number, and the number of duplicates."""

    lines: dict[int, bytes] = field(default_factory=dict)
    repeated: int = 0
    changed: int = 0

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """Count one record."""
        assert key is not None, "a record has no key"
        number, line = int(key), value or b""
        if number not in self.lines:
            self.lines[number] = line
        else:
            self.repeated += 1
            self.changed += self.lines[number] != line


class Deadline:
    """Time limits of a read loop: in all, and since the last progress."""

    def __init__(self) -> None:
        self._end = time.monotonic() + READ_DEADLINE_S
        self._stalled = time.monotonic() + STALL_DEADLINE_S

    def check(self, *, progress: bool, tally: Tally, expected: int) -> None:
        """Raise at a time limit; `progress` restarts the limit since the last progress."""
        now = time.monotonic()
        if progress:
            self._stalled = now + STALL_DEADLINE_S
        if now > min(self._end, self._stalled):
            raise AssertionError(f"read {len(tally.lines)} of {expected} lines, then no more")


class ClientProgram(Protocol):
    """The two operations, implemented with one client library."""

    def produce(self, bootstrap: str, topic: str, lines: Iterable[bytes], codec: str) -> int:
        """Send every line, wait for all acknowledgements, and return their number."""
        ...

    def read(self, bootstrap: str, topic: str, group: str, expected: int) -> Tally:
        """Read with a group of three consumers from the start until `expected` different lines have arrived."""
        ...


class Librdkafka:
    """confluent-kafka: the current librdkafka, idempotent."""

    def produce(self, bootstrap: str, topic: str, lines: Iterable[bytes], codec: str) -> int:
        """See `ClientProgram.produce`."""
        acknowledged, failures = 0, list[str]()

        def on_delivery(error: object, _message: object) -> None:
            nonlocal acknowledged
            if error is None:
                acknowledged += 1
            else:
                failures.append(str(error))

        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": codec, "linger.ms": 5}
        )
        for number, line in enumerate(lines):
            while True:
                try:
                    producer.produce(topic, key=b"%d" % number, value=line, on_delivery=on_delivery)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        producer.flush(120)
        assert not failures, failures[:3]
        return acknowledged

    def read(self, bootstrap: str, topic: str, group: str, expected: int) -> Tally:
        """See `ClientProgram.read`."""
        tally, deadline = Tally(), Deadline()
        settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        members = [confluent_kafka.Consumer(settings) for _ in range(GROUP_SIZE)]
        try:
            for member in members:
                member.subscribe([topic])
            while len(tally.lines) < expected:
                before = len(tally.lines)
                for member in members:
                    for message in member.consume(2000, timeout=0.05):
                        if message.error() is None:
                            tally.add(message.key(), message.value())
                deadline.check(progress=len(tally.lines) > before, tally=tally, expected=expected)
        finally:
            for member in members:
                member.close()
        return tally


class Aiokafka:
    """aiokafka, idempotent, on an event loop of its own."""

    def produce(self, bootstrap: str, topic: str, lines: Iterable[bytes], codec: str) -> int:
        """See `ClientProgram.produce`."""
        return asyncio.run(self._produce(bootstrap, topic, lines, codec))

    async def _produce(self, bootstrap: str, topic: str, lines: Iterable[bytes], codec: str) -> int:
        acknowledged = 0
        numbered = enumerate(lines)
        compression = None if codec == "none" else codec
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, compression_type=compression, linger_ms=5
        ) as producer:
            while chunk := list(islice(numbered, 5000)):
                sent = [await producer.send(topic, key=b"%d" % number, value=line) for number, line in chunk]
                acknowledged += len(await asyncio.gather(*sent))
        return acknowledged

    def read(self, bootstrap: str, topic: str, group: str, expected: int) -> Tally:
        """See `ClientProgram.read`."""
        return asyncio.run(self._read(bootstrap, topic, group, expected))

    async def _read(self, bootstrap: str, topic: str, group: str, expected: int) -> Tally:
        tally, deadline = Tally(), Deadline()
        async with contextlib.AsyncExitStack() as stack:
            members = [
                aiokafka.AIOKafkaConsumer(
                    topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
                )
                for _ in range(GROUP_SIZE)
            ]
            await asyncio.gather(*(stack.enter_async_context(member) for member in members))
            while len(tally.lines) < expected:
                before = len(tally.lines)
                polls = await asyncio.gather(*(member.getmany(timeout_ms=200, max_records=5000) for member in members))
                for records in (records for poll in polls for records in poll.values()):
                    for record in records:
                        tally.add(record.key, record.value)
                deadline.check(progress=len(tally.lines) > before, tally=tally, expected=expected)
        return tally


class KafkaPython:
    """kafka-python: its own codec and group implementation."""

    def produce(self, bootstrap: str, topic: str, lines: Iterable[bytes], codec: str) -> int:
        """See `ClientProgram.produce`."""
        acknowledged = 0
        compression = None if codec == "none" else codec
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap, compression_type=compression, linger_ms=5, acks="all"
        )
        try:
            numbered = enumerate(lines)
            while chunk := list(islice(numbered, 5000)):
                futures = [producer.send(topic, key=b"%d" % number, value=line) for number, line in chunk]
                producer.flush(120)
                acknowledged += sum(future.get(120) is not None for future in futures)
        finally:
            producer.close()
        return acknowledged

    def read(self, bootstrap: str, topic: str, group: str, expected: int) -> Tally:
        """See `ClientProgram.read`; a thread per member, because its poll waits inside a rebalance."""
        tally, deadline, enough = Tally(), Deadline(), threading.Event()
        batches: queue.Queue[list[tuple[bytes | None, bytes | None]]] = queue.Queue(maxsize=64)

        def member() -> None:
            consumer = kafka.KafkaConsumer(
                topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
            )
            try:
                while not enough.is_set():
                    for records in consumer.poll(timeout_ms=200, max_records=5000).values():
                        batches.put([(record.key, record.value) for record in records])
            finally:
                consumer.close()

        with ThreadPoolExecutor(GROUP_SIZE) as pool:
            running = [pool.submit(member) for _ in range(GROUP_SIZE)]
            try:
                while len(tally.lines) < expected:
                    before = len(tally.lines)
                    with contextlib.suppress(queue.Empty):
                        for key, value in batches.get(timeout=0.5):
                            tally.add(key, value)
                    deadline.check(progress=len(tally.lines) > before, tally=tally, expected=expected)
            finally:
                enough.set()
                while not all(each.done() for each in running):
                    with contextlib.suppress(queue.Empty):
                        batches.get(timeout=0.1)
        for each in running:
            each.result()
        return tally


class Kcat:
    """Debian's kcat, an older librdkafka: lines as a file on standard input, one partition, in order."""

    def produce(self, bootstrap: str, topic: str, lines: Iterable[bytes], codec: str) -> int:
        """See `ClientProgram.produce`."""
        count = 0

        def numbered() -> Iterator[bytes]:
            nonlocal count
            for number, line in enumerate(lines):
                count += 1
                yield b"%d\t%s\n" % (number, line)

        command = [
            "kcat",
            "-P",
            "-E",
            "-b",
            bootstrap,
            "-t",
            topic,
            "-K",
            "\t",
            "-z",
            codec,
            "-X",
            "enable.idempotence=true",
        ]
        process = subprocess.Popen(command, stdin=subprocess.PIPE)
        assert process.stdin is not None
        with process.stdin as pipe:
            pipe.writelines(numbered())
        assert process.wait(300) == 0
        return count

    def read(self, bootstrap: str, topic: str, group: str, expected: int) -> Tally:
        """See `ClientProgram.read`; kcat's balanced consumers as three processes, read in turn."""
        tally = Tally()
        options = ["-E", "-q", "-u", "-f", "%k\t%s\n", "-X", "auto.offset.reset=earliest"]
        command = ["kcat", "-b", bootstrap, *options, "-G", group, topic]
        members = [subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) for _ in range(GROUP_SIZE)]
        try:
            _read_pipes(members, tally, expected)
        finally:
            for member in members:
                member.terminate()
                member.communicate()
        return tally


def _read_pipes(members: Sequence[subprocess.Popen[bytes]], tally: Tally, expected: int) -> None:
    deadline = Deadline()
    rests = {member: b"" for member in members}
    with selectors.DefaultSelector() as selector:
        for member in members:
            assert member.stdout is not None
            selector.register(member.stdout, selectors.EVENT_READ, member)
        while len(tally.lines) < expected:
            before = len(tally.lines)
            for key, _events in selector.select(timeout=0.2):
                member = key.data
                *lines, rests[member] = (rests[member] + member.stdout.read(1 << 20)).split(b"\n")
                for line in lines:
                    number, _tab, text = line.partition(b"\t")
                    tally.add(number, text)
            deadline.check(progress=len(tally.lines) > before, tally=tally, expected=expected)


PROGRAMS: dict[str, Callable[[], ClientProgram]] = {
    "librdkafka": Librdkafka,
    "aiokafka": Aiokafka,
    "kafka-python": KafkaPython,
    "kcat": Kcat,
}
