"""Readers of the output topic with isolation level read_committed, and the input that the run writes."""

import threading
import time
from collections.abc import Callable

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.exactly_once.checker import Ledger, Read

PADDING = b"." * 80
QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 500, "socket.connection.setup.timeout.ms": 2000}
END_TIMEOUT_S = 120.0


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class InputWriter(threading.Thread):
    """Writes numbers from 0 on as keys, in turn to each partition, with an idempotent producer."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, count: int, rate: float) -> None:
        super().__init__(daemon=True)
        self._producer = Producer(
            {**QUIET, "bootstrap.servers": bootstrap, "enable.idempotence": True, "delivery.timeout.ms": 600_000}
        )
        self._topic = topic
        self._partitions = partitions
        self._count = count
        self._rate = rate
        self.acknowledged = 0
        self.errors: list[str] = []

    def run(self) -> None:
        begun = time.monotonic()
        for number in range(self._count):
            while True:
                ahead = number / self._rate - (time.monotonic() - begun)
                self._producer.poll(max(0.0, ahead))
                if ahead > 0:
                    continue
                try:
                    self._producer.produce(
                        self._topic, PADDING, b"%d" % number, number % self._partitions, on_delivery=self._delivered
                    )
                except BufferError:
                    self._producer.poll(0.1)
                else:
                    break
        self._producer.flush()

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.errors.append(str(error))


def _reader(bootstrap: str, topic: str, partitions: int) -> Consumer:
    consumer = Consumer(
        {
            **QUIET,
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
    return consumer


def _book(message: Message, time_ms: int, see: Callable[[int, int, Read], None]) -> None:
    number, _, transaction = (message.value() or b"").decode().partition(" ")
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    see(partition, offset, Read(int(number), transaction, time_ms))


class LiveReader(threading.Thread):
    """Reads the output from the beginning while it is written."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, ledger: Ledger) -> None:
        super().__init__(daemon=True)
        self._consumer = _reader(bootstrap, topic, partitions)
        self._ledger = ledger
        self._ends: dict[int, int] = {}
        self._stopping = threading.Event()
        self.errors: list[str] = []
        self.progress = time.monotonic()

    def run(self) -> None:
        while not self._stopping.is_set():
            messages = self._consumer.consume(1000, 0.02)
            time_ms = now_ms()
            for each in messages:
                error = each.error()
                if error is None:
                    _book(each, time_ms, self._ledger.see)
                    self.progress = time.monotonic()
                elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                    self.errors.append(str(error))
        self._consumer.close()

    def stop(self) -> None:
        self._stopping.set()
        self.join()


def end_offsets(bootstrap: str, topic: str, partitions: int, isolation: str) -> list[int]:
    """Return the last stable offsets or the high watermarks."""
    settings = {**QUIET, "bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": isolation}
    consumer = Consumer(settings)
    try:
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, each), 30) for each in range(partitions)]
        return [high for _, high in ends]
    finally:
        consumer.close()


def wait_until_decided(bootstrap: str, topic: str, partitions: int) -> float:
    """Wait until no transaction is open; return the seconds. Killed producers' transactions end by their timeout."""
    begun = time.monotonic()
    while True:
        try:
            stable, high = (
                end_offsets(bootstrap, topic, partitions, each) for each in ("read_committed", "read_uncommitted")
            )
            if stable == high:
                return time.monotonic() - begun
        except KafkaException:
            stable, high = [], []
        assert time.monotonic() < begun + END_TIMEOUT_S, f"transactions stay open: {stable}, {high}"
        time.sleep(0.5)


def read_all(bootstrap: str, topic: str, partitions: int) -> dict[tuple[int, int], Read]:
    """Return all committed records, when no transaction is open."""
    found: dict[tuple[int, int], Read] = {}
    consumer, open_partitions = _reader(bootstrap, topic, partitions), set(range(partitions))
    deadline = time.monotonic() + END_TIMEOUT_S
    while open_partitions:
        assert time.monotonic() < deadline, f"partitions {open_partitions} have not ended"
        for each in consumer.consume(5000, 0.2):
            error = each.error()
            if error is None:
                _book(each, now_ms(), lambda partition, offset, read: found.update({(partition, offset): read}))
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(each.partition() if each.partition() is not None else -1)
    consumer.close()
    return found
