"""Complete checks of segments: each fault is reported, and a sound segment has none."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from protocol.ids import LeaderEpoch
from protocol.records.builder import Record, build_batch
from storage.producer_state import ProducerState
from storage.tiered.bucket.inventory import BucketReader
from storage.tiered.bucket.listing import StoredPartition, StoredSegment, walk
from storage.tiered.bucket.segment_check import SegmentCheck
from storage.tiered.catalog.lineage import encode_epochs
from storage.tiered.errors import CorruptRemoteData, RemoteResourceNotFound
from storage.tiered.format.chunk_index import FixedChunkIndex
from storage.tiered.format.manifest import SegmentManifest, StoredIndex, encode_manifest
from storage.tiered.format.object_keys import ObjectKeys, ObjectSuffix
from storage.tiered.remote_storage import IndexKind, SegmentFiles
from storage.tiered.segment_metadata import RemoteSegment, SegmentEpoch
from tests.storage.tiered.sample_segments import PARTITION, segment
from tests.support.fakes.memory_object_store import MemoryObjectStore

KEYS = ObjectKeys("")


def batch(first: int, last: int) -> bytes:
    return build_batch([Record(0, None, b"x", ()) for _ in range(first, last + 1)], base_offset=first)


class Storage:
    """A segment of offsets 1000 to 1200 in three batches, and its indexes."""

    def __init__(self) -> None:
        self.log = batch(1000, 1049) + batch(1050, 1099) + batch(1100, 1200)
        self.indexes = {
            IndexKind.OFFSET: b"",
            IndexKind.TIME: b"",
            IndexKind.LEADER_EPOCH: encode_epochs([(LeaderEpoch(0), 0), (LeaderEpoch(3), 1100)]),
            IndexKind.PRODUCER_SNAPSHOT: ProducerState().encode(),
        }
        self.error: Exception | None = None

    def copy_segment(self, segment: RemoteSegment, files: SegmentFiles) -> bytes | None:
        raise AssertionError("a check copies nothing")

    def read_segment(self, segment: RemoteSegment, first: int, last: int | None = None) -> Iterator[memoryview]:
        if self.error is not None:
            raise self.error
        for start in range(0, len(self.log), 100):
            yield memoryview(self.log)[start : start + 100]

    def read_index(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        if kind not in self.indexes:
            raise RemoteResourceNotFound(f"there is no {kind.value}")
        return self.indexes[kind]

    def read_soon(self, segment: RemoteSegment, first: int) -> None:
        raise AssertionError("a check reads everything itself")

    def discard(self, segment: RemoteSegment) -> None:
        raise AssertionError("a check keeps nothing")

    def location(self, segment: RemoteSegment) -> str:
        return str(segment.id)

    def delete_segment(self, segment: RemoteSegment) -> None:
        raise AssertionError("a check deletes nothing")

    def close(self) -> None:
        raise AssertionError("the check must not close the storage")


class CheckHarness:
    def __init__(self) -> None:
        self.storage = Storage()
        self.store = MemoryObjectStore()
        self.segment = segment(len(self.storage.log))
        self.manifest = SegmentManifest(
            chunks=FixedChunkIndex(1 << 20, len(self.storage.log), len(self.storage.log), len(self.storage.log)),
            indexes={kind: StoredIndex(0, 8) for kind in self.storage.indexes},
            compression=False,
            encryption=None,
            chunk_crcs=None,
            segment=self.segment,
        )
        self.store.put(KEYS.key(self.segment, ObjectSuffix.LOG), (self.storage.log,))
        self.store.put(KEYS.key(self.segment, ObjectSuffix.INDEXES), (bytes(8),))

    @property
    def stored(self) -> StoredSegment:
        [found] = [each for each in walk(self.store, KEYS) if isinstance(each, StoredPartition)]
        return found.segments[0]

    def faults(self) -> list[str]:
        self.store.put(KEYS.key(self.segment, ObjectSuffix.MANIFEST), (encode_manifest(self.manifest),))
        check = SegmentCheck(BucketReader(self.store, KEYS, self.storage), self.storage)
        return check.faults(self.segment, self.stored)


@pytest.fixture
def harness() -> CheckHarness:
    return CheckHarness()


def test_sound_segment_has_no_faults(harness: CheckHarness) -> None:
    assert harness.faults() == []
    assert harness.segment.id.partition == PARTITION


def test_wrong_batch_checksum_is_a_fault(harness: CheckHarness) -> None:
    damaged = bytearray(harness.storage.log)
    damaged[len(batch(1000, 1049)) + 70] ^= 1
    harness.storage.log = bytes(damaged)
    assert harness.faults() == ["the checksum of the batch at offset 1050 does not hold"]


def test_misplaced_batches_are_faults(harness: CheckHarness) -> None:
    harness.storage.log = batch(1000, 1049) + batch(1040, 1099) + batch(1100, 1201)
    faults = [fault for fault in harness.faults() if "place" in fault]
    assert faults == ["offset 1040 is out of place", "offset 1100 is out of place"]


def test_truncated_log_is_a_fault(harness: CheckHarness) -> None:
    whole = len(harness.storage.log)
    harness.storage.log = harness.storage.log[:-10]
    rest = len(batch(1100, 1200)) - 10
    assert harness.faults() == [
        f"{rest} bytes at the end are no batch",
        f"the log has {whole - 10} bytes, and metadata say {whole}",
    ]


def test_invalid_batch_is_a_fault(harness: CheckHarness) -> None:
    harness.storage.log = bytes(len(harness.storage.log))
    assert len(harness.faults()) == 1


@pytest.mark.parametrize("suffix", [ObjectSuffix.LOG, ObjectSuffix.INDEXES])
def test_object_size_differing_from_manifest_is_a_fault(harness: CheckHarness, suffix: ObjectSuffix) -> None:
    harness.store.put(KEYS.key(harness.segment, suffix), (b"short",))
    [fault] = harness.faults()
    assert fault.startswith(f"the {suffix.value} object has 5 bytes")


def test_metadata_differing_from_manifest_are_faults(harness: CheckHarness) -> None:
    harness.segment = replace(harness.segment, max_timestamp_ms=1, leader_epochs=(SegmentEpoch(LeaderEpoch(9), 1000),))
    assert harness.faults() == [
        "the manifest has another max timestamp ms than metadata",
        "the manifest has another leader epochs than metadata",
        "the history of leader epochs is not that of the segment",
    ]


def test_unreadable_indexes_are_faults(harness: CheckHarness) -> None:
    harness.storage.indexes[IndexKind.LEADER_EPOCH] = b"?"
    harness.storage.indexes[IndexKind.PRODUCER_SNAPSHOT] = b"?"
    assert len(harness.faults()) == 2
    del harness.storage.indexes[IndexKind.OFFSET]
    assert harness.faults() == ["there is no index"]


def test_damage_found_by_storage_is_a_fault(harness: CheckHarness) -> None:
    harness.storage.error = CorruptRemoteData("chunk 7 is not what was stored")
    assert harness.faults() == ["chunk 7 is not what was stored"]
