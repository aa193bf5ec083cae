"""KIP-405's five follower scenarios and its leadership transition, on real brokers with unclean elections.

Each scenario runs with record counts drawn from a seed; a last test draws whole sequences of events. `PartitionHistory`
models every replica's log as parts, each written by one leader. After every step the brokers' checkpoints, the log's
bounds and the remote log metadata are compared with the model. At the end every record is read back and compared with
the last leader's history.
"""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from random import Random

import pytest

from protocol.ids import LeaderEpoch
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
"""The replicas. Broker 3 only completes the cluster."""


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TieredCluster]:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    with TieredCluster(tmp_path_factory.mktemp("unclean"), seed=4050) as running:
        yield running


@pytest.fixture(autouse=True)
def all_run(tier: TieredCluster) -> None:
    """Restart brokers that an earlier test has stopped."""
    if dead := [broker.id for broker in tier.brokers.brokers.values() if not broker.is_running]:
        tier.brokers.start(*dead)


@dataclass(frozen=True)
class Part:
    """Records from `start` on that one leader wrote during one leadership term."""

    start: int
    end: int
    recipe: Recipe


class PartitionHistory:
    """A partition on brokers A and B, with A as first leader. `logs` holds each replica's expected log by broker."""

    def __init__(self, tier: TieredCluster, topic: str, seed: int) -> None:
        self.tier = tier
        self.topic = topic
        self.random = Random(f"{topic} {seed}")
        self.leader = A
        self.reigns = 0
        self.logs: dict[int, list[Part]] = {A: [], B: []}
        tier.create(topic, [A, B], unclean_leader_election_enable="true", min_insync_replicas="1")

    # ---- state

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
        """Return the running replicas."""
        return [each for each in (A, B) if self.tier.brokers[each].is_running]

    @property
    def local_start(self) -> int:
        return self.tier.bounds(self.topic)[0].local_start or 0

    def description(self) -> str:
        """Return the brokers' state as text for failure messages."""
        lines = [f"{each}: {self._describe_replica(each)}" for each in (A, B)]
        remote = (
            f"[{one.start_offset}-{one.end_offset}]{_describe_epochs(one.leader_epochs)}" for one in self.finished()
        )
        return "\n".join([f"{self.leader} leads to {self.end}", *lines, f"remote: {' '.join(remote)}"])

    def _describe_replica(self, broker: int) -> str:
        if not self.tier.partition_directory(broker, self.topic).exists():
            return "nothing"
        state = "" if self.tier.brokers[broker].is_running else " down"
        return f"from {self.first_local(broker)} {_describe_epochs(self._epochs(broker))}{state}"

    def first_local(self, broker: int) -> int:
        """Return the start offset of a replica's first local segment."""
        return min(int(path.stem) for path in self.tier.partition_directory(broker, self.topic).glob("*.log"))

    def finished(self) -> list[RemoteSegment]:
        return self.tier.finished(self.topic)

    # ---- events

    def produce(self, least_mib: float = 1.0, most_mib: float = 2.5) -> None:
        """Produce a random number of mebibytes to all in-sync replicas."""
        count = int(self.random.uniform(least_mib, most_mib) * MIB)
        recipe = Recipe(SIZE, FIRST_MS + self.reigns * 1_000_000)
        first = self.end
        write(self.tier.bootstrap, self.topic, recipe, 0, range(first, first + count))
        log = self.logs[self.leader]
        if log and log[-1].recipe == recipe:
            log[-1] = Part(log[-1].start, first + count, recipe)
        else:
            log.append(Part(first, first + count, recipe))
        self._check_epochs(self.leader)  # a late checkpoint makes segments of a cut history look like the leader's
        if self.other in self.replicas:
            self.wait_until_whole()

    def wait_until_whole(self) -> None:
        wait_until_whole(self.tier.bootstrap, self.topic)
        self.logs[self.other] = list(self.logs[self.leader])

    def stop_follower(self) -> None:
        """Stop the follower, so that only the leader has the records that follow."""
        self.tier.brokers[self.other].kill()
        self._wait(lambda state: state.isr == [self.leader])

    def start_follower(self) -> None:
        """Start the follower and wait until it has the leader's history."""
        self.tier.brokers.start(self.other)
        self.wait_until_whole()

    def elect_uncleanly(self) -> None:
        """Stop the leader and start the other replica, which becomes leader with the log it has."""
        self.tier.brokers[self.leader].kill()
        if self.other not in self.replicas:
            self.tier.brokers.start(self.other)
        self._leads(self.other)

    def elect_cleanly(self) -> None:
        """Make the in-sync follower leader by stopping the leader for a moment."""
        self.tier.brokers[self.leader].kill()
        self._leads(self.other)
        self.tier.brokers.start(self.other)
        self.wait_until_whole()

    def _leads(self, broker: int) -> None:
        self._wait(lambda state: state.leader == broker)
        self.leader = broker
        self.reigns += 1
        assert self.tier.bounds(self.topic)[0].end == self.end, self.description()

    def lose_disk(self) -> None:
        """Wipe the stopped follower's partition directory."""
        if self.other in self.replicas:
            self.stop_follower()
        shutil.rmtree(self.tier.brokers[self.other].data)
        self.logs[self.other] = []

    def settle(self) -> None:
        """Wait until all but the newest segments are remote only."""
        until(
            lambda: (
                any(one.end_offset + 2 * MIB > self.end for one in self._segments_of_history())
                and all(self.tier.local_bytes(each, self.topic) <= LEFT_LOCAL for each in self.replicas)
            )
        )

    def wait_for_local_start_above(self, offset: int) -> int:
        """Wait until the leader has deleted local segments up to the offset. Return its local log start offset."""
        try:
            until(lambda: self.local_start > offset)
        except AssertionError:
            pytest.fail(f"the local log does not start above {offset}\n{self.description()}")
        return self.local_start

    def _wait(self, wanted: Callable[[PartitionState], bool]) -> None:
        wait_for_state(self.tier.bootstrap, self.topic, wanted)

    # ---- checks

    def _lineage(self) -> Lineage:
        return Lineage([(LeaderEpoch(epoch), at) for epoch, at in self._epochs(self.leader)], self.end)

    def _epochs(self, broker: int) -> list[tuple[int, int]]:
        """Return the broker's leader epoch checkpoint, empty before the first write."""
        with contextlib.suppress(FileNotFoundError):
            return self.tier.leader_epochs(broker, self.topic)
        return []

    def _segments_of_history(self) -> list[RemoteSegment]:
        """Return the finished segments that belong entirely to the leader's history."""
        lineage = self._lineage()
        return [one for one in self.finished() if lineage.agreed_end(one) == one.end_offset]

    def of_other_histories(self) -> list[RemoteSegment]:
        lineage = self._lineage()
        return [one for one in self.finished() if lineage.agreed_end(one) != one.end_offset]

    def check(self) -> None:
        """Check leader epochs, log bounds and remote segments."""
        bounds = self.tier.bounds(self.topic)[0]
        assert (bounds.start, bounds.end) == (0, self.end), self.description()
        for broker in self.replicas:
            self._check_epochs(broker)
        lineage, local_start, offset = self._lineage(), self.local_start, 0
        for one in self.finished():  # queried after the local log start offset
            if one.start_offset <= offset:
                offset = max(offset, lineage.agreed_end(one) + 1)
        assert offset >= local_start, f"a gap at {offset}\n{self.description()}"

    def _check_epochs(self, broker: int) -> None:
        """Wait until the checkpoint, which is written with a delay, has the expected leader epochs."""
        wanted = {each.start for each in self.logs[self.leader]}
        try:
            until(lambda: {start for _, start in self._epochs(broker) if start < self.end} == wanted)
        except AssertionError:
            pytest.fail(f"broker {broker}: expected leader epochs from {wanted}\n{self.description()}")
        assert all(one < another for one, another in pairwise(epoch for epoch, _ in self._epochs(broker)))

    def read(self) -> None:
        """Read every record and compare it with the leader's history."""
        self.check()
        for part in self.logs[self.leader]:
            found = read_back(self.tier.bootstrap, self.topic, part.recipe, {0: part.end}, {0: part.start})
            assert found.faults == [], self.description()
            assert found.count == part.end - part.start


def _describe_epochs(epochs: Iterable[tuple[int, int]]) -> str:
    return "{" + " ".join(f"{epoch}@{start}" for epoch, start in epochs) + "}"


@pytest.fixture
def history(tier: TieredCluster, request: pytest.FixtureRequest) -> PartitionHistory:
    """Return a partition history whose topic is named after the test."""
    return PartitionHistory(tier, request.node.originalname.removeprefix("test_"), SEED)


SEED = 405


def test_scenario_1_new_follower(history: PartitionHistory) -> None:
    history.produce()
    history.stop_follower()
    history.produce()
    history.elect_uncleanly()
    history.produce(2, 3)
    history.settle()
    history.check()
    history.lose_disk()
    before = history.wait_for_local_start_above(
        history.logs[history.leader][0].end
    )  # the new follower starts above epoch 0
    history.start_follower()
    assert history.first_local(history.other) >= before > 0
    history.read()
    history.elect_cleanly()
    history.read()


def test_scenario_2_lagging_follower(history: PartitionHistory) -> None:
    history.produce()
    history.stop_follower()
    end = history.end
    history.produce(3, 4)
    history.settle()
    history.check()
    history.wait_for_local_start_above(end)  # the first record that the follower lacks is remote only
    assert history.first_local(history.other) < end
    history.start_follower()
    assert history.first_local(history.other) > end, f"the follower kept its own log\n{history.description()}"
    history.read()


