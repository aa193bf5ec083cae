"""Audit of a bucket against the metadata of its segments, in the order that `reconcile.py` requires.

Everything blocks. An audit changes nothing; `collection.py` deletes what may be deleted.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace

from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid
from storage.tiered.bucket.listing import StoredPartition, StoredSegment, StoredTopic, UnrecognizedObject, walk
from storage.tiered.bucket.reconcile import COLLECTABLE, IN_ORDER, AuditedSegment, Coverage, Finding, classify
from storage.tiered.catalog.metadata_journal import KnownPartition, MetadataJournal
from storage.tiered.errors import ObjectNotFound, RemoteStorageError
from storage.tiered.format.object_keys import ObjectKeys, ObjectSuffix
from storage.tiered.object_store import ObjectInfo, ObjectStore
from storage.tiered.segment_metadata import RemoteSegment, SegmentState, TopicIdPartition


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class AuditContext:
    """Inputs of an audit beside the bucket and the metadata.

    `log_start_offset` returns the log start offset of a partition of the cluster, None for a partition that does not
    exist. `described` reads the metadata of a segment from its manifest; may raise RemoteStorageError,
    ObjectNotFound. `is_foreign` tells whether another cluster owns the objects.
    """

    now_ms: Callable[[], int]
    grace_ms: int
    log_start_offset: Callable[[TopicIdPartition], int | None]
    described: Callable[[StoredSegment], RemoteSegment]
    is_foreign: Callable[[StoredPartition], bool] = lambda _: False


@lazy_dataclass(slots=True)
class PartitionReport:
    """Findings about one partition. `exists`: the cluster has the partition under this topic id."""

    partition: TopicIdPartition
    exists: bool
    is_recorded: bool
    is_deleted: bool
    is_foreign: bool
    segments: list[AuditedSegment] = field(default_factory=list)
    log_starts: list[ObjectInfo] = field(default_factory=list)
    unrecognized: list[ObjectInfo] = field(default_factory=list)

    def of(self, *findings: Finding) -> list[AuditedSegment]:
        return [audited for audited in self.segments if audited.finding in findings]

    @property
    def is_left_behind(self) -> bool:
        """Whether the topic is gone although no event marks its segments for deletion."""
        return not self.exists and not self.is_deleted and not self.is_foreign

    @property
    def is_in_order(self) -> bool:
        return self.is_foreign or not (
            self.is_left_behind or self.unrecognized or any(each.finding not in IN_ORDER for each in self.segments)
        )

    @property
    def collectable(self) -> list[AuditedSegment]:
        """Segments to delete: none of another cluster, and none of a topic that neither cluster nor metadata know."""
        is_ours = not self.is_foreign and (self.exists or self.is_recorded)
        return self.of(*COLLECTABLE) if is_ours else []


class Audit:
    """One pass over all objects under a prefix, or over one topic."""

    def __init__(self, store: ObjectStore, keys: ObjectKeys, journal: MetadataJournal, context: AuditContext) -> None:
        self._store = store
        self._keys = keys
        self._journal = journal
        self._context = context
        self.topics: list[StoredTopic] = []
        self.unrecognized: list[ObjectInfo] = []

    def partitions(self, topic: str | None = None) -> Iterator[PartitionReport]:
        """Report partitions in listing order, then those that only metadata know. Raises the errors of store and
        metadata.
        """
        seen: set[TopicIdPartition] = set()
        for found in walk(self._store, self._keys, topic):
            match found:
                case StoredPartition():
                    seen.add(found.partition)
                    yield self._judge(found, self._journal.catch_up(found.partition))
                case StoredTopic():
                    self.topics.append(found)
                case UnrecognizedObject():
                    self.unrecognized.append(found.object)
        for known in list(self._journal.catch_up_all()):
            if known.partition not in seen and len(known.segments) and topic in (None, known.partition.topic):
                yield self._judge(StoredPartition(known.partition), known)

    def _judge(self, stored: StoredPartition, known: KnownPartition) -> PartitionReport:
        """Classify the segments of a partition; `stored` must be listed before `known` is read."""
        log_start_offset = self._context.log_start_offset(stored.partition)
        report = PartitionReport(
            stored.partition,
            exists=log_start_offset is not None,
            is_recorded=known.has_events,
            is_deleted=known.is_being_deleted,
            is_foreign=self._context.is_foreign(stored),
            log_starts=stored.log_starts,
            unrecognized=stored.others,
        )
        segments = {segment.id.id: segment for segment in known.segments.segments()}
        coverage = Coverage(segments.values(), log_start_offset or 0)
        listed: set[Uuid] = set()
        for objects in stored.segments:
            segment = segments.get(objects.id.id)
            if segment is not None and segment.start_offset != objects.start_offset:
                report.unrecognized += objects.objects.values()
                continue
            listed.add(objects.id.id)
            report.segments.append(self._verdict(objects, segment, known, coverage))
        unlisted = [segment for identity, segment in segments.items() if identity not in listed]
        report.segments += [self._verdict(None, segment, known, coverage) for segment in unlisted]
        return report

    def _verdict(
        self, objects: StoredSegment | None, segment: RemoteSegment | None, known: KnownPartition, coverage: Coverage
    ) -> AuditedSegment:
        context = self._context
        audited = classify(objects, segment, now_ms=context.now_ms(), grace_ms=context.grace_ms)
        if audited.finding is Finding.SUSPECT:
            return self._asked_for(audited, known)
        if objects is not None and audited.finding is Finding.ORPHAN and self._may_be_lost(objects, known, coverage):
            return replace(audited, finding=Finding.UNRECORDED)
        return audited

    def _asked_for(self, audited: AuditedSegment, known: KnownPartition) -> AuditedSegment:
        """Check a suspect segment object by object (point 2 of the theory in `reconcile.py`)."""
        assert audited.segment is not None, "only a known segment can be suspect"
        missing = tuple(suffix for suffix in audited.missing if not self._exists(audited.segment, suffix))
        if not missing:
            return replace(audited, finding=Finding.LIVE, missing=())
        now = self._journal.catch_up(known.partition).segments.get(audited.segment.id.id)
        if now is None or now.state is not SegmentState.COPY_FINISHED:
            return replace(audited, finding=Finding.DELETING, missing=missing)
        return replace(audited, finding=Finding.DANGLING, missing=missing)

    def _exists(self, segment: RemoteSegment, suffix: ObjectSuffix) -> bool:
        try:
            next(iter(self._store.get(self._keys.key(segment, suffix), 0, 0)), None)
        except ObjectNotFound:
            return False
        return True

    def _may_be_lost(self, objects: StoredSegment, known: KnownPartition, coverage: Coverage) -> bool:
        """Whether the metadata may have lost a segment that they do not know."""
        if not objects.has_records or known.is_being_deleted:
            return False
        if not known.has_events:
            return True
        try:
            return not coverage.holds(self._context.described(objects))
        except ObjectNotFound:
            return False
        except RemoteStorageError:
            return True


def summary(reports: Sequence[PartitionReport]) -> dict[Finding, int]:
    """Count segments by finding."""
    counts: dict[Finding, int] = dict.fromkeys(Finding, 0)
    for report in reports:
        for audited in report.segments:
            counts[audited.finding] += 1
    return counts
