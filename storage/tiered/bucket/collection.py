"""Deletion of the objects that an audit found to be left over.

Metadata are read again right before each deletion, so a segment that became known meanwhile stays. The manifest of a
segment is deleted first: an interrupted pass leaves no segment that looks complete. Every step is idempotent.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from storage.tiered.bucket.audit import PartitionReport
from storage.tiered.bucket.listing import DELETION_ORDER
from storage.tiered.bucket.reconcile import AuditedSegment
from storage.tiered.catalog.metadata_journal import MetadataJournal
from storage.tiered.format.object_keys import ObjectKeys
from storage.tiered.object_store import ObjectStore
from storage.tiered.segment_metadata import TOOL_BROKER_ID, RemoteSegment, SegmentState, SegmentUpdate, TopicIdPartition

SEGMENTS_AT_ONCE = 250
"""Segments per batch: three objects each, and a store deletes 1000 keys per request. Bounds the age of the metadata."""


class Collection:
    """Deletes segments of audited partitions; `on_removed` receives each deleted segment."""

    def __init__(
        self,
        store: ObjectStore,
        keys: ObjectKeys,
        journal: MetadataJournal,
        *,
        now_ms: Callable[[], int],
        on_removed: Callable[[AuditedSegment], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._keys = keys
        self._journal = journal
        self._now_ms = now_ms
        self._on_removed = on_removed

    def remove(self, report: PartitionReport, also: Sequence[AuditedSegment] = ()) -> int:
        """Delete the collectable segments of a partition, and those in `also`; return their number.

        Raises the errors of store and metadata; the next pass resumes where this one stopped.
        """
        audited = [*report.collectable, *also]
        orphans = [each for each in audited if each.segment is None]
        known = [each for each in audited if each.segment is not None]
        count = sum(self._remove_unknown(report.partition, part) for part in _parts(orphans))
        return count + sum(self._remove_known(report.partition, part) for part in _parts(known))

    def _remove_unknown(self, partition: TopicIdPartition, audited: Sequence[AuditedSegment]) -> int:
        segments = self._journal.catch_up(partition).segments
        objects = [each.objects for each in audited if each.objects and segments.get(each.objects.id.id) is None]
        for suffix in DELETION_ORDER:
            self._delete(stored.objects[suffix].key for stored in objects if suffix in stored.objects)
        kept = {stored.id for stored in objects}
        self._report(each for each in audited if each.objects and each.objects.id in kept)
        return len(objects)

    def _remove_known(self, partition: TopicIdPartition, audited: Sequence[AuditedSegment]) -> int:
        """Delete known segments: publish DELETE_STARTED unless it is there. Segments with a later event are kept."""
        known = [each.segment for each in audited if each.segment]
        events = {segment.id: (segment.state, segment.event_timestamp_ms) for segment in known}
        same = [
            each for each in self._now(partition, known) if (each.state, each.event_timestamp_ms) == events[each.id]
        ]
        begin = [each for each in same if each.state is not SegmentState.DELETE_STARTED]
        self._publish(partition, begin, SegmentState.DELETE_STARTED)
        doomed = [each for each in self._now(partition, known) if each.state is SegmentState.DELETE_STARTED]
        for suffix in DELETION_ORDER:
            self._delete(self._keys.key(segment, suffix) for segment in doomed)
        self._publish(partition, doomed, SegmentState.DELETE_FINISHED)
        gone = {segment.id for segment in doomed}
        self._report(each for each in audited if each.segment and each.segment.id in gone)
        return len(doomed)

    def _now(self, partition: TopicIdPartition, known: Sequence[RemoteSegment]) -> list[RemoteSegment]:
        """Return the present metadata of the segments; omit segments that are gone."""
        segments = self._journal.catch_up(partition).segments
        return [now for segment in known if (now := segments.get(segment.id.id)) is not None]

    def _publish(self, partition: TopicIdPartition, segments: Sequence[RemoteSegment], state: SegmentState) -> None:
        if segments:
            now_ms = self._now_ms()
            events = [
                SegmentUpdate(
                    each.id, state, now_ms, TOOL_BROKER_ID, only_unfinished=each.state is SegmentState.COPY_STARTED
                )
                for each in segments
            ]
            self._journal.publish(partition, events)

    def _delete(self, keys: Iterable[str]) -> None:
        if doomed := list(keys):
            self._store.delete(doomed)

    def _report(self, audited: Iterable[AuditedSegment]) -> None:
        for each in audited:
            self._on_removed(each)


def _parts(audited: Sequence[AuditedSegment]) -> Iterator[list[AuditedSegment]]:
    iterator = iter(audited)
    while part := list(islice(iterator, SEGMENTS_AT_ONCE)):
        yield part
