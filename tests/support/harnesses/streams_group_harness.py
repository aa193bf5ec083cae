"""A group shard with topics, and members of a Kafka Streams application that send StreamsGroupHeartbeat to it.

Members behave as real ones: they remember their epoch and tasks, own what they are assigned, and give up tasks at once,
unless told to keep them. The topology counts words: subtopology 0 reads t and writes the repartition topic r,
subtopology 1 reads r and has a store with the changelog c.
"""

from dataclasses import dataclass, field
from typing import Any

from broker.groups.caller import Caller
from broker.groups.config import GroupConfig
from broker.groups.streams.environment import StreamsGroupEnvironment, StreamsGroupSettings
from broker.groups.streams.group import StreamsGroup
from broker.groups.streams.heartbeat import StreamsHeartbeatAnswer
from broker.groups.streams.tasks import Tasks, TaskSet, in_task_order, task_set
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.streams_group_heartbeat import (
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequestEndpoint,
    StreamsGroupHeartbeatRequestTaskIds,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TopicInfo,
    Topology,
)
from tests.support.fakes.shard_log import MemoryShardLog
from tests.support.harnesses.consumer_group_harness import FakeTopics
from tests.support.harnesses.group_harness import GROUP, GroupHarness


def word_count(epoch: int = 0) -> Topology:
    """Return the topology of the tests."""
    return Topology(
        epoch,
        [
            Subtopology("0", source_topics=["t"], repartition_sink_topics=["r"]),
            Subtopology(
                "1",
                repartition_source_topics=[TopicInfo("r", 0, 0, [KeyValue("cleanup.policy", "delete")])],
                state_changelog_topics=[TopicInfo("c", 0, 0, [KeyValue("cleanup.policy", "compact")])],
            ),
        ],
    )


@dataclass
class StreamsClient:
    """A member as the tests drive it. `owned` are the tasks that it works on.

    A member names its tasks when it has taken on an assignment, even an equal one, and after a lost response.
    """

    name: str
    process: str = ""
    epoch: int = 0
    endpoint: str | None = None
    endpoint_epoch: int = -1
    rebalance_timeout_ms: int = 60_000
    topology: Topology | None = None
    assigned: Tasks = field(default_factory=Tasks)
    owned: Tasks = field(default_factory=Tasks)
    has_news: bool = True
    has_lost_response: bool = False
    has_assignment: bool = False


