"""Random histories of consumers, topics and failovers, checked for the two promises of reconciliation.

Each partition has at most one owner at any time, and a Stable group has every partition of its topics assigned.
"""

from collections import Counter
from random import Random

import pytest

from broker.groups.consumer.assignment import each_partition
from broker.groups.consumer.group import ConsumerGroupState
from protocol.errors import ErrorCode, KafkaError
from tests.support.harnesses.consumer_group_harness import ConsumerGroupHarness

NAMES = "abcdef"
REFUSALS = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}


class RandomGroup:
    """One group under random events."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.harness = ConsumerGroupHarness()
        self.joined: set[str] = set()

    def step(self) -> None:
        """Let one thing happen, then check the owners."""
        name = self.random.choice(NAMES)
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

    def check_owners(self) -> None:
        """Check that no two members own a partition; a removed client owns nothing once it learns of it."""
        table = self.harness.shard.consumer_groups.table
        members = next(iter(table)).members if len(table) else {}
        owned = Counter(each for name in members for each in each_partition(self.harness.consumer(name).owned))
        assert [partition for partition, count in owned.items() if count > 1] == []

    def settle(self) -> None:
        """Let heartbeats go on until the group is stable, then check that everything is assigned."""
        for name in NAMES[:3]:
            self.beat(name, topics=("t", "u"))
        for _ in range(30):
            self.harness.advance(5)  # members without a client expire
            for name in [*self.joined]:
                self.beat(name)
        group = self.harness.consumer_group
        assert group.state is ConsumerGroupState.STABLE
        expected = set()
        for name, member in group.members.items():
            assert self.harness.consumer(name).owned == group.current(name).assigned
            for topic in member.topic_names:
                described = self.harness.topics.describe(topic)
                if described is not None:
                    expected |= {(described.topic_id, index) for index in range(described.partition_count)}
        owned = [each for name in group.members for each in each_partition(self.harness.consumer(name).owned)]
        assert len(owned) == len(set(owned))
        assert set(owned) == expected


@pytest.mark.parametrize("seed", range(25))
def test_random_history_keeps_single_owners_and_ends_fully_assigned(seed: int) -> None:
    group = RandomGroup(seed)
    for _ in range(150):
        group.step()
    group.settle()
    replayed = group.harness.replayed_shard().consumer_groups.table.get_or_raise("g")
    live = group.harness.consumer_group
    assert replayed.members == live.members
    assert all(replayed.current(each) == live.current(each) for each in live.members)
    assert replayed.state is live.state
