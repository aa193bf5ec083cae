"""OffsetCommit: stores the positions up to which a group has read.

Members commit under their generation, so that a removed member cannot overwrite its successor's offsets. Clients
without group management commit without a generation, into a group without members that need not exist yet (a simple
group).
"""

from broker.coordination.shard import CoordinatorResult
from broker.coordination.timers import CoordinatorClock
from broker.groups.classic import ClassicGroup
from broker.groups.config import GroupConfig
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.offsets import check_consumer_commit
from broker.groups.directory import GroupDirectory
from broker.groups.metrics import GroupMetrics
from broker.groups.records import CommittedOffset, GroupEvent, GroupRecord, OffsetKey, offset_committed
from broker.groups.share.group import ShareGroup
from broker.groups.share.validation import refuse_share_group
from broker.groups.state import GroupState
from broker.groups.streams.group import StreamsGroup
from broker.groups.streams.offsets import CheckPartition, check_streams_commit
from broker.groups.timers import GroupTimers
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import LeaderEpoch
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_SESSION_KEEPING_STATES = (GroupState.STABLE, GroupState.PREPARING_REBALANCE)


def knows_missing_groups(api_version: int) -> bool:
    """Whether a commit into a missing group gets GROUP_ID_NOT_FOUND (KIP-848)."""
    return api_version >= 9


class OffsetCommit:
    """Handles OffsetCommit requests whose topics and partitions exist."""

    def __init__(
        self,
        groups: GroupDirectory,
        timers: GroupTimers,
        config: GroupConfig,
        metrics: GroupMetrics,
        clock: CoordinatorClock,
    ) -> None:
        self._groups = groups
        self._timers = timers
        self._config = config
        self._metrics = metrics
        self._clock = clock

    def run(
        self, request: OffsetCommitRequest, api_version: int
    ) -> CoordinatorResult[GroupEvent, OffsetCommitResponse]:
        """Decide the records to write. Raise KafkaError when the whole request is refused."""
        check_partition = self._check(request, api_version)
        now_ms = self._clock.now_ms()
        expire_ms = -1 if request.retention_time_ms == -1 else now_ms + request.retention_time_ms
        records: list[GroupRecord] = []
        response = OffsetCommitResponse()
        for topic in request.topics:
            answers = []
            for partition in topic.partitions:
                if check_partition is not None:
                    check_partition(topic.name, partition.partition_index)
                answers.append(self._commit(request.group_id, topic, partition, now_ms, expire_ms, records))
            response.topics.append(
                OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)
            )
        self._metrics.offset_commits += len(records)
        return CoordinatorResult(response, records)

    def _check(self, request: OffsetCommitRequest, api_version: int) -> CheckPartition | None:
        epoch = request.generation_id_or_member_epoch
        match self._groups.find(request.group_id):
            case ShareGroup() as group:
                refuse_share_group(group)
            case StreamsGroup() as group:
                return check_streams_commit(group, request.member_id, epoch, api_version)
            case ConsumerGroup() as group:
                check_consumer_commit(group, request.member_id, epoch, api_version)
            case ClassicGroup() as group:
                check_commit(group, request.member_id, request.group_instance_id, epoch)
                self._keep_session(group, request.member_id)
            case None if epoch >= 0:
                is_told = knows_missing_groups(api_version)
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if is_told else ErrorCode.ILLEGAL_GENERATION)
        return None

    def _keep_session(self, group: ClassicGroup, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is not None and group.state in _SESSION_KEEPING_STATES:
            self._timers.renew_session(group, member)

    def _commit(
        self,
        group_id: str,
        topic: OffsetCommitRequestTopic,
        partition: OffsetCommitRequestPartition,
        now_ms: int,
        expire_ms: int,
        records: list[GroupRecord],
    ) -> OffsetCommitResponsePartition:
        metadata = partition.committed_metadata or ""
        if utf16_length(metadata) > self._config.offset_metadata_max_bytes:
            return OffsetCommitResponsePartition(partition.partition_index, ErrorCode.OFFSET_METADATA_TOO_LARGE)
        value = CommittedOffset(
            partition.committed_offset,
            LeaderEpoch(partition.committed_leader_epoch),
            metadata,
            now_ms,
            expire_ms,
            topic.topic_id,
        )
        records.append(offset_committed(OffsetKey(group_id, topic.name, partition.partition_index), value))
        return OffsetCommitResponsePartition(partition.partition_index)


def check_commit(
    group: ClassicGroup, member_id: str, instance_id: str | None, generation: int, *, is_transactional: bool = False
) -> None:
    """Check that this caller may commit offsets of the group now. Raise KafkaError.

    Old transactional clients know neither member nor generation, and a transaction may outlive a rebalance, so those
    two rules apply only to commits outside of transactions.
    """
    if group.state is GroupState.DEAD:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if generation < 0 and group.is_empty:
        return
    if generation >= 0 or member_id or instance_id is not None:
        group.member_or_raise(member_id, instance_id)
        if generation != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    elif not is_transactional:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if group.state is GroupState.COMPLETING_REBALANCE and not is_transactional:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)


def utf16_length(text: str) -> int:
    """Return the length as Java counts it."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