class StreamsGroupHarness(GroupHarness):
    """One shard, the topics t (2 partitions), r and c, and members by name, each its own process unless told."""

    def __init__(
        self,
        *,
        config: GroupConfig | None = None,
        log: MemoryShardLog | None = None,
        settings: StreamsGroupSettings | None = None,
        with_internal_topics: bool = True,
        max_size: int = 1000,
    ) -> None:
        self.topics = FakeTopics()
        self.topics.put("t", 2)
        if with_internal_topics:
            self.topics.put("r", 2)
            self.topics.put("c", 2)
        self.settings = settings or StreamsGroupSettings(initial_rebalance_delay_ms=0)
        environment = StreamsGroupEnvironment(
            max_size=max_size, topics=lambda: self.topics, settings=lambda _: self.settings
        )
        super().__init__(config or GroupConfig(group_coordinator_append_linger_ms=0), log, streams=environment)
        self.members: dict[str, StreamsClient] = {}

    @property
    def streams_group(self) -> StreamsGroup:
        """The default group of the tests."""
        return self.shard.streams_groups.table.get_or_raise(GROUP)

    def member(self, name: str, **settings: Any) -> StreamsClient:
        """Return the member of that name, with these settings from now on."""
        member = self.members.setdefault(name, StreamsClient(name, process=name))
        for key, value in settings.items():
            setattr(member, key, value)
        return member

    # Requests.

    def send(self, request: StreamsGroupHeartbeatRequest) -> StreamsHeartbeatAnswer:
        """Send a heartbeat as it is. Raise KafkaError."""
        caller = Caller("client", "/127.0.0.1", 0)
        return self.execute(lambda shard: shard.streams_groups.heartbeat(request, caller))

    def beat(
        self, name: str, *, keeps: bool = False, shutdown: bool = False, **settings: Any
    ) -> StreamsHeartbeatAnswer:
        """Send the member's next heartbeat. With `keeps`, the member does not give up tasks yet. Raise KafkaError."""
        member = self.member(name, **settings)
        if not keeps:
            member.has_news |= member.has_assignment
            member.has_assignment = False
            member.owned = member.assigned
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=name,
            member_epoch=member.epoch,
            endpoint_information_epoch=member.endpoint_epoch,
            shutdown_application=shutdown,
        )
        if member.epoch == 0:
            request.topology = member.topology or word_count()
            request.rebalance_timeout_ms = member.rebalance_timeout_ms
            request.process_id = member.process
            if member.endpoint is not None:
                request.user_endpoint = StreamsGroupHeartbeatRequestEndpoint(member.endpoint, 80)
        if member.epoch == 0 or member.has_news or member.has_lost_response:
            request.active_tasks = task_lists(member.owned.active)
            request.standby_tasks = task_lists(member.owned.standby)
            request.warmup_tasks = task_lists(member.owned.warmup)
        try:
            answer = self.send(request)
        except KafkaError as error:
            if error.code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
                self.forget(name)
            raise
        self._learn(member, answer.response)
        return answer

    def leave_streams(self, name: str) -> StreamsGroupHeartbeatResponse:
        """Send the heartbeat of a member that stops."""
        self.forget(name)
        return self.send(StreamsGroupHeartbeatRequest(group_id=GROUP, member_id=name, member_epoch=-1)).response

    def forget(self, name: str) -> None:
        """Let the member drop its tasks and its epoch."""
        self.member(name, epoch=0, assigned=Tasks(), owned=Tasks(), has_news=True)

    def settle(self, *names: str, rounds: int = 12) -> None:
        """Let the members send heartbeats until the group is Stable."""
        for _ in range(rounds):
            for name in names:
                self.beat(name)
            if self.streams_group.state.value == "Stable":
                break
        for name in names:  # the last tasks are taken on
            self.beat(name)

    def _learn(self, member: StreamsClient, response: StreamsGroupHeartbeatResponse) -> None:
        member.has_news = member.has_lost_response = False
        member.epoch = response.member_epoch
        if response.active_tasks is not None:
            member.has_assignment = True
            member.assigned = Tasks(
                task_set(response.active_tasks),
                task_set(response.standby_tasks or ()),
                task_set(response.warmup_tasks or ()),
            )
        if response.partitions_by_user_endpoint is not None:
            member.endpoint_epoch = response.endpoint_information_epoch

    # Topics.

    def change_topic(self, name: str, partition_count: int) -> None:
        """Create the topic, add partitions, or delete it with a count of 0."""
        if partition_count:
            self.topics.put(name, partition_count)
        else:
            self.topics.delete(name)
        self.shard.streams_groups.on_topics_changed([name])


def task_lists(tasks: TaskSet) -> list[StreamsGroupHeartbeatRequestTaskIds]:
    """Return the tasks as a request names them."""
    return [StreamsGroupHeartbeatRequestTaskIds(*each) for each in in_task_order(tasks)]


def task_text(tasks: Tasks) -> str:
    """Return the tasks as "0_0 1_1 standby 1_0"."""
    texts = [" ".join(f"{name}_{each}" for name, partitions in in_task_order(tasks.active) for each in partitions)]
    for role, others in (("standby", tasks.standby), ("warm-up", tasks.warmup)):
        copies = [f"{name}_{each}" for name, partitions in in_task_order(others) for each in partitions]
        texts += [f"{role} {' '.join(copies)}"] if copies else []
    return " ".join(filter(None, texts)) or "nothing"
