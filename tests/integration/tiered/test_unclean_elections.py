"""KIP-405's five scenarios of followers and its leadership transition, on processes with unclean elections.

Each scenario is played with numbers of records that a seed draws, and then whole sequences of what can happen are
drawn. A story keeps what every replica's log must be, as parts that were written under one leader each; after every
step the checkpoints of the brokers, the bounds of the log, and the metadata of remote segments are held against that,
and in the end every record is read back as the history of the last leader says.
"""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from random import Random

import pytest

from storage.tiered.catalog.lineage import Lineage
from storage.tiered.segment_metadata import RemoteSegment
from tests.support.clients.checkable_records import Recipe, read_back, write
from tests.support.clients.partition_states import PartitionState, until, wait_for_state, wait_until_whole
from tests.support.processes.s3_server import unavailable_reason
from tests.support.processes.tiered_cluster import SEGMENT_BYTES, TieredCluster

pytestmark = pytest.mark.integration

SIZE = 16 << 10
MIB = (1 << 20) // SIZE
FIRST_MS = time.time_ns() // 1_000_000 - 86_400_000
LEFT_LOCAL = 3 * SEGMENT_BYTES
A, B = 1, 2
"""The replicas; broker 3 is there for the others to have a cluster."""


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TieredCluster]:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    with TieredCluster(tmp_path_factory.mktemp("unclean"), seed=4050) as running:
        yield running


@pytest.fixture(autouse=True)
def all_run(tier: TieredCluster) -> None:
    """Whatever a test before has left."""
    if dead := [broker.id for broker in tier.brokers.brokers.values() if not broker.is_running]:
        tier.brokers.start(*dead)


@dataclass(frozen=True)
class Part:
    """Records that one leader wrote, in one go of leading, from `start` on."""

    start: int
    end: int
    recipe: Recipe


