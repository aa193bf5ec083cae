"""The partitions of a `FakeBroker`: batches that clients produced or tests appended."""

from collections import defaultdict

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch
from protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from protocol.messages.init_producer_id import InitProducerIdResponse
from protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.records.batch import BatchHeader, parse_header, patch
from protocol.records.reader import FullRecord, iter_records
from tests.support.fakes.fake_broker import FakeBroker

PRODUCER_ID = 77


class FakeLogs:
    """Answers Produce, Fetch, ListOffsets and InitProducerId. `refusals` are codes for the next produced batches."""

    def __init__(self, broker: FakeBroker) -> None:
        self.batches: defaultdict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.start: defaultdict[tuple[str, int], int] = defaultdict(int)
        self.aborted: dict[tuple[str, int], list[AbortedTransaction]] = {}
        self.refusals: list[ErrorCode] = []
        self.fetch_refusals: list[ErrorCode] = []
        broker.answer(ApiKey.PRODUCE, self._produce)
        broker.answer(ApiKey.FETCH, self._fetch)
        broker.answer(ApiKey.LIST_OFFSETS, self._list_offsets)
        broker.answer(ApiKey.INIT_PRODUCER_ID, lambda _: InitProducerIdResponse(producer_id=PRODUCER_ID))

    def append(self, topic: str, partition: int, batch: bytes | bytearray) -> None:
        """Append a batch with the next offsets."""
        patched = bytearray(batch)
        patch(patched, 0, self.end(topic, partition), LeaderEpoch(0))
        self.batches[topic, partition].append(bytes(patched))

    def end(self, topic: str, partition: int) -> int:
        batches = self.batches[topic, partition]
        return parse_header(batches[-1]).next_offset if batches else 0

    def headers(self, topic: str, partition: int) -> list[BatchHeader]:
        return [parse_header(batch) for batch in self.batches[topic, partition]]

    def records(self, topic: str, partition: int) -> list[FullRecord]:
        return [record for batch in self.batches[topic, partition] for record in iter_records(batch)]

    def _produce(self, request: ProduceRequest) -> ProduceResponse | None:
        responses = []
        for topic in request.topic_data:
            answers = []
            for data in topic.partition_data:
                code = self.refusals.pop(0) if self.refusals else ErrorCode.NONE
                end = self.end(topic.name, data.index)
                answers.append(PartitionProduceResponse(data.index, code, end, error_message=None))
                if code is ErrorCode.NONE:
                    self.append(topic.name, data.index, bytes(data.records or b""))
            responses.append(TopicProduceResponse(name=topic.name, partition_responses=answers))
        return ProduceResponse(responses=responses) if request.acks else None

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        responses = []
        for topic in request.topics:
            parts = [self._slice(topic.topic, p.partition, p.fetch_offset) for p in topic.partitions]
            responses.append(FetchableTopicResponse(topic=topic.topic, partitions=parts))
        return FetchResponse(responses=responses)

    def _slice(self, topic: str, partition: int, offset: int) -> PartitionData:
        if self.fetch_refusals:
            return PartitionData(partition, self.fetch_refusals.pop(0))
        if not self.start[topic, partition] <= offset <= self.end(topic, partition):
            return PartitionData(partition, ErrorCode.OFFSET_OUT_OF_RANGE)
        wanted = [batch for batch in self.batches[topic, partition] if parse_header(batch).last_offset >= offset]
        return PartitionData(
            partition,
            high_watermark=self.end(topic, partition),
            aborted_transactions=self.aborted.get((topic, partition), []),
            records=b"".join(wanted),
        )

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            found = [
                ListOffsetsPartitionResponse(
                    p.partition_index,
                    offset=self.start[topic.name, p.partition_index]
                    if p.timestamp == -2
                    else self.end(topic.name, p.partition_index),
                )
                for p in topic.partitions
            ]
            topics.append(ListOffsetsTopicResponse(topic.name, found))
        return ListOffsetsResponse(topics=topics)
