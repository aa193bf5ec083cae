"""Requests to the store: none for data that cannot match, and the reaction to missing or damaged objects."""

from collections import Counter
from pathlib import Path

import pytest

from protocol.primitives import uuid_to_text
from protocol.records.batch import HEADER_SIZE
from protocol.records.control import ControlType
from spark_jobs.tiered_records.bucket import TieredBucket, plan_in
from spark_jobs.tiered_records.options import Options
from spark_jobs.tiered_records.planning import RecordsMissing, SegmentRange
from spark_jobs.tiered_records.reading import read
from storage.files import write_file
from storage.tiered.errors import CorruptRemoteData
from storage.tiered.format.object_keys import ObjectKeys
from storage.tiered.object_store import ObjectStore
from storage.tiered.remote_storage import RemoteStorageManager, SegmentFiles
from tests.spark_jobs.tiered_records.tiered_partition import BEGAN_MS, PREFIX, TieredPartitionHarness, options_of
from tests.storage.tiered.segments.segment_stores import BOTH, PLAIN, segment_store
from tests.support.fakes.faulty_object_store import FaultKind, FaultyObjectStore
from tests.support.fakes.memory_files import MemoryFileSystem
from tests.support.fakes.memory_object_store import MemoryObjectStore

SMALL_CHUNKS = {"chunk.size": "100", "key.prefix": PREFIX}


class Reading:
    """One read of a store, from its options to offsets."""

    def __init__(self, memory: MemoryObjectStore, store: ObjectStore | None = None, **more: str) -> None:
        self._memory = memory
        self._store = store or memory
        self.options = Options.of(options_of(Path("/"), **more))
        memory.calls.clear()
        self.parts = plan_in(TieredBucket(self._store, ObjectKeys(PREFIX), self._storage()), self.options)
        self.planned = self._requests()

    def offsets(self) -> list[int]:
        """Read each segment range like a task, without cached data."""
        self._memory.calls.clear()
        found = [offset for part in self.parts for offset in self.offsets_of(part)]
        self.requested = self._requests()
        return found

    def offsets_of(self, part: SegmentRange) -> list[int]:
        batches = read(self._storage(), part, may_miss=self.options.may_miss)
        return [offset for batch in batches for offset in batch.column("offset").to_pylist()]

    def _storage(self) -> RemoteStorageManager:
        return segment_store(self._store, SMALL_CHUNKS)

    def _requests(self) -> Counter[str]:
        """Count requests by kind of object and, for segments, by start offset."""
        return Counter(_kind(call.key) for call in self._memory.calls if call.operation == "get")


def _kind(key: str) -> str:
    name, _, suffix = key.rpartition("/")[2].partition(".")
    return f"{suffix} {int(name[:20])}" if suffix else name


@pytest.fixture
def memory() -> MemoryObjectStore:
    return MemoryObjectStore()


def staged(
    directory: Path, memory: MemoryObjectStore, partition: int = 0, broker_id: int = 1
) -> TieredPartitionHarness:
    return TieredPartitionHarness(directory, partition, store=memory, storage=SMALL_CHUNKS, broker_id=broker_id)


def keys_of(memory: MemoryObjectStore, start: int, suffix: str = "") -> list[str]:
    """Return the keys of the objects of the segment that begins at `start`."""
    keys = memory.keys()
    return [key for key in keys if f"/{start:020}-" in key and key.endswith(suffix)]


def four_segments(harness: TieredPartitionHarness) -> None:
    for _ in range(4):
        for _ in range(4):
            harness.append(5)
        harness.roll()


MANIFESTS = {"rsm-manifest 0": 1, "rsm-manifest 20": 1, "rsm-manifest 40": 1, "rsm-manifest 60": 2}
"""Each manifest is read once, and the last again for its leader epochs."""


def test_segment_outside_the_offset_bounds_is_not_requested(tmp_path: Path, memory: MemoryObjectStore) -> None:
    four_segments(staged(tmp_path, memory))
    reading = Reading(memory, startingOffsets="30", endingOffsets="32")
    assert reading.planned == {**MANIFESTS, "indexes 60": 1}
    assert reading.offsets() == [30, 31]
    assert reading.requested == {"rsm-manifest 20": 1, "indexes 20": 1, "log 20": 1}
    (log,) = (call for call in memory.calls if call.key.endswith(".log"))
    whole = len(memory.content(log.key))
    assert log.last is not None
    assert 0 < log.first < log.last < whole - 1, "only the batches near the bounds are read"


def test_segment_below_the_time_bound_is_not_requested(tmp_path: Path, memory: MemoryObjectStore) -> None:
    four_segments(staged(tmp_path, memory))
    reading = Reading(memory, startingTimestamp=str(BEGAN_MS + 68))
    assert reading.planned == {**MANIFESTS, "indexes 60": 1}
    assert reading.offsets() == list(range(68, 80))
    assert reading.requested == {"rsm-manifest 60": 1, "indexes 60": 1, "log 60": 1}


