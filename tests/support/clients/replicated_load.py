"""Load for a replicated cluster: an idempotent producer and a consumer group, with a record of all acknowledgements and
reads.

Records are numbered, so that lost, duplicate and reordered records are found.
"""

import contextlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from broker.client import ClientConfig, Connection, ConnectionLost, Endpoint
from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

RATE_PER_S = 1000
PATIENCE_S = 60
_QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 200}


def admin_of(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, **_QUIET})


def create_topic(
    bootstrap: str,
    topic: str,
    partitions: int,
    replicas: int = 3,
    assignment: Sequence[Sequence[int]] = (),
    **config: str,
) -> None:
    """Create a topic, with `assignment` instead of `partitions` and `replicas`; underscores in the keys of `config`
    stand for dots.

    Return when all running brokers of `bootstrap` know the topic, so that consumers find it on any of them.
    """
    settings = {key.replace("_", "."): value for key, value in config.items()}
    new = (
        NewTopic(topic, len(assignment), replica_assignment=[list(each) for each in assignment], config=settings)
        if assignment
        else NewTopic(topic, partitions, replicas, config=settings)
    )
    admin = admin_of(bootstrap)  # its futures end when it is deleted
    admin.create_topics([new])[topic].result(PATIENCE_S)
    for address in bootstrap.split(","):
        with contextlib.suppress(ConnectionLost):
            _wait_until_known(Endpoint.parse(address), topic)


def _wait_until_known(broker: Endpoint, topic: str) -> None:
    request = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    deadline = time.monotonic() + PATIENCE_S
    with contextlib.closing(Connection.open(broker, ClientConfig((broker,)))) as connection:
        while connection.call(request, MetadataResponse).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            assert time.monotonic() < deadline, f"{broker} does not know {topic}"
            time.sleep(0.01)


@dataclass
class RecordLedger:
    """Acknowledged records by partition and offset, and consumed records in order of consumption."""

    acknowledged: dict[int, dict[int, int]] = field(default_factory=dict)
    consumed: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    longest_wait_s: float = 0.0
    """The longest time until an acknowledgement."""

    @property
    def acknowledged_count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    @property
    def consumed_count(self) -> int:
        return sum(map(len, self.consumed.values()))

    def check(self) -> None:
        """Check that no request failed and every record was consumed once, in order, at its acknowledged offset."""
        assert self.failures == []
        for partition, records in self.acknowledged.items():
            assert self.consumed.get(partition, []) == sorted(records.items()), f"partition {partition}"
        numbers = [number for records in self.acknowledged.values() for number in records.values()]
        assert sorted(numbers) == list(range(len(numbers)))


class ReplicatedLoad:
    """A context manager: load runs inside; at exit all records are acknowledged and consumed, or `ledger` has the
    failures.
    """

    def __init__(self, bootstrap: str, topic: str, members: int = 2, **producer: str | int) -> None:
        self.ledger = RecordLedger()
        self._topic = topic
        self._bootstrap = bootstrap
        self._settings = producer
        self._is_over = threading.Event()
        self._is_consumed = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._produce, daemon=True),
            *(threading.Thread(target=self._consume, daemon=True) for _ in range(members)),
        ]

    def __enter__(self) -> "ReplicatedLoad":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._threads[0].join()
        deadline = time.monotonic() + PATIENCE_S
        while self.ledger.consumed_count < self.ledger.acknowledged_count and time.monotonic() < deadline:
            time.sleep(0.02)
        self._is_consumed.set()
        for thread in self._threads[1:]:
            thread.join()

    def _produce(self) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                **_QUIET,
                **self._settings,
            }
        )
        begun, number = time.monotonic(), 0
        while not self._is_over.is_set():
            while number < (time.monotonic() - begun) * RATE_PER_S:
                producer.produce(self._topic, b"%d" % number, key=b"%d" % number, on_delivery=self._on_delivery)
                number += 1
            producer.poll(0.005)
        if left := producer.flush(PATIENCE_S):
            self.ledger.failures.append(f"{left} records were never acknowledged")

    def _on_delivery(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.ledger.failures.append(f"produce: {error}")
            return
        self.ledger.longest_wait_s = max(self.ledger.longest_wait_s, message.latency() or 0.0)
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        self.ledger.acknowledged.setdefault(partition, {})[offset] = int(value)

    def _consume(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "load",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **_QUIET,
            }
        )
        consumer.subscribe([self._topic])
        while not self._is_consumed.is_set():
            messages = consumer.consume(500, timeout=0.1)
            with self._lock:
                for message in messages:
                    self._book(message)
            if messages:
                consumer.commit(asynchronous=True)
        consumer.close()

    def _book(self, message: confluent_kafka.Message) -> None:
        if (error := message.error()) is not None:
            self.ledger.failures.append(f"consume: {error}")
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        self.ledger.consumed.setdefault(partition, []).append((offset, int(value)))


def produce(
    bootstrap: str, topic: str, values: Sequence[bytes], partition: int = 0, **settings: str | int
) -> list[int]:
    """Produce values with acks=all and return their offsets; underscores in the keys of `settings` stand for dots."""
    config: dict[str, str | int] = {"bootstrap.servers": bootstrap, "message.timeout.ms": PATIENCE_S * 1000, **_QUIET}
    producer = confluent_kafka.Producer(config | {key.replace("_", "."): value for key, value in settings.items()})
    deliveries: list[tuple[confluent_kafka.KafkaError | None, int | None]] = []
    for value in values:
        while len(producer) > 10_000:
            producer.poll(0.1)
        producer.produce(
            topic, value, partition=partition, on_delivery=lambda error, sent: deliveries.append((error, sent.offset()))
        )
    producer.flush(PATIENCE_S)
    assert len(deliveries) == len(values), "records were not acknowledged in time"
    offsets = [offset for error, offset in deliveries if error is None and offset is not None]
    assert len(offsets) == len(values), [str(error) for error, _ in deliveries if error is not None][:3]
    return offsets


def consume_all(bootstrap: str, topic: str, partition: int, **settings: str | int) -> list[bytes]:
    """Return all values of a partition up to its present end."""
    config: dict[str, str | int] = {"bootstrap.servers": bootstrap, "group.id": "nobody", "auto.offset.reset": "error"}
    consumer = confluent_kafka.Consumer(config | {key.replace("_", "."): value for key, value in settings.items()})
    try:
        where = confluent_kafka.TopicPartition(topic, partition, 0)
        begin, end = consumer.get_watermark_offsets(where, timeout=PATIENCE_S)
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, begin)])
        messages = consumer.consume(end - begin, timeout=PATIENCE_S)
        assert [message.error() for message in messages if message.error() is not None] == []
        return [value for message in messages if (value := message.value()) is not None]
    finally:
        consumer.close()