class Story:
    """One partition on A and B. `logs` is what each replica has, by broker; A leads at first."""

    def __init__(self, tier: TieredCluster, topic: str, seed: int) -> None:
        self.tier = tier
        self.topic = topic
        self.random = Random(f"{topic} {seed}")
        self.leader = A
        self.reigns = 0
        self.logs: dict[int, list[Part]] = {A: [], B: []}
        tier.create(topic, [A, B], unclean_leader_election_enable="true", min_insync_replicas="1")

    # ---- what is

    @property
    def other(self) -> int:
        return A + B - self.leader

    @property
    def end(self) -> int:
        return self._end_of(self.leader)

    def _end_of(self, broker: int) -> int:
        return self.logs[broker][-1].end if self.logs[broker] else 0

    @property
    def replicas(self) -> list[int]:
        """Those that run."""
        return [each for each in (A, B) if self.tier.brokers[each].is_running]

    @property
    def local_start(self) -> int:
        return self.tier.bounds(self.topic)[0].local_start or 0

    def drawn(self) -> str:
        """As the brokers have it, for whoever must explain a failure."""
        lines = [f"{each}: {self._drawn_replica(each)}" for each in (A, B)]
        remote = (f"[{one.start_offset}-{one.end_offset}]{_drawn(one.leader_epochs)}" for one in self.finished())
        return "\n".join([f"{self.leader} leads to {self.end}", *lines, f"remote: {' '.join(remote)}"])

    def _drawn_replica(self, broker: int) -> str:
        if not self.tier.partition_directory(broker, self.topic).exists():
            return "nothing"
        state = "" if self.tier.brokers[broker].is_running else " down"
        return f"from {self.first_local(broker)} {_drawn(self._epochs(broker))}{state}"

    def first_local(self, broker: int) -> int:
        """Where the segments of a replica begin."""
        return min(int(path.stem) for path in self.tier.partition_directory(broker, self.topic).glob("*.log"))

    def finished(self) -> list[RemoteSegment]:
        return self.tier.finished(self.topic)

    # ---- what happens

    def produce(self, least_mib: float = 1.0, most_mib: float = 2.5) -> None:
        """So many mebibytes, drawn, to all that are in sync."""
        count = int(self.random.uniform(least_mib, most_mib) * MIB)
        recipe = Recipe(SIZE, FIRST_MS + self.reigns * 1_000_000)
        first = self.end
        write(self.tier.bootstrap, self.topic, recipe, 0, range(first, first + count))
        log = self.logs[self.leader]
        if log and log[-1].recipe == recipe:
            log[-1] = Part(log[-1].start, first + count, recipe)
        else:
            log.append(Part(first, first + count, recipe))
        if self.other in self.replicas:
            self.wait_until_whole()

    def wait_until_whole(self) -> None:
        wait_until_whole(self.tier.bootstrap, self.topic)
        self.logs[self.other] = list(self.logs[self.leader])

    def leave_alone(self) -> None:
        """The follower goes; what the leader writes from now on, nobody else has."""
        self.tier.brokers[self.other].kill()
        self._wait(lambda state: state.isr == [self.leader])

    def come_back(self) -> None:
        """The follower starts, and takes the leader's history."""
        self.tier.brokers.start(self.other)
        self.wait_until_whole()

    def elect_uncleanly(self) -> None:
        """The leader goes, and the other, which has been away, leads with what it has."""
        self.tier.brokers[self.leader].kill()
        if self.other not in self.replicas:
            self.tier.brokers.start(self.other)
        self._leads(self.other)

    def elect_cleanly(self) -> None:
        """The follower, in sync, leads, since the leader stops for a moment."""
        self.tier.brokers[self.leader].kill()
        self._leads(self.other)
        self.tier.brokers.start(self.other)
        self.wait_until_whole()

    def _leads(self, broker: int) -> None:
        self._wait(lambda state: state.leader == broker)
        self.leader = broker
        self.reigns += 1
        assert self.tier.bounds(self.topic)[0].end == self.end, self.drawn()

    def lose_disk(self) -> None:
        """Of the follower, which is down then."""
        if self.other in self.replicas:
            self.leave_alone()
        shutil.rmtree(self.tier.brokers[self.other].data)
        self.logs[self.other] = []

    def settle(self) -> None:
        """Until all but the newest is remote, and nowhere else."""
        until(
            lambda: (
                any(one.end_offset + 2 * MIB > self.end for one in self._of_history())
                and all(self.tier.local_bytes(each, self.topic) <= LEFT_LOCAL for each in self.replicas)
            )
        )

    def wait_for_local_start_above(self, offset: int) -> int:
        """The leader lets go of more a moment after it has settled; where its log starts then."""
        try:
            until(lambda: self.local_start > offset)
        except AssertionError:
            pytest.fail(f"what is local does not begin above {offset}\n{self.drawn()}")
        return self.local_start

    def _wait(self, wanted: Callable[[PartitionState], bool]) -> None:
        wait_for_state(self.tier.bootstrap, self.topic, wanted)

    # ---- what must be

    def _lineage(self) -> Lineage:
        return Lineage(self._epochs(self.leader), self.end)

    def _epochs(self, broker: int) -> list[tuple[int, int]]:
        """None before the first checkpoint."""
        with contextlib.suppress(FileNotFoundError):
            return self.tier.leader_epochs(broker, self.topic)
        return []

    def _of_history(self) -> list[RemoteSegment]:
        """Finished segments that are of the leader's history to their ends."""
        lineage = self._lineage()
        return [one for one in self.finished() if lineage.agreed_end(one) == one.end_offset]

    def of_other_histories(self) -> list[RemoteSegment]:
        lineage = self._lineage()
        return [one for one in self.finished() if lineage.agreed_end(one) != one.end_offset]

    def check(self) -> None:
        """Epochs, bounds, and what is remote."""
        bounds = self.tier.bounds(self.topic)[0]
        assert (bounds.start, bounds.end) == (0, self.end), self.drawn()
        for broker in self.replicas:
            self._check_epochs(broker)
        lineage, local_start, offset = self._lineage(), self.local_start, 0
        for one in self.finished():  # asked after what is not local any more
            if one.start_offset <= offset:
                offset = max(offset, lineage.agreed_end(one) + 1)
        assert offset >= local_start, f"a hole at {offset}\n{self.drawn()}"

    def _check_epochs(self, broker: int) -> None:
        """Checkpoints are written a moment after what they tell of."""
        wanted = {each.start for each in self.logs[self.leader]}
        try:
            until(lambda: {start for _, start in self._epochs(broker) if start < self.end} == wanted)
        except AssertionError:
            pytest.fail(f"{broker} should have epochs from {wanted}\n{self.drawn()}")
        assert all(one < another for one, another in pairwise(epoch for epoch, _ in self._epochs(broker)))

    def read(self) -> None:
        """Everything, as the history of the leader says."""
        self.check()
        for part in self.logs[self.leader]:
            found = read_back(self.tier.bootstrap, self.topic, part.recipe, {0: part.end}, {0: part.start})
            assert found.faults == [], self.drawn()
            assert found.count == part.end - part.start


def _drawn(epochs: Iterable[tuple[int, int]]) -> str:
    return "{" + " ".join(f"{epoch}@{start}" for epoch, start in epochs) + "}"


