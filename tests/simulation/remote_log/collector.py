"""`ottla remote collect` in a history: an audit, and later the removal of its findings."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from protocol.ids import BrokerId
from storage.tiered.bucket.audit import Audit, AuditContext, PartitionReport
from storage.tiered.bucket.collection import Collection
from storage.tiered.bucket.listing import StoredPartition, walk
from storage.tiered.bucket.reconcile import AuditedSegment, Finding
from storage.tiered.bucket.recovery_plan import ClusterTopics, RecoveryOptions, TopicInventory, plan_topic
from storage.tiered.catalog.metadata_journal import Event, KnownPartition
from storage.tiered.errors import ObjectStoreError, RemoteStorageError
from storage.tiered.format.object_keys import ObjectSuffix
from storage.tiered.object_store import ObjectStore
from storage.tiered.segment_metadata import RemoteSegment, SegmentState, TopicIdPartition
from tests.simulation.remote_log.metadata import PARTITION
from tests.simulation.remote_log.state import CLUSTER_ID, State, records_of
from tests.support.fakes.memory_remote_metadata import RemoteMetadataLog
from tests.support.harnesses.remote_log_harness import TOPIC, TOPIC_ID

_EXPECTED = (Finding.LIVE, Finding.DANGLING)
Publish = Callable[[Event, "asyncio.Future[None]"], None]


class Journal:
    """A MetadataJournal over the shared metadata."""

    def __init__(self, metadata: RemoteMetadataLog, publish: Publish) -> None:
        self._metadata = metadata
        self._publish = publish

    def catch_up(self, partition: TopicIdPartition) -> KnownPartition:
        known = KnownPartition(partition)
        known.segments = self._metadata.cache(partition)
        known.has_events = bool(self._metadata.events)
        return known

    def catch_up_all(self) -> Iterable[KnownPartition]:
        return [self.catch_up(PARTITION)]

    def publish(self, partition: TopicIdPartition, events: Sequence[Event]) -> None:
        """Publish an event; an invalid transition has no effect."""
        for event in events:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._publish(event, done)
            done.exception()


class Collector:
    """The collector; `store` is its connection to the objects."""

    def __init__(self, state: State, store: ObjectStore, journal: Journal, now_ms: Callable[[], int]) -> None:
        self._state = state
        self._store = store
        self._journal = journal
        self._now_ms = now_ms
        self._reader = state.weather.bucket_reader(store)
        self._reports: list[PartitionReport] = []

    def audit(self) -> list[PartitionReport]:
        """Audit, if a leader provides the log start offset. An existing object must not be reported as missing."""
        self._reports = []
        if self._state.leader is None:
            return []
        self._state.counts.add("audits")
        try:
            self._reports = list(
                Audit(self._store, self._state.weather.keys, self._journal, self._context()).partitions()
            )
        except (ObjectStoreError, RemoteStorageError) as error:
            self._state.counts.add("audits that failed")
            self._state.note(f"audit failed: {error}")
        for report in self._reports:
            for verdict in report.of(Finding.DANGLING):
                if verdict.segment is not None and not self._state.weather.has_lost(verdict.segment):
                    self._state.violated("AuditsAreRight", f"{verdict.segment} is reported to lack {verdict.missing}")
        return self._reports

    def remove(self) -> None:
        """Remove what the last audit found to be unreferenced, and check that no record is lost with it.

        Records below a log start offset are gone for good: a leader that does not know the offset cannot read them.
        """
        weather = self._state.weather
        stored = [each for each in self._state.unrecorded if weather.has(each)]
        self._remove()
        for segment in stored:
            if not weather.has(segment):
                self._check_other_copies(segment)
                below = {each for each in records_of(segment) if each[1] < self._state.gone_below}
                self._state.written_off |= below

    def _check_other_copies(self, removed: RemoteSegment) -> None:
        """Check that the store has another copy of each record that no broker has deleted, by epoch and offset."""
        state, weather = self._state, self._state.weather
        missing = {each for each in records_of(removed) if each[1] >= state.gone_below} - state.deleted
        finished = [each for each in state.bucket.segments() if each.state is SegmentState.COPY_FINISHED]
        for other in (*finished, *state.unrecorded):
            if other.id != removed.id and missing and (weather.has(other) or weather.has_lost(other)):
                missing -= records_of(other)
        if missing:
            text = f"{removed} is collected, and no other segment has the records {sorted(missing)[:3]}"
            state.violated("CollectionsKeepRecords", text)

    def _remove(self) -> None:
        keys = self._state.weather.keys
        collection = Collection(self._store, keys, self._journal, now_ms=self._now_ms)
        try:
            for report in self._reports:
                self._state.counts.add("segments collected", collection.remove(report))
        except ObjectStoreError as error:
            self._state.note(f"collection failed: {error}")
        self._reports = []

    def recover(self) -> None:
        """Recover lost metadata, as `ottla remote recover --metadata-only` does."""
        state, keys = self._state, self._state.weather.keys
        try:
            stored = [each for each in walk(self._store, keys, None) if isinstance(each, StoredPartition)]
            inventories = {each.partition.partition: self._reader.inventory(each) for each in stored}
        except (ObjectStoreError, RemoteStorageError) as error:
            state.note(f"recovery failed: {error}")
            return
        inventory = TopicInventory(topic=TOPIC, topic_id=TOPIC_ID, partitions=inventories)
        known = {PARTITION.partition: self._journal.catch_up(PARTITION)}
        options = RecoveryOptions(now_ms=self._now_ms(), cluster_id=CLUSTER_ID, broker_id=BrokerId(-1))
        plan = plan_topic(inventory, known, ClusterTopics({TOPIC_ID: TOPIC}, {TOPIC: TOPIC_ID}), options)
        if plan.refusals:  # a log start object was damaged on the way, and has no checksum
            assert state.weather.failing, plan.refusals
            state.note(f"recovery refused: {plan.refusals}")
            return
        for partition in plan.partitions:
            self._journal.publish(PARTITION, partition.events)
            state.note(f"recovery of metadata: {len(partition.events)} events")
        state.counts.add("metadata recoveries")

    def check_in_order(self) -> None:
        """Check that a collection without faults leaves only losses of the store."""
        for report in self.audit():
            odd = [each for each in report.segments if each.finding not in _EXPECTED and not self._is_damaged(each)]
            if odd or report.unrecognized:
                self._state.violated("AuditsAreRight", f"after a collection: {odd}, {report.unrecognized}")

    def _is_damaged(self, audited: AuditedSegment) -> bool:
        """Whether the store has damaged an object, so that an operator has to decide."""
        objects = () if audited.objects is None else audited.objects.objects.values()
        stems = {each.key.rpartition(".")[0] for each in objects}
        return self._state.weather.lost_any(f"{stem}.{suffix.value}" for stem in stems for suffix in ObjectSuffix)

    def _context(self) -> AuditContext:
        leader = self._state.leader
        assert leader is not None
        start = leader.log.log_start_offset
        return AuditContext(
            now_ms=self._now_ms,
            grace_ms=self._state.settings.grace_ms,
            log_start_offset=lambda partition: start,
            described=self._reader.segment,
        )
