"""Simulation of unclean elections and overlapping copies, after which everything but the bucket is lost.

The recovered log must equal, record for record, the log of the leader that copied last, up to its last copied offset; a
reader through the recovered metadata, epoch by epoch, must find these records and no others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from protocol.ids import BrokerId, LeaderEpoch
from storage.directories.checkpoints import LeaderEpochEntry
from storage.tiered.bucket.inventory import PartitionInventory
from storage.tiered.bucket.recovery_plan import ClusterTopics, RecoveryOptions, plan_topic
from storage.tiered.bucket.topic_inventory import topics_in
from storage.tiered.catalog.lineage import Lineage, claimed_remote_offset, epochs_of
from storage.tiered.catalog.metadata_cache import RemoteLogMetadataCache
from storage.tiered.catalog.metadata_journal import KnownPartition
from storage.tiered.segment_metadata import RemoteSegment, RemoteSegmentId, SegmentState, SegmentUpdate
from tests.storage.tiered.bucket.test_inventory import FOO, KEYS, Bucket

OPTIONS = RecoveryOptions(now_ms=0, cluster_id="c", broker_id=BrokerId(-1))
BROKERS = 3


@dataclass(frozen=True)
class Written:
    """One unique record."""

    epoch: int
    serial: int


@dataclass
class RandomCopies:
    random: Random
    bucket: Bucket = field(default_factory=Bucket)
    metadata: RemoteLogMetadataCache = field(default_factory=lambda: RemoteLogMetadataCache(FOO))
    logs: list[list[Written]] = field(default_factory=lambda: [[] for _ in range(BROKERS)])
    contents: dict[RemoteSegmentId, list[Written]] = field(default_factory=dict)
    copied: list[tuple[RemoteSegment, list[Written]]] = field(default_factory=list)
    leader: int = 0
    epoch: int = 0
    serial: int = 0

    @property
    def log(self) -> list[Written]:
        return self.logs[self.leader]

    def step(self) -> None:
        self.random.choices((self.append, self.follow, self.copy, self.elect), weights=(5, 4, 4, 1))[0]()

    def append(self) -> None:
        for _ in range(self.random.randint(1, 6)):
            self.serial += 1
            self.log.append(Written(self.epoch, self.serial))

    def follow(self) -> None:
        """Truncate to the leader's log and catch up by some records."""
        follower = self.random.randrange(BROKERS)
        log = self.logs[follower]
        while log and (len(log) > len(self.log) or self.log[len(log) - 1] != log[-1]):
            log.pop()
        log += self.log[len(log) : len(log) + self.random.randint(0, 8)]

    def elect(self) -> None:
        """Elect any replica, in sync or not."""
        self.leader = self.random.randrange(BROKERS)
        self.epoch += 1

    def history(self) -> list[LeaderEpochEntry]:
        entries: list[LeaderEpochEntry] = []
        for offset, record in enumerate(self.log):
            if not entries or entries[-1].epoch != record.epoch:
                entries.append(LeaderEpochEntry(LeaderEpoch(record.epoch), offset))
        return entries

    def copy(self) -> None:
        """Copy from the end of the copied part of the history on (KIP-405)."""
        lineage = Lineage(self.history(), len(self.log))
        start = claimed_remote_offset(lineage, self.metadata.highest_offset) + 1
        start = max(0, start - self.random.choice((0, 0, 0, 2)))  # other boundaries of segments
        end = min(len(self.log), start + self.random.randint(1, 6)) - 1
        if end < start:
            return
        history = [entry for entry in self.history() if entry.start_offset <= end]
        segment = self.bucket.copy(start, end, list(epochs_of(history, start, end)), list(history))
        self.contents[segment.id] = self.log[start : end + 1]
        self.copied.append((segment, list(self.log[: end + 1])))
        learn(self.metadata, segment)


def learn(cache: RemoteLogMetadataCache, segment: RemoteSegment) -> None:
    cache.add(replace(segment, state=SegmentState.COPY_STARTED))
    cache.update(SegmentUpdate(segment.id, SegmentState.COPY_FINISHED, 0, BrokerId(1)))


def recovered(simulation: RandomCopies) -> tuple[PartitionInventory, RemoteLogMetadataCache, int]:
    """Return the inventory, the recovered metadata and the next offset."""
    [evidence] = topics_in(simulation.bucket.store, KEYS, simulation.bucket.reader)
    plan = plan_topic(evidence, {}, ClusterTopics({}, {}), OPTIONS)
    known = KnownPartition(FOO)
    for partition in plan.partitions:
        for event in partition.events:
            known.apply(event)
    assert plan.refusals == ()
    return evidence.partitions[FOO.partition], known.segments, plan.partitions[FOO.partition].next_offset


def check(seed: int) -> None:
    simulation = RandomCopies(Random(seed))
    while len(simulation.copied) < 12:
        simulation.step()
    inventory, metadata, next_offset = recovered(simulation)
    latest = max(simulation.copied, key=lambda each: (each[0].leader_epochs[-1].epoch, each[0].end_offset))
    truth = latest[1]
    assert next_offset == len(truth)
    assert inventory.holes == ()
    assert inventory.highest_epoch >= latest[0].leader_epochs[-1].epoch
    lineage = Lineage(inventory.history, next_offset)
    for offset, record in enumerate(truth):
        epoch = lineage.epoch_for(offset)
        assert epoch == record.epoch
        segment = metadata.segment_for(epoch, offset)
        assert segment is not None, f"offset {offset} cannot be found"
        assert simulation.contents[segment.id][offset - segment.start_offset] == record


def holds(seed: int) -> bool:
    try:
        check(seed)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("seed", range(120))
def test_recovered_log_is_that_of_last_copying_leader(seed: int) -> None:
    check(seed)


def furthest(segment: RemoteSegment) -> tuple[int, int]:
    return segment.end_offset, segment.leader_epochs[-1].epoch


def only_within(segments: Sequence[RemoteSegment], history: Lineage) -> tuple[RemoteSegment, ...]:
    return tuple(segment for segment in segments if history.holds(segment))


@pytest.mark.parametrize(("rule", "faulty"), [("recency", furthest), ("needed_segments", only_within)])
def test_faulty_rules_are_detected(rule: str, faulty: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted faults: the longest history instead of the latest; diverging segments dropped completely."""
    monkeypatch.setattr(f"storage.tiered.bucket.inventory.{rule}", faulty)
    assert not all(map(holds, range(120)))


def test_simulation_contains_segments_outside_of_the_lineage() -> None:
    """Check that the seeds are meaningful."""
    superfluous = parting = 0
    for seed in range(40):
        simulation = RandomCopies(Random(seed))
        while len(simulation.copied) < 12:
            simulation.step()
        inventory, _, next_offset = recovered(simulation)
        lineage = Lineage(inventory.history, next_offset)
        superfluous += len(inventory.segments) - len(inventory.needed)
        parting += sum(not lineage.holds(segment) for segment in inventory.needed)
    assert superfluous > 20
    assert parting > 5
