"""The group coordinator of this node: what the API handlers ask, over the shards of `__consumer_offsets`.

Finds the shard of a group, brings the request there, waits for what has to be waited for, and puts an error of the
coordinator's own into the response where the protocol has a place for it. It holds no rules about groups.
"""

import asyncio
from collections.abc import Callable, Iterable
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
from broker.runtime.coordinators.hosted_shard import Answer, Command
from broker.runtime.coordinators.shard_runtime import ShardRuntime, ShardState
from broker.runtime.loop.waiters import Loop
from broker.runtime.partitions.partition import Partition
from protocol.errors import ErrorCode, KafkaError
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

GROUP_METADATA_TOPIC: Final = "__consumer_offsets"

R = TypeVar("R")

_log = EventLog(__name__)


class GroupCoordinator:
    """Serves the groups whose partitions this node leads.

    `partition_count` is that of `__consumer_offsets`, or what it will be created with.
    """

    def __init__(
        self,
        runtime: ShardRuntime[GroupShard],
        config: GroupConfig,
        partition_count: Callable[[], int],
        broker_id: int,
        loop: Loop,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._partition_count = partition_count
        self._broker_id = broker_id
        self._loop = loop

    # Membership.

    async def join_group(self, request: JoinGroupRequest, caller: Caller) -> JoinGroupResponse:
        """Answered when the generation that the member joins begins."""
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
        """Answered when the leader's assignment is committed."""
        if not request.group_id:
            return sync_refused(ErrorCode.INVALID_GROUP_ID)
        reply, answer = self._open_reply(SyncGroupResponse)
        try:
            self._post(request.group_id, lambda shard: shard.sync_group(request, reply))
        except KafkaError as error:
            return sync_refused(response_error(error.code))
        return await answer

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Never waits. While the group is being loaded, members are kept waiting with a friendly answer."""
        if not request.group_id:
            return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            partition = self._partition_of(request.group_id)
            answer = self._runtime.execute(partition, lambda shard: shard.heartbeat(request), lingers=True)
        except KafkaError as error:
            is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else response_error(error.code))
        assert isinstance(answer, ErrorCode)  # it writes nothing
        return HeartbeatResponse(error_code=answer)

    async def leave_group(self, group_id: str, leavers: list[MemberIdentity]) -> LeaveGroupResponse:
        """One answer per leaver, unless the group as a whole cannot be reached."""
        if not group_id:
            return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            return await self._execute(group_id, lambda shard: shard.leave_group(group_id, leavers), lingers=True)
        except KafkaError as error:
            return LeaveGroupResponse(error_code=response_error(error.code))

    # Offsets.

    async def commit_offsets(self, request: OffsetCommitRequest, api_version: int) -> OffsetCommitResponse:
        """Topics must have names, and partitions exist. An error of the coordinator is repeated for each partition."""
        try:
            return await self._execute(
                request.group_id, lambda shard: shard.commit_offsets(request, api_version), lingers=True
            )
        except KafkaError as error:
            return commit_refused(request, response_error(error.code))

    async def fetch_offsets(self, request: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
        """Topics must have names; None asks for all. The answer shows committed offsets only."""
        try:
            return await self._execute(request.group_id, lambda shard: shard.fetch_offsets(request, require_stable))
        except KafkaError as error:
            return OffsetFetchResponseGroup(group_id=request.group_id, error_code=offset_fetch_error(error.code))

    async def delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        """Partitions must exist."""
        if not request.group_id:
            return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            return await self._execute(request.group_id, lambda shard: shard.delete_offsets(request))
        except KafkaError as error:
            return OffsetDeleteResponse(error_code=response_error(error.code))

    # Groups.

    async def list_groups(self, states: list[str], types: list[str]) -> ListGroupsResponse:
        """The groups of all partitions led here; a partition that is being loaded fails the whole."""
        groups: list[ListedGroup] = []
        try:
            for partition in self._runtime.partitions_in_service():
                groups.extend(await self._list(partition, states, types))
        except KafkaError as error:
            return ListGroupsResponse(error_code=response_error(error.code))
        return ListGroupsResponse(groups=groups)

    async def describe_groups(self, group_ids: Iterable[str], api_version: int) -> list[DescribedGroup]:
        """One description per id, in the order asked."""
        return [await self._describe(group_id, api_version) for group_id in group_ids]

    async def delete_groups(self, group_ids: Iterable[str]) -> list[DeletableGroupResult]:
        """One result per different id, in the order asked."""
        return [await self._delete(group_id) for group_id in dict.fromkeys(group_ids)]

    # Life.

    async def run(self) -> None:
        """Load partitions as they are elected; runs until cancelled, as a task of whoever owns this."""
        await self._runtime.run_loader()

    def close(self) -> None:
        """Answer everything that waits with NOT_COORDINATOR."""
        self._runtime.close()

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow leadership and the deletion of topics. To be told after the partitions have changed their roles."""
        topics = delta.topics
        if topics is None:
            return
        for topic in topics.deleted.values():
            if topic.name == GROUP_METADATA_TOPIC:
                for partition in topic.partitions:
                    self._runtime.resign(partition)
        for changed in topics.changed.values():
            if changed.name == GROUP_METADATA_TOPIC:
                for partition, registration in changed.changed_partitions.items():
                    self._follow(partition, registration.leader, registration.leader_epoch, registration.replicas)
        self._forget_topics({topic.name for topic in topics.deleted.values()} - {GROUP_METADATA_TOPIC})

    def on_hosted(self, partition: Partition) -> None:
        """A partition has come into service, perhaps later than the metadata that made this node its leader."""
        if partition.topic == GROUP_METADATA_TOPIC:
            self._runtime.log_ready(partition.index)

    def metrics(self) -> GroupMetrics:
        """The sum over all shards in service."""
        total = GroupMetrics()
        for shard in self._runtime.shards():
            total.add(shard.metrics)
        return total

    def partition_states(self) -> dict[int, ShardState]:
        """The state of each partition led here."""
        return self._runtime.states()

    def _follow(self, partition: int, leader: int, leader_epoch: int, replicas: Iterable[int]) -> None:
        if leader == self._broker_id:
            self._runtime.elect(partition, leader_epoch)
        else:
            self._runtime.resign(partition, leader_epoch if self._broker_id in replicas else None)

    def _forget_topics(self, names: set[str]) -> None:
        if not names:
            return
        for partition, state in self._runtime.states().items():
            if state is ShardState.ACTIVE:
                try:
                    self._runtime.post(partition, lambda shard: shard.on_topics_deleted(names))
                except KafkaError as error:
                    # They stay until they expire; a new topic of the name has another id, which tells them apart.
                    _log.warning("offsets of deleted topics remain", partition=partition, error=str(error))

    # To a shard and back.

    def _partition_of(self, group_id: str) -> int:
        return partition_for(group_id, self._partition_count())

    def _post(self, group_id: str, command: Command[GroupShard, None]) -> None:
        self._runtime.post(self._partition_of(group_id), command, lingers=True)

    async def _execute(self, group_id: str, command: Command[GroupShard, R], *, lingers: bool = False) -> R:
        return await _settled(self._runtime.execute(self._partition_of(group_id), command, lingers=lingers))

    def _open_reply(self, _: type[R]) -> tuple[Reply[R], asyncio.Future[R]]:
        future: asyncio.Future[R] = self._loop.create_future()

        def deliver(answer: R) -> None:
            if not future.done():  # cancelled when the client has gone
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

    async def _delete(self, group_id: str) -> DeletableGroupResult:
        try:
            return await self._execute(group_id, lambda shard: shard.delete_group(group_id))
        except KafkaError as error:
            return DeletableGroupResult(group_id, response_error(error.code))


async def _settled(answer: Answer[R]) -> R:
    return await answer if isinstance(answer, asyncio.Future) else answer


def commit_refused(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """The error for every partition of the request."""
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
