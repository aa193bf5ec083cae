"""The part of the group coordinator for streams groups (KIP-1071): heartbeats and descriptions."""

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from broker.coordination.errors import response_error
from broker.coordination.partitioner import partition_for
from broker.groups.caller import Caller
from broker.groups.shard import GroupShard
from broker.groups.streams.heartbeat import StreamsHeartbeatAnswer
from broker.metadata.image.delta import MetadataDelta
from broker.runtime.coordinators.cluster_topics import matters_to_assignments
from broker.runtime.coordinators.hosted_shard import Command
from broker.runtime.coordinators.shard_runtime import ShardRuntime
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.streams_group_describe import DescribedGroup
from protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse

R = TypeVar("R")


class StreamsGroupCoordinator:
    """Serves streams groups over the shards of the group coordinator.

    `is_enabled` tells whether `group.coordinator.rebalance.protocols` and the feature streams.version allow them.
    """

    def __init__(
        self,
        shards: ShardRuntime[GroupShard],
        partition_count: Callable[[], int],
        is_enabled: Callable[[], bool],
    ) -> None:
        self._shards = shards
        self._partition_count = partition_count
        self.is_enabled = is_enabled

    async def heartbeat(self, request: StreamsGroupHeartbeatRequest, caller: Caller) -> StreamsHeartbeatAnswer:
        """Handle a member's heartbeat. The response follows when its effects are committed."""
        try:
            return await self._execute(request.group_id, lambda shard: shard.streams_groups.heartbeat(request, caller))
        except KafkaError as error:
            code = response_error(error.code)
            return StreamsHeartbeatAnswer(StreamsGroupHeartbeatResponse(error_code=code, error_message=error.message))

    async def describe(self, group_ids: Iterable[str]) -> list[DescribedGroup]:
        """Return one description per id, in the order of the request."""
        return [await self._describe(group_id) for group_id in group_ids]

    def on_metadata(self, delta: MetadataDelta) -> None:
        """Let groups look at changed topics again with their next heartbeat."""
        if delta.topics is None:
            return
        names = [topic.name for topic in delta.topics.changed.values() if matters_to_assignments(topic)]
        names += [topic.name for topic in delta.topics.deleted.values()]
        if names:
            for shard in self._shards.shards():
                shard.streams_groups.on_topics_changed(names)

    async def _describe(self, group_id: str) -> DescribedGroup:
        try:
            if self.is_enabled() and not group_id:
                return DescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
            return await self._execute(group_id, lambda shard: shard.streams_groups.describe(group_id))
        except KafkaError as error:
            return DescribedGroup(group_id=group_id, error_code=response_error(error.code), error_message=error.message)

    async def _execute(self, group_id: str, command: Command[GroupShard, R]) -> R:
        if not self.is_enabled():
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        answer = self._shards.execute(partition_for(group_id, self._partition_count()), command)
        return await answer if isinstance(answer, asyncio.Future) else answer
