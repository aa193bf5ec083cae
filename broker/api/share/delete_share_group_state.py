"""DeleteShareGroupState (key 86), version 0: the group coordinator removes share partitions' states (KIP-932)."""

from broker.api.serving.context import RequestContext
from broker.api.serving.share_partitions import each_share_partition
from broker.coordination.share_partition_key import SharePartitionKey
from broker.runtime.coordinators.hosted_shard import Answer
from broker.runtime.coordinators.share_coordinator import ShareCoordinator
from protocol.errors import KafkaError
from protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionData,
    PartitionResult,
)


class DeleteShareGroupStateHandler:
    """Answers DeleteShareGroupState."""

    def __init__(self, coordinator: ShareCoordinator) -> None:
        self._coordinator = coordinator

    async def __call__(
        self, request: DeleteShareGroupStateRequest, context: RequestContext
    ) -> DeleteShareGroupStateResponse:
        topics = [(each.topic_id, each.partitions) for each in request.topics]
        results = await each_share_partition(request.group_id, topics, self._delete, _result, _refused)
        return DeleteShareGroupStateResponse([DeleteStateResult(*each) for each in results])

    def _delete(self, key: SharePartitionKey, asked: PartitionData) -> Answer[None]:
        return self._coordinator.delete(key)


def _result(partition: int, _: None) -> PartitionResult:
    return PartitionResult(partition)


def _refused(partition: int, error: KafkaError) -> PartitionResult:
    return PartitionResult(partition, error.code, error.message)
