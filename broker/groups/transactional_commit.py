"""TxnOffsetCommit: stores offsets that count only if the producer's transaction is committed (KIP-98, KIP-447).

The runtime writes the records under the producer's id, so that they stay pending until the transaction's marker. Old
producers know neither member nor generation; a commit without them is accepted.
"""

from broker.coordination.shard import CoordinatorResult
from broker.coordination.timers import CoordinatorClock
from broker.groups.classic import ClassicGroup
from broker.groups.commit import check_commit, utf16_length
from broker.groups.config import GroupConfig
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.offsets import check_transactional_commit
from broker.groups.directory import GroupDirectory
from broker.groups.metrics import GroupMetrics
from broker.groups.records import CommittedOffset, GroupEvent, GroupRecord, OffsetKey, offset_committed
from broker.groups.share.group import ShareGroup
from broker.groups.share.validation import refuse_share_group
from broker.groups.streams.group import StreamsGroup
from broker.groups.streams.offsets import CheckPartition, check_streams_transaction
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
        groups: GroupDirectory,
        config: GroupConfig,
        metrics: GroupMetrics,
        clock: CoordinatorClock,
    ) -> None:
        self._groups = groups
        self._config = config
        self._metrics = metrics
        self._clock = clock

    def run(self, request: TxnOffsetCommitRequest) -> CoordinatorResult[GroupEvent, TxnOffsetCommitResponse]:
        """Decide the records to write in the transaction. Raise KafkaError when the whole request is refused."""
        check_partition = self._check(request)
        now_ms = self._clock.now_ms()
        records: list[GroupRecord] = []
        response = TxnOffsetCommitResponse()
        for topic in request.topics:
            answers = []
            for partition in topic.partitions:
                if check_partition is not None:
                    check_partition(topic.name, partition.partition_index)
                error = self._error_of(partition)
                if error is ErrorCode.NONE:
                    key = OffsetKey(request.group_id, topic.name, partition.partition_index)
                    records.append(offset_committed(key, _value(partition, now_ms)))
                answers.append(TxnOffsetCommitResponsePartition(partition.partition_index, error))
            response.topics.append(TxnOffsetCommitResponseTopic(topic.name, answers))
        self._metrics.offset_commits += len(records)
        return CoordinatorResult(response, records)

    def _check(self, request: TxnOffsetCommitRequest) -> CheckPartition | None:
        member_id, instance_id, epoch = request.member_id, request.group_instance_id, request.generation_id
        match self._groups.find(request.group_id):
            case ShareGroup() as group:
                refuse_share_group(group)
            case StreamsGroup() as group:
                return check_streams_transaction(group, member_id, instance_id, epoch)
            case ConsumerGroup() as group:
                check_transactional_commit(group, member_id, epoch)
            case ClassicGroup() as group:
                check_commit(group, member_id, instance_id, epoch, is_transactional=True)
            case None if epoch >= 0:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return None

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
