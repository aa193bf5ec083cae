"""ReadShareGroupStateSummary (key 87), versions 0-1: the offsets of share partitions, without batches (KIP-932).

1 has the number of records in flight that are done with (KIP-1226).
"""

from typing import Final

from broker.api.serving.context import RequestContext
from broker.api.serving.share_partitions import each_share_partition
from broker.coordination.share_partition_key import SharePartitionKey
from broker.runtime.coordinators.hosted_shard import Answer
from broker.runtime.coordinators.share_coordinator import ShareCoordinator
from broker.share_state.state import ShareState
from protocol.errors import KafkaError
from protocol.messages.read_share_group_state_summary import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)

NO_START_OFFSET: Final = -1


class ReadShareGroupStateSummaryHandler:
    """Answers ReadShareGroupStateSummary. A state that is not initialized has no start offset."""

    def __init__(self, coordinator: ShareCoordinator) -> None:
        self._coordinator = coordinator

    async def __call__(
        self, request: ReadShareGroupStateSummaryRequest, context: RequestContext
    ) -> ReadShareGroupStateSummaryResponse:
        topics = [(each.topic_id, each.partitions) for each in request.topics]
        results = await each_share_partition(request.group_id, topics, self._summary, _result, _refused)
        return ReadShareGroupStateSummaryResponse([ReadStateSummaryResult(*each) for each in results])

    def _summary(self, key: SharePartitionKey, asked: PartitionData) -> Answer[ShareState | None]:
        return self._coordinator.summary(key)


def _result(partition: int, state: ShareState | None) -> PartitionResult:
    if state is None:
        return PartitionResult(partition, start_offset=NO_START_OFFSET)
    return PartitionResult(
        partition,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
    )


def _refused(partition: int, error: KafkaError) -> PartitionResult:
    return PartitionResult(partition, error.code, error.message)
