"""The part of the group coordinator for share groups (KIP-932): heartbeats, descriptions, and their share partitions.

The states of share partitions are at share coordinators. A change of them has three steps: the group records that it
begins, the share coordinators make it, and the group records that it is done. A change that fails between two steps is
repeated: an initialization by a later heartbeat, a deletion by the administrator.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from broker.coordination.errors import response_error
from broker.coordination.partitioner import partition_for
from broker.coordination.shard import CoordinatorResult
from broker.coordination.share_partition_key import SharePartitionKey
from broker.groups.caller import Caller
from broker.groups.shard import GroupShard
from broker.groups.share.initialization import START_BY_RESET, ShareInitialization
from broker.groups.share.offsets import ShareAlteration
from broker.groups.share.partitions import TopicMap, named
from broker.groups.share.states import Answered, StateSummary
from broker.logs import EventLog
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.runtime.coordinators.cluster_topics import matters_to_assignments
from broker.runtime.coordinators.hosted_shard import Command
from broker.runtime.coordinators.shard_runtime import ShardRuntime, ShardState
from broker.runtime.coordinators.share_state_client import ShareStateClient
from broker.runtime.loop.runtime import Runtime
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
from protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from protocol.messages.share_group_describe import DescribedGroup
from protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from protocol.primitives import Uuid

R = TypeVar("R")

_UNKNOWN = -1

_log = EventLog(__name__)


class ShareGroupCoordinator:
    """Serves share groups over the shards of the group coordinator.

    `is_enabled` tells whether the feature share.version allows them.
    """

    def __init__(
        self,
        runtime: Runtime,
        shards: ShardRuntime[GroupShard],
        partition_count: Callable[[], int],
        image: Callable[[], MetadataImage],
        is_enabled: Callable[[], bool],
        states: ShareStateClient,
    ) -> None:
        self._runtime = runtime
        self._shards = shards
        self._partition_count = partition_count
        self._image = image
        self._is_enabled = is_enabled
        self._states = states

    # Members.

    async def heartbeat(self, request: ShareGroupHeartbeatRequest, caller: Caller) -> ShareGroupHeartbeatResponse:
        """Handle a member's heartbeat. The response follows when its effects are committed."""
        try:
            self._check_enabled()
            done = await self._execute(request.group_id, lambda shard: shard.share_groups.heartbeat(request, caller))
        except KafkaError as error:
            return ShareGroupHeartbeatResponse(error_code=response_error(error.code), error_message=error.message)
        if done.initialization is not None:
            self._runtime.spawn(self._initialize(done.initialization))
        return done.response

    async def describe(self, group_ids: Iterable[str]) -> list[DescribedGroup]:
        """Return one description per id, in the order of the request."""
        return [await self._describe(group_id) for group_id in group_ids]

    def close(self) -> None:
        """Ask no share coordinator any more."""
        self._states.close()

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Let groups look at changed topics again, and forget the share partitions of deleted ones."""
        if delta.topics is None:
            return
        changed = [topic.name for topic in delta.topics.changed.values() if matters_to_assignments(topic)]
        names = changed + [topic.name for topic in delta.topics.deleted.values()]
        for shard in self._shards.shards() if names else ():
            shard.share_groups.on_topics_changed(names)
        deleted = frozenset(delta.topics.deleted)
        for partition, state in self._shards.states().items() if deleted else ():
            if state is ShardState.ACTIVE:
                self._post(partition, lambda shard: shard.share_groups.on_topics_deleted(deleted))

    # Offsets.

    async def describe_offsets(
        self, request: DescribeShareGroupOffsetsRequestGroup
    ) -> DescribeShareGroupOffsetsResponseGroup:
        """Return the start offsets and lags of a group; without topics, those of all its share partitions."""
        response = DescribeShareGroupOffsetsResponseGroup(group_id=request.group_id)
        try:
            self._check_enabled()
            if request.topics is None:
                topics = await self._all_topics(request.group_id)
            else:
                topics = self._known_topics(request, response)
            keys = _keys(request.group_id, topics)
            summaries = await self._states.summaries(keys)
            ends = await self._states.end_offsets([key for key in keys if _has_lag(summaries[key])])
        except KafkaError as error:
            response.error_code, response.error_message = response_error(error.code), error.message
            return response
        for topic_id, (name, partitions) in topics.items():
            described = [
                _described(index, summaries[key], ends.get(key))
                for index in sorted(partitions)
                for key in (SharePartitionKey(request.group_id, topic_id, index),)
            ]
            response.topics.append(DescribeShareGroupOffsetsResponseTopic(name, topic_id, described))
        return response

    async def alter_offsets(self, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse:
        """Write start offsets of a group without members."""
        try:
            self._check_enabled()
            _check_group_id(request.group_id)
            alteration = await self._execute(
                request.group_id, lambda shard: shard.share_groups.begin_alteration(request.group_id, request.topics)
            )
            errors = await self._alter(request.group_id, alteration)
        except KafkaError as error:
            return AlterShareGroupOffsetsResponse(error_code=response_error(error.code), error_message=error.message)
        for topic in alteration.response:
            for partition in topic.partitions:
                key = SharePartitionKey(request.group_id, topic.topic_id, partition.partition_index)
                code = errors.get(key, ErrorCode.NONE)
                if code is not ErrorCode.NONE:
                    partition.error_code, partition.error_message = code, code.message
        return AlterShareGroupOffsetsResponse(responses=alteration.response)

    async def delete_offsets(self, request: DeleteShareGroupOffsetsRequest) -> DeleteShareGroupOffsetsResponse:
        """Delete the offsets of topics in a group without members."""
        names = [topic.topic_name for topic in request.topics]
        try:
            self._check_enabled()
            _check_group_id(request.group_id)
            deletion = await self._execute(
                request.group_id, lambda shard: shard.share_groups.begin_offset_deletion(request.group_id, names)
            )
            failed = await self._delete(request.group_id, deletion.topics)
        except KafkaError as error:
            return DeleteShareGroupOffsetsResponse(error_code=response_error(error.code), error_message=error.message)
        results = list(deletion.refused)
        for topic_id, (name, _) in deletion.topics.items():
            result = DeleteShareGroupOffsetsResponseTopic(name, topic_id)
            if topic_id in failed:
                result.error_code, result.error_message = failed[topic_id], failed[topic_id].message
            results.append(result)
        return DeleteShareGroupOffsetsResponse(responses=results)

    async def delete_states(self, group_id: str) -> ErrorCode:
        """Delete the states of a share group that is to be deleted; NONE for a group of another type."""
        shard = self._shards.shard(self._partition_of(group_id))
        if shard is None or group_id not in shard.share_groups.table:
            return ErrorCode.NONE
        try:
            topics = await self._execute(group_id, lambda shard: shard.share_groups.begin_group_deletion(group_id))
            failed = await self._delete(group_id, topics)
        except KafkaError as error:
            return response_error(error.code)
        return next(iter(failed.values()), ErrorCode.NONE)

    # States.

    async def _initialize(self, initialization: ShareInitialization) -> None:
        """Initialize states, in the background: the members wait for their assignment, not for this."""
        group_id, state_epoch, topics = initialization
        errors = await self._states.initialize(dict.fromkeys(_keys(group_id, topics), START_BY_RESET), state_epoch)
        done = _where(topics, errors, lambda code: code is ErrorCode.NONE)
        failed = _where(topics, errors, lambda code: code is not ErrorCode.NONE)
        if done:
            self._post(self._partition_of(group_id), lambda shard: shard.share_groups.on_initialized(group_id, done))
        if failed:
            _log.warning(
                "Share partitions could not be initialized",
                group=group_id,
                errors=",".join(sorted({code.name for code in errors.values()} - {ErrorCode.NONE.name})),
            )
            self._post(
                self._partition_of(group_id),
                lambda shard: shard.share_groups.on_initialization_failed(group_id, failed),
            )

    async def _alter(self, group_id: str, alteration: ShareAlteration) -> Mapping[SharePartitionKey, ErrorCode]:
        starts = {
            SharePartitionKey(group_id, topic_id, index): offset
            for topic_id, offsets in alteration.start_offsets.items()
            for index, offset in offsets.items()
        }
        if not starts:
            return {}
        errors = await self._states.initialize(starts, alteration.state_epoch)
        names = {topic.topic_id: topic.topic_name for topic in alteration.response}
        topics = named((topic_id, names[topic_id], offsets) for topic_id, offsets in alteration.start_offsets.items())
        done = _where(topics, errors, lambda code: code is ErrorCode.NONE)
        if done:
            await self._execute(group_id, lambda shard: shard.share_groups.on_initialized(group_id, done))
        return errors

    async def _delete(self, group_id: str, topics: TopicMap) -> Mapping[Uuid, ErrorCode]:
        """Delete states, and record the topics that have none left. Return the errors of the others."""
        if not topics:
            return {}
        errors = await self._states.delete(_keys(group_id, topics))
        failed = {key.topic_id: code for key, code in errors.items() if code is not ErrorCode.NONE}
        gone = topics.keys() - failed.keys()
        if gone:
            await self._execute(group_id, lambda shard: shard.share_groups.on_deleted(group_id, gone))
        return failed

    async def _all_topics(self, group_id: str) -> TopicMap:
        found = await self._execute(group_id, lambda shard: CoordinatorResult(shard.share_groups.initialized(group_id)))
        image = self._image()
        return {topic_id: value for topic_id, value in found.items() if image.topics.by_id(topic_id) is not None}

    def _known_topics(
        self, request: DescribeShareGroupOffsetsRequestGroup, response: DescribeShareGroupOffsetsResponseGroup
    ) -> TopicMap:
        """Return the requested topics that exist; the others are answered without offsets."""
        image = self._image()
        known: list[tuple[Uuid, str, Collection[int]]] = []
        for asked in request.topics or ():
            topic = image.topics.by_name(asked.topic_name)
            if topic is not None:
                known.append((topic.id, topic.name, asked.partitions))
                continue
            unknown = [
                DescribeShareGroupOffsetsResponsePartition(index, start_offset=_UNKNOWN) for index in asked.partitions
            ]
            response.topics.append(DescribeShareGroupOffsetsResponseTopic(asked.topic_name, partitions=unknown))
        return named(known)

    # Commands.

    async def _describe(self, group_id: str) -> DescribedGroup:
        try:
            self._check_enabled()
            if not group_id:
                return DescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
            return await self._execute(group_id, lambda shard: shard.share_groups.describe(group_id))
        except KafkaError as error:
            return DescribedGroup(group_id=group_id, error_code=response_error(error.code), error_message=error.message)

    async def _execute(self, group_id: str, command: Command[GroupShard, R]) -> R:
        answer = self._shards.execute(self._partition_of(group_id), command)
        return await answer if isinstance(answer, asyncio.Future) else answer

    def _post(self, partition: int, command: Command[GroupShard, None]) -> None:
        try:
            self._shards.post(partition, command)
        except KafkaError as error:
            # A later heartbeat, or the next coordinator, repeats the step.
            _log.debug("Share partitions were not recorded", partition=partition, error=str(error))

    def _check_enabled(self) -> None:
        if not self._is_enabled():
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)

    def _partition_of(self, group_id: str) -> int:
        return partition_for(group_id, self._partition_count())


def _check_group_id(group_id: str) -> None:
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)


def _keys(group_id: str, topics: TopicMap) -> list[SharePartitionKey]:
    return [
        SharePartitionKey(group_id, topic_id, index)
        for topic_id, (_, partitions) in topics.items()
        for index in sorted(partitions)
    ]


def _where(
    topics: TopicMap, errors: Mapping[SharePartitionKey, ErrorCode], accepts: Callable[[ErrorCode], bool]
) -> TopicMap:
    """Return the partitions whose error is accepted."""
    found: dict[Uuid, list[int]] = {}
    for key, code in errors.items():
        if accepts(code):
            found.setdefault(key.topic_id, []).append(key.partition)
    return named((topic_id, topics[topic_id].name, indexes) for topic_id, indexes in found.items())


def _has_lag(answered: Answered[StateSummary]) -> bool:
    value = answered.value
    if answered.error is not ErrorCode.NONE or value is None:
        return False
    return value.start_offset != _UNKNOWN and value.delivery_complete_count != _UNKNOWN


def _described(
    index: int, answered: Answered[StateSummary], end: Answered[int] | None
) -> DescribeShareGroupOffsetsResponsePartition:
    """Return the offsets of a share partition; the lag is −1 without a count of the records that are done with."""
    summary = answered.value
    if answered.error is not ErrorCode.NONE or summary is None:
        return DescribeShareGroupOffsetsResponsePartition(index, start_offset=_UNKNOWN)
    if end is None:
        return DescribeShareGroupOffsetsResponsePartition(index, summary.start_offset, summary.leader_epoch)
    if end.error is not ErrorCode.NONE or end.value is None:
        return DescribeShareGroupOffsetsResponsePartition(index, error_code=end.error, error_message=end.error.message)
    lag = end.value - summary.start_offset - summary.delivery_complete_count
    return DescribeShareGroupOffsetsResponsePartition(index, summary.start_offset, summary.leader_epoch, lag)
