"""Producer state before an offset, from remote segments (`storage.tiered.segments.producers`)."""

from dataclasses import dataclass, field

import pytest

from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Uuid
from protocol.records.builder import Record, build_batch
from protocol.records.control import ControlType, end_transaction_marker
from storage.config import LogConfig
from storage.log import Log
from storage.producer_state import Origin, ProducerState
from storage.tiered.catalog.lineage import Lineage
from storage.tiered.errors import CorruptRemoteData
from storage.tiered.lifecycle.copying import Backlog, closed, describe, files_of
from storage.tiered.remote_storage import IndexKind
from storage.tiered.segment_metadata import RemoteSegment, RemoteSegmentId, TopicIdPartition
from storage.tiered.segments.producers import producers_before
from tests.support.fakes.memory_files import MemoryFileSystem
from tests.support.fakes.memory_remote_storage import MemoryRemoteStorage

NOW_MS = 1_700_000_000_000
PARTITION = TopicIdPartition(Uuid(b"t" * 16), "t", 0)
CONFIG = LogConfig(index_interval_bytes=0, remote_storage_enable=True)


@dataclass
class Copied:
    """A log of one leader in epoch 0 whose closed segments are all copied."""

    fs: MemoryFileSystem = field(default_factory=MemoryFileSystem)
    storage: MemoryRemoteStorage = field(default_factory=MemoryRemoteStorage)
    segments: list[RemoteSegment] = field(default_factory=list)
    sequences: dict[int, int] = field(default_factory=dict)
    epoch: int = 0

    def __post_init__(self) -> None:
        self.fs.make_directory("logs")
        self.log = self.opened()

    def opened(self) -> Log:
        return Log.open(self.fs, "logs/t-0", CONFIG, now_ms=NOW_MS, clean_shutdown=False)

    def write(self, producer_id: int, count: int = 1, *, transactional: bool = False) -> None:
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + count
        records = [Record(NOW_MS, None, b"v" * 30)] * count
        batch = build_batch(
            records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=transactional
        )
        self.log.append_as_leader(bytearray(batch), LeaderEpoch(self.epoch), now_ms=NOW_MS)

    def decide(self, producer_id: int, how: ControlType) -> None:
        marker = end_transaction_marker(how, producer_id, 0, 7, NOW_MS)
        self.log.append_as_leader(bytearray(marker), LeaderEpoch(self.epoch), now_ms=NOW_MS, origin=Origin.COORDINATOR)

    def copy(self) -> RemoteSegment:
        """Close the active segment and copy it."""
        self.log.advance_high_watermark(self.log.log_end_offset)
        local = self.log.active_segment
        self.log.roll(NOW_MS)
        facts = closed(self.log, local, Backlog([local], local.size))
        segment_id = RemoteSegmentId(PARTITION, Uuid(len(self.segments).to_bytes(16, "big")))
        segment = describe(self.log, local, facts, segment_id, broker_id=BrokerId(1), now_ms=NOW_MS)
        self.storage.copy_segment(segment, files_of(self.fs, self.log, local, facts))
        self.segments.append(segment)
        return segment

    def before(self, offset: int, segment: RemoteSegment, *others: RemoteSegment) -> ProducerState:
        lineage = Lineage(self.log.epochs.entries, offset)
        return producers_before(offset, segment, others, lineage, self.storage)


def facts(state: ProducerState) -> dict[int, tuple[int, ...]]:
    """Return by producer: epoch, last sequence and offset, coordinator epoch, start of its transaction."""
    return {
        entry.producer_id: (
            entry.epoch,
            entry.last_sequence,
            entry.last_data_offset,
            entry.coordinator_epoch,
            entry.transaction_start,
        )
        for entry in state.entries.values()
    }


def busy() -> Copied:
    """Three producers, one with transactions, over three segments: to 6, to 12, to 16."""
    copied = Copied()
    copied.write(1, 2)
    copied.write(2)
    copied.write(9, transactional=True)
    copied.write(1, 2)
    copied.decide(9, ControlType.COMMIT)
    copied.copy()
    copied.write(9, 2, transactional=True)
    copied.write(1)
    copied.decide(9, ControlType.ABORT)
    copied.write(3)
    copied.write(2)
    copied.copy()
    copied.write(9, transactional=True)
    copied.write(3, 2)
    copied.decide(9, ControlType.COMMIT)
    copied.copy()
    return copied


def test_state_at_segment_end_is_its_snapshot() -> None:
    copied = busy()
    third = copied.segments[2]
    state = copied.before(third.end_offset + 1, third)
    assert (state.end_offset, facts(state)) == (17, facts(copied.log.producers))
    assert state.first_unstable_offset is None
    assert copied.storage.calls[-1] == f"read snapshot of {third.id}"


@pytest.mark.parametrize("offset", [15, 14, 13, 11, 10, 9, 8, 6])
def test_state_within_segment_equals_truncated_log(offset: int) -> None:
    copied = busy()
    segment = next(each for each in copied.segments if each.end_offset >= offset)
    state = copied.before(offset, segment, *copied.segments)
    copied.log.truncate_to(offset, now_ms=NOW_MS)
    assert facts(state) == facts(copied.log.producers)
    assert state.end_offset == offset
    assert state.open_transactions == copied.log.producers.open_transactions


def test_segment_ending_at_offset_needs_no_replay() -> None:
    copied = busy()
    first = copied.segments[0]
    longer = RemoteSegment(
        id=RemoteSegmentId(PARTITION, Uuid(b"l" * 16)),
        start_offset=0,
        end_offset=40,
        max_timestamp_ms=0,
        broker_id=BrokerId(2),
        event_timestamp_ms=0,
        size_bytes=1,
        leader_epochs=first.leader_epochs,
    )
    state = copied.before(7, longer, *copied.segments)
    assert state.end_offset == 7
    assert copied.storage.calls[-1] == f"read snapshot of {first.id}"


def test_missing_previous_segment_drops_older_producers() -> None:
    copied = busy()
    state = copied.before(11, copied.segments[1])
    assert set(state.entries) == {9, 1}
    assert state.entries[1].last_data_offset == 9


def test_segment_of_another_history_is_ignored() -> None:
    copied, other = busy(), Copied(epoch=3)
    other.storage = copied.storage
    other.segments = list(copied.segments)
    for _ in range(7):
        other.write(77)
    diverging = other.copy()
    state = copied.before(11, copied.segments[1], diverging)
    assert 77 not in state.entries
    assert set(state.entries) == {9, 1}


def test_segment_without_snapshot_has_no_producers() -> None:
    copied = busy()
    third = copied.segments[2]
    del copied.storage.segments[third.id.id].indexes[IndexKind.PRODUCER_SNAPSHOT]
    state = copied.before(17, third)
    assert (state.end_offset, state.entries) == (17, {})


def test_damaged_snapshot_is_refused() -> None:
    copied = busy()
    third = copied.segments[2]
    indexes = copied.storage.segments[third.id.id].indexes
    indexes[IndexKind.PRODUCER_SNAPSHOT] = indexes[IndexKind.PRODUCER_SNAPSHOT][:-1] + b"\0"
    with pytest.raises(CorruptRemoteData):
        copied.before(17, third)


@pytest.mark.parametrize("position", [16, 90])
def test_damaged_batch_is_refused(position: int) -> None:
    copied = busy()
    second = copied.segments[1]
    stored = copied.storage.segments[second.id.id]
    stored.log = stored.log[:position] + bytes([stored.log[position] ^ 1]) + stored.log[position + 1 :]
    with pytest.raises(CorruptRemoteData):
        copied.before(11, second, *copied.segments)
