"""WriteShareGroupState (key 85), versions 0-1: a partition's leader changes share partitions' states (KIP-932).

1 has the number of records in flight that are done with (KIP-1226).
"""

from broker.api.serving.context import RequestContext
from broker.api.serving.share_partitions import each_share_partition
from broker.coordination.share_partition_key import SharePartitionKey
from broker.runtime.coordinators.hosted_shard import Answer
from broker.runtime.coordinators.share_coordinator import ShareCoordinator
from broker.share_state.shard import ShareStateWrite
from broker.share_state.state import StateBatch
from protocol.errors import KafkaError
from protocol.messages.write_share_group_state import (
    PartitionData,
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)


class WriteShareGroupStateHandler:
    """Answers WriteShareGroupState."""

    def __init__(self, coordinator: ShareCoordinator) -> None:
        self._coordinator = coordinator

    async def __call__(
        self, request: WriteShareGroupStateRequest, context: RequestContext
    ) -> WriteShareGroupStateResponse:
        topics = [(each.topic_id, each.partitions) for each in request.topics]
        results = await each_share_partition(request.group_id, topics, self._write, _result, _refused)
        return WriteShareGroupStateResponse([WriteStateResult(*each) for each in results])

    def _write(self, key: SharePartitionKey, asked: PartitionData) -> Answer[None]:
        batches = tuple(
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in asked.state_batches
        )
        write = ShareStateWrite(
            asked.state_epoch, asked.leader_epoch, asked.start_offset, asked.delivery_complete_count, batches
        )
        return self._coordinator.write(key, write)


def _result(partition: int, _: None) -> PartitionResult:
    return PartitionResult(partition)


def _refused(partition: int, error: KafkaError) -> PartitionResult:
    return PartitionResult(partition, error.code, error.message)
