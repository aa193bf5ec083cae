"""The remote metadata topic, read and written by an ordinary client.

Brokers republish their metadata before old records are deleted, so the topic is complete from its log start offset.
If records are deleted while they are read, reading starts again.
"""

from collections.abc import Callable, Iterable, Sequence

from broker.cli.console.fetcher import Fetcher, FetchSettings
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.offsets import EARLIEST, LATEST, list_offsets
from broker.client import Client, raise_for
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.records.builder import Record, build_batch
from storage.directories.checkpoints import TopicPartition
from storage.tiered.catalog.metadata_journal import Event, KnownPartition, KnownPartitions
from storage.tiered.catalog.metadata_partitioner import metadata_partition
from storage.tiered.catalog.metadata_records import UndecodableEvent, decode_event, encode_event
from storage.tiered.segment_metadata import TopicIdPartition

METADATA_TOPIC = "__remote_log_metadata"

LAST_PRODUCE_VERSION_WITH_NAMES = 12
ALL_REPLICAS = -1
POLL_MS = 500

RETRIED_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors to retry besides the client's: brokers create the topic on first use, and replicas catch up."""


class RemoteMetadataTopic:
    """A MetadataJournal. `undecodable` counts unknown records. Raises KafkaError or ClientError."""

    def __init__(self, client: Client, now_ms: Callable[[], int]) -> None:
        self._client = client
        self._now_ms = now_ms
        self._count: int | None = None
        self._positions: dict[int, int] = {}
        self._known: dict[int, KnownPartitions] = {}
        self._fetcher = Fetcher(client, FetchSettings(reset=None))
        self.undecodable = 0

    @property
    def partition_count(self) -> int:
        """Number of partitions of the topic, which is created if needed. Raises KafkaError if it cannot be created."""
        if self._count is None:
            self._count = self._client.retrying(self._find_or_create, RETRIED_ERRORS)
        return self._count

    def exists(self) -> bool:
        """Return whether the topic exists now."""
        if self._count is not None:
            return True
        return not self._client.retrying(lambda: self._client.metadata([METADATA_TOPIC])).topics[0].error_code

    def catch_up(self, partition: TopicIdPartition) -> KnownPartition:
        number = metadata_partition(partition, self.partition_count)
        self._read([number])
        return self._known[number].get(partition)

    def catch_up_all(self) -> Iterable[KnownPartition]:
        self._read(range(self.partition_count))
        return [known for number in sorted(self._known) for known in self._known[number].all()]

    def publish(self, partition: TopicIdPartition, events: Sequence[Event]) -> None:
        number = metadata_partition(partition, self.partition_count)
        now_ms = self._now_ms()
        batch = build_batch([Record(now_ms, None, encode_event(event), ()) for event in events])
        self._client.retrying(lambda: self._produce(number, batch), RETRIED_ERRORS)

    def _find_or_create(self) -> int:
        topic = self._client.metadata([METADATA_TOPIC], auto_create=True).topics[0]
        raise_for(topic.error_code, f"topic {METADATA_TOPIC!r}")
        return len(topic.partitions)

    def _produce(self, number: int, batch: bytes) -> None:
        """Append a batch. A duplicate is harmless: known events change nothing."""
        leader = self._client.leaders([METADATA_TOPIC])[METADATA_TOPIC].partitions
        node = next(each.leader_id for each in leader if each.partition_index == number)
        data = TopicProduceData(METADATA_TOPIC, partition_data=[PartitionProduceData(number, batch)])
        request = ProduceRequest(
            acks=ALL_REPLICAS, timeout_ms=self._client.config.request_timeout_ms, topic_data=[data]
        )
        response = self._client.node(node).call(request, ProduceResponse, highest=LAST_PRODUCE_VERSION_WITH_NAMES)
        for topic in response.responses:
            for answer in topic.partition_responses:
                raise_for(answer.error_code, f"{METADATA_TOPIC}-{number}", answer.error_message)

    # ---- reading

    def _read(self, numbers: Iterable[int]) -> None:
        """Read to the current log end offsets of the partitions."""
        wanted = {TopicPartition(METADATA_TOPIC, number): LATEST for number in numbers}
        ends = self._client.retrying(lambda: list_offsets(self._client, wanted))
        while behind := [partition for partition, end in ends.items() if self._position(partition) < end]:
            try:
                self._read_some(behind, ends)
            except KafkaError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                self._reset(behind)

    def _position(self, partition: TopicPartition) -> int:
        """Return the next offset to read, -1 before the first read."""
        number = partition.partition
        self._known.setdefault(number, KnownPartitions())
        return self._positions.get(number, -1)

    def _read_some(self, partitions: list[TopicPartition], ends: dict[TopicPartition, int]) -> None:
        start = {each: self._positions.get(each.partition, EARLIEST) for each in partitions}
        self._fetcher.assign(start)
        while True:
            self._note_positions()
            for done in [each for each in self._fetcher.positions if self._fetcher.positions[each] >= ends[each]]:
                del self._fetcher.positions[done]
            if not self._fetcher.positions:
                return
            for fetched in self._fetcher.poll(POLL_MS):
                self._apply(fetched.partition.partition, fetched.record.value)

    def _note_positions(self) -> None:
        self._positions |= {each.partition: offset for each, offset in self._fetcher.positions.items()}

    def _apply(self, number: int, value: bytes | None) -> None:
        try:
            self._known[number].apply(decode_event(value))
        except UndecodableEvent:
            self.undecodable += 1

    def _reset(self, partitions: list[TopicPartition]) -> None:
        """Start again from the log start offset: unread records were deleted."""
        for partition in partitions:
            self._positions.pop(partition.partition, None)
            self._known[partition.partition] = KnownPartitions()


def require_metadata_topic(topic: RemoteMetadataTopic) -> None:
    """Raise CommandFailed if the topic does not exist."""
    if not topic.exists():
        raise CommandFailed(
            f"topic {METADATA_TOPIC} does not exist; brokers with remote.log.storage.system.enable=true create it,"
            " and `ottla remote recover` restores its content from the bucket."
        )
