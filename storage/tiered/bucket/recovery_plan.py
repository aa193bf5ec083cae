"""How a topic comes back from a bucket: which events metadata lack, with which ids and epochs it begins again.

Pure. Three losses, one plan: where only metadata are lost, the topic is alive and nothing but events is wanted. A topic
that is lost, alone or with its cluster, is made again *under the id that it had*, since its objects lie under that id;
before, its events are published, so that its leaders find them when they begin. They begin above every leader epoch
that was ever seen, with no local log, after the last offset that the bucket has.

Everything here is derived from bucket, metadata and cluster anew each time. A recovery that is cut short and begun
again plans what is still to be done.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from protocol.primitives import Uuid, uuid_to_text
from storage.tiered.bucket.inventory import OffsetRange, PartitionInventory
from storage.tiered.bucket.reconcile import Coverage
from storage.tiered.catalog.metadata_journal import Event, KnownPartition
from storage.tiered.format.topic_object import TopicDescription
from storage.tiered.segment_metadata import RemoteSegment, SegmentState, SegmentUpdate, TopicIdPartition

REMOTE_STORAGE = "remote.storage.enable"
RETENTION_MS = "retention.ms"
DEFAULT_RETENTION_MS = 604_800_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInventory:
    """What the bucket has of one incarnation of a topic. `description_epoch` is -1 where nobody described it."""

    topic: str
    topic_id: Uuid
    partitions: Mapping[int, PartitionInventory]
    description: TopicDescription | None = None
    description_epoch: int = -1

    @property
    def cluster_ids(self) -> frozenset[str]:
        """Whose objects these are, as far as they say."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryOptions:
    """`above_holes`: begin above what is missing instead of refusing. `from_clusters` are known to be lost, so that
    their objects may be taken over.
    """

    now_ms: int
    cluster_id: str
    broker_id: int
    above_holes: bool = False
    from_clusters: frozenset[str] = frozenset()
    replication_factor: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """`events` are still to be published. The log goes from `log_start_offset` to `next_offset`.

    `raised_log_start` is to be written beside the segments first, so that the leader begins there.
    """

    partition: TopicIdPartition
    events: tuple[Event, ...]
    segment_count: int
    size_bytes: int
    log_start_offset: int
    next_offset: int
    raised_log_start: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """`exists`: under its id, so that only events are wanted. A plan with `refusals` is not to be carried out.

    `object_epoch` is that of what a recovery itself writes beside the segments; `leader_epoch` is above it.
    """

    topic: str
    topic_id: Uuid
    exists: bool
    partitions: tuple[PartitionPlan, ...]
    object_epoch: int
    leader_epoch: int
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


@dataclass(frozen=True, slots=True)
class ClusterTopics:
    """The topics of the cluster: their names by id, and the other way round."""

    names: Mapping[Uuid, str]
    ids: Mapping[str, Uuid]


def plan_topic(
    stored: TopicInventory,
    known: Mapping[int, KnownPartition],
    topics: ClusterTopics,
    options: RecoveryOptions,
) -> TopicPlan:
    """`known` is what metadata say of each of the topic's partitions, read after the bucket was listed."""
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
        object_epoch=stored.highest_epoch + 1,
        leader_epoch=stored.highest_epoch + 2,
        replication_factor=_factor(description, options),
        configs=configs,
        min_next_producer_id=1 + max([-1, *(each.highest_producer_id for each in stored.partitions.values())]),
        refusals=tuple(_refusals(stored, known, topics, options)),
        warnings=tuple([*_warnings(stored), *([] if exists else _expiring(stored, configs, options.now_ms))]),
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
    # The log of a topic that is alive has a history of its own, which decides about segments; else the bucket's does.
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
    """What metadata lack of whole segments, each segment's events one after another.

    `may_finish`: nobody is copying, so that a whole segment in COPY_STARTED is one that was not said to be finished.
    Of a segment that is known to be deleted nothing is said, nor, where metadata know others, of one whose offsets
    these have: it is more likely to be left of a deletion.
    """
    finished = [each for each in known.segments.segments() if each.state is SegmentState.COPY_FINISHED]
    coverage = Coverage(finished, 0)
    events: list[Event] = []
    for segment in segments:
        now = known.segments.get(segment.id.id)
        if now is None and not coverage.holds(segment.start_offset, segment.end_offset):
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
            f"{topic} ({shown_id}) belongs to cluster {named}: where that is lost for good, say --from-cluster {named}."
        )
    if any(each.is_being_deleted for each in known.values()):
        refusals.append(f"{topic} ({shown_id}) was deleted.")
    other = topics.ids.get(topic)
    if other is not None and other != stored.topic_id:
        refusals.append(
            f"{topic} exists with the id {uuid_to_text(other)}, and the bucket has {shown_id}: delete the one that"
            " exists, if it is the wrong one."
        )
    if stored.topic_id not in topics.names and not options.above_holes:
        refusals += [_hole(inventory) for inventory in stored.partitions.values() if inventory.holes]
    return refusals


def _hole(inventory: PartitionInventory) -> str:
    return (
        f"{inventory.partition} lacks the offsets {_ranges(inventory.holes)}: with --above-holes it begins at"
        f" {inventory.above_holes}, and what lies below is given up."
    )


def _ranges(holes: Sequence[OffsetRange]) -> str:
    return ", ".join(f"{hole.first} to {hole.last}" for hole in holes)


def _warnings(stored: TopicInventory) -> list[str]:
    warnings = [fault for number in sorted(stored.partitions) for fault in stored.partitions[number].faults]
    if stored.description is None:
        warnings.append(
            f"nobody described {stored.topic}: its partitions are taken to be {stored.partition_count}, its configs"
            " the defaults."
        )
    return warnings


def _expiring(stored: TopicInventory, configs: Mapping[str, str], now_ms: int) -> list[str]:
    """Time went on while the topic was lost, and retention does not wait."""
    text = configs.get(RETENTION_MS, str(DEFAULT_RETENTION_MS))
    retention_ms = int(text) if text.lstrip("-").isdigit() else DEFAULT_RETENTION_MS
    needed = [segment for inventory in stored.partitions.values() for segment in inventory.needed]
    old = [segment for segment in needed if segment.max_timestamp_ms < now_ms - retention_ms]
    if retention_ms < 0 or not old:
        return []
    return [
        f"{len(old)} of {len(needed)} segments are older than {RETENTION_MS}={retention_ms} and go as soon as the topic"
        f" is there again: --topic-config {RETENTION_MS}=-1 keeps them."
    ]
