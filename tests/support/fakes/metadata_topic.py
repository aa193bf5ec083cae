"""The remote log metadata topic in memory, with the faults of a cluster; the brokers of a test share one, each with its
client.

Each partition has a log with start, end and high watermark, real record batches, and a leader that can move. `Faults`
sets the probability of lost requests or responses and duplicate records. Time is the loop's.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from immutables import Map

from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage
from broker.metadata.image.partition import PartitionRegistration
from broker.metadata.image.topic_image import TopicImage, TopicsImage
from broker.runtime.remote_metadata.client import (
    EARLIEST,
    AppendDone,
    MetadataOffsetRequest,
    MetadataOffsetResult,
    MetadataReadPosition,
    MetadataReadResult,
    OffsetsDone,
    ReadDone,
)
from broker.runtime.remote_metadata.settings import TOPIC
from broker.runtime.replication.fetch_transport import Unanswered
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import ONE_UUID, Uuid
from protocol.records.builder import build_value_batch
from tests.support.fakes.manual_loop import ManualLoop

POLL_S = 0.5
MAX_BATCHES = 3


@dataclass(slots=True)
class Faults:
    """Probabilities from 0 to 1, and maximum delays in seconds."""

    request_lost: float = 0.0
    answer_lost: float = 0.0
    doubled: float = 0.0
    delay_s: float = 0.001
    timeout_s: float = 1.0


@dataclass(slots=True)
class _Batch:
    base: int
    next: int
    epoch: int
    data: bytes


@dataclass(slots=True)
class TopicPartition:
    """A partition's log. `history` has every value ever appended, including deleted ones; `is_refusing`: too few
    in-sync replicas.
    """

    leader: int | None
    epoch: int = 0
    start: int = 0
    batches: list[_Batch] = field(default_factory=list)
    polls: list[Callable[[], None]] = field(default_factory=list)
    is_refusing: bool = False
    history: list[bytes] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.batches[-1].next if self.batches else self.start

    def append(self, values: Sequence[bytes]) -> int:
        """Append values; return the offset of the first."""
        base = self.end
        data = build_value_batch(values, 1, base_offset=base, leader_epoch=LeaderEpoch(self.epoch))
        self.batches.append(_Batch(base, base + len(values), self.epoch, data))
        self.history += values
        polls, self.polls = self.polls, []
        for poll in polls:
            poll()
        return base

    def delete_records(self, offset: int) -> None:
        self.start = max(self.start, offset)
        end = self.end
        self.batches = [batch for batch in self.batches if batch.next > self.start] or [
            _Batch(end, end, self.epoch, b"")
        ]

    def truncate(self, offset: int) -> None:
        """Truncate as an unclean election does, at a batch boundary at or below `offset`."""
        self.batches = [batch for batch in self.batches if batch.next <= offset]

    def epoch_end(self, epoch: int) -> int:
        """Return the end offset of the last epoch at or below `epoch`."""
        return max((batch.next for batch in self.batches if batch.epoch <= epoch), default=self.start)


class MetadataTopic:
    """The topic. `brokers` are the running ones; they lead the partitions in turn."""

    def __init__(
        self,
        loop: ManualLoop,
        count: int,
        brokers: Sequence[int],
        *,
        faults: Faults | None = None,
        rng: random.Random | None = None,
        topic_id: Uuid = ONE_UUID,
    ) -> None:
        self.loop = loop
        self.topic_id = topic_id
        self.faults = faults or Faults()
        self.rng = rng or random.Random(0)
        self.partitions = [TopicPartition(brokers[number % len(brokers)]) for number in range(count)]
        self.down: set[int] = set()
        self.image = EMPTY_IMAGE
        self.requests: list[str] = []

    def elect(self, number: int, leader: int | None) -> None:
        partition = self.partitions[number]
        partition.leader, partition.epoch = leader, partition.epoch + 1
        polls, partition.polls = partition.polls, []
        for poll in polls:
            poll()

    def publish_image(self) -> MetadataImage:
        """Publish the present metadata to all brokers."""
        registrations = {
            number: PartitionRegistration(
                (1, 2, 3),
                (1, 2, 3),
                BrokerId(-1 if partition.leader is None else partition.leader),
                LeaderEpoch(partition.epoch),
                0,
            )
            for number, partition in enumerate(self.partitions)
        }
        topic = TopicImage(TOPIC, self.topic_id, Map(registrations))
        topics = TopicsImage(Map({TOPIC: topic}), Map({self.topic_id: topic}), len(registrations))
        self.image = EMPTY_IMAGE._replace(topics=topics)
        return self.image

    def fault(self, leader: int, partition: TopicPartition, epoch: int | None) -> int:
        """Return the reason for which a broker does not serve a partition; None if it does."""
        if partition.leader != leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if epoch is not None and epoch != partition.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH if epoch < partition.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE


class TopicClient:
    """Implements MetadataTopicClient for one broker."""

    def __init__(self, topic: MetadataTopic) -> None:
        self._topic = topic
        self._is_closed = False

    def read(self, leader: int, positions: Sequence[MetadataReadPosition], *, waits: bool, done: ReadDone) -> None:
        topic = self._topic
        topic.requests.append(f"{'poll' if waits else 'load'} {leader} {[tuple(one) for one in positions]}")

        def answer() -> None:
            self._answer(done, [self._read(leader, position) for position in positions])

        def answer_or_wait() -> None:
            results = [self._read(leader, position) for position in positions]
            if waits and all(not (one.error or len(one.records) or one.has_diverged) for one in results):
                self._park(positions, answer)
            else:
                self._answer(done, results)

        self._send(leader, answer_or_wait, done)

    def _park(self, positions: Sequence[MetadataReadPosition], answer: Callable[[], None]) -> None:
        """Park a request until one of its partitions changes, or for a limited time."""
        is_over = False

        def wake() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._topic.loop.call_soon(answer)

        for position in positions:
            self._topic.partitions[position.partition].polls.append(wake)
        self._topic.loop.call_later(POLL_S, wake)

    def _read(self, leader: int, position: MetadataReadPosition) -> MetadataReadResult:
        number, epoch, offset, last_epoch = position
        partition = self._topic.partitions[number]
        error = self._topic.fault(leader, partition, epoch)
        if error:
            return MetadataReadResult(number, error)
        if last_epoch >= 0 and partition.epoch_end(last_epoch) < offset and offset >= partition.start:
            return MetadataReadResult(number, has_diverged=True)
        if not partition.start <= offset <= partition.end:
            return MetadataReadResult(number, ErrorCode.OFFSET_OUT_OF_RANGE)
        found = [batch.data for batch in partition.batches if batch.next > offset and batch.data][:MAX_BATCHES]
        return MetadataReadResult(number, ErrorCode.NONE, b"".join(found))

    def offsets(self, leader: int, questions: Sequence[MetadataOffsetRequest], done: OffsetsDone) -> None:
        self._topic.requests.append(f"offsets {leader} {[tuple(one) for one in questions]}")

        def answer() -> None:
            self._answer(done, [self._offset(leader, question) for question in questions])

        self._send(leader, answer, done)

    def _offset(self, leader: int, question: MetadataOffsetRequest) -> MetadataOffsetResult:
        number, epoch, which = question
        partition = self._topic.partitions[number]
        error = self._topic.fault(leader, partition, epoch)
        return MetadataOffsetResult(number, error, partition.start if which == EARLIEST else partition.end)

    def append(self, leader: int, partition: int, values: Sequence[bytes], done: AppendDone) -> None:
        topic, log = self._topic, self._topic.partitions[partition]
        topic.requests.append(f"append {leader} {partition} {len(values)}")

        def answer() -> None:
            error = topic.fault(leader, log, None)
            if not error and log.is_refusing:
                error = ErrorCode.NOT_ENOUGH_REPLICAS
            if not error:
                for _ in range(1 + (topic.rng.random() < topic.faults.doubled)):
                    log.append(values)
            self._answer(done, error)

        self._send(leader, answer, done)

    def close(self) -> None:
        self._is_closed = True

    # ---- ---- network

    def _send(self, leader: int, serve: Callable[[], None], done: Callable[[Unanswered], None]) -> None:
        topic = self._topic
        if leader in topic.down or topic.rng.random() < topic.faults.request_lost:
            topic.loop.call_later(topic.faults.timeout_s, lambda: self._give(done, Unanswered("no response")))
        else:
            topic.loop.call_later(topic.rng.random() * topic.faults.delay_s, serve)

    def _answer(self, done: Callable[..., None], outcome: object) -> None:
        topic = self._topic
        if topic.rng.random() < topic.faults.answer_lost:
            topic.loop.call_later(topic.faults.timeout_s, lambda: self._give(done, Unanswered("the response was lost")))
        else:
            topic.loop.call_later(topic.rng.random() * topic.faults.delay_s, lambda: self._give(done, outcome))

    def _give(self, done: Callable[..., None], outcome: object) -> None:
        if not self._is_closed:
            done(outcome)


class LedLogs:
    """Implements LedMetadataLogs for one broker."""

    def __init__(self, topic: MetadataTopic, broker_id: int) -> None:
        self._topic = topic
        self._broker_id = broker_id

    def led(self) -> Iterable[int]:
        return [number for number, one in enumerate(self._topic.partitions) if one.leader == self._broker_id]

    def log(self, partition: int) -> "LedLog | None":
        found = self._topic.partitions[partition]
        return LedLog(found, self._broker_id) if found.leader == self._broker_id else None


class LedLog:
    """Implements LedMetadataLog."""

    max_batch_bytes = 4000

    def __init__(self, partition: TopicPartition, broker_id: int) -> None:
        self._partition = partition
        self._broker_id = broker_id

    @property
    def leader_epoch(self) -> int:
        return self._partition.epoch

    @property
    def start_offset(self) -> int:
        return self._partition.start

    @property
    def end_offset(self) -> int:
        return self._partition.end

    def append(self, values: list[bytes]) -> None:
        if self._partition.is_refusing:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        self._partition.append(values)

    def delete_records(self, offset: int) -> None:
        self._partition.delete_records(offset)
