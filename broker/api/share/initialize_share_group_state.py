"""InitializeShareGroupState (key 83), version 0: the group coordinator begins a share partition's state (KIP-932)."""

from broker.api.serving.context import RequestContext
from broker.api.serving.share_partitions import each_share_partition
from broker.coordination.share_partition_key import SharePartitionKey
from broker.runtime.coordinators.hosted_shard import Answer
from broker.runtime.coordinators.share_coordinator import ShareCoordinator
from protocol.errors import KafkaError
from protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionData,
    PartitionResult,
)


class InitializeShareGroupStateHandler:
    """Answers InitializeShareGroupState."""

    def __init__(self, coordinator: ShareCoordinator) -> None:
        self._coordinator = coordinator

    async def __call__(
        self, request: InitializeShareGroupStateRequest, context: RequestContext
    ) -> InitializeShareGroupStateResponse:
        topics = [(each.topic_id, each.partitions) for each in request.topics]
        results = await each_share_partition(request.group_id, topics, self._initialize, _result, _refused)
        return InitializeShareGroupStateResponse([InitializeStateResult(*each) for each in results])

    def _initialize(self, key: SharePartitionKey, asked: PartitionData) -> Answer[None]:
        return self._coordinator.initialize(key, asked.state_epoch, asked.start_offset)


def _result(partition: int, _: None) -> PartitionResult:
    return PartitionResult(partition)


def _refused(partition: int, error: KafkaError) -> PartitionResult:
    return PartitionResult(partition, error.code, error.message)
