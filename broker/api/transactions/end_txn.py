"""EndTxn (key 26), versions 0-5: commit or abort a transaction (KIP-98).

5+ transaction version 2: the response has the producer id and epoch of the next transaction (KIP-890).
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from broker.api.pipeline.permission import WRITE_TRANSACTIONAL_ID
from broker.api.serving.access import require
from broker.api.serving.context import RequestContext
from broker.api.serving.transaction_errors import fencing_error
from broker.runtime.coordinators.transaction_coordinator import TransactionCoordinator
from broker.runtime.loop.pending_result import PendingResult
from broker.transactions.end import EndRequest
from broker.transactions.state import EPOCH_PER_TRANSACTION, ProducerIdAndEpoch
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

EPOCH_PER_TRANSACTION_FROM: Final = 5
PRODUCER_FENCED_FROM: Final = 2


class EndTxnHandler:
    """Answers EndTxn."""

    def __init__(self, transactions: TransactionCoordinator) -> None:
        self._transactions = transactions

    def __call__(self, request: EndTxnRequest, context: RequestContext) -> EndTxnResponse | Awaitable[EndTxnResponse]:
        require(
            context, WRITE_TRANSACTIONAL_ID, request.transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        )
        is_new = context.api_version >= EPOCH_PER_TRANSACTION_FROM
        end = EndRequest(
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            request.committed,
            EPOCH_PER_TRANSACTION if is_new else 0,
        )
        version = context.api_version
        try:
            following = self._transactions.end(request.transactional_id, end)
        except KafkaError as error:
            return _refused(error, version)
        if isinstance(following, PendingResult):
            return PendingResult(following.future, partial(_taken, following.take, version))
        return _later(following, version) if isinstance(following, Awaitable) else _ended(following, version)


def _taken(
    take: Callable[[asyncio.Future[Any]], ProducerIdAndEpoch], version: int, future: asyncio.Future[Any]
) -> EndTxnResponse:
    try:
        return _ended(take(future), version)
    except KafkaError as error:
        return _refused(error, version)


async def _later(following: Awaitable[ProducerIdAndEpoch], version: int) -> EndTxnResponse:
    try:
        return _ended(await following, version)
    except KafkaError as error:
        return _refused(error, version)


def _ended(following: ProducerIdAndEpoch, version: int) -> EndTxnResponse:
    if version < EPOCH_PER_TRANSACTION_FROM:
        return EndTxnResponse()
    return EndTxnResponse(producer_id=following.id, producer_epoch=following.epoch)


def _refused(error: KafkaError, version: int) -> EndTxnResponse:
    return EndTxnResponse(error_code=fencing_error(error.code, version, PRODUCER_FENCED_FROM))
