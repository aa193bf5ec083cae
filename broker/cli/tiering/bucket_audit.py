"""An audit of a bucket against the cluster and the remote metadata, for `ottla remote verify` and `collect`."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from broker.cli.tiering.bucket import RemoteBucket
from broker.cli.tiering.cluster import Cluster
from protocol.primitives import Uuid, uuid_to_text
from storage.tiered.bucket.audit import Audit, AuditContext, PartitionReport
from storage.tiered.bucket.collection import Collection
from storage.tiered.bucket.listing import StoredPartition, StoredTopic, topic_directory
from storage.tiered.bucket.reconcile import AuditedSegment, Finding
from storage.tiered.bucket.segment_check import SegmentCheck
from storage.tiered.catalog.metadata_journal import MetadataJournal
from storage.tiered.format.topic_object import read_topic
from storage.tiered.object_store import ObjectInfo
from storage.tiered.segment_metadata import RemoteSegmentId, SegmentState
from storage.tiered.stores.unfinished_uploads import UnfinishedUpload, abandoned_uploads, abort


class BucketAudit:
    """A single-use audit. `gone` are ids of topics whose remaining objects may be removed: the topics never return."""

    def __init__(
        self,
        bucket: RemoteBucket,
        cluster: Cluster,
        journal: MetadataJournal,
        *,
        now_ms: Callable[[], int],
        grace_ms: int,
        gone: Iterable[Uuid] = (),
    ) -> None:
        self._bucket = bucket
        self._cluster = cluster
        self._journal = journal
        self._now_ms = now_ms
        self._grace_ms = grace_ms
        self._gone = frozenset(gone)
        self._owners: dict[Uuid, str | None] = {}
        context = AuditContext(
            now_ms=now_ms,
            grace_ms=grace_ms,
            log_start_offset=cluster.log_start_offset,
            described=bucket.reader.segment,
            is_foreign=self._is_foreign,
        )
        self._audit = Audit(bucket.store, bucket.keys, journal, context)

    @property
    def unrecognized(self) -> list[ObjectInfo]:
        """Objects outside any partition or topic; complete after `reports` is exhausted."""
        return self._audit.unrecognized

    def reports(self, topic: str | None) -> Iterator[PartitionReport]:
        return self._audit.partitions(topic)

    def _is_foreign(self, stored: StoredPartition) -> bool:
        """Return whether another cluster owns the partition; False for a partition that this cluster has taken over."""
        if self._cluster.has(stored.partition):
            return False
        try:
            owned = self._bucket.reader.log_start(stored)
        except ValueError:  # damaged: only a description of this cluster shows that the partition is not foreign
            return self._owner_of_topic(stored) != self._cluster.cluster_id
        owner = self._owner_of_topic(stored) if owned is None else owned.cluster_id
        return owner not in (None, self._cluster.cluster_id)

    def _owner_of_topic(self, stored: StoredPartition) -> str | None:
        topic_id, topic = stored.partition.topic_id, stored.partition.topic
        if topic_id not in self._owners:
            directory = topic_directory(self._bucket.keys, topic, topic_id)
            try:
                described = read_topic(self._bucket.store, directory)
            except ValueError:
                described = None
            self._owners[topic_id] = None if described is None else described.cluster_id
        return self._owners[topic_id]

    # ---- verify

    def deep_faults(self, report: PartitionReport) -> list[str]:
        """Read every live segment completely and return its faults."""
        check = SegmentCheck(self._bucket.reader, self._bucket.storage)
        return [
            f"{report.partition}: damaged: {verdict.segment.start_offset:020d}-"
            f"{uuid_to_text(verdict.segment.id.id)}: {fault}"
            for verdict in report.of(Finding.LIVE)
            if verdict.segment is not None and verdict.objects is not None
            for fault in check.faults(verdict.segment, verdict.objects)
        ]

    # ---- collect

    def removable(self, report: PartitionReport) -> list[AuditedSegment]:
        """Return the segments of a partition that `collect` would remove."""
        return [*report.collectable, *self._segments_of_gone_topic(report)]

    def collect(self, report: PartitionReport, on_removed: Callable[[AuditedSegment], None]) -> int:
        """Remove segments; return their number."""
        bucket = self._bucket
        collection = Collection(bucket.store, bucket.keys, self._journal, now_ms=self._now_ms, on_removed=on_removed)
        return collection.remove(report, self._segments_of_gone_topic(report))

    def remove(self, keys: Sequence[str]) -> None:
        if keys:
            self._bucket.store.delete(keys)

    def stale_log_starts(self, report: PartitionReport) -> list[str]:
        """Return the keys of log start objects of a deleted partition."""
        is_gone = report.is_deleted or report.partition.topic_id in self._gone
        if report.exists or report.is_foreign or not is_gone:
            return []
        return [info.key for info in report.log_starts if self._is_old(info)]

    def _segments_of_gone_topic(self, report: PartitionReport) -> list[AuditedSegment]:
        if report.exists or report.is_foreign or report.partition.topic_id not in self._gone:
            return []
        chosen = set(map(id, report.collectable))
        return [
            verdict for verdict in report.segments if verdict.age_ms >= self._grace_ms and id(verdict) not in chosen
        ]

    def stale_topic_objects(self) -> list[str]:
        """Return the keys of topic objects of deleted topics; complete after `reports` is exhausted."""
        return [info.key for topic in self._audit.topics for info in self._stale_objects(topic)]

    def _stale_objects(self, topic: StoredTopic) -> Sequence[ObjectInfo]:
        owner = self._owners.get(topic.topic_id)
        if topic.topic_id in self._cluster.topics.names or owner not in (None, self._cluster.cluster_id):
            return ()
        known = [each for each in self._journal.catch_up_all() if each.partition.topic_id == topic.topic_id]
        is_deleted = bool(known) and all(each.is_being_deleted for each in known)
        return [info for info in topic.objects if (is_deleted or topic.topic_id in self._gone) and self._is_old(info)]

    # ---- unfinished uploads

    def uploads(self, topic: str | None) -> Iterator[UnfinishedUpload]:
        """Yield abandoned multipart uploads."""
        bucket, begun_before_ms = self._bucket, self._now_ms() - self._grace_ms
        return abandoned_uploads(bucket.store, bucket.keys, topic, begun_before_ms, self._is_copied)

    def _is_copied(self, id: RemoteSegmentId) -> bool:
        """Whether a copy may be in progress: its lease was renewed within the grace time."""
        segment = self._journal.catch_up(id.partition).segments.get(id.id)
        if segment is None or segment.state is not SegmentState.COPY_STARTED:
            return False
        return self._now_ms() - segment.event_timestamp_ms < self._grace_ms

    def abort(self, upload: UnfinishedUpload) -> None:
        abort(self._bucket.store, upload)

    def _is_old(self, info: ObjectInfo) -> bool:
        return self._now_ms() - info.modified_ms >= self._grace_ms
