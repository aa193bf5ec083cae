"""The checker's view of a disk, batch by batch, written and durable."""

from collections.abc import Sequence
from random import Random

import pytest

from broker.metadata.snapshot.codec import voters_checkpoint
from broker.quorum.identity import ReplicaKey, SnapshotId
from broker.quorum.membership.voters import VoterNode, VoterSet
from broker.runtime.quorum.state_file import QuorumStateFile
from protocol.ids import BrokerId, LeaderEpoch, Offset
from protocol.primitives import Uuid
from protocol.records.quorum_control import ControlState
from storage.files import join, replace_file
from tests.simulation.quorum.disk import METADATA_DIRECTORY, SimulatedDisk
from tests.simulation.watched_disk import LoggedBatch
from tests.simulation.world import PowerFailure
from tests.support.fakes.batches import data_batch
from tests.support.quorum_values import make_election_state

SEGMENT = join(METADATA_DIRECTORY, f"{0:020d}.log")


class Removals:
    """A witness that records removed batches and new snapshots."""

    def __init__(self) -> None:
        self.removed: list[tuple[int, int]] = []
        self.snapshots: list[tuple[SnapshotId, bool]] = []

    def on_removed(self, node_id: int, batches: Sequence[LoggedBatch]) -> None:
        self.removed += [(batch.base_offset, batch.end_offset) for batch in batches]

    def on_snapshot(self, node_id: int, snapshot_id: SnapshotId, content: bytes, *, is_fetched: bool) -> None:
        self.snapshots.append((snapshot_id, is_fetched))

    def on_imported(self, node_id: int) -> None:
        """Ignore the import."""


@pytest.fixture
def witness() -> Removals:
    return Removals()


@pytest.fixture
def disk(witness: Removals) -> SimulatedDisk:
    disk = SimulatedDisk(1, witness)
    disk.make_directory(METADATA_DIRECTORY)
    disk.sync_directory("/")
    disk.sync_directory("/data")
    return disk


def batch(offset: int, epoch: int, count: int = 2) -> bytes:
    return data_batch([b"record"] * count, base_offset=offset, epoch=epoch, timestamp_ms=5)


def write(disk: SimulatedDisk, *batches: bytes, sync: bool) -> None:
    file = disk.open(SEGMENT)
    for each in batches:
        file.write(file.size(), each)
    if sync:
        file.sync()
        disk.sync_directory(METADATA_DIRECTORY)


def test_written_batches_are_visible_and_synced_batches_durable(disk: SimulatedDisk) -> None:
    write(disk, batch(0, 1), sync=True)
    write(disk, batch(2, 1), sync=False)
    assert disk.log_end == (1, 4)
    assert disk.durable_end == 2
    assert disk.batch_ending_at(4) is not None
    assert disk.batch_ending_at(4, durable=True) is None
    assert [each.base_offset for each in disk.batches_between(2, 9)] == [2]


def test_synced_file_with_unsynced_name_is_not_durable(disk: SimulatedDisk) -> None:
    file = disk.open(SEGMENT)
    file.write(0, batch(0, 1))
    file.sync()
    assert disk.durable_end == 0
    disk.sync_directory(METADATA_DIRECTORY)
    assert disk.durable_end == 2


def test_truncation_is_reported_and_durable_after_sync(disk: SimulatedDisk, witness: Removals) -> None:
    write(disk, batch(0, 1), batch(2, 1), sync=True)
    file = disk.open_existing(SEGMENT)
    file.truncate(len(batch(0, 1)))
    assert witness.removed == [(2, 4)]
    assert (disk.log_end.end_offset, disk.durable_end) == (2, 4)
    file.write(file.size(), batch(2, 2))
    file.sync()
    found = disk.batch_ending_at(4, durable=True)
    assert found is not None
    assert found.epoch == 2


def test_whole_batches_count_after_a_crash(disk: SimulatedDisk) -> None:
    """Synced batches survive every crash, and no damaged batch appears."""
    for seed in range(50):
        write(disk, batch(0, 1), sync=True)
        write(disk, batch(2, 1), batch(4, 1), sync=False)
        disk.crash(Random(seed))
        assert disk.log_end.end_offset in (2, 4, 6)
        assert disk.durable_end == disk.log_end.end_offset
        disk.remove(SEGMENT)
        disk.sync_directory(METADATA_DIRECTORY)


def test_power_fails_after_a_number_of_operations(disk: SimulatedDisk) -> None:
    disk.fail_after = 2
    file = disk.open(SEGMENT)
    file.write(0, b"x")
    with pytest.raises(PowerFailure):
        file.sync()


def test_election_state_counts_once_durable(disk: SimulatedDisk) -> None:
    assert disk.election().epoch == 0
    QuorumStateFile(disk, METADATA_DIRECTORY).write(make_election_state(epoch=3, voted_id=2))
    assert (disk.election().epoch, disk.election().voted_id) == (3, 2)


def test_snapshots_are_reported_with_their_voters(disk: SimulatedDisk, witness: Removals) -> None:
    voters = VoterSet([VoterNode(ReplicaKey(BrokerId(1), Uuid(bytes(15) + b"\x07")))])
    content = voters_checkpoint(ControlState(1, voters.to_record()), 5)
    replace_file(disk, join(METADATA_DIRECTORY, f"{0:020d}-{0:010d}.checkpoint"), content)
    assert witness.snapshots == [(SnapshotId(Offset(0), LeaderEpoch(0)), False)]
    assert disk.snapshot_ids(durable=True) == [SnapshotId(Offset(0), LeaderEpoch(0))]
    assert disk.replayed_voters() == voters
    assert disk.replayed_kraft_version() == 1
