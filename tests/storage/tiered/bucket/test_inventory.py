"""Inventory of a partition from the bucket alone, including KIP-405's scenarios 3 to 5."""

import pytest

from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Uuid
from storage.directories.checkpoints import LeaderEpochEntry
from storage.producer_state import ProducerEntry, ProducerState
from storage.tiered.bucket.inventory import BucketReader, OffsetRange, PartitionInventory
from storage.tiered.bucket.listing import StoredPartition, StoredTopic, UnrecognizedObject, walk
from storage.tiered.catalog.lineage import encode_epochs
from storage.tiered.errors import RemoteResourceNotFound
from storage.tiered.format.chunk_index import FixedChunkIndex
from storage.tiered.format.log_start_object import LogStartWriter
from storage.tiered.format.manifest import SegmentManifest, StoredIndex, encode_manifest
from storage.tiered.format.object_keys import ObjectKeys, ObjectSuffix
from storage.tiered.remote_storage import IndexKind
from storage.tiered.segment_metadata import (
    RemoteSegment,
    RemoteSegmentId,
    SegmentEpoch,
    SegmentState,
    TopicIdPartition,
)
from tests.support.fakes.memory_object_store import MemoryObjectStore

FOO = TopicIdPartition(Uuid(bytes(15) + b"\x07"), "foo", 3)
KEYS = ObjectKeys("logs/")


