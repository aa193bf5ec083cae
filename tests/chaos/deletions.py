"""A client that occasionally deletes records of a topic while faults hit its nodes."""

import random
import threading
from collections import Counter
from dataclasses import dataclass, field

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

REST_S = (4.0, 15.0)
TIMEOUT_S = 10.0
# Maximum share of a partition's records to delete at once.
SHARE = 0.4


@dataclass
class Deletions:
    """Call `start`, and at the end `stop`.

    `asked` and `deleted` hold, per partition, the highest requested and the highest acknowledged log start offset.
    """

    bootstrap: str
    topic: str
    partitions: int
    random: random.Random
    asked: dict[int, int] = field(default_factory=dict)
    deleted: dict[int, int] = field(default_factory=dict)
    done: int = 0
    failures: Counter[str] = field(default_factory=Counter)  # by reason; a failed request may have taken effect
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self.random.uniform(*REST_S)):
            # A new client each time: one that caches leaders is fenced after every election.
            admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
            try:
                self._delete(admin, self.random.randrange(self.partitions))
            except KafkaException as failure:
                self.failures[failure.args[0].name()] += 1  # the leader or a replica is unavailable

    def _delete(self, admin: AdminClient, partition: int) -> None:
        first, end = (self._offset(admin, partition, spec) for spec in (OffsetSpec.earliest(), OffsetSpec.latest()))
        before = first + int((end - first) * self.random.uniform(0, SHARE))
        self.asked[partition] = max(before, self.asked.get(partition, 0))
        asked = admin.delete_records([TopicPartition(self.topic, partition, before)], request_timeout=TIMEOUT_S)
        [deleted] = [future.result(TIMEOUT_S * 2) for future in asked.values()]
        self.deleted[partition] = max(deleted.low_watermark, self.deleted.get(partition, 0))
        self.done += 1

    def _offset(self, admin: AdminClient, partition: int, spec: OffsetSpec) -> int:
        place = TopicPartition(self.topic, partition)
        [found] = admin.list_offsets({place: spec}, request_timeout=TIMEOUT_S).values()
        return int(found.result(TIMEOUT_S * 2).offset)
