"""InitProducerId (key 22), versions 0-6: a producer id for an idempotent or a transactional producer.

3+ a producer may name its id and epoch to raise the epoch (KIP-360). 6+ two-phase commit (KIP-939), which needs
transaction.two.phase.commit.enable and, as in Kafka 4.2, unstable.api.versions.enable. A prepared transaction cannot be
kept.
"""

from typing import Final

from broker.api.pipeline.permission import (
    CLUSTER_RESOURCE_NAME,
    IDEMPOTENT_WRITE,
    TWO_PHASE_COMMIT,
    WRITE_TOPIC,
    WRITE_TRANSACTIONAL_ID,
)
from broker.api.serving.access import require_transactional_id
from broker.api.serving.context import RequestContext
from broker.api.serving.transaction_errors import fencing_error
from broker.runtime.coordinators.transaction_coordinator import ProducerIdSource, TransactionCoordinator
from broker.transactions.init_producer import InitRequest
from broker.transactions.state import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdAndEpoch
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

FIRST_EPOCH: Final = 0
PRODUCER_FENCED_FROM: Final = 4
"""Older clients know INVALID_PRODUCER_EPOCH only."""


class InitProducerIdHandler:
    """Answers InitProducerId."""

    def __init__(self, producer_ids: ProducerIdSource, transactions: TransactionCoordinator) -> None:
        self._producer_ids = producer_ids
        self._transactions = transactions

    async def __call__(self, request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
        try:
            _check_access(request, context)
            producer = await self._init(request)
        except KafkaError as error:
            code = fencing_error(error.code, context.api_version, PRODUCER_FENCED_FROM)
            return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
        return InitProducerIdResponse(producer_id=producer.id, producer_epoch=producer.epoch)

    async def _init(self, request: InitProducerIdRequest) -> ProducerIdAndEpoch:
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if request.transactional_id is None:
            return ProducerIdAndEpoch(await self._producer_ids.next_id(), FIRST_EPOCH)
        is_known = request.producer_id != NO_PRODUCER_ID
        known = ProducerIdAndEpoch(request.producer_id, request.producer_epoch) if is_known else None
        return await self._transactions.init_producer(
            request.transactional_id,
            InitRequest(request.transaction_timeout_ms, known, request.enable2_pc, request.keep_prepared_txn),
        )


def _check_access(request: InitProducerIdRequest, context: RequestContext) -> None:
    """Raise KafkaError: a transactional id must be writable, else idempotent writes (KIP-679)."""
    transactional_id = request.transactional_id
    if transactional_id is not None:
        require_transactional_id(context, WRITE_TRANSACTIONAL_ID, transactional_id)
        if request.enable2_pc:
            require_transactional_id(context, TWO_PHASE_COMMIT, transactional_id)
    elif not context.allows(IDEMPOTENT_WRITE, CLUSTER_RESOURCE_NAME) and not context.allows_some(WRITE_TOPIC):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
