"""Produce (key 0), versions 3-13: append batches to the partitions that this broker leads.

7+ zstd; 8+ record errors; 10+ hints to the current leader (KIP-951); 11+ TRANSACTION_ABORTABLE; 12+ adds partitions to
the transaction (KIP-890); 13 topics by id (KIP-516).

Checks run in Kafka's order, which decides the error of a request with several: permission for transactions, the topic,
the framing of the batch, `acks`, internal topics, the partition, its in-sync replicas, and then the checks of the log.
Each partition has its own result; one invalid batch affects no other.

The coordinator of a transaction confirms its partitions before their first batches are appended. The request waits for
another broker's coordinator, and for the commit of its record (`serving/produced_transaction.py`).

The path without waiting (no such wait; acks 0 or 1, or all replicas have the batch already) is plain calls: no
task, no future.
"""

from collections.abc import Awaitable

from broker.api.pipeline.permission import WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from broker.api.serving.acknowledgements import Acknowledgements, AppendedBatch
from broker.api.serving.context import RequestContext
from broker.api.serving.current_leader import LeaderHints
from broker.api.serving.produced_batch import Unframeable, is_transactional, only_batch
from broker.api.serving.produced_transaction import ProducedTransaction, Unverified, transactional_batch
from broker.clock import Clock
from broker.metadata.image.topic_names import CLUSTER_METADATA_TOPIC, is_internal
from broker.metrics.topics import TopicMeters
from broker.net.request import CloseConnection
from broker.net.request_trace import Stage
from broker.runtime.coordinators.transaction_verifier import TransactionVerifier
from broker.runtime.loop.runtime import Runtime
from broker.runtime.partitions.partition import HostedTopic, Partition, RecordsRefused
from broker.runtime.partitions.refused_sequences import RETRIABLE_ERRORS, RefusedSequences
from broker.runtime.partitions.registry import Partitions
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.primitives import METADATA_TOPIC_ID, Buffer, Uuid

TOPIC_IDS_FROM = 13
CURRENT_LEADER_FROM = 10

# Kafka's admin client may write to internal topics, and no other client.
ADMIN_CLIENT_ID = "__admin_client"

_NO_TOPICS: frozenset[str | Uuid] = frozenset()
_NO_LEADER = LeaderIdAndEpoch()  # shared by all responses that name no leader; never changed


class ProduceHandler:
    """Answers Produce."""

    def __init__(self, partitions: Partitions, runtime: Runtime, verifier: TransactionVerifier) -> None:
        self._partitions = partitions
        self._runtime = runtime
        self._deadlines = runtime.deadlines
        self._loop = runtime.loop
        self._verifier = verifier
        self._refused = RefusedSequences()

    def __call__(
        self, request: ProduceRequest, context: RequestContext
    ) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
        """Append the batches, and respond when `acks` is fulfilled.

        Raises CloseConnection if any partition of a produce with acks=0 fails, because there is no response.
        """
        produce = _Produce(request, context, self._partitions, self._refused, self._runtime.clock)
        if request.transactional_id is not None and produce.is_accepted:
            produce.begin_transaction(request.transactional_id)
            transaction = produce.transaction
            if transaction is not None and transaction.question is not None:
                verified = transaction.verify(transaction.question, self._verifier)
                if verified is not None:
                    return self._append_verified(produce, verified)
        return self._append(produce)

    async def _append_verified(self, produce: "_Produce", verified: Awaitable[None]) -> ProduceResponse | None:
        await verified
        response = self._append(produce)
        return response if response is None or isinstance(response, ProduceResponse) else await response

    def _append(self, produce: "_Produce") -> ProduceResponse | Awaitable[ProduceResponse] | None:
        trace = produce.context.request.trace
        if trace is not None:
            trace.enter(Stage.LOG)
        produce.append_all()
        if trace is not None:
            trace.enter(Stage.REPLICATION if produce.waiting else Stage.LOCAL)
        request = produce.request
        if request.acks == 0:
            if produce.has_failed:
                raise CloseConnection("a produce with acks=0 failed, and the protocol has no response to it")
            return None
        if not produce.waiting:
            return produce.answer()
        produce.release_records()
        produce.context.effects_applied()
        pending = Acknowledgements(produce.waiting, request.acks, self._loop, fail=produce.fail, answer=produce.answer)
        pending.start(self._deadlines, request.timeout_ms)
        return pending.future


