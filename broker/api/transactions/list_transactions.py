"""ListTransactions (key 66), versions 0-2: the transactional ids that this broker coordinates (KIP-664).

1+ filter by duration (KIP-994), 2+ by a pattern of ids (KIP-1152).
"""

from broker.api.pipeline.permission import DESCRIBE_TRANSACTIONAL_ID
from broker.api.serving.context import RequestContext
from broker.runtime.coordinators.topic_patterns import compiled_pattern
from broker.runtime.coordinators.transaction_coordinator import TransactionCoordinator
from broker.transactions.listing import STATE_NAMES, TransactionFilter, unknown_states
from broker.transactions.state import Transaction
from protocol.errors import KafkaError
from protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse, TransactionState


class ListTransactionsHandler:
    """Answers ListTransactions."""

    def __init__(self, transactions: TransactionCoordinator) -> None:
        self._transactions = transactions

    async def __call__(self, request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
        unknown = unknown_states(request.state_filters)
        try:
            pattern = request.transactional_id_pattern
            wanted = TransactionFilter(
                frozenset(request.state_filters),
                frozenset(request.producer_id_filters),
                request.duration_filter,
                compiled_pattern(pattern) if pattern else None,
            )
            found = await self._transactions.list(wanted, _listed)
        except KafkaError as error:
            return ListTransactionsResponse(error_code=error.code)
        if context.authorizer is not None:
            found = [each for each in found if context.allows(DESCRIBE_TRANSACTIONAL_ID, each.transactional_id)]
        return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found)


def _listed(transactional_id: str, transaction: Transaction) -> TransactionState:
    return TransactionState(transactional_id, transaction.producer_id, STATE_NAMES[transaction.state])
