"""AddOffsetsToTxn (key 25), versions 0-4: add a group's offsets to a transaction (KIP-98).

The group's partition of `__consumer_offsets` joins the transaction. Clients of transaction version 2 leave this request
out: TxnOffsetCommit 5+ adds the partition.
"""

from collections.abc import Callable
from typing import Final

from broker.api.pipeline.permission import READ_GROUP, WRITE_TRANSACTIONAL_ID
from broker.api.serving.access import require, require_group
from broker.api.serving.context import RequestContext
from broker.api.serving.transaction_errors import fencing_error
from broker.coordination.partitioner import partition_for
from broker.metadata.image.topic_names import GROUP_OFFSETS_TOPIC
from broker.runtime.coordinators.transaction_coordinator import TransactionCoordinator, settled
from broker.transactions.state import ProducerIdAndEpoch, TransactionPartition
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

PRODUCER_FENCED_FROM: Final = 2


class AddOffsetsToTxnHandler:
    """Answers AddOffsetsToTxn. `offsets_partition_count` returns the partition count of `__consumer_offsets`."""

    def __init__(self, transactions: TransactionCoordinator, offsets_partition_count: Callable[[], int]) -> None:
        self._transactions = transactions
        self._offsets_partition_count = offsets_partition_count

    async def __call__(self, request: AddOffsetsToTxnRequest, context: RequestContext) -> AddOffsetsToTxnResponse:
        require(
            context, WRITE_TRANSACTIONAL_ID, request.transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        )
        require_group(context, READ_GROUP, request.group_id)
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        index = partition_for(request.group_id, self._offsets_partition_count())
        partition = TransactionPartition(GROUP_OFFSETS_TOPIC, index)
        try:
            added = self._transactions.add_partitions(request.transactional_id, producer, [partition], version=0)
            await settled(added)
        except KafkaError as error:
            return AddOffsetsToTxnResponse(
                error_code=fencing_error(error.code, context.api_version, PRODUCER_FENCED_FROM)
            )
        return AddOffsetsToTxnResponse()
