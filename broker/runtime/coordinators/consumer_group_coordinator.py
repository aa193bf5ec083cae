"""The part of the group coordinator for consumer groups (KIP-848): heartbeats, descriptions, and topics by pattern."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple

from broker.coordination.errors import response_error
from broker.coordination.partitioner import partition_for
from broker.groups.caller import Caller
from broker.groups.consumer.groups import ConsumerGroups
from broker.groups.consumer.heartbeat import HeartbeatResult
from broker.groups.consumer.records import ResolvedRegex
from broker.groups.consumer.regexes import RegexLookup
from broker.groups.shard import GroupShard
from broker.logs import EventLog
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.runtime.coordinators.cluster_topics import matters_to_assignments
from broker.runtime.coordinators.shard_runtime import ShardRuntime
from broker.runtime.coordinators.topic_patterns import check_pattern, matching_topics
from broker.runtime.loop.pending_result import PendingResult
from broker.runtime.loop.runtime import Runtime
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.consumer_group_describe import DescribedGroup
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

_log = EventLog(__name__)

_NAMES_PER_TURN: Final = 500
"""Topics that are authorized in one turn of the loop."""

IsVisible = Callable[[str], bool]
"""Whether the client of a heartbeat may describe a topic."""


def every_topic_is_visible(_name: str) -> bool:
    """Let a look-up find all topics, as without an authorizer."""
    return True


class _Lookup(NamedTuple):
    """A look-up of a group on a partition, with the rights of the client whose heartbeat led to it."""

    partition: int
    wanted: RegexLookup
    is_visible: IsVisible


class ConsumerGroupCoordinator:
    """Serves consumer groups over the shards of the group coordinator.

    `is_enabled` tells whether `group.coordinator.rebalance.protocols` and the feature group.version allow them.
    """

    def __init__(
        self,
        runtime: Runtime,
        shards: ShardRuntime[GroupShard],
        partition_count: Callable[[], int],
        image: Callable[[], MetadataImage],
        is_enabled: Callable[[], bool],
    ) -> None:
        self._clock = runtime.clock
        self._shards = shards
        self._partition_count = partition_count
        self._image = image
        self._is_enabled = is_enabled
        self._lookups: asyncio.Queue[_Lookup] = asyncio.Queue()

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        is_visible: IsVisible = every_topic_is_visible,
    ) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
        """Handle a member's heartbeat. The response follows when its effects are committed, at once if they are.

        A look-up of topics by pattern that the heartbeat leads to finds visible topics only.
        """
        try:
            if not self._is_enabled():
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
            if request.subscribed_topic_regex:
                check_pattern(request.subscribed_topic_regex)
            partition = self._partition_of(request.group_id)
            answer = self._shards.execute(
                partition, lambda shard: self._heartbeat(partition, shard.consumer_groups, request, caller, is_visible)
            )
        except KafkaError as error:
            return _refused(error)
        return PendingResult(answer, _committed) if isinstance(answer, asyncio.Future) else answer

    async def describe(self, group_ids: Iterable[str]) -> list[DescribedGroup]:
        """Return one description per id, in the order of the request."""
        return [await self._describe(group_id) for group_id in group_ids]

    async def run(self) -> None:
        """Look up topics by pattern, one group after another, until cancelled."""
        while True:
            partition, lookup, is_visible = await self._lookups.get()
            image = self._image()
            now_ms = self._clock.now_ms()
            results: dict[str, ResolvedRegex] | None
            try:
                found = await asyncio.to_thread(matching_topics, lookup.regexes, image.topics.names())
                visible = await _visible_names(frozenset().union(*found.values()), is_visible)
                results = {
                    regex: ResolvedRegex(names & visible, image.offset, now_ms) for regex, names in found.items()
                }
            except Exception as error:  # noqa: BLE001  one group's expressions, not the coordinator
                _log.error("Topics by pattern could not be looked up", error, group=lookup.group_id)
                results = None
            self._return(partition, lookup.group_id, results)

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Let groups look at changed topics again with their next heartbeat."""
        if delta.topics is None:
            return
        changed = [topic for topic in delta.topics.changed.values() if matters_to_assignments(topic)]
        names = [topic.name for topic in changed] + [topic.name for topic in delta.topics.deleted.values()]
        if names:
            created_at = image.offset if any(topic.is_new for topic in changed) else None
            for shard in self._shards.shards():
                shard.consumer_groups.on_topics_changed(names, created_at)

    def _heartbeat(
        self,
        partition: int,
        groups: ConsumerGroups,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        is_visible: IsVisible,
    ) -> HeartbeatResult:
        result = groups.heartbeat(request, caller)
        for lookup in groups.take_regex_lookups():
            self._lookups.put_nowait(_Lookup(partition, lookup, is_visible))
        return result

    def _return(self, partition: int, group_id: str, results: dict[str, ResolvedRegex] | None) -> None:
        try:
            self._shards.post(partition, lambda shard: shard.consumer_groups.resolve_regexes(group_id, results))
        except KafkaError as error:
            _log.debug("The coordinator of a group moved during a look-up", group=group_id, error=str(error))

    async def _describe(self, group_id: str) -> DescribedGroup:
        try:
            if not self._is_enabled():
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
            if not group_id:
                return DescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
            partition = self._partition_of(group_id)
            answer = self._shards.execute(partition, lambda shard: shard.consumer_groups.describe(group_id))
            return await answer if isinstance(answer, asyncio.Future) else answer
        except KafkaError as error:
            return DescribedGroup(group_id=group_id, error_code=response_error(error.code), error_message=error.message)

    def _partition_of(self, group_id: str) -> int:
        return partition_for(group_id, self._partition_count())


async def _visible_names(names: frozenset[str], is_visible: IsVisible) -> frozenset[str]:
    """Return the visible names. Other work of the loop comes between slices of them."""
    if is_visible is every_topic_is_visible:
        return names
    every, found = [*names], set[str]()
    for start in range(0, len(every), _NAMES_PER_TURN):
        found.update(filter(is_visible, every[start : start + _NAMES_PER_TURN]))
        await asyncio.sleep(0)
    return frozenset(found)


def _committed(answer: asyncio.Future[ConsumerGroupHeartbeatResponse]) -> ConsumerGroupHeartbeatResponse:
    """Return the response whose records are committed, or the error that prevented it."""
    try:
        return answer.result()
    except KafkaError as error:
        return _refused(error)


def _refused(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=response_error(error.code), error_message=error.message)
