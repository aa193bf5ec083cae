"""The group coordinator of this node: the operations of API handlers, over the shards of `__consumer_offsets`.

Finds the shard of a group, runs the request's command there, awaits its result, and puts errors of the coordinator into
the response where the protocol has a field for them. Holds no rules about groups.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final, TypeVar

from broker.coordination.errors import offset_fetch_error, response_error
from broker.coordination.partitioner import partition_for
from broker.coordination.reply import Reply
from broker.groups.answers import join_refused, sync_refused
from broker.groups.attempt import JoinAttempt
from broker.groups.caller import Caller
from broker.groups.config import GroupConfig
from broker.groups.metrics import GroupMetrics
from broker.groups.shard import GroupShard
from broker.logs import EventLog
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.runtime.coordinators.consumer_group_coordinator import ConsumerGroupCoordinator
from broker.runtime.coordinators.hosted_shard import Answer, Command
from broker.runtime.coordinators.led_shards import follow_leadership, load_hosted
from broker.runtime.coordinators.offset_transactions import OffsetTransactions
from broker.runtime.coordinators.shard_log import ProducerTransaction
from broker.runtime.coordinators.shard_runtime import ShardRuntime, ShardState
from broker.runtime.coordinators.streams_group_coordinator import StreamsGroupCoordinator
from broker.runtime.loop.pending_result import PendingResult
from broker.runtime.loop.waiters import Loop
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.transaction_marker import WritableMarker
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerId
from protocol.messages.delete_groups import DeletableGroupResult
from protocol.messages.describe_groups import DescribedGroup
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity
from protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

GROUP_METADATA_TOPIC: Final = "__consumer_offsets"

R = TypeVar("R")

_log = EventLog(__name__)


class GroupCoordinator:
    """Serves the groups whose partitions this node leads.

    `partition_count` returns the partition count of `__consumer_offsets`, or the count it will be created with.
    """

    def __init__(
        self,
        runtime: ShardRuntime[GroupShard],
        config: GroupConfig,
        partition_count: Callable[[], int],
        broker_id: BrokerId,
        loop: Loop,
        transactions: OffsetTransactions,
        consumer_groups: ConsumerGroupCoordinator,
        streams_groups: StreamsGroupCoordinator,
    ) -> None:
        self.consumer_groups = consumer_groups
        self.streams_groups = streams_groups
        self.loads = runtime.loads
        self._runtime = runtime
        self._config = config
        self.partition_count = partition_count
        self._broker_id = broker_id
        self._loop = loop
        self._transactions = transactions

    # Membership.

    async def join_group(self, request: JoinGroupRequest, caller: Caller) -> JoinGroupResponse:
        """Join a group. The response follows when the member's generation begins."""
        if not request.group_id:
            return join_refused(ErrorCode.INVALID_GROUP_ID, request.member_id)
        lowest, highest = self._config.group_min_session_timeout_ms, self._config.group_max_session_timeout_ms
        if not lowest <= request.session_timeout_ms <= highest:
            return join_refused(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
        reply, answer = self._open_reply(JoinGroupResponse)
        attempt = JoinAttempt.of(request, caller, reply)
        try:
            self._post(request.group_id, lambda shard: shard.join_group(attempt))
        except KafkaError as error:
            return join_refused(response_error(error.code), request.member_id)
        return await answer

    async def sync_group(self, request: SyncGroupRequest) -> SyncGroupResponse:
        """Return a member's assignment. The response follows when the leader's assignment is committed."""
        if not request.group_id:
            return sync_refused(ErrorCode.INVALID_GROUP_ID)
        reply, answer = self._open_reply(SyncGroupResponse)
        try:
            self._post(request.group_id, lambda shard: shard.sync_group(request, reply))
        except KafkaError as error:
            return sync_refused(response_error(error.code))
        return await answer

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Renew a member's session, without waiting. While the group is being loaded, the response is NONE: members
        stay.
        """
        if not request.group_id:
            return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            partition = self._partition_of(request.group_id)
            answer = self._runtime.execute(partition, lambda shard: shard.heartbeat(request), soft=True)
        except KafkaError as error:
            is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else response_error(error.code))
        assert isinstance(answer, ErrorCode)  # heartbeats write no records
        return HeartbeatResponse(error_code=answer)

    async def leave_group(self, group_id: str, leavers: list[MemberIdentity]) -> LeaveGroupResponse:
        """Remove members. The response has one result per member, unless the request fails for the whole group."""
        if not group_id:
            return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            soft = not self._is_modern_group(self._partition_of(group_id), group_id)
            return await self._execute(group_id, lambda shard: shard.leave_group(group_id, leavers), soft=soft)
        except KafkaError as error:
            return LeaveGroupResponse(error_code=response_error(error.code))

    # Offsets.

    def commit_offsets(
        self, request: OffsetCommitRequest, api_version: int
    ) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
        """Commit offsets. Topics must have names, and partitions must exist. Every partition repeats a coordinator's
        error. The response follows when the records are committed.
        """
        try:
            answer = self._runtime.execute(
                self._partition_of(request.group_id),
                lambda shard: shard.commit_offsets(request, api_version),
                soft=True,
            )
        except KafkaError as error:
            return commit_refused(request, response_error(error.code))
        return PendingResult(answer, partial(_committed, request)) if isinstance(answer, asyncio.Future) else answer

    async def commit_transactional_offsets(
        self, request: TxnOffsetCommitRequest, api_version: int
    ) -> TxnOffsetCommitResponse:
        """Commit offsets in a transaction. Partitions must exist. Every partition repeats a coordinator's error."""
        if not request.group_id:
            return transactional_commit_refused(request, ErrorCode.INVALID_GROUP_ID)
        partition = self._partition_of(request.group_id)
        try:
            self._runtime.check_in_service(partition)
            guard = await self._transactions.begin(partition, request, api_version)
            transaction = ProducerTransaction(request.producer_id, request.producer_epoch, guard)
            return await _settled(
                self._runtime.execute_in_transaction(
                    partition, lambda shard: shard.commit_transactional_offsets(request), transaction
                )
            )
        except KafkaError as error:
            return transactional_commit_refused(request, response_error(error.code))

    async def fetch_offsets(self, request: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
        """Return committed offsets. Topics must have names; None means all topics."""
        try:
            return await self._execute(request.group_id, lambda shard: shard.fetch_offsets(request, require_stable))
        except KafkaError as error:
            return OffsetFetchResponseGroup(group_id=request.group_id, error_code=offset_fetch_error(error.code))

    async def delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        """Delete offsets. Partitions must exist."""
        if not request.group_id:
            return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            return await self._execute(request.group_id, lambda shard: shard.delete_offsets(request))
        except KafkaError as error:
            return OffsetDeleteResponse(error_code=response_error(error.code))

    def end_transaction(self, partition: int, marker: WritableMarker) -> Answer[None]:
        """Write a marker, which commits or drops the producer's pending offsets; the answer follows the commit.

        Raise KafkaError.
        """
        return self._runtime.end_transaction(partition, marker)

    # Groups.

    async def list_groups(self, states: list[str], types: list[str]) -> ListGroupsResponse:
        """Return the groups of all partitions led here. A partition that is still loading fails the whole request."""
        groups: list[ListedGroup] = []
        try:
            for partition in self._runtime.partitions_in_service():
                groups.extend(await self._list(partition, states, types))
        except KafkaError as error:
            return ListGroupsResponse(error_code=response_error(error.code))
        return ListGroupsResponse(groups=groups)

    async def describe_groups(self, group_ids: Iterable[str], api_version: int) -> list[DescribedGroup]:
        """Return one description per id, in the order of the request."""
        return [await self._describe(group_id, api_version) for group_id in group_ids]

    async def delete_group(self, group_id: str) -> DeletableGroupResult:
        """Delete a group without members."""
        try:
            return await self._execute(group_id, lambda shard: shard.delete_group(group_id))
        except KafkaError as error:
            return DeletableGroupResult(group_id, response_error(error.code))

    # Lifecycle.

    async def run(self) -> None:
        """Load elected partitions, one after another, and look up topics by pattern, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._runtime.run_loader())
            tasks.create_task(self.consumer_groups.run())

    def close(self) -> None:
        """Answer every parked request with NOT_COORDINATOR."""
        self._runtime.close()

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply changes of leadership and deletions of topics. Call after the partitions have changed their roles."""
        self.consumer_groups.on_metadata(delta, image)
        self.streams_groups.on_metadata(delta)
        follow_leadership(self._runtime, GROUP_METADATA_TOPIC, self._broker_id, delta)
        topics = delta.topics
        if topics is None:
            return
        self._delete_topic_offsets({topic.name for topic in topics.deleted.values()} - {GROUP_METADATA_TOPIC})

    def on_hosted(self, partition: Partition) -> None:
        """Load a partition that has come into service after the metadata made this node its leader."""
        load_hosted(self._runtime, GROUP_METADATA_TOPIC, partition)

    def metrics(self) -> GroupMetrics:
        """Return the sum over all shards in service."""
        total = GroupMetrics()
        for shard in self._runtime.shards():
            shard.consumer_groups.count(shard.metrics)
            shard.streams_groups.count(shard.metrics)
            shard.share_groups.count(shard.metrics)
            total.add(shard.metrics)
        return total

    def _delete_topic_offsets(self, names: set[str]) -> None:
        if not names:
            return
        for partition, state in self._runtime.states().items():
            if state is ShardState.ACTIVE:
                try:
                    self._runtime.post(partition, lambda shard: shard.on_topics_deleted(names))
                except KafkaError as error:
                    # They remain until they expire; a new topic of the same name has another id, which tells the
                    # offsets apart.
                    _log.warning("Offsets of deleted topics stay until expiry", partition=partition, error=str(error))

    # Commands.

    def _partition_of(self, group_id: str) -> int:
        return partition_for(group_id, self.partition_count())

    def _post(self, group_id: str, command: Command[GroupShard, None]) -> None:
        partition = self._partition_of(group_id)
        self._runtime.post(partition, command, soft=not self._is_modern_group(partition, group_id))

    def _is_modern_group(self, partition: int, group_id: str) -> bool:
        """Whether the members of the group are replayed state, so that their commands must see all others."""
        shard = self._runtime.shard(partition)
        return shard is not None and shard.all_groups.modern(group_id) is not None

    async def _execute(self, group_id: str, command: Command[GroupShard, R], *, soft: bool = False) -> R:
        return await _settled(self._runtime.execute(self._partition_of(group_id), command, soft=soft))

    def _open_reply(self, _: type[R]) -> tuple[Reply[R], asyncio.Future[R]]:
        future: asyncio.Future[R] = self._loop.create_future()

        def deliver(answer: R) -> None:
            if not future.done():  # cancelled when the client has disconnected
                future.set_result(answer)

        return Reply(deliver), future

    async def _list(self, partition: int, states: list[str], types: list[str]) -> list[ListedGroup]:
        try:
            return await _settled(self._runtime.execute(partition, lambda shard: shard.list_groups(states, types)))
        except KafkaError as error:
            if response_error(error.code) is not ErrorCode.NOT_COORDINATOR:
                raise
            return []

    async def _describe(self, group_id: str, api_version: int) -> DescribedGroup:
        try:
            return await self._execute(group_id, lambda shard: shard.describe_group(group_id, api_version))
        except KafkaError as error:
            return DescribedGroup(group_id=group_id, error_code=response_error(error.code))


async def _settled(answer: Answer[R]) -> R:
    return await answer if isinstance(answer, asyncio.Future) else answer


def _committed(request: OffsetCommitRequest, answer: asyncio.Future[OffsetCommitResponse]) -> OffsetCommitResponse:
    """Return the response whose records are committed, or the error that prevented it."""
    try:
        return answer.result()
    except KafkaError as error:
        return commit_refused(request, response_error(error.code))


def commit_refused(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """Return the error for every partition of the request."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[OffsetCommitResponsePartition(each.partition_index, error) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def transactional_commit_refused(request: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    """Return the error for every partition of the request."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                [TxnOffsetCommitResponsePartition(each.partition_index, error) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )
