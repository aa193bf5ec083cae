"""Findings of an audit, and the objects that it protects."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest

from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Uuid
from storage.tiered.bucket.audit import Audit, AuditContext, PartitionReport, summary
from storage.tiered.bucket.collection import Collection
from storage.tiered.bucket.listing import StoredPartition, StoredSegment
from storage.tiered.bucket.reconcile import Coverage, Finding, classify
from storage.tiered.catalog.metadata_journal import Event, KnownPartition, KnownPartitions
from storage.tiered.format.object_keys import ObjectKeys, ObjectSuffix
from storage.tiered.segment_metadata import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    RemoteSegmentId,
    SegmentEpoch,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)
from tests.support.fakes.memory_object_store import MemoryObjectStore

FOO = TopicIdPartition(Uuid(bytes(15) + b"\x07"), "foo", 0)
GRACE_MS = 1_000
NOW_MS = 100_000
ALL = tuple(ObjectSuffix)
KEYS = ObjectKeys("logs/")


class Journal:
    """All events; `publish` appends."""

    def __init__(self) -> None:
        self.known = KnownPartitions()

    def catch_up(self, partition: TopicIdPartition) -> KnownPartition:
        return self.known.get(partition)

    def catch_up_all(self) -> Iterable[KnownPartition]:
        return self.known.all()

    def publish(self, partition: TopicIdPartition, events: Sequence[Event]) -> None:
        for event in events:
            self.known.apply(event)


@dataclass
class AuditHarness:
    """A bucket and metadata written by tests."""

    store: MemoryObjectStore = field(default_factory=MemoryObjectStore)
    journal: Journal = field(default_factory=Journal)
    log_start_offset: int | None = 0
    foreign: bool = False
    stored: dict[RemoteSegmentId, RemoteSegment] = field(default_factory=dict)

    def segment(self, number: int, start: int, end: int, *epochs: tuple[int, int]) -> RemoteSegment:
        return RemoteSegment(
            id=RemoteSegmentId(FOO, Uuid(number.to_bytes(16, "big"))),
            start_offset=start,
            end_offset=end,
            max_timestamp_ms=0,
            broker_id=BrokerId(1),
            event_timestamp_ms=0,
            size_bytes=1,
            leader_epochs=tuple(SegmentEpoch(LeaderEpoch(number), at) for number, at in epochs or [(0, start)]),
        )

    def put(self, segment: RemoteSegment, *suffixes: ObjectSuffix, at_ms: int = 0) -> None:
        self.store.now_ms = at_ms
        self.stored[segment.id] = segment
        for suffix in suffixes or ALL:
            self.store.put(KEYS.key(segment, suffix), (b"x",))

    def publish_states(self, segment: RemoteSegment, *states: SegmentState, at_ms: int = 0) -> None:
        """Publish COPY_STARTED and further events."""
        self.journal.known.apply(segment)
        for state in states:
            self.journal.known.apply(SegmentUpdate(segment.id, state, at_ms, BrokerId(1)))

    def finished(self, number: int, start: int, end: int, *epochs: tuple[int, int]) -> RemoteSegment:
        segment = self.segment(number, start, end, *epochs)
        self.put(segment)
        self.publish_states(segment, SegmentState.COPY_FINISHED)
        return segment

    def described(self, objects: StoredSegment) -> RemoteSegment:
        self.store.get(objects.objects[ObjectSuffix.MANIFEST].key)
        return self.stored[objects.id]

    def is_foreign(self, stored: StoredPartition) -> bool:
        return self.foreign

    def audit(self) -> list[PartitionReport]:
        context = AuditContext(
            now_ms=lambda: NOW_MS,
            grace_ms=GRACE_MS,
            log_start_offset=lambda _: self.log_start_offset,
            described=self.described,
            is_foreign=self.is_foreign,
        )
        return list(Audit(self.store, KEYS, self.journal, context).partitions())

    def findings(self) -> list[Finding]:
        return [verdict.finding for report in self.audit() for verdict in report.segments]

    def collect(self) -> int:
        collection = Collection(self.store, KEYS, self.journal, now_ms=lambda: NOW_MS)
        return sum(collection.remove(report) for report in self.audit())


@pytest.fixture
def harness() -> AuditHarness:
    return AuditHarness()


def test_consistent_bucket_has_only_live_segments(harness: AuditHarness) -> None:
    harness.finished(1, 0, 9)
    harness.finished(2, 10, 19)
    [report] = harness.audit()
    assert report.is_in_order
    assert summary([report])[Finding.LIVE] == 2
    assert harness.collect() == 0


def test_objects_without_metadata_are_orphans_after_grace_time(harness: AuditHarness) -> None:
    harness.finished(1, 0, 9)
    harness.put(harness.segment(2, 0, 9), ObjectSuffix.LOG, at_ms=NOW_MS - GRACE_MS)
    harness.put(harness.segment(3, 0, 9), ObjectSuffix.LOG, at_ms=NOW_MS - GRACE_MS + 1)
    assert harness.findings() == [Finding.LIVE, Finding.ORPHAN, Finding.RECENT]
    assert harness.collect() == 1
    assert len(harness.store.keys()) == 4


def test_leftover_of_deleted_segment_is_an_orphan(harness: AuditHarness) -> None:
    """A request arrived after the deletion was finished."""
    harness.finished(1, 0, 9)
    removed = harness.segment(2, 0, 9)
    harness.publish_states(removed, SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED)
    harness.put(removed)
    assert harness.collect() == 1


def test_late_manifest_of_deleted_segment_is_an_orphan(harness: AuditHarness) -> None:
    harness.finished(1, 0, 9)
    harness.put(harness.segment(2, 10, 19), ObjectSuffix.MANIFEST)
    assert harness.findings() == [Finding.LIVE, Finding.ORPHAN]
    assert harness.collect() == 1
    assert len(harness.store.keys()) == len(ALL)


def test_unrecorded_segment_without_indexes_is_not_touched(harness: AuditHarness) -> None:
    harness.finished(1, 0, 9)
    harness.put(harness.segment(2, 10, 19), ObjectSuffix.LOG, ObjectSuffix.MANIFEST)
    assert harness.findings() == [Finding.LIVE, Finding.UNRECORDED]
    assert harness.collect() == 0


def test_abandoned_copy_is_deleted_with_events(harness: AuditHarness) -> None:
    harness.finished(1, 0, 9)
    begun = harness.segment(2, 10, 19)
    harness.publish_states(begun)
    harness.put(begun, ObjectSuffix.LOG)
    assert harness.findings() == [Finding.LIVE, Finding.ABANDONED]
    assert harness.collect() == 1
    assert harness.journal.known.get(FOO).segments.get(begun.id.id) is None
    assert harness.findings() == [Finding.LIVE]


def test_copies_without_any_object_are_abandoned_too(harness: AuditHarness) -> None:
    harness.publish_states(harness.segment(2, 10, 19))
    assert harness.findings() == [Finding.ABANDONED]
    assert harness.collect() == 1
    assert harness.findings() == []


def test_interrupted_deletions_are_finished(harness: AuditHarness) -> None:
    half = harness.segment(1, 0, 9)
    harness.put(half, ObjectSuffix.INDEXES, ObjectSuffix.LOG)
    harness.publish_states(half, SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED)
    assert harness.findings() == [Finding.HALF_DELETED]
    assert harness.collect() == 1
    assert harness.store.keys() == []
    assert len(harness.journal.known.get(FOO).segments) == 0


def test_deletions_under_way_are_left_alone(harness: AuditHarness) -> None:
    half = harness.segment(1, 0, 9)
    harness.put(half, ObjectSuffix.LOG)
    harness.publish_states(half, SegmentState.DELETE_STARTED, at_ms=NOW_MS - GRACE_MS + 1)
    assert harness.findings() == [Finding.DELETING]
    assert harness.collect() == 0


@pytest.mark.parametrize("lost", ALL)
def test_finished_segment_with_a_missing_object_is_dangling(harness: AuditHarness, lost: ObjectSuffix) -> None:
    segment = harness.finished(1, 0, 9)
    harness.store.lose(KEYS.key(segment, lost))
    [report] = harness.audit()
    [verdict] = report.segments
    assert (verdict.finding, verdict.missing) == (Finding.DANGLING, (lost,))
    assert not report.is_in_order
    assert harness.collect() == 0


def test_finished_segment_without_objects_is_dangling(harness: AuditHarness) -> None:
    harness.publish_states(harness.segment(1, 0, 9), SegmentState.COPY_FINISHED)
    assert harness.findings() == [Finding.DANGLING]


def test_partition_without_metadata_is_not_touched(harness: AuditHarness) -> None:
    harness.put(harness.segment(1, 0, 9))
    harness.put(harness.segment(2, 10, 19))
    [report] = harness.audit()
    assert not report.is_recorded
    assert {verdict.finding for verdict in report.segments} == {Finding.UNRECORDED}
    assert harness.collect() == 0
    assert len(harness.store.keys()) == 6


def test_unrecorded_segment_is_not_touched_among_recorded_ones(harness: AuditHarness) -> None:
    """The metadata topic was lost, and the leader continued to copy."""
    harness.put(harness.segment(1, 0, 9))
    harness.finished(2, 10, 19)
    assert harness.findings() == [Finding.UNRECORDED, Finding.LIVE]
    harness.log_start_offset = 10
    assert harness.findings() == [Finding.ORPHAN, Finding.LIVE]


def test_objects_of_another_cluster_are_not_touched(harness: AuditHarness) -> None:
    harness.finished(1, 0, 9)
    harness.put(harness.segment(2, 0, 9))
    harness.foreign = True
    assert harness.collect() == 0
    assert all(report.is_in_order for report in harness.audit())


def test_topic_unknown_to_cluster_and_metadata_is_not_touched(harness: AuditHarness) -> None:
    """Another cluster may own the objects and be copying them."""
    harness.put(harness.segment(1, 0, 9), ObjectSuffix.LOG)
    harness.log_start_offset = None
    assert harness.findings() == [Finding.ORPHAN]
    assert harness.collect() == 0


def test_segments_of_removed_topic_are_reported_and_kept(harness: AuditHarness) -> None:
    harness.finished(1, 0, 9)
    harness.log_start_offset = None
    [report] = harness.audit()
    assert report.is_left_behind
    assert not report.is_in_order
    assert harness.collect() == 0


def test_leftovers_of_deleted_partition_are_collected(harness: AuditHarness) -> None:
    harness.finished(1, 0, 9)
    harness.journal.known.apply(PartitionDelete(FOO, PartitionDeleteState.FINISHED, 0, BrokerId(1)))
    harness.log_start_offset = None
    assert harness.findings() == [Finding.ORPHAN]
    assert harness.collect() == 1
    assert harness.store.keys() == []


def test_unrecognized_objects_are_reported_and_kept(harness: AuditHarness) -> None:
    harness.finished(1, 0, 9)
    harness.store.put(KEYS.partition(FOO) + "note.txt", (b"?",))
    [report] = harness.audit()
    assert [info.key for info in report.unrecognized] == [KEYS.partition(FOO) + "note.txt"]
    assert not report.is_in_order


def test_segment_id_at_unexpected_offset_is_unrecognized(harness: AuditHarness) -> None:
    harness.finished(1, 0, 9)
    harness.put(harness.segment(1, 5, 9))
    [report] = harness.audit()
    assert len(report.unrecognized) == 3
    assert [verdict.finding for verdict in report.segments] == [Finding.LIVE]


def test_segment_recorded_after_audit_is_not_collected(harness: AuditHarness) -> None:
    harness.finished(1, 0, 9)
    late = harness.segment(2, 0, 9)
    harness.put(late)
    reports = harness.audit()
    harness.publish_states(late, SegmentState.COPY_FINISHED)
    collection = Collection(harness.store, KEYS, harness.journal, now_ms=lambda: NOW_MS)
    assert [collection.remove(report) for report in reports] == [0]
    assert len(harness.store.keys()) == 6


def test_manifest_is_deleted_first(harness: AuditHarness) -> None:
    harness.finished(1, 0, 9)
    harness.put(harness.segment(2, 0, 9))
    harness.collect()
    deleted = [call.key.rpartition(".")[2] for call in harness.store.calls if call.operation == "delete"]
    assert deleted == ["rsm-manifest", "indexes", "log"]


def test_classification_requires_objects_or_metadata() -> None:
    with pytest.raises(ValueError):
        classify(None, None, now_ms=0, grace_ms=0)


def test_coverage_counts_finished_segments_without_gaps() -> None:
    harness = AuditHarness()
    for number, (start, end) in enumerate([(0, 9), (5, 14), (20, 29)]):
        harness.finished(number, start, end)
    harness.publish_states(harness.segment(9, 30, 39))
    coverage = Coverage(harness.journal.known.get(FOO).segments.segments(), 3)
    for first, last, is_held in ((0, 14, True), (20, 29, True), (10, 20, False), (25, 30, False)):
        assert coverage.holds(harness.segment(7, first, last)) == is_held


@pytest.mark.parametrize(
    ("epochs", "is_held"),
    [
        (((0, 0),), False),
        (((0, 0), (1, 4)), False),
        (((0, 0), (2, 5)), False),
        (((0, 0), (2, 4)), True),
        (((0, 0), (1, 4), (2, 4)), True),
    ],
)
def test_coverage_tells_histories_apart(epochs: tuple[tuple[int, int], ...], is_held: bool) -> None:
    harness = AuditHarness()
    harness.finished(1, 0, 6, (0, 0), (2, 4))
    harness.finished(2, 5, 9, (2, 5))
    coverage = Coverage(harness.journal.known.get(FOO).segments.segments(), 0)
    assert coverage.holds(harness.segment(3, 0, 9, *epochs)) == is_held


def test_segment_without_metadata_is_kept_beside_another_history(harness: AuditHarness) -> None:
    """Two leaders copied the same offsets before and after an unclean election; the metadata of one are lost."""
    harness.put(harness.segment(1, 0, 9, (0, 0), (2, 5)))
    harness.finished(2, 0, 9, (0, 0), (1, 3))
    assert harness.findings() == [Finding.UNRECORDED, Finding.LIVE]
    assert harness.collect() == 0
    assert len(harness.store.keys()) == 6
