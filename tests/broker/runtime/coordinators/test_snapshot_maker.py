"""Snapshots of a coordinator's partition: made beside the log, found by a load, and ignored where they do not fit."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from broker.build_form import COMPILED, build_form
from broker.coordination.log_fold import FoldRule
from broker.coordination.shard import Shard
from broker.groups.config import GroupConfig
from broker.groups.records import CommittedOffset, OffsetKey, offset_committed, offset_removed
from broker.groups.replay import GROUP_FOLD
from broker.groups.shard import GroupShard
from broker.node.coordinator_snapshots import RULES
from broker.runtime.coordinators.group_coordinator import GROUP_METADATA_TOPIC
from broker.runtime.coordinators.partition_log import PartitionLog
from broker.runtime.coordinators.shard_loader import ShardLoader
from broker.runtime.coordinators.shard_log import ProducerTransaction
from broker.runtime.coordinators.snapshot_maker import SnapshotMaker, SnapshotSettings
from broker.runtime.coordinators.snapshot_store import CoordinatorSnapshot, SnapshotStore
from broker.runtime.partitions.transaction_marker import WritableMarker
from protocol.ids import LeaderEpoch
from storage.local_log import LogSlice
from storage.log_snapshots import CHECKPOINT_SUFFIX
from tests.support.harnesses.data_plane import BROKER_ID, DataPlane

OTHER = BROKER_ID + 1
TOPIC = "t"


class CoordinatorReplica:
    """The only partition of `__consumer_offsets` on a broker, with snapshots that are due after ten records."""

    def __init__(self, plane: DataPlane | None = None, *, leader: int = BROKER_ID) -> None:
        self.plane = plane or DataPlane()
        self.identity = self.plane.create_topic(GROUP_METADATA_TOPIC, replicas=(BROKER_ID, OTHER), leader=leader)
        self.plane.change_isr(self.identity, leader)
        self.partition = self.plane.partition(GROUP_METADATA_TOPIC)
        self.store = SnapshotStore(self.plane.fs, self.plane.io, self.plane.clock)
        self.maker = SnapshotMaker(
            self.plane.runtime, self.plane.partitions, self.store, RULES, SnapshotSettings(1_000, 10)
        )
        self.log = PartitionLog(self.partition, self.plane.io, snapshots=self.store)

    @property
    def files(self) -> list[str]:
        names = self.plane.fs.list(self.partition.log.directory)
        return [name for name in names if name.endswith(CHECKPOINT_SUFFIX)]

    def commit(self, *offsets: tuple[str, int], transaction: ProducerTransaction | None = None) -> None:
        """Append (group, offset) for partition 0, as the coordinator does."""
        records = [offset_committed(OffsetKey(group, TOPIC, 0), _committed(offset)) for group, offset in offsets]
        self.log.append([(each.key, each.value) for each in records], self.partition.leader_epoch, 1, transaction)

    def remove(self, group: str) -> None:
        record = offset_removed(OffsetKey(group, TOPIC, 0))
        self.log.append([(record.key, record.value)], self.partition.leader_epoch, 1)

    def make_due(self) -> None:
        answer = self.plane.run(self.maker.make_due())
        while answer.is_waiting:
            self.plane.advance_ms(1)
        assert answer.value is None

    def newest(self) -> CoordinatorSnapshot | None:
        return self.plane.run(self.log.newest_snapshot()).value

    def load(self, *, from_snapshot: bool = True, parks: bool = True) -> GroupShard:
        shard = GroupShard(GroupConfig(), self.plane.clock, lambda: "uuid")
        self._load(shard, from_snapshot, GROUP_FOLD._replace(parks=parks))
        return shard

    def _load(self, shard: Shard[Any, Any], from_snapshot: bool, rule: FoldRule = GROUP_FOLD) -> None:
        loader = ShardLoader(self.plane.clock, 1 << 20, rule)
        snapshot = self.newest() if from_snapshot else None
        assert (snapshot is not None) == from_snapshot
        answer = self.plane.run(loader.load(shard, self.log, snapshot))
        assert answer.value == self.partition.log.log_end_offset


def _committed(offset: int) -> CommittedOffset:
    return CommittedOffset(offset, LeaderEpoch(0), "", 1)


def offsets_of(shard: GroupShard, *groups: str) -> list[int | None]:
    found = [shard.offsets.get(OffsetKey(group, TOPIC, 0)) for group in groups]
    return [None if each is None else each.offset for each in found]


def test_load_reads_the_snapshot_and_parks_the_offsets() -> None:
    replica = CoordinatorReplica()
    for offset in range(20):
        replica.commit(("a", offset), ("b", 100 + offset))
    replica.make_due()
    replica.commit(("b", 500), ("c", 7))
    replica.remove("a")
    figures = replica.maker.figures
    assert (figures.made, figures.failed) == (1, 0)
    assert figures.bytes_written > 0
    shard = replica.load()
    assert not shard.parking.is_empty
    assert offsets_of(shard, "a", "b", "c") == [None, 500, 7]
    assert sorted(each.group_id for each in shard.groups) == ["b", "c"]
    assert offsets_of(replica.load(from_snapshot=False), "a", "b", "c") == [None, 500, 7]


def test_snapshot_is_due_again_after_a_third_of_its_records() -> None:
    replica = CoordinatorReplica()
    for group in range(40):
        replica.commit((f"group-{group}", group))
    replica.make_due()
    (first,) = replica.files
    for offset in range(12):
        replica.commit(("group-3", 1_000 + offset))
    replica.make_due()
    assert replica.files == [first]
    replica.commit(("group-3", 2_000))
    replica.make_due()
    (second,) = replica.files
    assert second > first
    snapshot = replica.newest()
    assert snapshot is not None
    assert (snapshot.record_count, snapshot.id.end_offset) == (40, 53)
    shard = replica.load()
    assert offsets_of(shard, *(f"group-{group}" for group in range(40))) == [
        2_000 if group == 3 else group for group in range(40)
    ]


def test_buckets_split_as_the_snapshot_grows() -> None:
    replica = CoordinatorReplica()
    for start in range(0, 200, 100):
        replica.commit(*((f"group-{group}", group) for group in range(start, start + 100)))
    replica.make_due()
    for start in range(200, 4_000, 100):
        replica.commit(*((f"group-{group}", group) for group in range(start, start + 100)))
    replica.make_due()
    snapshot = replica.newest()
    assert snapshot is not None
    assert (snapshot.record_count, snapshot.manifest.bucket_count) == (4_000, 16)
    assert len({batch.bucket for batch in snapshot.batches}) == 16
    shard = replica.load()
    assert offsets_of(shard, *(f"group-{group}" for group in range(4_000))) == list(range(4_000))
    assert shard.parking.is_empty


@pytest.mark.parametrize("seed", range(5))
def test_long_log_is_parked_without_a_snapshot_and_gives_the_same_offsets(seed: int) -> None:
    replica, groups, random = CoordinatorReplica(), [f"group-{number}" for number in range(60)], Random(seed)
    transactions = [ProducerTransaction(producer_id, 0) for producer_id in (7, 8)]
    while replica.partition.log.log_end_offset <= 2_000:
        match random.choice(("commit", "commit", "commit", "remove", "pending", "end")):
            case "commit":
                replica.commit(*((random.choice(groups), random.randrange(1000)) for _ in range(random.randint(1, 60))))
            case "remove":
                replica.remove(random.choice(groups))
            case "pending":
                replica.commit((random.choice(groups), random.randrange(1000)), transaction=random.choice(transactions))
            case "end":
                marker = WritableMarker(random.choice(transactions).producer_id, 0, random.random() < 0.5, 0)
                replica.log.append_marker(marker, replica.partition.leader_epoch, 1)
    parked, replayed = (replica.load(from_snapshot=False, parks=parks) for parks in (True, False))
    assert (parked.parking.is_empty, replayed.parking.is_empty) == (False, True)
    keys = [OffsetKey(group, TOPIC, 0) for group in groups]
    assert [parked.offsets.is_pending(key) for key in keys] == [replayed.offsets.is_pending(key) for key in keys]
    assert offsets_of(parked, *groups) == offsets_of(replayed, *groups)
    with_offsets = [group for group in groups if offsets_of(replayed, group) != [None]]
    assert {each.group_id for each in parked.groups} >= set(with_offsets)
    for transaction in transactions:
        for shard in (parked, replayed):
            shard.replay_end_transaction(transaction.producer_id, committed=True)
    assert offsets_of(parked, *groups) == offsets_of(replayed, *groups)


@pytest.mark.parametrize(("records", "is_parked"), [(2_000, False), (2_001, True)])
def test_short_log_is_replayed_at_once_without_a_snapshot(records: int, is_parked: bool) -> None:
    replica = CoordinatorReplica()
    replica.commit(*((f"group-{number}", number) for number in range(records)))
    assert replica.load(from_snapshot=False).parking.is_empty != is_parked


def test_transaction_that_is_open_at_the_snapshot_commits_after_it() -> None:
    replica = CoordinatorReplica()
    replica.commit(("a", 1), ("b", 1))
    replica.commit(("a", 2), transaction=ProducerTransaction(9, 0))
    for offset in range(10):
        replica.commit(("c", offset))
    replica.make_due()
    shard = replica.load()
    assert shard.offsets.is_pending(OffsetKey("a", TOPIC, 0))
    assert offsets_of(shard, "a", "b") == [1, 1]
    replica.log.append_marker(WritableMarker(9, 0, True, 0), replica.partition.leader_epoch, 1)
    shard = replica.load()
    assert not shard.offsets.is_pending(OffsetKey("a", TOPIC, 0))
    assert offsets_of(shard, "a", "b", "c") == [2, 1, 9]


def test_follower_makes_a_snapshot_of_what_is_committed() -> None:
    plane = DataPlane()
    leader = CoordinatorReplica(plane)
    for offset in range(30):
        leader.commit(("a", offset))
    plane.elect(leader.identity, OTHER)
    log = leader.partition.log
    log.follow_high_watermark(15)
    committed = log.high_watermark
    leader.make_due()
    plane.elect(leader.identity, BROKER_ID)
    snapshot = leader.newest()
    assert snapshot is not None
    assert snapshot.id.end_offset == committed


def damaged(replica: CoordinatorReplica, change: Callable[[bytes], bytes]) -> CoordinatorSnapshot | None:
    for offset in range(30):
        replica.commit(("a", offset))
    replica.make_due()
    (name,) = replica.files
    file = replica.plane.fs.open_existing(f"{replica.partition.log.directory}/{name}")
    content = change(file.read(0, file.size()))
    file.truncate(0)
    file.write(0, content)
    file.close()
    return replica.newest()


def test_damaged_snapshot_is_ignored() -> None:
    assert damaged(CoordinatorReplica(), lambda content: content[:-1]) is None
    assert damaged(CoordinatorReplica(), lambda content: b"") is None
    assert damaged(CoordinatorReplica(), lambda content: content[:150] + b"\xff" + content[151:]) is None
    assert damaged(CoordinatorReplica(), lambda content: content) is not None


def test_snapshot_of_a_truncated_history_is_ignored() -> None:
    replica = CoordinatorReplica()
    for offset in range(30):
        replica.commit(("a", offset))
    replica.make_due()
    replica.partition.log.truncate_to(20, now_ms=0)
    assert replica.newest() is None
    replica.plane.elect(replica.identity, OTHER)
    replica.plane.elect(replica.identity, BROKER_ID)
    for offset in range(15):
        replica.commit(("a", offset))
    assert replica.newest() is None
    replica.make_due()
    snapshot = replica.newest()
    assert snapshot is not None
    assert snapshot.id.end_offset == replica.partition.log.log_end_offset


@pytest.mark.skipif(build_form() == COMPILED, reason="objects of compiled classes take no patch")
def test_log_that_is_truncated_meanwhile_gets_no_snapshot_of_both_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = CoordinatorReplica()
    for offset in range(30):
        replica.commit(("a", offset))
    log = replica.partition.log
    read = log.read

    def read_and_truncate(offset: int, max_bytes: int, upper: int) -> LogSlice:
        monkeypatch.undo()
        found = read(offset, max_bytes, upper)
        begin_other_history()
        return found

    def begin_other_history() -> None:
        log.truncate_to(10, now_ms=0)
        replica.plane.elect(replica.identity, OTHER)
        replica.plane.elect(replica.identity, BROKER_ID)
        for offset in range(30):
            replica.commit(("b", offset))

    monkeypatch.setattr(log, "read", read_and_truncate)
    replica.make_due()
    assert log.log_end_offset == 40
    replica.make_due()
    assert offsets_of(replica.load(), "a", "b") == [9, 29]
    assert offsets_of(replica.load(from_snapshot=False), "a", "b") == [9, 29]


def test_part_of_an_interrupted_snapshot_is_removed_with_the_next_one() -> None:
    replica = CoordinatorReplica()
    part = f"{replica.partition.log.directory}/00000000000000000005-0000000000-own.checkpoint.part"
    replica.plane.fs.open(part).close()
    for offset in range(30):
        replica.commit(("a", offset))
    replica.make_due()
    assert not replica.plane.fs.exists(part)
    assert len(replica.files) == 1
