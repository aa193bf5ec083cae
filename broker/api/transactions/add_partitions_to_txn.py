"""AddPartitionsToTxn (key 24), versions 0-5: add partitions to a transaction, or verify that it has them (KIP-98).

0-3 come from clients and name one transaction. 4+ come from brokers and name several: partition leaders verify a
transaction before its first batch, or add their partition for a client of transaction version 2 (KIP-890).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from typing import Final

from broker.api.pipeline.permission import CLUSTER_ACTION, CLUSTER_RESOURCE_NAME, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from broker.api.serving.access import denied_names, require
from broker.api.serving.context import RequestContext
from broker.api.serving.transaction_errors import fencing_error
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topic_names import is_internal
from broker.runtime.coordinators.transaction_coordinator import Result, TransactionCoordinator, settled
from broker.transactions.state import EPOCH_PER_TRANSACTION, ProducerIdAndEpoch, TransactionPartition
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

BETWEEN_BROKERS_FROM: Final = 4
PRODUCER_FENCED_FROM: Final = 2

_Errors = Mapping[TransactionPartition, ErrorCode]


class AddPartitionsToTxnHandler:
    """Answers AddPartitionsToTxn."""

    def __init__(self, transactions: TransactionCoordinator, image: Callable[[], MetadataImage]) -> None:
        self._transactions = transactions
        self._image = image

    async def __call__(self, request: AddPartitionsToTxnRequest, context: RequestContext) -> AddPartitionsToTxnResponse:
        if context.api_version >= BETWEEN_BROKERS_FROM:
            require(context, CLUSTER_ACTION, CLUSTER_RESOURCE_NAME, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            results = await _all(self._from_broker(each) for each in request.transactions)
            return AddPartitionsToTxnResponse(results_by_transaction=results)
        topics = request.v3_and_below_topics
        if not context.allows(WRITE_TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
            refused = dict.fromkeys(_partitions(topics), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(topics, refused))
        denied = denied_names(context, WRITE_TOPIC, (topic.name for topic in topics))
        producer = ProducerIdAndEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        errors = self._refused(topics, denied, from_client=True)
        if not errors:
            errors = await settled(self._added(request.v3_and_below_transactional_id, producer, topics, version=0))
        if context.api_version < PRODUCER_FENCED_FROM:
            errors = {
                each: fencing_error(code, context.api_version, PRODUCER_FENCED_FROM) for each, code in errors.items()
            }
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(topics, errors))

    def _from_broker(self, request: AddPartitionsToTxnTransaction) -> Result[AddPartitionsToTxnResult]:
        """Begin the addition or verification of one transaction."""
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        errors: Result[_Errors] = self._refused(request.topics, frozenset(), from_client=False)
        if not errors and request.verify_only:
            errors = self._verified(request.transactional_id, producer, request.topics)
        elif not errors:
            errors = self._added(request.transactional_id, producer, request.topics, version=EPOCH_PER_TRANSACTION)
        return _later(request, errors) if isinstance(errors, Awaitable) else _result(request, errors)

    def _refused(self, topics: Sequence[AddPartitionsToTxnTopic], denied: Set[str], *, from_client: bool) -> _Errors:
        """Return an error for every partition if one of them cannot be added, else nothing."""
        image = self._image()
        errors: dict[TransactionPartition, ErrorCode] = {}
        for partition in _partitions(topics):
            topic = image.topics.by_name(partition.topic)
            if partition.topic in denied or (from_client and is_internal(partition.topic)):
                errors[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif topic is None or topic.partition(partition.partition) is None:
                errors[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not errors:
            return {}
        return {each: errors.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in _partitions(topics)}

    def _added(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        topics: Sequence[AddPartitionsToTxnTopic],
        version: int,
    ) -> Result[_Errors]:
        partitions = list(_partitions(topics))
        try:
            added = self._transactions.add_partitions(transactional_id, producer, partitions, version)
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
        return {} if added is None else _errors_of(added, partitions)

    def _verified(
        self, transactional_id: str, producer: ProducerIdAndEpoch, topics: Sequence[AddPartitionsToTxnTopic]
    ) -> Result[_Errors]:
        partitions = list(_partitions(topics))
        try:
            verified = self._transactions.verify_partitions(transactional_id, producer, partitions)
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
        return _errors_of(verified, partitions) if isinstance(verified, Awaitable) else verified


async def _all(results: Iterable[Result[AddPartitionsToTxnResult]]) -> list[AddPartitionsToTxnResult]:
    """Return the results, without tasks unless one of them waits for a commit."""
    done: list[AddPartitionsToTxnResult] = []
    begun = list(results)
    for each in begun:
        if isinstance(each, Awaitable):
            return list(await asyncio.gather(*map(settled, begun)))
        done.append(each)
    return done


async def _errors_of(pending: Awaitable[_Errors | None], partitions: Iterable[TransactionPartition]) -> _Errors:
    """Return the errors once the coordinator's records are committed."""
    try:
        return await pending or {}
    except KafkaError as error:
        return dict.fromkeys(partitions, error.code)


async def _later(request: AddPartitionsToTxnTransaction, errors: Awaitable[_Errors]) -> AddPartitionsToTxnResult:
    return _result(request, await errors)


def _result(request: AddPartitionsToTxnTransaction, errors: _Errors) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(request.transactional_id, _results(request.topics, errors))


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> Iterable[TransactionPartition]:
    return (TransactionPartition(topic.name, index) for topic in topics for index in topic.partitions)


def _results(topics: Iterable[AddPartitionsToTxnTopic], errors: _Errors) -> list[AddPartitionsToTxnTopicResult]:
    """Return the result of each partition, with one entry for each topic."""
    by_topic: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for partition in dict.fromkeys(_partitions(topics)):
        code = errors.get(partition, ErrorCode.NONE)
        by_topic.setdefault(partition.topic, []).append(AddPartitionsToTxnPartitionResult(partition.partition, code))
    return [AddPartitionsToTxnTopicResult(topic, results) for topic, results in by_topic.items()]
