"""Random histories of streams members, settings, topics and failovers, checked for the promises of reconciliation.

Each active task has at most one owner at any time, no process works on a task in two roles, and a Stable group has all
tasks assigned.
"""

from collections import Counter
from random import Random

import pytest

from broker.groups.streams.group import StreamsGroupState
from broker.groups.streams.tasks import all_tasks, each_task
from protocol.errors import ErrorCode, KafkaError
from tests.support.harnesses.streams_group_harness import StreamsGroupHarness

NAMES = "abcdef"
REFUSALS = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}


class RandomStreamsGroup:
    """One group under random events."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.harness = StreamsGroupHarness()
        self.partitions = 2
        self.joined: set[str] = set()
        for name in NAMES:
            self.harness.member(name, process=self.random.choice("pqr"))

    def step(self) -> None:
        """Let one thing happen, then check the owners."""
        chance, name = self.random.random(), self.random.choice(NAMES)
        if chance < 0.75:
            self.beat(name)
        elif chance < 0.80:
            self.leave(name)
        elif chance < 0.83:  # killed: the process is gone, its session is not
            self.harness.forget(name)
            self.joined.discard(name)
        elif chance < 0.87:
            self.harness.advance(self.random.choice((1, 20, 46)))
        elif chance < 0.90:
            self.harness.restart()
        elif chance < 0.93:
            standby_count = self.random.randint(0, 2)
            self.harness.settings = self.harness.settings._replace(num_standby_replicas=standby_count)
        elif chance < 0.95:
            self.resize()
        else:
            self.harness.member(name).has_lost_response = True
        self.check_owners()

    def beat(self, name: str) -> None:
        try:
            self.harness.beat(name, keeps=self.random.random() < 0.3)
            self.joined.add(name)
        except KafkaError as error:
            if error.code not in REFUSALS:
                raise
            self.harness.forget(name)

    def leave(self, name: str) -> None:
        if name in self.joined:
            self.joined.discard(name)
            try:
                self.harness.leave_streams(name)
            except KafkaError as error:
                if error.code not in REFUSALS:
                    raise

    def resize(self) -> None:
        self.partitions = self.random.randint(self.partitions, 6)
        for topic in "trc":
            self.harness.change_topic(topic, self.partitions)

    def check_owners(self) -> None:
        """Check the tasks that members of the group work on; members that the group has removed are to be fenced."""
        group = self.harness.shard.streams_groups.table.get("g")
        alive = [self.harness.member(name) for name in NAMES if group is not None and name in group.members]
        owned = Counter(task for each in alive for task in each_task(each.owned.active))
        assert max(owned.values(), default=0) <= 1, owned
        roles = Counter((each.process, task) for each in alive for task in all_tasks(each.owned))
        assert max(roles.values(), default=0) <= 1, roles

    def settle(self) -> None:
        for _ in range(60):
            for name in NAMES:
                self.beat(name)
                self.check_owners()
        for name in NAMES:
            self.harness.beat(name)
        group = self.harness.streams_group
        assert group.state is StreamsGroupState.STABLE
        owned = {task for name in NAMES for task in each_task(self.harness.member(name).owned.active)}
        assert len(owned) == 2 * self.partitions


@pytest.mark.parametrize("seed", range(60))
def test_random_history(seed: int) -> None:
    group = RandomStreamsGroup(seed)
    for _ in range(120):
        group.step()
    group.settle()


@pytest.mark.parametrize("seed", range(5))
def test_replayed_group_equals_the_live_one(seed: int) -> None:
    group = RandomStreamsGroup(seed)
    for _ in range(120):
        group.step()
    live, replayed = (
        shard.streams_groups.table.get("g") for shard in (group.harness.shard, group.harness.replayed_shard())
    )
    if live is None or replayed is None:
        assert live is replayed
        return
    assert replayed.members == live.members
    assert (replayed.epoch, replayed.target_epoch, replayed.state) == (live.epoch, live.target_epoch, live.state)
    for member_id in live.members:
        assert replayed.current(member_id) == live.current(member_id)
        assert replayed.target(member_id) == live.target(member_id)