class Bucket:
    """Segments as leaders leave them: objects, and indexes as a storage manager returns them."""

    def __init__(self) -> None:
        self.store = MemoryObjectStore()
        self.indexes: dict[tuple[RemoteSegmentId, IndexKind], bytes] = {}
        self._count = 0

    def read_index(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        content = self.indexes.get((segment.id, kind))
        if content is None:
            raise RemoteResourceNotFound(f"{segment.id} has no {kind.value}")
        return content

    def copy(
        self,
        start: int,
        end: int,
        epochs: list[tuple[int, int]],
        history: list[tuple[int, int]] | None = None,
        partition: TopicIdPartition = FOO,
        objects: tuple[ObjectSuffix, ...] = tuple(ObjectSuffix),
    ) -> RemoteSegment:
        """Copy a segment; `history` is the leader's, by default the segment's."""
        self._count += 1
        segment = RemoteSegment(
            id=RemoteSegmentId(partition, Uuid(self._count.to_bytes(16, "big"))),
            start_offset=start,
            end_offset=end,
            max_timestamp_ms=500,
            broker_id=BrokerId(2),
            event_timestamp_ms=600,
            size_bytes=1_000,
            leader_epochs=tuple(SegmentEpoch(LeaderEpoch(number), at) for number, at in epochs),
            state=SegmentState.COPY_FINISHED,
            txn_index_empty=True,
        )
        for suffix in objects:
            content = encode_manifest(_manifest(segment)) if suffix is ObjectSuffix.MANIFEST else b"x"
            self.store.put(KEYS.key(segment, suffix), (content,))
        self.indexes[segment.id, IndexKind.LEADER_EPOCH] = encode_epochs(
            [(LeaderEpoch(epoch), at) for epoch, at in history or epochs]
        )
        return segment

    @property
    def reader(self) -> BucketReader:
        return BucketReader(self.store, KEYS, self)

    def inventory(self) -> PartitionInventory:
        [stored] = [each for each in walk(self.store, KEYS) if isinstance(each, StoredPartition)]
        return self.reader.inventory(stored)


def _manifest(segment: RemoteSegment) -> SegmentManifest:
    kinds = (IndexKind.OFFSET, IndexKind.TIME, IndexKind.PRODUCER_SNAPSHOT, IndexKind.LEADER_EPOCH)
    return SegmentManifest(
        chunks=FixedChunkIndex(1_000, segment.size_bytes, 1_000, 1_000),
        indexes={kind: StoredIndex(0, 0) for kind in kinds},
        compression=False,
        encryption=None,
        chunk_crcs=None,
        segment=segment,
    )


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


def test_inventory_restores_the_copied_segment_metadata(bucket: Bucket) -> None:
    first = bucket.copy(0, 9, [(0, 0)])
    second = bucket.copy(10, 19, [(0, 10), (2, 15)], [(0, 0), (2, 15)])
    found = bucket.inventory()
    assert found.segments == found.needed == (first, second)
    assert found.history == (LeaderEpochEntry(LeaderEpoch(0), 0), LeaderEpochEntry(LeaderEpoch(2), 15))
    assert (found.log_start_offset, found.next_offset, found.highest_epoch) == (0, 20, 2)
    assert (found.holes, found.faults, found.incomplete) == ((), (), 0)
    assert found.size_bytes == 2_000


def test_segment_without_manifest_is_ignored(bucket: Bucket) -> None:
    bucket.copy(0, 9, [(0, 0)])
    bucket.copy(10, 19, [(0, 10)], objects=(ObjectSuffix.LOG, ObjectSuffix.INDEXES))
    found = bucket.inventory()
    assert (found.next_offset, found.incomplete) == (10, 1)


def test_manifest_without_log_is_ignored(bucket: Bucket) -> None:
    bucket.copy(0, 9, [(0, 0)])
    bucket.copy(10, 19, [(0, 10)], objects=(ObjectSuffix.MANIFEST,))
    found = bucket.inventory()
    assert (found.next_offset, found.incomplete) == (10, 1)


def test_scenario_3_lost_log_end_is_not_restored(bucket: Bucket) -> None:
    u1 = bucket.copy(0, 1, [(0, 0)])
    u2 = bucket.copy(1, 1, [(1, 1)], [(0, 0), (1, 1)])
    found = bucket.inventory()
    assert found.needed == (u1, u2), "offset 0 is in u1 alone"
    assert found.history == (LeaderEpochEntry(LeaderEpoch(0), 0), LeaderEpochEntry(LeaderEpoch(1), 1))
    assert (found.next_offset, found.holes, found.highest_epoch) == (2, (), 1)


def test_scenario_4_segment_outside_of_the_lineage_is_superfluous(bucket: Bucket) -> None:
    u1 = bucket.copy(0, 2, [(0, 0)])
    u2 = bucket.copy(0, 1, [(0, 0), (1, 1)])
    found = bucket.inventory()
    assert found.needed == (u2,)
    assert found.segments == (u2, u1)
    assert found.next_offset == 2


def test_scenario_5_latest_leader_determines_the_lineage(bucket: Bucket) -> None:
    u1 = bucket.copy(0, 3, [(0, 0)])
    u2 = bucket.copy(0, 3, [(0, 0), (1, 2)])
    u3 = bucket.copy(4, 5, [(0, 4), (2, 5)], [(0, 0), (2, 5)])
    found = bucket.inventory()
    assert found.needed == (u1, u3)
    assert set(found.segments) - set(found.needed) == {u2}
    assert found.history == (LeaderEpochEntry(LeaderEpoch(0), 0), LeaderEpochEntry(LeaderEpoch(2), 5))
    assert (found.next_offset, found.highest_epoch) == (6, 2)


def test_highest_epoch_covers_all_objects(bucket: Bucket) -> None:
    bucket.copy(0, 9, [(0, 0)])
    LogStartWriter(
        bucket.store,
        KEYS.partition(FOO),
        leader_epoch=LeaderEpoch(8),
        cluster_id="c",
        broker_id=BrokerId(1),
        interval_ms=0,
    ).write(4, 0)
    found = bucket.inventory()
    assert (found.highest_epoch, found.log_start_offset, found.cluster_id) == (8, 4, "c")


def test_records_that_were_deleted_stay_deleted(bucket: Bucket) -> None:
    bucket.copy(0, 9, [(0, 0)])
    LogStartWriter(
        bucket.store,
        KEYS.partition(FOO),
        leader_epoch=LeaderEpoch(0),
        cluster_id="c",
        broker_id=BrokerId(1),
        interval_ms=0,
    ).write(25, 0)
    found = bucket.inventory()
    assert (found.log_start_offset, found.next_offset, found.holes) == (25, 25, ())


def test_lost_segment_leaves_a_hole(bucket: Bucket) -> None:
    bucket.copy(0, 9, [(0, 0)])
    bucket.copy(20, 29, [(0, 20)], [(0, 0)])
    bucket.copy(35, 39, [(0, 35)], [(0, 0)])
    found = bucket.inventory()
    assert found.holes == (OffsetRange(10, 19), OffsetRange(30, 34))
    assert found.above_holes == 35


def test_unreadable_objects_are_reported_as_faults(bucket: Bucket) -> None:
    bucket.copy(0, 9, [(0, 0)])
    bad = bucket.copy(10, 19, [(0, 10)], [(0, 0)])
    bucket.store.replace(KEYS.key(bad, ObjectSuffix.MANIFEST), b"{}")
    found = bucket.inventory()
    assert (len(found.segments), len(found.faults), found.next_offset) == (1, 1, 10)


def test_manifest_deleted_meanwhile_is_reported_as_fault(bucket: Bucket) -> None:
    kept = bucket.copy(0, 9, [(0, 0)])
    removed = bucket.copy(10, 19, [(0, 10)], [(0, 0)])
    [stored] = [each for each in walk(bucket.store, KEYS) if isinstance(each, StoredPartition)]
    bucket.store.lose(KEYS.key(removed, ObjectSuffix.MANIFEST))
    found = bucket.reader.inventory(stored)
    assert (found.segments, len(found.faults)) == ((kept,), 1)


def test_manifest_under_another_key_is_refused(bucket: Bucket) -> None:
    one = bucket.copy(0, 9, [(0, 0)])
    other = bucket.copy(10, 19, [(0, 10)], [(0, 0)])
    bucket.store.replace(
        KEYS.key(other, ObjectSuffix.MANIFEST), bucket.store.content(KEYS.key(one, ObjectSuffix.MANIFEST))
    )
    assert [fault for fault in bucket.inventory().faults if "is that of" in fault]


def test_unreadable_history_falls_back_to_previous_segment(bucket: Bucket) -> None:
    bucket.copy(0, 9, [(0, 0)])
    late = bucket.copy(10, 19, [(0, 10)], [(0, 0)])
    bucket.indexes[late.id, IndexKind.LEADER_EPOCH] = b"?"
    found = bucket.inventory()
    assert (found.next_offset, len(found.faults)) == (10, 1)


def test_highest_producer_id_comes_from_the_last_snapshot(bucket: Bucket) -> None:
    segment = bucket.copy(0, 9, [(0, 0)])
    assert bucket.inventory().highest_producer_id == -1
    bucket.indexes[segment.id, IndexKind.PRODUCER_SNAPSHOT] = snapshot_of(7, 4_711)
    assert bucket.inventory().highest_producer_id == 4_711


def test_partition_with_unreadable_objects_is_empty(bucket: Bucket) -> None:
    bucket.copy(0, 9, [(0, 0)], objects=(ObjectSuffix.LOG,))
    found = bucket.inventory()
    assert (found.needed, found.log_start_offset, found.next_offset, found.highest_epoch) == ((), 0, 0, -1)


def test_walk_yields_partitions_before_their_topic(bucket: Bucket) -> None:
    bucket.copy(0, 9, [(0, 0)])
    bucket.copy(0, 9, [(0, 0)], partition=FOO._replace(partition=12))
    bucket.copy(0, 9, [(0, 0)], partition=FOO._replace(topic="foo-bar"))
    bucket.store.put("logs/foo-AAAAAAAAAAAAAAAAAAAABw/topic-0000000003", (b"{}",))
    bucket.store.put("logs/elsewhere", (b"",))
    bucket.store.put("logs/foo-AAAAAAAAAAAAAAAAAAAABw/else", (b"",))
    found = list(walk(bucket.store, KEYS))
    partitions = [each.partition for each in found if isinstance(each, StoredPartition)]
    assert [(each.topic, each.partition) for each in partitions] == [("foo", 12), ("foo", 3), ("foo-bar", 3)]
    assert [(each.topic, each.topic_id) for each in found if isinstance(each, StoredTopic)] == [("foo", FOO.topic_id)]
    assert len([each for each in found if isinstance(each, UnrecognizedObject)]) == 2
    only = [each for each in walk(bucket.store, KEYS, "foo") if not isinstance(each, UnrecognizedObject)]
    assert len(only) == 3


def snapshot_of(*producer_ids: int) -> bytes:
    state = ProducerState()
    state.entries |= {each: ProducerEntry(each, 0) for each in producer_ids}
    return state.encode()
