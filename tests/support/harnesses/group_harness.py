"""A group shard on a memory log, with clients that send requests to it.

All requests pass the real `HostedShard`, with a manual loop for time. Clients remember their member id and generation
like real ones, so that tests state only what differs.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

from broker.coordination.reply import Reply
from broker.groups.attempt import JoinAttempt
from broker.groups.caller import Caller
from broker.groups.classic import ClassicGroup
from broker.groups.config import GroupConfig
from broker.groups.consumer.environment import ConsumerGroupEnvironment
from broker.groups.shard import GroupShard
from broker.groups.state import GroupState
from broker.groups.streams.environment import StreamsGroupEnvironment
from broker.runtime.coordinators.hosted_shard import Answer, Command, HostedShard, WriteLimits
from protocol.compiler import encode_bytes
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import LeaderEpoch
from protocol.messages.common_records import ConsumerProtocolSubscription
from protocol.messages.delete_groups import DeletableGroupResult
from protocol.messages.describe_groups import DescribedGroup
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity
from protocol.messages.list_groups import ListedGroup
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics, OffsetFetchResponseGroup
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from protocol.primitives import ZERO_UUID, Uuid
from tests.support.fakes.manual_loop import ManualLoop
from tests.support.fakes.runtimes import make_runtime
from tests.support.fakes.shard_log import MemoryShardLog

T = TypeVar("T")

START_MS = 1_700_000_000_000
GROUP = "g"


class LoopClock:
    """A clock driven by a manual loop."""

    def __init__(self, loop: ManualLoop) -> None:
        self._loop = loop
        self._start = loop.time()

    def now_ms(self) -> int:
        return START_MS + round(self.monotonic_ms())

    def monotonic_ms(self) -> float:
        return (self._loop.time() - self._start) * 1000


@dataclass
class ReplyBox:
    """Collects the response to one parked request."""

    answer: JoinGroupResponse | SyncGroupResponse | None = None

    @property
    def joined(self) -> JoinGroupResponse:
        assert isinstance(self.answer, JoinGroupResponse), "not answered yet"
        return self.answer

    @property
    def synced(self) -> SyncGroupResponse:
        assert isinstance(self.answer, SyncGroupResponse), "not answered yet"
        return self.answer

    @property
    def error(self) -> ErrorCode:
        assert self.answer is not None, "not answered yet"
        return ErrorCode(self.answer.error_code)


@dataclass
class Client:
    """A consumer as its group sees it."""

    name: str
    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None
    protocols: Mapping[str, bytes] = field(default_factory=lambda: {"range": subscription("t")})


def subscription(*topics: str, version: int = 3) -> bytes:
    """Return the metadata of a consumer that subscribes to the topics."""
    message = ConsumerProtocolSubscription(topics=list(topics))
    return version.to_bytes(2, "big") + encode_bytes(message, version)


class GroupHarness:
    """One shard with its log and clock."""

    def __init__(
        self,
        config: GroupConfig | None = None,
        log: MemoryShardLog | None = None,
        consumer: ConsumerGroupEnvironment | None = None,
        streams: StreamsGroupEnvironment | None = None,
    ) -> None:
        self.environment = consumer or ConsumerGroupEnvironment()
        self.streams_environment = streams or StreamsGroupEnvironment()
        self.config = config or GroupConfig(group_coordinator_append_linger_ms=0)
        self.loop = ManualLoop()
        self.clock = LoopClock(self.loop)
        self.log = log or MemoryShardLog()
        self.clients: dict[str, Client] = {}
        self._ids = count(1)
        self._runtime = make_runtime(self.loop, clock=self.clock)
        self.is_broken = False
        self.hosted = self._load()

    @property
    def shard(self) -> GroupShard:
        return self.hosted.shard

    @property
    def group(self) -> ClassicGroup:
        """The default group of the tests."""
        return self.shard.groups.get_or_raise(GROUP)

    def state(self) -> GroupState:
        """The state of the default group."""
        return self.group.state

    def restart(self) -> None:
        """Unload the shard and load it from the log, as after a failover."""
        self.hosted.close()
        self.is_broken = False
        self.hosted = self._load()

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.loop.advance(seconds)

    def client(self, name: str, **settings: object) -> Client:
        """Return the client of that name, with these settings from now on."""
        client = self.clients.setdefault(name, Client(name))
        for key, value in settings.items():
            setattr(client, key, value)
        return client

    def soft(self, group: str) -> bool:
        """Whether membership requests of the group share batches, as the coordinator decides."""
        return group not in self.shard.consumer_groups.table

    # Requests.

    def join(
        self,
        name: str,
        *,
        group: str = GROUP,
        version: int = 9,
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        protocol_type: str = "consumer",
        follow_up: bool = True,
        **settings: object,
    ) -> ReplyBox:
        """Send JoinGroup. A client that must rejoin with its member id does so at once, unless told otherwise."""
        client = self.client(name, **settings)
        box = ReplyBox()
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(each, metadata) for each, metadata in client.protocols.items()],
        )

        def deliver(response: JoinGroupResponse) -> None:
            box.answer = response
            client.member_id = response.member_id
            if not response.error_code:
                client.generation = response.generation_id

        attempt = JoinAttempt.of(request, Caller(name, "/127.0.0.1", version), Reply(deliver))
        self.hosted.post(lambda shard: shard.join_group(attempt), soft=self.soft(group))
        if follow_up and box.answer is not None and box.error is ErrorCode.MEMBER_ID_REQUIRED:
            return self.join(
                name,
                group=group,
                version=version,
                session_ms=session_ms,
                rebalance_ms=rebalance_ms,
                protocol_type=protocol_type,
            )
        return box

    def sync(
        self,
        name: str,
        assignments: Mapping[str, bytes] | None = None,
        *,
        group: str = GROUP,
        generation: int | None = None,
        protocol_type: str | None = "consumer",
        protocol: str | None = None,
    ) -> ReplyBox:
        """Send SyncGroup, with assignments by client name."""
        client = self.client(name)
        box = ReplyBox()
        request = SyncGroupRequest(
            group_id=group,
            generation_id=client.generation if generation is None else generation,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(self.client(each).member_id, assignment)
                for each, assignment in (assignments or {}).items()
            ],
        )

        def deliver(response: SyncGroupResponse) -> None:
            box.answer = response

        self.hosted.post(lambda shard: shard.sync_group(request, Reply(deliver)), soft=self.soft(group))
        return box

    def heartbeat(self, name: str, *, group: str = GROUP, generation: int | None = None) -> ErrorCode:
        client = self.client(name)
        request = HeartbeatRequest(
            group_id=group,
            generation_id=client.generation if generation is None else generation,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
        )
        return self.error_or(lambda shard: shard.heartbeat(request), soft=True)

    def leave(self, *names: str, group: str = GROUP) -> LeaveGroupResponse:
        leavers = [MemberIdentity(self.client(name).member_id, self.client(name).instance_id) for name in names]
        return self.execute(lambda shard: shard.leave_group(group, leavers), soft=self.soft(group))

    def commit(
        self,
        name: str | None,
        offsets: Mapping[tuple[str, int], int],
        *,
        group: str = GROUP,
        generation: int | None = None,
        metadata: str | None = "",
        retention_ms: int = -1,
        version: int = 9,
        topic_id: Uuid = ZERO_UUID,
    ) -> OffsetCommitResponse:
        """Send OffsetCommit for a member, or without a member (None). Raise KafkaError when it is refused."""
        return self.execute(
            lambda shard: shard.commit_offsets(
                self.commit_request(name, offsets, group, generation, metadata, retention_ms, topic_id), version
            ),
            soft=True,
        )

    def commit_request(
        self,
        name: str | None,
        offsets: Mapping[tuple[str, int], int],
        group: str = GROUP,
        generation: int | None = None,
        metadata: str | None = "",
        retention_ms: int = -1,
        topic_id: Uuid = ZERO_UUID,
    ) -> OffsetCommitRequest:
        client = Client("nobody") if name is None else self.client(name)
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (topic, partition), offset in offsets.items():
            entry = topics.setdefault(topic, OffsetCommitRequestTopic(name=topic, topic_id=topic_id))
            entry.partitions.append(OffsetCommitRequestPartition(partition, offset, 3, metadata))
        return OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=client.generation if generation is None else generation,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            retention_time_ms=retention_ms,
            topics=list(topics.values()),
        )

    def fetch(
        self, partitions: Iterable[tuple[str, int]] | None = None, *, group: str = GROUP, stable: bool = False
    ) -> dict[tuple[str, int], int | ErrorCode]:
        """Send OffsetFetch. Return offset or error by partition; None requests all."""
        response = self.execute(lambda shard: shard.fetch_offsets(fetch_request(group, partitions), stable))
        return offsets_of(response)

    def delete_group(self, group: str = GROUP) -> DeletableGroupResult:
        return self.execute(lambda shard: shard.delete_group(group))

    def delete_offsets(self, partitions: Iterable[tuple[str, int]], *, group: str = GROUP) -> OffsetDeleteResponse:
        topics: dict[str, OffsetDeleteRequestTopic] = {}
        for topic, partition in partitions:
            entry = topics.setdefault(topic, OffsetDeleteRequestTopic(topic))
            entry.partitions.append(OffsetDeleteRequestPartition(partition))
        request = OffsetDeleteRequest(group_id=group, topics=list(topics.values()))
        return self.execute(lambda shard: shard.delete_offsets(request))

    def list_groups(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[ListedGroup]:
        return self.execute(lambda shard: shard.list_groups(list(states), list(types)))

    def describe(self, group: str = GROUP, *, version: int = 6) -> DescribedGroup:
        return self.execute(lambda shard: shard.describe_group(group, version))

    # Complete rebalances.

    def stable_group(
        self,
        *names: str,
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        protocols: Mapping[str, bytes] | None = None,
    ) -> None:
        """Join the clients to a Stable group, led by the first."""
        for name in names:
            if protocols is not None:
                self.client(name, protocols=protocols)
            self.join(name, session_ms=session_ms, rebalance_ms=rebalance_ms)
        self.advance(self.config.group_initial_rebalance_delay_ms * (len(names) + 1) / 1000)
        for name in names[1:]:
            self.sync(name)
        self.sync(names[0], {name: name.encode() for name in names})

    # Commands of the shard.

    def start(self, command: Command[GroupShard, T], *, soft: bool = False) -> Answer[T]:
        """Run a command whose response may come later."""
        return self.hosted.execute(command, soft=soft)

    def start_later(self, command: Command[GroupShard, T], *, soft: bool = False) -> asyncio.Future[T]:
        """Run a command that must not respond yet."""
        answer = self.start(command, soft=soft)
        assert isinstance(answer, asyncio.Future)
        return answer

    def execute(self, command: Command[GroupShard, T], *, soft: bool = False) -> T:
        """Run a command that must respond at once. Raise KafkaError."""
        answer = self.start(command, soft=soft)
        if isinstance(answer, asyncio.Future):
            self.loop.run_soon()
            return answer.result()
        return answer

    def error_or(self, command: Command[GroupShard, ErrorCode], *, soft: bool = False) -> ErrorCode:
        try:
            return self.execute(command, soft=soft)
        except KafkaError as error:
            return error.code

    def replayed_shard(self) -> GroupShard:
        """Return another shard with the log's contents and no soft state."""
        shard = GroupShard(self.config, self.clock, self._new_id, self.environment, self.streams_environment)
        for batch in self.log.batches:
            if batch.committed is not None:
                shard.replay_end_transaction(batch.producer_id, batch.committed)
            for record in batch.records:
                event = shard.decode(record.key, record.value)
                if event is not None:
                    shard.replay(event, record.offset, batch.producer_id)
        return shard

    def _load(self) -> HostedShard[GroupShard]:
        shard = self.replayed_shard()
        shard.on_loaded()
        limits = WriteLimits(self.config.group_coordinator_append_linger_ms, self.config.offsets_commit_timeout_ms)
        return HostedShard(self._runtime, shard, self.log, LeaderEpoch(0), self.log.end_offset, limits, self._on_broken)

    def _on_broken(self) -> None:
        self.is_broken = True

    def _new_id(self) -> str:
        return str(next(self._ids))


def fetch_request(group: str, partitions: Iterable[tuple[str, int]] | None) -> OffsetFetchRequestGroup:
    """Return an OffsetFetch for these partitions of one group, or for all its partitions."""
    if partitions is None:
        return OffsetFetchRequestGroup(group_id=group, topics=None)
    topics: dict[str, OffsetFetchRequestTopics] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, OffsetFetchRequestTopics(name=topic)).partition_indexes.append(partition)
    return OffsetFetchRequestGroup(group_id=group, topics=list(topics.values()))


def offsets_of(response: OffsetFetchResponseGroup) -> dict[tuple[str, int], int | ErrorCode]:
    """Return the offset, or the error where there is one, by partition."""
    return {
        (topic.name, each.partition_index): ErrorCode(each.error_code) if each.error_code else each.committed_offset
        for topic in response.topics
        for each in topic.partitions
    }
