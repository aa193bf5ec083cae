"""ReadShareGroupState (key 84), version 0: a partition's leader reads share partitions' states (KIP-932).

The read fences the partition's former leaders.
"""

from broker.api.serving.context import RequestContext
from broker.api.serving.share_partitions import each_share_partition
from broker.coordination.share_partition_key import SharePartitionKey
from broker.runtime.coordinators.hosted_shard import Answer
from broker.runtime.coordinators.share_coordinator import ShareCoordinator
from broker.share_state.state import ShareState
from protocol.errors import KafkaError
from protocol.messages.read_share_group_state import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)


class ReadShareGroupStateHandler:
    """Answers ReadShareGroupState."""

    def __init__(self, coordinator: ShareCoordinator) -> None:
        self._coordinator = coordinator

    async def __call__(
        self, request: ReadShareGroupStateRequest, context: RequestContext
    ) -> ReadShareGroupStateResponse:
        topics = [(each.topic_id, each.partitions) for each in request.topics]
        results = await each_share_partition(request.group_id, topics, self._read, _result, _refused)
        return ReadShareGroupStateResponse([ReadStateResult(*each) for each in results])

    def _read(self, key: SharePartitionKey, asked: PartitionData) -> Answer[ShareState]:
        return self._coordinator.read(key, asked.leader_epoch)


def _result(partition: int, state: ShareState) -> PartitionResult:
    return PartitionResult(
        partition,
        state_epoch=state.state_epoch,
        start_offset=state.start_offset,
        state_batches=[StateBatch(*each) for each in state.batches],
    )


def _refused(partition: int, error: KafkaError) -> PartitionResult:
    return PartitionResult(partition, error.code, error.message)