@pytest.fixture
def story(tier: TieredCluster, request: pytest.FixtureRequest) -> Story:
    """Named for its test."""
    return Story(tier, request.node.originalname.removeprefix("test_"), SEED)


SEED = 405


def test_scenario_1_a_new_follower(story: Story) -> None:
    story.produce()
    story.leave_alone()
    story.produce()
    story.elect_uncleanly()
    story.produce(2, 3)
    story.settle()
    story.check()
    story.lose_disk()
    before = story.wait_for_local_start_above(story.logs[story.leader][0].end)  # the new one begins above the epoch
    story.come_back()
    assert story.first_local(story.other) >= before > 0
    story.read()
    story.elect_cleanly()
    story.read()


def test_scenario_2_a_follower_behind(story: Story) -> None:
    story.produce()
    story.leave_alone()
    end = story.end
    story.produce(3, 4)
    story.settle()
    story.check()
    story.wait_for_local_start_above(end)  # what the follower lacks first is remote only
    assert story.first_local(story.other) < end
    story.come_back()
    assert story.first_local(story.other) > end, f"its own log is of no use any more\n{story.drawn()}"
    story.read()


def test_scenario_3_a_tail_that_is_lost(story: Story) -> None:
    """Both brokers crash, and one that comes back first has less than it told of (KIP-101)."""
    story.produce(2, 3)
    before = story.end
    until(story.finished)
    for broker in (A, B):
        story.tier.brokers[broker].kill()
    newest = max(story.tier.partition_directory(B, story.topic).glob("*.log"))
    with newest.open("r+b") as file:
        file.truncate(newest.stat().st_size // 2)
    story.tier.brokers.start(B)
    story._wait(lambda state: state.leader == B)
    end = story.tier.bounds(story.topic)[0].end or 0
    assert 0 < end < before, story.drawn()
    story.logs[B] = [Part(0, end, story.logs[B][0].recipe)]
    story._leads(B)
    story.produce(2, 3)
    story.settle()
    story.read()
    story.come_back()
    story.read()


def test_scenario_4_an_unclean_leader_cuts_what_is_remote(story: Story) -> None:
    story.produce()
    story.leave_alone()
    common = story.end
    story.produce(2, 3)
    until(lambda: any(one.end_offset > common for one in story.finished()))
    story.check()
    story.elect_uncleanly()
    assert story.end == common
    assert any(one.end_offset >= common for one in story.of_other_histories()), story.drawn()
    story.produce(3, 4)
    story.settle()
    story.wait_for_local_start_above(common)  # what is read is remote
    story.read()
    story.come_back()
    story.read()


def test_scenario_5_histories_that_part_in_the_tier(story: Story) -> None:
    """Two unclean elections: what the first one cut counts again after the second."""
    story.produce()
    story.leave_alone()
    common = story.end
    story.produce(3, 4)
    until(lambda: any(one.end_offset > common for one in story.finished()))
    story.elect_uncleanly()
    story.produce(2, 3)
    until(lambda: any(one.end_offset > common for one in story._of_history()))
    story.read()
    lost = story.end
    story.elect_uncleanly()
    assert story.end > common, story.drawn()
    story.produce(2, 3)
    story.settle()
    story.wait_for_local_start_above(common)
    story.read()
    assert any(one.end_offset > common for one in story.of_other_histories()), f"of {lost}\n{story.drawn()}"
    story.lose_disk()
    story.come_back()
    assert story.first_local(story.other) > common
    story.read()


def test_a_follower_that_becomes_leader(story: Story) -> None:
    """It goes on where the history of its own log ends in the tier, and what it copies may overlap."""
    for _ in range(3):
        story.produce()
        until(lambda: any(one.end_offset + 2 * MIB > story.end for one in story._of_history()))
        story.elect_cleanly()
        story.read()
    story.produce()
    story.settle()
    story.read()


@pytest.mark.parametrize("seed", range(2))
def test_any_sequence(tier: TieredCluster, seed: int) -> None:
    story = Story(tier, f"any-{seed}", seed)
    story.produce()
    for _ in range(5):
        if story.other in story.replicas:
            story.random.choice([story.produce, story.leave_alone, story.lose_disk, story.elect_cleanly])()
        elif story.logs[story.other]:
            story.random.choice([story.produce, story.come_back, story.elect_uncleanly])()
        else:
            story.random.choice([story.produce, story.come_back])()
        story.check()
    if story.other not in story.replicas:
        story.come_back()
    story.produce()
    story.settle()
    story.read()