class _Produce:
    """One request on its way through the partitions, with its response."""

    __slots__ = (
        "_acks",
        "_clock",
        "_denied",
        "_partitions",
        "_refusal",
        "_refused",
        "_version",
        "context",
        "has_failed",
        "request",
        "response",
        "transaction",
        "waiting",
    )

    def __init__(
        self,
        request: ProduceRequest,
        context: RequestContext,
        partitions: Partitions,
        refused: RefusedSequences,
        clock: Clock,
    ) -> None:
        self.request = request
        self.context = context
        self._partitions = partitions
        self._refused = refused
        self._clock = clock
        self._acks = request.acks
        self._version = context.api_version
        self.response = ProduceResponse()
        self.has_failed = False
        self.waiting: list[AppendedBatch[PartitionProduceResponse]] = []
        self.transaction: ProducedTransaction | None = None
        self._denied = _NO_TOPICS if context.authorizer is None else self._denied_topics()
        self._refusal = self._request_error()

    @property
    def is_accepted(self) -> bool:
        """Whether the request is not refused as a whole."""
        return not self._refusal

    def append_all(self) -> None:
        """Append all batches. Batches that disks or replicas have yet to confirm are in `waiting`."""
        refusal = self._refusal
        for topic in self.request.topic_data:
            hosted = self._hosted(topic)
            if self._denied and self._key(topic) in self._denied and not refusal:
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            else:
                error = refusal
            entries = [self._append_or_fail(topic, hosted, data, error) for data in topic.partition_data]
            if entries:
                self.response.responses.append(TopicProduceResponse(topic.name, topic.topic_id, entries))

    def begin_transaction(self, transactional_id: str) -> None:
        """Collect the transactional batches into `transaction`; batches of several producers refuse the request."""
        batches = (
            transactional_batch(hosted.partitions.get(data.index) if hosted else None, data.records)
            for topic in self.request.topic_data
            if self._key(topic) not in self._denied
            for hosted in (self._hosted(topic),)
            for data in topic.partition_data
        )
        try:
            self.transaction = ProducedTransaction(
                transactional_id, self._version, [batch for batch in batches if batch is not None], self._clock
            )
        except KafkaError as error:
            self._refusal = error.code

    def release_records(self) -> None:
        """Release the records, which are in the logs now: many batches may wait for their replicas for a long time."""
        for topic in self.request.topic_data:
            for data in topic.partition_data:
                data.records = None

    def answer(self) -> ProduceResponse:
        """Return the response, with hints to the leaders of partitions that this broker does not lead."""
        if self.has_failed and self._version >= CURRENT_LEADER_FROM:
            self._add_leader_hints()
        return self.response

    def fail(self, entry: PartitionProduceResponse, code: ErrorCode) -> None:
        """Set the error of one partition; facts about its append stay."""
        entry.error_code = code
        self.has_failed = True

    def _request_error(self) -> ErrorCode:
        """Return the error of the whole request: transactional batches without the right to the transactional id."""
        transactional_id = self.request.transactional_id
        if transactional_id is None or not self.context.allows(WRITE_TRANSACTIONAL_ID, transactional_id):
            for topic in self.request.topic_data:
                for data in topic.partition_data:
                    if is_transactional(data.records):
                        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return ErrorCode.NONE

    def _denied_topics(self) -> frozenset[str | Uuid]:
        """Return the keys of the topics that the principal may not write to; an unknown id has its own error."""
        return frozenset(
            self._key(topic)
            for topic in self.request.topic_data
            for name in (self._name(topic),)
            if name is not None and not self.context.allows(WRITE_TOPIC, name)
        )

    def _key(self, topic: TopicProduceData) -> str | Uuid:
        return topic.topic_id if self._version >= TOPIC_IDS_FROM else topic.name

    def _name(self, topic: TopicProduceData) -> str | None:
        if self._version < TOPIC_IDS_FROM:
            return topic.name
        if topic.topic_id == METADATA_TOPIC_ID:
            return CLUSTER_METADATA_TOPIC
        image = self._partitions.image.topics.by_id(topic.topic_id)
        return None if image is None else image.name

    def _append_or_fail(
        self, topic: TopicProduceData, hosted: HostedTopic | None, data: PartitionProduceData, refusal: ErrorCode
    ) -> PartitionProduceResponse:
        entry = PartitionProduceResponse(data.index, refusal, -1, current_leader=_NO_LEADER)
        partition = None if hosted is None else hosted.partitions.get(data.index)
        traffic = self._partitions.traffic.elsewhere if partition is None else partition.traffic
        traffic.total_produce_requests += 1
        try:
            if refusal:
                raise KafkaError(refusal)
            self._append(topic, partition, data, entry)
        except KafkaError as error:
            self.fail(entry, error.code)
            _count_failure(traffic, error, data.records)
            if error.code in RETRIABLE_ERRORS:
                self._refused.note(self._key(topic), data.index, data.records, int(self._clock.monotonic_ms()))
            if isinstance(error, Unframeable | Unverified):
                entry.error_message = error.message
            elif isinstance(error, RecordsRefused):
                entry.log_start_offset = error.log_start_offset
                if error.record_errors:
                    entry.error_message = error.message
                    entry.record_errors = [BatchIndexAndErrorMessage(*one) for one in error.record_errors]
        return entry

    def _append(
        self,
        topic: TopicProduceData,
        partition: Partition | None,
        data: PartitionProduceData,
        entry: PartitionProduceResponse,
    ) -> None:
        """Append one batch and fill `entry`. Raises KafkaError."""
        absence = ErrorCode.NONE
        if partition is None:
            absence = self._absence(topic, data.index)
            if absence in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
                raise KafkaError(absence)
        records = only_batch(data.records, self._version)
        if not -1 <= self._acks <= 1:
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
        if partition is None:
            raise KafkaError(absence)
        if self._is_forbidden(partition.is_internal):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        guard = None
        if self.transaction is not None:
            if partition in self.transaction.errors:
                raise self.transaction.errors[partition]
            guard = self.transaction.guards.get(partition)
        if self._refused and partition.is_leader:
            self._refused.check(self._key(topic), partition, records, int(self._clock.monotonic_ms()))
        info = partition.append(records, self._acks, guard=guard)
        entry.base_offset = info.first_offset
        entry.log_append_time_ms = info.log_append_time_ms
        entry.log_start_offset = info.log_start_offset
        partition.traffic.messages_in += info.last_offset - info.first_offset + 1
        partition.traffic.bytes_in += len(records)
        end = info.last_offset + 1
        outcome = partition.outcome(end, self._acks)
        if outcome is None:
            self.waiting.append(AppendedBatch(partition, end, entry))
        elif outcome:
            self.fail(entry, outcome)

    def _hosted(self, topic: TopicProduceData) -> HostedTopic | None:
        if self._version >= TOPIC_IDS_FROM:
            return self._partitions.by_id.get(topic.topic_id)
        return self._partitions.by_name.get(topic.name)

    def _absence(self, topic: TopicProduceData, index: int) -> ErrorCode:
        """Return the error of a partition that this broker cannot append to."""
        by_id = self._version >= TOPIC_IDS_FROM
        topics = self._partitions.image.topics
        image = topics.by_id(topic.topic_id) if by_id else topics.by_name(topic.name)
        if image is None:
            if topic.topic_id == METADATA_TOPIC_ID or topic.name == CLUSTER_METADATA_TOPIC:
                return (
                    ErrorCode.INVALID_TOPIC_EXCEPTION
                )  # clients may know the topic, and would retry an unknown one for minutes
            return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        absence = self._partitions.absence_error(image, index)
        is_known = absence is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return (
            ErrorCode.INVALID_TOPIC_EXCEPTION if is_known and self._is_forbidden(is_internal(image.name)) else absence
        )

    def _is_forbidden(self, is_internal_topic: bool) -> bool:
        """Whether the client may not write to a topic because the topic is internal."""
        return is_internal_topic and self.context.client_id != ADMIN_CLIENT_ID

    def _add_leader_hints(self) -> None:
        image = self._partitions.image
        hints = LeaderHints(image, self.context.listener)
        for topic in self.response.responses:
            by_id = self._version >= TOPIC_IDS_FROM
            known = image.topics.by_id(topic.topic_id) if by_id else image.topics.by_name(topic.name)
            for entry in topic.partition_responses:
                if entry.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    entry.current_leader = LeaderIdAndEpoch(*hints.leader_of(known, entry.index))
        self.response.node_endpoints = [NodeEndpoint(*address) for address in hints.addresses()]


def _count_failure(traffic: TopicMeters, error: KafkaError, records: Buffer | None) -> None:
    traffic.failed_produce_requests += 1
    match error.code:
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE:
            traffic.bytes_rejected += len(records or b"")
        case ErrorCode.CORRUPT_MESSAGE:
            traffic.invalid_message_crc_records += 1
        case ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER | ErrorCode.INVALID_PRODUCER_EPOCH:
            traffic.invalid_offset_or_sequence_records += 1
