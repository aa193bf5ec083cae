"""Workloads of many clients: open connections, and consumers of one topic."""

import selectors
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.benchmarks.clients.measured import Topics, delete_topic, with_cost
from tests.benchmarks.sides import Side
from tests.benchmarks.wire import Wire, check_produced, fetch_frame, fetched_bytes, produce_frame, record_batch
from tests.benchmarks.workloads import HIGHER, LOWER


class Connections:
    """Requests per second over thousands of connections, one request in flight on each of a hundred at a time.

    OPENERS threads open them: one thread alone overflows the queue of either broker every hundred connections, and
    waits a second each time.
    """

    IN_FLIGHT, ROUNDS, OPENERS = 100, 4, 50

    def __init__(self, count: int = 5_000) -> None:
        self._count = count
        label = f"{count:,} connections"
        self._rate, self._cost = f"{label}, requests", f"{label}, broker CPU"
        self.figures = {self._rate: ("1/s", HIGHER), self._cost: ("us", LOWER)}

    def run(self, side: Side) -> dict[str, float]:
        """Run once; all connections close at the end."""
        topic = Topics().create(side, "connections")
        frame = produce_frame(topic)
        with ThreadPoolExecutor(self.OPENERS) as pool:
            wires = list(pool.map(Wire, [side.bootstrap] * self._count))
        try:
            self._round(wires, frame)  # the broker has allocated all per connection after this
            requests = self._count * self.ROUNDS
            took, figures = with_cost(side, self._cost, requests / 1000, lambda: self._rounds(wires, frame))
        finally:
            for wire in wires:
                wire.socket.close()
        delete_topic(side, topic)
        return {self._rate: requests / took, **figures}

    def _rounds(self, wires: Sequence[Wire], frame: bytes) -> float:
        started = time.monotonic()
        for _ in range(self.ROUNDS):
            self._round(wires, frame)
        return time.monotonic() - started

    def _round(self, wires: Sequence[Wire], frame: bytes) -> None:
        """Send one request over each connection, and receive all responses."""
        for start in range(0, len(wires), self.IN_FLIGHT):
            some = wires[start : start + self.IN_FLIGHT]
            for wire in some:
                wire.send(frame)
            for wire in some:
                answer = wire.answer()
        check_produced(answer)


class Consumers:
    """MB/s to many consumers that read the same topic from its start, each with one fetch of up to 1 MB in flight."""

    RECORDS, SIZE, TOTAL_MB = 10, 1000, 1_000

    def __init__(self, count: int) -> None:
        self._count = count
        self._rate, self._cost = f"{count} consumers of one topic", f"{count} consumers of one topic, broker CPU"
        self._batches = max(1, self.TOTAL_MB * 1_000_000 // count // (self.RECORDS * self.SIZE))
        self._topics: dict[str, str] = {}
        self.figures = {self._rate: ("MB/s", HIGHER), self._cost: ("ms/MB", LOWER)}

    def run(self, side: Side) -> dict[str, float]:
        """Run once over a topic that is filled once per broker."""
        topic = self._topics.get(side.name)
        if topic is None:
            topic = self._topics[side.name] = Topics().create(side, "fan-out")
            self._fill(side, topic)
        megabytes = self._count * self._batches * self.RECORDS * self.SIZE / 1e6
        took, figures = with_cost(side, self._cost, megabytes, lambda: self._read(side.bootstrap, topic))
        return {self._rate: megabytes / took, **figures}

    def _fill(self, side: Side, topic: str) -> None:
        frame = produce_frame(topic, records=self.RECORDS, size=self.SIZE)
        with Wire(side.bootstrap) as wire:
            for _ in range(self._batches):
                wire.send(frame)
                answer = wire.answer()
            check_produced(answer)

    def _read(self, bootstrap: str, topic: str) -> float:
        with selectors.DefaultSelector() as selector:
            readers = [_Reader(Wire(bootstrap), topic, self.RECORDS, self._batches) for _ in range(self._count)]
            started = time.monotonic()
            for reader in readers:
                selector.register(reader.wire.socket, selectors.EVENT_READ, reader)
                reader.ask()
            running = len(readers)
            while running:
                for key, _ in selector.select(60):
                    running -= key.data.receive()
            took = time.monotonic() - started
        for reader in readers:
            reader.wire.socket.close()
        return took


class _Reader:
    """One consumer: fetches from the first offset until it has all batches, which are equal."""

    def __init__(self, wire: Wire, topic: str, records_per_batch: int, batches: int) -> None:
        self.wire = wire
        self._topic, self._records, self._batches = topic, records_per_batch, batches
        self._batch_bytes, self._read = len(record_batch(records_per_batch, Consumers.SIZE)), 0

    def ask(self) -> None:
        """Send the next fetch."""
        self.wire.send(fetch_frame(self._topic, self._read * self._records))

    def receive(self) -> bool:
        """Receive what has arrived; return whether everything has been read."""
        for answer in self.wire.answers():
            self._read += fetched_bytes(answer) // self._batch_bytes
            if self._read >= self._batches:
                return True
            self.ask()
        return False