def test_whole_segment_is_read_without_indexes(tmp_path: Path, memory: MemoryObjectStore) -> None:
    four_segments(staged(tmp_path, memory))
    reading = Reading(memory, startingOffsets="20", endingOffsets="40")
    assert reading.offsets() == list(range(20, 40))
    assert reading.requested == {"rsm-manifest 20": 1, "log 20": 1}


def test_excluded_partition_is_not_requested(tmp_path: Path, memory: MemoryObjectStore) -> None:
    for partition in range(3):
        harness = staged(tmp_path, memory, partition)
        harness.append(1 + partition)
        harness.roll()
    assert Reading(memory, partitions="1").offsets() == [0, 1]
    assert {call.key.split("/")[2] for call in memory.calls} == {"1"}


def test_empty_bounds_give_an_empty_plan(tmp_path: Path, memory: MemoryObjectStore) -> None:
    four_segments(staged(tmp_path, memory))
    assert Reading(memory, startingOffsets="80").parts == []
    assert Reading(memory, partitions="7").parts == []


def test_transaction_indexes_are_read_until_no_transaction_is_open(tmp_path: Path, memory: MemoryObjectStore) -> None:
    harness = staged(tmp_path, memory)
    for _ in range(40):
        harness.append(2, producer_id=1)
        harness.end_transaction(1, ControlType.ABORT)
        harness.append(1)
        harness.roll()
    reading = Reading(memory, startingOffsets="0", endingOffsets="8")
    assert reading.offsets() == [3, 7]
    indexes = [name for name in reading.planned if name.startswith("indexes")]
    assert len(indexes) <= 17, "fewer indexes than segments are read"
    assert Reading(memory, isolationLevel="read_uncommitted", endingOffsets="8").planned["indexes 0"] == 0


def test_lost_segment_with_a_marker_is_an_error(tmp_path: Path, memory: MemoryObjectStore) -> None:
    """The segment is removed after its manifest was read, and before its index is."""
    harness = staged(tmp_path, memory)
    harness.append(3, producer_id=1)
    harness.roll()
    harness.end_transaction(1, ControlType.ABORT)
    harness.append(3)
    harness.roll()
    harness.append(3)
    harness.roll()
    (marker,) = keys_of(memory, 3, ".rsm-manifest")
    store = FaultyObjectStore(memory)
    store.fail(FaultKind.LOST_OBJECT, "get", key_part=marker, skip=1)
    with pytest.raises(RecordsMissing, match="offsets 3 to 6 of orders-0 are not in the store"):
        Reading(memory, store)
    assert not store.planned_count


def test_copies_of_two_leaders_are_read_once(tmp_path: Path, memory: MemoryObjectStore) -> None:
    first, second = (staged(tmp_path, memory, broker_id=broker_id) for broker_id in (1, 2))
    for harness, rolls in ((first, (3, 9)), (second, (5, 7, 11))):
        for number in range(12):
            harness.append(2)
            if number in rolls:
                harness.roll()
    assert len({call.key for call in memory.calls if call.key.endswith(".log")}) == 5
    reading = Reading(memory)
    assert reading.offsets() == list(range(24))
    assert len(reading.parts) < 5


def test_segments_of_a_lost_leader_epoch_are_not_read(tmp_path: Path, memory: MemoryObjectStore) -> None:
    """Both segments have offsets 0 to 9, where a transaction begins. The later offsets of the first belong to another
    history, and so does its abort of the transaction.
    """
    first, second = (staged(tmp_path, memory, broker_id=broker_id) for broker_id in (1, 2))
    for harness in (first, second):
        harness.append(7)
        harness.append(3, producer_id=1)
    first.append(4)
    first.end_transaction(1, ControlType.ABORT)
    first.roll()
    second.roll(copies=False)
    second.bump_leader_epoch()
    second.append(2)
    second.end_transaction(1, ControlType.COMMIT)
    second.append(6)
    second.roll()
    reading = Reading(memory)
    assert reading.offsets() == [each.offset for each in second.readable_records()]
    assert [(part.first, part.last) for part in reading.parts] == [(0, 9), (10, 18)]


def test_compacted_segment_replaces_its_sources(tmp_path: Path, memory: MemoryObjectStore) -> None:
    harness, compacted = (staged(tmp_path, memory, broker_id=broker_id) for broker_id in (1, 2))
    for end in (10, 20, 30):
        harness.append(10)
        harness.roll()
        if end == 20:
            _compact(compacted)
    assert Reading(memory).offsets() == [0, 1, 15, 16, *range(20, 30)]


def _compact(harness: TieredPartitionHarness) -> None:
    """Replace offsets 0 to 19 by a compacted segment with a few of them."""
    harness.append(2)
    harness.skip_to(15)
    harness.append(2)
    harness.skip_to(20)
    harness.roll(compacted_to=20)


@pytest.mark.parametrize("suffix", [".rsm-manifest", ".indexes"])
def test_unreadable_last_segment_is_an_error(tmp_path: Path, memory: MemoryObjectStore, suffix: str) -> None:
    """No segment follows it, so that its absence leaves no hole."""
    four_segments(staged(tmp_path, memory))
    (key,) = keys_of(memory, 60, suffix)
    memory.replace(key, bytes(each ^ 1 for each in memory.content(key)))
    with pytest.raises(
        RecordsMissing, match=r"orders-0/AAAAAAAAAAAAAAAAAAEABA cannot be read: .*; failOnDataLoss=false"
    ):
        Reading(memory)
    assert Reading(memory, failOnDataLoss="false").offsets()[:60] == list(range(60))


