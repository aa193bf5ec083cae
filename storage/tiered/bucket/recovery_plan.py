"""Plan to recover a topic from a bucket: missing metadata events, topic id and leader epochs.

Pure. Three losses lead to the same plan. If only metadata are lost, the topic is alive and needs only events. A topic
that was lost, alone or with its cluster, is created again *under its former topic id*, because its objects lie under
that id. Its events are published first, so that its leaders find them. The new leaders start above every leader epoch
found in the bucket, with an empty local log, after the last offset in the bucket.

A plan is derived from bucket, metadata and cluster each time, so an interrupted recovery plans only the rest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from protocol.ids import BrokerId, LeaderEpoch
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid, uuid_to_text
from storage.tiered.bucket.inventory import OffsetRange, PartitionInventory
from storage.tiered.bucket.reconcile import Coverage
from storage.tiered.catalog.metadata_journal import Event, KnownPartition
from storage.tiered.format.topic_object import TopicDescription
from storage.tiered.segment_metadata import RemoteSegment, SegmentState, SegmentUpdate, TopicIdPartition

REMOTE_STORAGE = "remote.storage.enable"
RETENTION_MS = "retention.ms"
DEFAULT_RETENTION_MS = 604_800_000


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class TopicInventory:
    """Bucket contents of one topic id. `description_epoch` is -1 if the topic has no description object."""

    topic: str
    topic_id: Uuid
    partitions: Mapping[int, PartitionInventory]
    description: TopicDescription | None = None
    description_epoch: int = -1

    @property
    def cluster_ids(self) -> frozenset[str]:
        """Ids of the clusters that wrote the objects, as far as recorded."""
        said = {inventory.cluster_id for inventory in self.partitions.values()}
        said |= {None if self.description is None else self.description.cluster_id}
        return frozenset(cluster_id for cluster_id in said if cluster_id is not None)

    @property
    def highest_epoch(self) -> int:
        return max([self.description_epoch, *(each.highest_epoch for each in self.partitions.values())])

    @property
    def partition_count(self) -> int:
        described = 0 if self.description is None else self.description.partition_count
        return max([described, *(number + 1 for number in self.partitions)])


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryOptions:
    """Operator's choices. `above_holes`: start above missing offsets instead of refusing. `from_clusters`: lost
    clusters whose objects may be taken over.
    """

    now_ms: int
    cluster_id: str
    broker_id: BrokerId
    above_holes: bool = False
    from_clusters: frozenset[str] = frozenset()
    replication_factor: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """Recovery of one partition: `events` to publish; the log spans `log_start_offset` to `next_offset`.

    `raised_log_start` is written beside the segments first, so that the leader starts there.
    """

    partition: TopicIdPartition
    events: tuple[Event, ...]
    segment_count: int
    size_bytes: int
    log_start_offset: int
    next_offset: int
    raised_log_start: int | None = None


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """Recovery of one topic. `exists`: the topic exists under its id and needs only events. A plan with `refusals` must
    not be executed.

    `object_epoch` stamps the objects that the recovery writes; `leader_epoch` is above it.
    """

    topic: str
    topic_id: Uuid
    exists: bool
    partitions: tuple[PartitionPlan, ...]
    object_epoch: LeaderEpoch
    leader_epoch: LeaderEpoch
    replication_factor: int
    configs: Mapping[str, str]
    min_next_producer_id: int
    refusals: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def event_count(self) -> int:
        return sum(len(each.events) for each in self.partitions)

    @property
    def is_done(self) -> bool:
        return self.exists and not self.event_count


@lazy_dataclass(frozen=True, slots=True)
class ClusterTopics:
    """Topics of the cluster, by id and by name."""

    names: Mapping[Uuid, str]
    ids: Mapping[str, Uuid]


def plan_topic(
    stored: TopicInventory,
    known: Mapping[int, KnownPartition],
    topics: ClusterTopics,
    options: RecoveryOptions,
) -> TopicPlan:
    """Return the plan. `known` are the metadata of the topic's partitions, read after the bucket was listed."""
    exists = stored.topic_id in topics.names
    description = stored.description
    numbers = range(stored.partition_count)
    plans = tuple(_partition(stored, number, known.get(number), options, exists=exists) for number in numbers)
    described = {} if description is None else description.configs
    configs = {**described, REMOTE_STORAGE: "true", **options.configs}
    return TopicPlan(
        topic=stored.topic,
        topic_id=stored.topic_id,
        exists=exists,
        partitions=plans,
        object_epoch=LeaderEpoch(stored.highest_epoch + 1),
        leader_epoch=LeaderEpoch(stored.highest_epoch + 2),
        replication_factor=_factor(description, options),
        configs=configs,
        min_next_producer_id=1 + max([-1, *(each.highest_producer_id for each in stored.partitions.values())]),
        refusals=tuple(_refusals(stored, known, topics, options)),
        warnings=tuple(
            [*_warnings(stored, exists=exists), *([] if exists else _expiring(stored, configs, options.now_ms))]
        ),
    )


def _factor(description: TopicDescription | None, options: RecoveryOptions) -> int:
    if options.replication_factor is not None:
        return options.replication_factor
    return -1 if description is None else description.replication_factor


