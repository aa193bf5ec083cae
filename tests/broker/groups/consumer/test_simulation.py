"""Random histories of consumers of both protocols, topics and failovers, checked for the promises of reconciliation.

Each partition has at most one owner at any time, and a Stable group has every partition of its topics assigned.
"""

from collections import Counter
from random import Random
from typing import Any

import pytest

from broker.build_form import COMPILED, build_form
from broker.groups.consumer.assignment import Assignment, each_partition, in_order
from broker.groups.consumer.embedded_protocol import embedded_assignment
from broker.groups.consumer.environment import ConsumerGroupEnvironment, MigrationPolicy
from broker.groups.consumer.group import ConsumerGroupState
from broker.groups.consumer.heartbeat import ConsumerGroupHeartbeat
from protocol.compiler import encode_bytes
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.common_records import ConsumerProtocolSubscription, ConsumerProtocolSubscriptionTopicPartition
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.support.harnesses.consumer_group_harness import ConsumerGroupHarness

NAMES = "abcdef"
REFUSALS = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}


class ClassicConsumer:
    """A cooperative consumer of the classic protocol: gives up what an assignment lacks, then joins again."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.owned: Assignment = {}
        self.is_member = False

    def join(self, harness: ConsumerGroupHarness) -> None:
        owned = [
            ConsumerProtocolSubscriptionTopicPartition(topic, partitions)
            for topic_id, partitions in in_order(self.owned)
            if (topic := harness.topics.name_of(topic_id)) is not None
        ]
        message = ConsumerProtocolSubscription(topics=["t", "u"], owned_partitions=owned)
        metadata = (3).to_bytes(2, "big") + encode_bytes(message, 3)
        joined = harness.join(self.name, protocols={"range": metadata}, session_ms=40_000)
        if joined.error is not ErrorCode.NONE:
            self.forget(harness)
            return
        self.is_member = True
        try:
            synced = harness.sync(self.name)
        except KafkaError as error:
            if error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                self.forget(harness)
            return
        self.owned = embedded_assignment(bytes(synced.synced.assignment), harness.topics)

    def heartbeat(self, harness: ConsumerGroupHarness) -> None:
        error = harness.heartbeat(self.name)
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.join(harness)
        elif error is not ErrorCode.NONE:
            self.forget(harness)

    def forget(self, harness: ConsumerGroupHarness) -> None:
        harness.client(self.name, member_id="", generation=-1)
        self.owned, self.is_member = {}, False


class RandomGroup:
    """One group under random events."""

    def __init__(self, seed: int, *, with_classic: bool = False) -> None:
        self.random = Random(seed)
        environment = ConsumerGroupEnvironment(migration_policy=MigrationPolicy.UPGRADE)
        self.harness = ConsumerGroupHarness(environment=environment)
        self.joined: set[str] = set()
        self.classic = {name: ClassicConsumer(name) for name in "xyz"} if with_classic else {}

    def step(self) -> None:
        """Let one thing happen, then check the owners."""
        name = self.random.choice(NAMES)
        if self.classic and self.random.random() < 0.4:
            self.step_classic(self.random.choice([*self.classic.values()]))
            self.check_owners()
            return
        match self.random.randrange(12):
            case 0:
                self.leave(name)
            case 1:
                self.harness.restart()
            case 2:
                topic = self.random.choice("tuv")
                described = self.harness.topics.describe(topic)
                count = 0 if described is None else described.partition_count
                self.harness.change_topic(topic, 0 if count > 6 else count + self.random.randrange(1, 4))
            case 3:
                self.harness.advance(self.random.choice([1, 5, 30]))
            case 4:
                self.beat(name, topics=tuple(self.random.sample("tuv", self.random.randrange(0, 4))))
            case 5:
                self.beat(name, assignor=self.random.choice(["uniform", "range"]))
            case 6:
                self.lose_response(name)
            case _:
                self.beat(name, keeps=self.random.random() < 0.3)
        self.check_owners()

    def beat(self, name: str, *, keeps: bool = False, **settings: object) -> None:
        try:
            self.harness.beat(name, keeps=keeps, **settings)
            self.joined.add(name)
        except KafkaError as error:
            if error.code not in REFUSALS:
                raise
            self.harness.forget(name)
            self.joined.discard(name)

    def lose_response(self, name: str) -> None:
        """Send a heartbeat whose response does not arrive; the client then repeats its whole state."""
        consumer = self.harness.consumer(name)
        before = consumer.epoch, consumer.assigned
        self.beat(name, keeps=True)
        if name in self.joined:
            consumer.epoch, consumer.assigned = before
            consumer.has_lost_response = True
            if consumer.epoch == 0:
                consumer.owned = {}

    def leave(self, name: str) -> None:
        try:
            self.harness.leave_group_of(name)
        except KafkaError as error:
            if error.code not in REFUSALS:
                raise
            self.harness.forget(name)
        self.joined.discard(name)

    def step_classic(self, consumer: "ClassicConsumer") -> None:
        """Let a classic consumer join, send a heartbeat, or leave; it acts on REBALANCE_IN_PROGRESS at once."""
        table = self.harness.shard.consumer_groups.table
        group = table.get("g")
        if group is None or group.is_empty:
            return  # a classic client would make it a classic group
        if not consumer.is_member:
            consumer.join(self.harness)
        elif self.random.random() < 0.1:
            self.harness.leave(consumer.name)
            consumer.forget(self.harness)
        else:
            consumer.heartbeat(self.harness)

    def check_owners(self) -> None:
        """Check that no two members own a partition; a removed client owns nothing once it learns of it."""
        table = self.harness.shard.consumer_groups.table
        members = next(iter(table)).members if len(table) else {}
        owned = Counter(each for member_id in members for each in each_partition(self.owned_by(member_id)))
        assert [partition for partition, count in owned.items() if count > 1] == []

    def owned_by(self, member_id: str) -> Assignment:
        """Return the partitions that the client of the member works on."""
        for consumer in self.classic.values():
            if self.harness.client(consumer.name).member_id == member_id:
                return consumer.owned
        return self.harness.consumer(member_id).owned

    def settle(self) -> None:
        """Let heartbeats go on until the group is stable, then check that everything is assigned."""
        for name in NAMES[:3] * 2:  # a client that is refused joins again
            self.beat(name, topics=("t", "u"))
        for _ in range(30):
            self.harness.advance(5)  # members without a client expire
            for name in [*self.joined]:
                self.beat(name)
            for consumer in self.classic.values():
                if consumer.is_member:
                    consumer.heartbeat(self.harness)
        group = self.harness.consumer_group
        assert group.state is ConsumerGroupState.STABLE
        expected = set()
        for name, member in group.members.items():
            assert self.owned_by(name) == group.current(name).assigned
            for topic in member.topic_names:
                described = self.harness.topics.describe(topic)
                if described is not None:
                    expected |= {(described.topic_id, index) for index in range(described.partition_count)}
        owned = [each for name in group.members for each in each_partition(self.owned_by(name))]
        assert len(owned) == len(set(owned))
        assert set(owned) == expected


@pytest.mark.parametrize("with_classic", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_random_history_keeps_single_owners_and_ends_fully_assigned(seed: int, with_classic: bool) -> None:
    group = RandomGroup(seed, with_classic=with_classic)
    for _ in range(150):
        group.step()
    group.settle()
    replayed = group.harness.replayed_shard().consumer_groups.table.get_or_raise("g")
    live = group.harness.consumer_group
    assert replayed.members == live.members
    assert all(replayed.current(each) == live.current(each) for each in live.members)
    assert replayed.state is live.state


def history_of(seed: int) -> list[object]:
    """Return the responses, records and timers of a random group."""
    group = RandomGroup(seed, with_classic=seed % 2 == 0)
    harness, seen = group.harness, list[object]()
    send = harness.send

    def sent(request: ConsumerGroupHeartbeatRequest, version: int = 1) -> ConsumerGroupHeartbeatResponse:
        response = send(request, version)
        seen.append(response)
        return response

    harness.send = sent  # type: ignore[method-assign]
    for _ in range(200):
        group.step()
        timers = harness.shard.timers
        seen.append(harness.log.end_offset)
        seen.append({key: timers.deadline_ms(key) for key in timers})
    return [*seen, *((record.key, record.value) for record in harness.log.records)]


@pytest.mark.skipif(build_form() == COMPILED, reason="compiled callers do not see a path turned off")
@pytest.mark.parametrize("seed", range(8))
def test_heartbeats_without_changes_have_the_effects_of_the_general_path(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = Counter[bool]()
    decide = ConsumerGroupHeartbeat._is_unchanged

    def counted(*arguments: Any) -> bool:
        is_unchanged = decide(*arguments)
        straight[is_unchanged] += 1
        return is_unchanged

    monkeypatch.setattr(ConsumerGroupHeartbeat, "_is_unchanged", counted)
    history = history_of(seed)
    monkeypatch.setattr(ConsumerGroupHeartbeat, "_is_unchanged", lambda *_: False)
    assert history == history_of(seed)
    assert straight[True] > 0 < straight[False]
