"""A client that continuously creates topics and produces, and records all acknowledgements."""

import contextlib
import threading
import time
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TRY_TIMEOUT_S = 2.0
NEWS_TIMEOUT_S = 60.0
TOPIC = "load"


class TopicLoad:
    """Load on a thread of its own within `under_way`; `check` then compares the cluster with the acknowledgements."""

    def __init__(self, bootstrap: str) -> None:
        self._settings = {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 200, "log_level": 0}
        self.topics: set[str] = set()
        self.records: set[bytes] = set()
        self.complaints: list[str] = []
        self._stop = threading.Event()

    @contextlib.contextmanager
    def under_way(self) -> Iterator["TopicLoad"]:
        admin = AdminClient(self._settings)
        admin.create_topics([NewTopic(TOPIC, 3)])[TOPIC].result(30)
        thread = threading.Thread(target=self._run, args=(admin,))
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()

    def _run(self, admin: AdminClient) -> None:
        producer = Producer({**self._settings, "enable.idempotence": True, "linger.ms": 5})
        number = 0
        while not self._stop.is_set():
            number += 1
            producer.produce(TOPIC, b"%d" % number, on_delivery=self._delivered)
            self._create(admin, f"load-{number}")
            producer.poll(0)
        if producer.flush(30):
            self.complaints.append("records were never acknowledged")

    def _create(self, admin: AdminClient, name: str) -> None:
        """Try to create a topic once; an error for lack of a controller acknowledges nothing."""
        try:
            admin.create_topics([NewTopic(name, 1)], request_timeout=TRY_TIMEOUT_S)[name].result()
        except KafkaException as error:
            self.complaints.append(f"{name}: {error}")
        else:
            self.topics.add(name)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.records.add(message.value())
        else:
            self.complaints.append(str(error))

    def check(self) -> None:
        """Check that every acknowledged topic and record exists, allowing for metadata propagation."""
        admin = AdminClient(self._settings)
        deadline = time.monotonic() + NEWS_TIMEOUT_S
        while missing_topics := self.topics - set(admin.list_topics(timeout=20).topics):
            assert time.monotonic() < deadline, sorted(missing_topics)
        missing = self.records - self._read()
        assert not missing, sorted(missing)

    def _read(self) -> set[bytes]:
        consumer = Consumer({**self._settings, "group.id": "load-checker", "enable.partition.eof": True})
        consumer.assign([TopicPartition(TOPIC, each, 0) for each in range(3)])
        found: set[bytes] = set()
        ended = 0
        while ended < 3:
            message = consumer.poll(30)
            assert message is not None, "the topic cannot be read"
            if message.error() is None:
                found.add(message.value())
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended += 1
        consumer.close()
        return found