def test_scenario_3_lost_tail(history: PartitionHistory) -> None:
    """Crash both brokers; the first to return has less than it had replicated (KIP-101)."""
    history.produce(2, 3)
    before = history.end
    until(history.finished)
    for broker in (A, B):
        history.tier.brokers[broker].kill()
    newest = max(history.tier.partition_directory(B, history.topic).glob("*.log"))
    with newest.open("r+b") as file:
        file.truncate(newest.stat().st_size // 2)
    history.tier.brokers.start(B)
    history._wait(lambda state: state.leader == B)
    end = history.tier.bounds(history.topic)[0].end or 0
    assert 0 < end < before, history.description()
    history.logs[B] = [Part(0, end, history.logs[B][0].recipe)]
    history._leads(B)
    history.produce(2, 3)
    history.settle()
    history.read()
    history.start_follower()
    history.read()


def test_scenario_4_unclean_leader_truncates_remote_records(history: PartitionHistory) -> None:
    history.produce()
    history.stop_follower()
    common = history.end
    history.produce(2, 3)
    until(lambda: any(one.end_offset > common for one in history.finished()))
    history.check()
    history.elect_uncleanly()
    assert history.end == common
    assert any(one.end_offset >= common for one in history.of_other_histories()), history.description()
    history.produce(3, 4)
    history.settle()
    history.wait_for_local_start_above(common)  # the records to read are remote
    history.read()
    history.start_follower()
    history.read()


def test_scenario_5_diverging_histories_in_remote_storage(history: PartitionHistory) -> None:
    """Elect uncleanly twice: records that the first election cut become valid after the second."""
    history.produce()
    history.stop_follower()
    common = history.end
    history.produce(3, 4)
    until(lambda: any(one.end_offset > common for one in history.finished()))
    history.elect_uncleanly()
    history.produce(2, 3)
    until(lambda: any(one.end_offset > common for one in history._segments_of_history()))
    history.read()
    lost = history.end
    history.elect_uncleanly()
    assert history.end > common, history.description()
    history.produce(2, 3)
    history.settle()
    history.wait_for_local_start_above(common)
    history.read()
    assert any(one.end_offset > common for one in history.of_other_histories()), f"of {lost}\n{history.description()}"
    history.lose_disk()
    history.start_follower()
    assert history.first_local(history.other) > common
    history.read()


def test_follower_becomes_leader(history: PartitionHistory) -> None:
    """Continue copying where the history of the new leader's log ends in remote storage; copies may overlap."""
    for _ in range(3):
        history.produce()
        until(lambda: any(one.end_offset + 2 * MIB > history.end for one in history._segments_of_history()))
        history.elect_cleanly()
        history.read()
    history.produce()
    history.settle()
    history.read()


@pytest.mark.parametrize("seed", range(2))
def test_random_event_sequence(tier: TieredCluster, seed: int) -> None:
    history = PartitionHistory(tier, f"any-{seed}", seed)
    history.produce()
    for _ in range(5):
        if history.other in history.replicas:
            history.random.choice([history.produce, history.stop_follower, history.lose_disk, history.elect_cleanly])()
        elif history.logs[history.other]:
            history.random.choice([history.produce, history.start_follower, history.elect_uncleanly])()
        else:
            history.random.choice([history.produce, history.start_follower])()
        history.check()
    if history.other not in history.replicas:
        history.start_follower()
    history.produce()
    history.settle()
    history.read()