def test_segment_removed_during_planning_repeats_the_plan(tmp_path: Path, memory: MemoryObjectStore) -> None:
    """Retention removes the first segment after the listing, or a segment in the middle is lost."""
    four_segments(staged(tmp_path, memory))
    store = FaultyObjectStore(memory)
    store.fail(FaultKind.LOST_OBJECT, "get", key_part="00000000000000000000-")
    assert Reading(memory, store).offsets() == list(range(20, 80))
    store.fail(FaultKind.LOST_OBJECT, "get", key_part="00000000000000000040-")
    with pytest.raises(RecordsMissing, match="offsets 40 to 59 of orders-0 are not in the store"):
        Reading(memory, store)


def test_segment_removed_after_planning_is_an_error(tmp_path: Path, memory: MemoryObjectStore) -> None:
    four_segments(staged(tmp_path, memory))
    reading, lenient = Reading(memory), Reading(memory, failOnDataLoss="false")
    for key in keys_of(memory, 20):
        memory.lose(key)
    assert reading.offsets_of(reading.parts[0]) == list(range(20))
    with pytest.raises(RecordsMissing, match="offsets 20 to 39 of orders-0 were removed from the store after the read"):
        reading.offsets_of(reading.parts[1])
    assert lenient.offsets() == [*range(20), *range(40, 80)]


def test_log_removed_during_the_read_is_an_error(tmp_path: Path, memory: MemoryObjectStore) -> None:
    four_segments(staged(tmp_path, memory))
    reading = Reading(memory)
    (key,) = keys_of(memory, 0, ".log")
    memory.lose(key)
    with pytest.raises(RecordsMissing, match=r"offsets 0 to 19 .*: reading: object logs/orders"):
        reading.offsets_of(reading.parts[0])


def test_damaged_transfer_is_repeated(tmp_path: Path, memory: MemoryObjectStore) -> None:
    four_segments(staged(tmp_path, memory))
    store = FaultyObjectStore(memory)
    reading = Reading(memory, store)
    for each in range(4):
        store.fail(FaultKind.CORRUPT_BYTES, "get", key_part=".log", skip=each)
    assert reading.offsets() == list(range(80))
    assert not store.planned_count


def test_damaged_object_is_named(tmp_path: Path, memory: MemoryObjectStore) -> None:
    harness = staged(tmp_path, memory)
    four_segments(harness)
    (key,) = keys_of(memory, 20, ".log")
    content = bytearray(memory.content(key))
    content[150] ^= 1
    memory.replace(key, bytes(content))
    reading = Reading(memory)
    with pytest.raises(CorruptRemoteData, match=f"^{key} is damaged: chunk 1 of {key} differs from the stored one"):
        reading.offsets()


def test_batch_damaged_before_the_copy_is_named(tmp_path: Path, memory: MemoryObjectStore) -> None:
    """Only the batch's own checksum shows the damage."""
    harness = staged(tmp_path, memory)
    four_segments(harness)
    reading, damaged = Reading(memory), MemoryObjectStore()
    part = reading.parts[1]
    log = bytearray(b"".join(harness.storage.read_segment(part.segment, 0)))
    log[log.index(b"h", HEADER_SIZE + part.segment.size_bytes // 4)] ^= 1
    fs = MemoryFileSystem()
    for name, content in (("log", bytes(log)), ("index", b""), ("time", b"")):
        write_file(fs, name, content, sync=False)
    files = SegmentFiles(
        fs=fs,
        log="log",
        offset_index="index",
        time_index="time",
        transaction_index=None,
        producer_snapshot=None,
        leader_epochs=b"",
    )
    segment_store(damaged, SMALL_CHUNKS).copy_segment(part.segment, files)
    with pytest.raises(CorruptRemoteData) as refusal:
        list(read(segment_store(damaged, SMALL_CHUNKS), part))
    key = f"logs/orders-{uuid_to_text(part.segment.id.partition.topic_id)}/0/00000000000000000020-"
    assert str(refusal.value).startswith(key)
    assert ".log is damaged: the batch at offset 25, byte " in str(refusal.value)
    assert str(refusal.value).endswith(": the checksum does not match")


@pytest.mark.parametrize("settings", [PLAIN, BOTH])
def test_encrypted_and_compressed_segments_are_read_with_the_keys(
    tmp_path: Path, memory: MemoryObjectStore, settings: dict[str, str]
) -> None:
    harness = TieredPartitionHarness(tmp_path, store=memory, storage=settings)
    four_segments(harness)
    storage = segment_store(memory, {**settings, "key.prefix": PREFIX})
    parts = plan_in(TieredBucket(memory, ObjectKeys(PREFIX), storage), Options.of(options_of(Path("/"))))
    found = [offset for part in parts for batch in read(storage, part) for offset in batch.column("offset").to_pylist()]
    assert found == list(range(80))
