"""A producer for one topic: collects batches per partition and sends them with retries.

Each broker has at most one request in flight, which preserves order. With acks=all, the broker detects duplicates by
producer id and sequence (KIP-98). A retry sends the same bytes.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import field

from broker.cli.console.partitioner import partition_of_key
from broker.client import Client, raise_for
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.records.batch import MAX_SEQUENCE, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, next_sequence
from protocol.records.builder import Record, build_batch
from protocol.records.compression import Codec

ALL = -1
NO_OFFSET = -1
RECORD_OVERHEAD_BYTES = 20
LAST_VERSION_WITH_NAMES = 12
"""Last version of Produce with topic names; later versions have topic ids."""

RETRIED_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""Errors to retry besides the client's: the topic is being created, replicas are temporarily out of sync, or markers of
the former transaction are being written.
"""


@lazy_dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Settings of a producer. `acks` is -1 (all), 0 or 1; `batch_bytes` is the maximum batch size."""

    topic: str
    acks: int = ALL
    codec: Codec = Codec.NONE
    batch_bytes: int = 16_384
    timeout_ms: int = 30_000
    idempotent: bool = True
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000


@lazy_dataclass(slots=True)
class _OpenBatch:
    """The batch of a partition that still accepts records."""

    records: list[Record] = field(default_factory=list)
    size: int = 0


Acknowledged = Callable[[int, int, Sequence[Record]], None]
"""Function that is called with the partition, the base offset and the records of each acknowledged batch.

The base offset is -1 with acks=0, and for a batch that the broker had already.
"""


class Producer:
    """Producer for one topic. `send` blocks when a batch is full; `flush` blocks until all records are acknowledged."""

    def __init__(
        self, client: Client, settings: ProducerSettings, rng: random.Random, acknowledged: Acknowledged | None = None
    ) -> None:
        self._client = client
        self._settings = settings
        self._acknowledged = acknowledged
        self._in_flight: dict[int, Sequence[Record]] = {}
        self._leaders: list[int] = []
        self._open: defaultdict[int, _OpenBatch] = defaultdict(_OpenBatch)
        self._sequences: defaultdict[int, int] = defaultdict(int)
        self._producer_id = NO_PRODUCER_ID
        self._producer_epoch = NO_PRODUCER_EPOCH
        self._sticky = rng.randrange(MAX_SEQUENCE)
        self._highest_version = LAST_VERSION_WITH_NAMES
        self.pending = 0
        """Number of records that wait for the next flush."""

    def start(self) -> None:
        """Find the topic, which the broker may create on the request, and get a producer id."""
        self._client.retrying(self._find_leaders, RETRIED_ERRORS)
        if self._settings.acks == ALL and self._settings.idempotent:
            self._client.retrying(self._init_producer_id)

    def send(
        self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
    ) -> None:
        """Add a record to the batch of its partition. Raises KafkaError or ClientError."""
        count = len(self._leaders)
        partition = self._sticky % count if key is None else partition_of_key(key, count)
        batch = self._open[partition]
        size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        size += sum(len(name) + len(content or b"") + 2 for name, content in headers)
        if batch.records and batch.size + size > self._settings.batch_bytes:
            self.flush()
            if key is None:
                self._sticky += 1
                partition = self._sticky % count
            batch = self._open[partition]
        batch.records.append(Record(timestamp_ms, key, value, headers))
        batch.size += size
        self.pending += 1

    def flush(self) -> None:
        """Send all batches and wait for their acknowledgements. Raises KafkaError or ClientError."""
        pending = {partition: self._build_batch(partition, batch.records) for partition, batch in self._open.items()}
        if self._acknowledged is not None:
            self._in_flight = {partition: batch.records for partition, batch in self._open.items()}
        self._open.clear()
        self.pending = 0
        if pending:
            self._client.retrying(lambda: self._send_batches(pending), RETRIED_ERRORS)
        for partition in list(self._in_flight):
            self._report(partition, NO_OFFSET)

    def _report(self, partition: int, base_offset: int) -> None:
        records = self._in_flight.pop(partition, None)
        if self._acknowledged is not None and records is not None:
            self._acknowledged(partition, base_offset, records)

    def _build_batch(self, partition: int, records: Sequence[Record]) -> bytes:
        sequence = NO_SEQUENCE
        if self._producer_id != NO_PRODUCER_ID:
            sequence = self._sequences[partition]
            self._sequences[partition] = next_sequence(sequence, len(records))
        return build_batch(
            records,
            codec=self._settings.codec,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=sequence,
            transactional=self._settings.transactional_id is not None,
        )

    def _send_batches(self, pending: dict[int, bytes]) -> None:
        """Send to all leaders, then receive the responses; remove acknowledged batches from `pending`.

        Raises KafkaError for a failed partition, after all responses are processed.
        """
        if not self._leaders:
            self._find_leaders()
        by_leader: defaultdict[int, list[int]] = defaultdict(list)
        for partition in pending:
            by_leader[self._leaders[partition]].append(partition)
        leaders, self._leaders = self._leaders, []
        answered = self._settings.acks != 0
        for node, partitions in by_leader.items():
            self._client.node(node).send(
                self._request({p: pending[p] for p in partitions}), highest=self._highest_version, answered=answered
            )
        failure: KafkaError | None = None
        for node in by_leader if answered else ():
            response = self._client.node(node).receive(ProduceResponse)
            failure = self._process_response(pending, response) or failure
        if failure is not None:
            raise failure
        self._leaders = leaders

    def _process_response(self, pending: dict[int, bytes], response: ProduceResponse) -> KafkaError | None:
        failure = None
        for topic in response.responses:
            for answer in topic.partition_responses:
                if answer.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    del pending[answer.index]
                    self._report(answer.index, answer.base_offset)
                    continue
                try:
                    raise_for(answer.error_code, f"{self._settings.topic}-{answer.index}", answer.error_message)
                except KafkaError as error:
                    failure = error
        return failure

    def _request(self, batches: dict[int, bytes]) -> ProduceRequest:
        data = [PartitionProduceData(partition, batch) for partition, batch in sorted(batches.items())]
        return ProduceRequest(
            transactional_id=self._settings.transactional_id,
            acks=self._settings.acks,
            timeout_ms=self._settings.timeout_ms,
            topic_data=[TopicProduceData(name=self._settings.topic, partition_data=data)],
        )

    def _find_leaders(self) -> None:
        topic = self._client.leaders([self._settings.topic], auto_create=True)[self._settings.topic]
        self._leaders = [p.leader_id for p in sorted(topic.partitions, key=lambda p: p.partition_index)]

    def _init_producer_id(self) -> None:
        if not self._client.any().serves(ApiKey.INIT_PRODUCER_ID):
            return
        response = self._client.call(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=self._settings.timeout_ms),
            InitProducerIdResponse,
        )
        raise_for(response.error_code, "producer id")
        self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch
