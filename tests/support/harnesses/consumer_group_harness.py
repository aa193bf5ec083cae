"""A group shard with topics, and consumers that send ConsumerGroupHeartbeat to it.

Clients behave as real ones: they remember their epoch and assignment, own what they are assigned, and give up
partitions at once, unless told to keep them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from broker.groups.caller import Caller
from broker.groups.config import GroupConfig
from broker.groups.consumer.assignment import Assignment, assignment_of, each_partition, in_order
from broker.groups.consumer.environment import ConsumerGroupEnvironment, MemberIntervals
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.records import ResolvedRegex
from broker.groups.consumer.topics import SubscribableTopic
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from protocol.primitives import Uuid
from tests.support.fakes.shard_log import MemoryShardLog
from tests.support.harnesses.group_harness import GROUP, GroupHarness


def topic_id_of(name: str, generation: int = 0) -> Uuid:
    """Return the id that topics of that name have in the tests; a re-created topic is of a later generation."""
    return Uuid((name + "'" * generation).encode().rjust(16, b"-")[:16])


class FakeTopics:
    """Topics that tests create, extend and delete."""

    def __init__(self) -> None:
        self.offset = 0
        self.topics: dict[str, SubscribableTopic] = {}
        self._generations: dict[str, int] = {}

    def describe(self, name: str) -> SubscribableTopic | None:
        return self.topics.get(name)

    def name_of(self, topic_id: Uuid) -> str | None:
        return next((topic.name for topic in self.topics.values() if topic.topic_id == topic_id), None)

    def put(self, name: str, partition_count: int) -> None:
        """Create the topic, or add partitions."""
        self.offset += 1
        topic_id = topic_id_of(name, self._generations.get(name, 0))
        self.topics[name] = SubscribableTopic(name, topic_id, (frozenset[str](),) * partition_count)

    def delete(self, name: str) -> None:
        self.offset += 1
        del self.topics[name]
        self._generations[name] = self._generations.get(name, 0) + 1


@dataclass
class Consumer:
    """A consumer as the tests drive it. `owned` are the partitions that the client works on.

    A client that has lost a response names all fields in its next request."""

    name: str
    epoch: int = 0
    instance_id: str | None = None
    topics: tuple[str, ...] | None = ("t",)
    regex: str | None = None
    assignor: str | None = None
    rebalance_timeout_ms: int = 60_000
    assigned: Assignment = field(default_factory=dict)
    owned: Assignment = field(default_factory=dict)
    has_news: bool = True
    has_lost_response: bool = False


class ConsumerGroupHarness(GroupHarness):
    """One shard, the topics t (4 partitions) and u (2 partitions), and consumers by name."""

    def __init__(
        self,
        *,
        config: GroupConfig | None = None,
        log: MemoryShardLog | None = None,
        environment: ConsumerGroupEnvironment | None = None,
    ) -> None:
        self.topics = FakeTopics()
        self.topics.put("t", 4)
        self.topics.put("u", 2)
        self.intervals = MemberIntervals()
        consumer = replace(
            environment or ConsumerGroupEnvironment(),
            topics=lambda: self.topics,
            intervals=lambda _: self.intervals,
        )
        super().__init__(config or GroupConfig(group_coordinator_append_linger_ms=0), log, consumer)
        self.consumers: dict[str, Consumer] = {}

    @property
    def consumer_group(self) -> ConsumerGroup:
        """The default group of the tests."""
        return self.shard.consumer_groups.table.get_or_raise(GROUP)

    def consumer(self, name: str, **settings: Any) -> "Consumer":
        """Return the consumer of that name, with these settings from now on."""
        consumer = self.consumers.setdefault(name, Consumer(name))
        for key, value in settings.items():
            setattr(consumer, key, value)
        return consumer

    # Requests.

    def send(self, request: ConsumerGroupHeartbeatRequest, version: int = 1) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat as it is. Raise KafkaError."""
        caller = Caller("client", "/127.0.0.1", version)
        return self.execute(lambda shard: shard.consumer_groups.heartbeat(request, caller))

    def beat(self, name: str, *, keeps: bool = False, **settings: Any) -> ConsumerGroupHeartbeatResponse:
        """Send the consumer's next heartbeat: the whole state when it joins or has changed, else only what is new.

        With `keeps`, the consumer does not give up revoked partitions yet. Raise KafkaError.
        """
        consumer = self.consumer(name, **settings)
        is_full = consumer.epoch == 0 or bool(settings) or consumer.has_lost_response
        if not keeps:
            consumer.has_news |= consumer.owned != consumer.assigned
            consumer.owned = consumer.assigned
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=name, member_epoch=consumer.epoch, instance_id=consumer.instance_id
        )
        if is_full:
            request.rebalance_timeout_ms = consumer.rebalance_timeout_ms
            request.subscribed_topic_names = None if consumer.topics is None else list(consumer.topics)
            request.subscribed_topic_regex = consumer.regex
            request.server_assignor = consumer.assignor
        if is_full or consumer.has_news:
            request.topic_partitions = [
                ConsumerGroupHeartbeatRequestTopicPartitions(*each) for each in in_order(consumer.owned)
            ]
        try:
            response = self.send(request)
        except KafkaError as error:
            if error.code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
                self.forget(name)
            raise
        consumer.has_news = consumer.has_lost_response = False
        consumer.epoch = response.member_epoch
        if response.assignment is not None:
            consumer.assigned = assignment_of(response.assignment.topic_partitions)
        return response

    def leave_group_of(self, name: str, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        """Send the heartbeat of a consumer that stops."""
        consumer = self.consumer(name)
        response = self.send(
            ConsumerGroupHeartbeatRequest(
                group_id=GROUP, member_id=name, member_epoch=epoch, instance_id=consumer.instance_id
            )
        )
        self.forget(name)
        return response

    def forget(self, name: str) -> None:
        """Let the consumer drop its partitions and its epoch."""
        self.consumer(name, epoch=0, assigned={}, owned={}, has_news=True)

    def settle(self, *names: str, rounds: int = 12) -> None:
        """Let the consumers send heartbeats until the group is Stable."""
        for _ in range(rounds):
            for name in names:
                self.beat(name)
            if self.consumer_group.state.value == "Stable":
                break
        for name in names:  # the last assignments are taken on
            self.beat(name)

    def owned(self, name: str) -> set[str]:
        """Return the consumer's partitions, as "t0"."""
        return partition_names(self.consumer(name).owned)

    # Topics.

    def change_topic(self, name: str, partition_count: int) -> None:
        """Create the topic, add partitions, or delete it with a count of 0."""
        is_new = name not in self.topics.topics
        if partition_count:
            self.topics.put(name, partition_count)
        else:
            self.topics.delete(name)
        self.shard.consumer_groups.on_topics_changed([name], self.topics.offset if is_new else None)

    def resolve(self, **topics: Iterable[str]) -> list[str]:
        """Answer the look-ups that are due: the topics by the expression's first letter. Return the expressions."""
        regexes: list[str] = []
        for lookup in self.shard.consumer_groups.take_regex_lookups():
            regexes += sorted(lookup.regexes)
            results = {
                regex: ResolvedRegex(frozenset(topics.get(regex[0], ())), self.topics.offset, self.clock.now_ms())
                for regex in lookup.regexes
            }
            self._resolve(lookup.group_id, results)
        return regexes

    def _resolve(self, group_id: str, results: Mapping[str, ResolvedRegex]) -> None:
        self.hosted.post(lambda shard: shard.consumer_groups.resolve_regexes(group_id, results))


def partition_names(assignment: Assignment) -> set[str]:
    """Return the partitions as "t0", without the padding of topic ids."""
    return {f"{topic_id.decode().lstrip('-')}{index}" for topic_id, index in each_partition(assignment)}
