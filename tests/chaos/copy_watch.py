"""Check that copies never pass the last stable offset: all brokers are queried for each copy in the metadata topic.

A broker that considers itself leader returns an offset that was stable before it answered, deposed or not. A copy is
correct once one of them returns an offset above its end. It is wrong when all brokers have answered in one round, among
them a leader, and none has. Unreachable brokers are queried again, since faults end.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Sequence

from confluent_kafka import Consumer, TopicPartition

from broker.client import ClientConfig, ClientError, Connection, Endpoint
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from storage.tiered.catalog.metadata_records import UndecodableEvent, decode_event
from storage.tiered.segment_metadata import RemoteSegment
from tests.chaos.tier import METADATA_TOPIC

LATEST = -1
READ_COMMITTED = 1
NOT_A_LEADER = -1
TIMEOUT_MS = 1000
RETRY_S = 0.1
# Longer than any fault. A copy is not judged if brokers are unreachable for this long.
PATIENCE_S = 60.0
_ELSEWHERE = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def verdict(end_offset: int, answers: Sequence[int | None]) -> bool | None:
    """Whether a copy with this end offset is correct, given the brokers' answers: last stable offsets, NOT_A_LEADER,
    or None without an answer. None if undecided."""
    if any(answer is not None and answer > end_offset for answer in answers):
        return True
    is_led = any(answer not in (None, NOT_A_LEADER) for answer in answers)
    return False if is_led and None not in answers else None


class CopyWatch(threading.Thread):
    """A reader of the metadata topic. `copies` counts the started copies; `faults` are violations as text."""

    def __init__(self, brokers: Sequence[str], topics: Collection[str], living: Callable[[], Collection[str]]) -> None:
        """Watch copies of the topics; `living` returns the brokers that are not dead for good."""
        super().__init__(daemon=True)
        self.copies = 0
        self.faults: list[str] = []
        self.unjudged = 0
        self._topics = topics
        self._stable: dict[tuple[str, int], int] = {}
        self._over = threading.Event()
        self._living = living
        self._brokers = {broker: _BrokerClient(broker) for broker in brokers}
        self._events = Consumer(
            {
                "bootstrap.servers": ",".join(brokers),
                "group.id": "watch",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 2000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        self._assign()
        while not self._over.is_set():
            for message in self._events.consume(500, 0.05):
                if message.error() is None:
                    self._take(message.value())
        self._events.close()

    def _assign(self) -> None:
        while not self._over.wait(0.2):
            with contextlib.suppress(Exception):  # until the topic exists
                found = self._events.list_topics(METADATA_TOPIC, timeout=5).topics[METADATA_TOPIC]
                if found.error is None and found.partitions:
                    self._events.assign([TopicPartition(METADATA_TOPIC, each, 0) for each in found.partitions])
                    return

    def _take(self, value: bytes | None) -> None:
        try:
            event = decode_event(value)
        except UndecodableEvent as error:
            self.faults.append(f"invalid remote log metadata: {error}")
            return
        if isinstance(event, RemoteSegment) and event.id.partition.topic in self._topics:
            self.copies += 1
            self._check(event)

    def _check(self, segment: RemoteSegment) -> None:
        place = segment.id.partition.topic, segment.id.partition.partition
        deadline = time.monotonic() + PATIENCE_S
        while self._stable.get(place, 0) <= segment.end_offset:
            answers = [self._brokers[broker].last_stable_offset(*place) for broker in self._living()]
            self._stable[place] = max(self._stable.get(place, 0), *(answer or 0 for answer in answers))
            if verdict(segment.end_offset, answers) is False:
                said = f"{segment.id} ends at {segment.end_offset}, and {self._stable[place]} is the last stable offset"
                self.faults.append(said)
                return
            if time.monotonic() > deadline:
                self.unjudged += 1
                return
            if self._stable[place] <= segment.end_offset:
                time.sleep(RETRY_S)

    def finish(self) -> None:
        self._over.set()
        self.join()


class _BrokerClient:
    """A connection to a broker, kept while it answers."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._endpoint = Endpoint(host, int(port))
        self._config = ClientConfig((self._endpoint,), connect_timeout_ms=TIMEOUT_MS, request_timeout_ms=TIMEOUT_MS)
        self._connection: Connection | None = None

    def last_stable_offset(self, topic: str, partition: int) -> int | None:
        """Return NOT_A_LEADER if the broker does not lead the partition, None without a usable answer."""
        asked = ListOffsetsPartition(partition, timestamp=LATEST)
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=READ_COMMITTED, topics=[ListOffsetsTopic(topic, [asked])]
        )
        try:
            if self._connection is None:
                self._connection = Connection.open(self._endpoint, self._config)
            [answered] = self._connection.call(request, ListOffsetsResponse).topics
        except ClientError:
            self._forget()
            return None
        [found] = answered.partitions
        if found.error_code:
            return NOT_A_LEADER if found.error_code in _ELSEWHERE else None
        return found.offset

    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