def _partition(
    stored: TopicInventory,
    number: int,
    known: KnownPartition | None,
    options: RecoveryOptions,
    *,
    exists: bool,
) -> PartitionPlan:
    inventory = stored.partitions.get(number)
    partition = TopicIdPartition(stored.topic_id, stored.topic, number)
    if inventory is None:
        return PartitionPlan(
            partition=partition, events=(), segment_count=0, size_bytes=0, log_start_offset=0, next_offset=0
        )
    # An existing topic has a leader-epoch history of its own, which decides about segments; else the bucket's does.
    segments = inventory.segments if exists else inventory.needed
    log_start_offset = inventory.log_start_offset if exists else inventory.above_holes
    return PartitionPlan(
        partition=partition,
        events=tuple(missing_events(segments, known or KnownPartition(partition), options, may_finish=not exists)),
        segment_count=len(segments),
        size_bytes=sum(segment.size_bytes for segment in segments),
        log_start_offset=log_start_offset,
        next_offset=max(inventory.next_offset, log_start_offset),
        raised_log_start=log_start_offset if log_start_offset > inventory.log_start_offset else None,
    )


def missing_events(
    segments: Sequence[RemoteSegment], known: KnownPartition, options: RecoveryOptions, *, may_finish: bool
) -> list[Event]:
    """Return the events that metadata lack for complete segments, grouped by segment.

    `may_finish`: no copy is running, so a complete segment in COPY_STARTED lacks its COPY_FINISHED. Deleted segments
    get no events. Neither do unknown segments whose records known segments hold: they are probably left from a
    deletion. The same offsets of another history are other records.
    """
    finished = [each for each in known.segments.segments() if each.state is SegmentState.COPY_FINISHED]
    coverage = Coverage(finished, 0)
    events: list[Event] = []
    for segment in segments:
        now = known.segments.get(segment.id.id)
        if now is None and not coverage.holds(segment):
            events.append(replace(segment, state=SegmentState.COPY_STARTED, custom_metadata=None))
        elif now is None or not may_finish or now.state is not SegmentState.COPY_STARTED:
            continue
        events.append(
            SegmentUpdate(
                segment.id, SegmentState.COPY_FINISHED, options.now_ms, options.broker_id, segment.custom_metadata
            )
        )
    return events


def _refusals(
    stored: TopicInventory,
    known: Mapping[int, KnownPartition],
    topics: ClusterTopics,
    options: RecoveryOptions,
) -> list[str]:
    topic, shown_id = stored.topic, uuid_to_text(stored.topic_id)
    refusals = []
    strangers = stored.cluster_ids - {options.cluster_id} - options.from_clusters
    if strangers:
        named = ", ".join(sorted(strangers))
        refusals.append(
            f"{topic} ({shown_id}) belongs to cluster {named}; if that cluster is lost for good, add"
            f" --from-cluster {named}."
        )
    if any(each.is_being_deleted for each in known.values()):
        refusals.append(f"{topic} ({shown_id}) was deleted.")
    other = topics.ids.get(topic)
    if other is not None and other != stored.topic_id:
        refusals.append(
            f"{topic} exists with the id {uuid_to_text(other)}, and the bucket has {shown_id}: delete the existing"
            " topic if it is the wrong one."
        )
    if stored.topic_id not in topics.names and not options.above_holes:
        refusals += [_hole(inventory) for inventory in stored.partitions.values() if inventory.holes]
    if stored.topic_id not in topics.names:
        faults = (inventory.log_start_fault for inventory in stored.partitions.values())
        refusals += [f"{fault}; delete the object to recover deleted records, too." for fault in faults if fault]
    return refusals


def _hole(inventory: PartitionInventory) -> str:
    return (
        f"{inventory.partition} lacks the offsets {_ranges(inventory.holes)}; --above-holes starts the log at"
        f" {inventory.above_holes} and gives up everything below."
    )


def _ranges(holes: Sequence[OffsetRange]) -> str:
    return ", ".join(f"{hole.first} to {hole.last}" for hole in holes)


def _warnings(stored: TopicInventory, *, exists: bool) -> list[str]:
    partitions = [stored.partitions[number] for number in sorted(stored.partitions)]
    warnings = [fault for partition in partitions for fault in partition.faults]
    if exists:
        warnings += [partition.log_start_fault for partition in partitions if partition.log_start_fault]
    if stored.description is None:
        warnings.append(
            f"{stored.topic} has no description object; the recovery assumes {stored.partition_count} partitions and"
            " default configs."
        )
    return warnings


def _expiring(stored: TopicInventory, configs: Mapping[str, str], now_ms: int) -> list[str]:
    """Warn of segments that retention deletes at once, because time passed while the topic was lost."""
    text = configs.get(RETENTION_MS, str(DEFAULT_RETENTION_MS))
    retention_ms = int(text) if text.lstrip("-").isdigit() else DEFAULT_RETENTION_MS
    needed = [segment for inventory in stored.partitions.values() for segment in inventory.needed]
    old = [segment for segment in needed if segment.max_timestamp_ms < now_ms - retention_ms]
    if retention_ms < 0 or not old:
        return []
    return [
        f"{len(old)} of {len(needed)} segments are older than {RETENTION_MS}={retention_ms} and are deleted as soon as"
        f" the topic exists again; --topic-config {RETENTION_MS}=-1 keeps them."
    ]
