"""TxnOffsetCommit: stores offsets that count only if the producer's transaction is committed (KIP-98, KIP-447).

The runtime writes the records under the producer's id, so that they stay pending until the transaction's marker. Old
producers know neither member nor generation; a commit without them is accepted.
"""

from broker.coordination.shard import CoordinatorResult
from broker.coordination.timers import CoordinatorClock
from broker.groups.commit import check_commit, utf16_length
from broker.groups.config import GroupConfig
from broker.groups.consumer.offsets import check_transactional_commit
from broker.groups.consumer.table import ConsumerGroupTable
from broker.groups.metrics import GroupMetrics
from broker.groups.records import CommittedOffset, GroupEvent, GroupRecord, OffsetKey, offset_committed
from broker.groups.table import GroupTable
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import LeaderEpoch
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


class TransactionalOffsetCommit:
    """Handles TxnOffsetCommit requests whose topics and partitions exist and whose transaction is verified."""

    def __init__(
        self,
        groups: GroupTable,
        consumer_groups: ConsumerGroupTable,
        config: GroupConfig,
        metrics: GroupMetrics,
        clock: CoordinatorClock,
    ) -> None:
        self._groups = groups
        self._consumer_groups = consumer_groups
        self._config = config
        self._metrics = metrics
        self._clock = clock

    def run(self, request: TxnOffsetCommitRequest) -> CoordinatorResult[GroupEvent, TxnOffsetCommitResponse]:
        """Decide the records to write in the transaction. Raise KafkaError when the whole request is refused."""
        self._check(request)
        now_ms = self._clock.now_ms()
        records: list[GroupRecord] = []
        response = TxnOffsetCommitResponse()
        for topic in request.topics:
            answers = []
            for partition in topic.partitions:
                error = self._error_of(partition)
                if error is ErrorCode.NONE:
                    key = OffsetKey(request.group_id, topic.name, partition.partition_index)
                    records.append(offset_committed(key, _value(partition, now_ms)))
                answers.append(TxnOffsetCommitResponsePartition(partition.partition_index, error))
            response.topics.append(TxnOffsetCommitResponseTopic(topic.name, answers))
        self._metrics.offset_commits += len(records)
        return CoordinatorResult(response, records)

    def _check(self, request: TxnOffsetCommitRequest) -> None:
        group = self._groups.get(request.group_id)
        consumer_group = self._consumer_groups.get(request.group_id)
        if consumer_group is not None:
            check_transactional_commit(consumer_group, request.member_id, request.generation_id)
        elif group is not None:
            check_commit(
                group, request.member_id, request.group_instance_id, request.generation_id, is_transactional=True
            )
        elif request.generation_id >= 0:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)

    def _error_of(self, partition: TxnOffsetCommitRequestPartition) -> ErrorCode:
        is_too_large = utf16_length(partition.committed_metadata or "") > self._config.offset_metadata_max_bytes
        return ErrorCode.OFFSET_METADATA_TOO_LARGE if is_too_large else ErrorCode.NONE


def _value(partition: TxnOffsetCommitRequestPartition, now_ms: int) -> CommittedOffset:
    return CommittedOffset(
        partition.committed_offset,
        LeaderEpoch(partition.committed_leader_epoch),
        partition.committed_metadata or "",
        now_ms,
    )
