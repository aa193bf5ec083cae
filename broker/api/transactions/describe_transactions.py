"""DescribeTransactions (key 65), version 0: the state of transactional ids (KIP-664)."""

from broker.api.pipeline.permission import DESCRIBE_TOPIC, DESCRIBE_TRANSACTIONAL_ID
from broker.api.serving.access import denied_names, require
from broker.api.serving.context import RequestContext
from broker.runtime.coordinators.transaction_coordinator import TransactionCoordinator
from broker.transactions.listing import STATE_NAMES
from broker.transactions.state import Transaction
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


class DescribeTransactionsHandler:
    """Answers DescribeTransactions."""

    def __init__(self, transactions: TransactionCoordinator) -> None:
        self._transactions = transactions

    async def __call__(
        self, request: DescribeTransactionsRequest, context: RequestContext
    ) -> DescribeTransactionsResponse:
        states = [await self._describe(each, context) for each in request.transactional_ids]
        return DescribeTransactionsResponse(transaction_states=states)

    async def _describe(self, transactional_id: str, context: RequestContext) -> TransactionState:
        try:
            require(
                context, DESCRIBE_TRANSACTIONAL_ID, transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            )
            found = await self._transactions.describe(transactional_id)
        except KafkaError as error:
            return TransactionState(error_code=error.code, transactional_id=transactional_id)
        return TransactionState(
            transactional_id=transactional_id,
            transaction_state=STATE_NAMES[found.state],
            transaction_timeout_ms=found.timeout_ms,
            transaction_start_time_ms=found.start_ms,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            topics=_topics(found, context),
        )


def _topics(transaction: Transaction, context: RequestContext) -> list[TopicData]:
    by_name: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        by_name.setdefault(topic, []).append(partition)
    hidden = denied_names(context, DESCRIBE_TOPIC, by_name)
    return [TopicData(topic, partitions) for topic, partitions in by_name.items() if topic not in hidden]
