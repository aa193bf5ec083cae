"""Recovery plans: missing events, ids and epochs, refusals, and repeatability."""

from dataclasses import replace

import pytest

from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Uuid, uuid_to_text
from storage.tiered.bucket.recovery_plan import ClusterTopics, RecoveryOptions, TopicPlan, plan_topic
from storage.tiered.bucket.topic_inventory import incarnations, topics_in
from storage.tiered.catalog.metadata_journal import Event, KnownPartition
from storage.tiered.format.log_start_object import LogStart, LogStartWriter, encode_log_start, log_start_object
from storage.tiered.format.object_keys import ObjectSuffix
from storage.tiered.format.topic_object import TopicDescription, TopicWriter
from storage.tiered.segment_metadata import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)
from tests.storage.tiered.bucket.test_inventory import FOO, KEYS, Bucket

NOW_MS = 9_000
EMPTY = ClusterTopics({}, {})
ALIVE = ClusterTopics({FOO.topic_id: "foo"}, {"foo": FOO.topic_id})
OPTIONS = RecoveryOptions(now_ms=NOW_MS, cluster_id="c", broker_id=BrokerId(-1))
DIRECTORY = KEYS.partition(FOO).removesuffix("3/")


class RecoveryHarness(Bucket):
    """A bucket and its metadata."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[int, KnownPartition] = {}

    def publish_events(self, *events: Event) -> None:
        for event in events:
            partition = event.partition if isinstance(event, PartitionDelete) else event.id.partition
            self.known.setdefault(partition.partition, KnownPartition(partition)).apply(event)

    def describe(self, *, partitions: int = 5, cluster_id: str = "c", term: int = 4) -> None:
        description = TopicDescription(
            topic="foo",
            topic_id=FOO.topic_id,
            partition_count=partitions,
            replication_factor=3,
            cluster_id=cluster_id,
            metadata_offset=1,
            configs={"retention.ms": "77000"},
        )
        TopicWriter(self.store, DIRECTORY, leader_epoch=term).write(description)

    def plan(self, topics: ClusterTopics = EMPTY, options: RecoveryOptions = OPTIONS) -> TopicPlan:
        [evidence] = topics_in(self.store, KEYS, self.reader)
        return plan_topic(evidence, self.known, topics, options)

    def publish(self, plan: TopicPlan) -> None:
        for partition in plan.partitions:
            self.publish_events(*partition.events)

    def live(self, partition: TopicIdPartition = FOO) -> list[RemoteSegment]:
        return self.known[partition.partition].segments.segments()


@pytest.fixture
def harness() -> RecoveryHarness:
    return RecoveryHarness()


def test_lost_metadata_of_existing_topic_are_published_again(harness: RecoveryHarness) -> None:
    segments = [harness.copy(0, 9, [(0, 0)]), harness.copy(10, 19, [(0, 10)], [(0, 0)])]
    plan = harness.plan(ALIVE)
    assert plan.exists
    assert plan.event_count == 4
    harness.publish(plan)
    assert harness.live() == [
        replace(segment, broker_id=BrokerId(-1), event_timestamp_ms=NOW_MS) for segment in segments
    ]


def test_repeated_recovery_plans_no_events(harness: RecoveryHarness) -> None:
    harness.copy(0, 9, [(0, 0)])
    harness.publish(harness.plan(ALIVE))
    assert harness.plan(ALIVE).is_done


def test_running_copy_is_left_to_its_leader(harness: RecoveryHarness) -> None:
    segment = harness.copy(0, 9, [(0, 0)])
    harness.publish_events(replace(segment, state=SegmentState.COPY_STARTED))
    assert harness.plan(ALIVE).event_count == 0
    assert harness.plan(EMPTY).event_count == 1, "a lost topic has no leader that copies"


def test_segment_being_deleted_is_not_recovered(harness: RecoveryHarness) -> None:
    segment = harness.copy(0, 9, [(0, 0)])
    harness.publish_events(
        replace(segment, state=SegmentState.COPY_STARTED),
        SegmentUpdate(segment.id, SegmentState.DELETE_STARTED, 0, BrokerId(1)),
    )
    assert harness.plan(ALIVE).event_count == 0
    assert harness.plan(EMPTY).event_count == 0


def test_leftover_of_covered_offsets_is_not_recovered(harness: RecoveryHarness) -> None:
    known = harness.copy(0, 9, [(0, 0)])
    harness.publish(harness.plan(ALIVE))
    harness.copy(0, 9, [(0, 0)])
    harness.copy(10, 19, [(0, 10)], [(0, 0)])
    plan = harness.plan(ALIVE)
    assert plan.event_count == 2
    harness.publish(plan)
    assert [(each.start_offset, each.end_offset) for each in harness.live()] == [(0, 9), (10, 19)]
    assert harness.live()[0].id == known.id


def test_segment_of_another_history_is_recovered_beside_a_known_one(harness: RecoveryHarness) -> None:
    """The known segment has the same offsets, written by another leader after an unclean election."""
    harness.copy(0, 9, [(0, 0), (1, 3)])
    harness.publish(harness.plan(ALIVE))
    lost = harness.copy(0, 9, [(0, 0), (2, 5)])
    plan = harness.plan(ALIVE)
    assert plan.event_count == 2
    harness.publish(plan)
    assert lost.id in {segment.id for segment in harness.live()}


def test_existing_topic_recovers_segments_of_all_lineages(harness: RecoveryHarness) -> None:
    harness.copy(0, 2, [(0, 0)])
    harness.copy(0, 1, [(0, 0), (1, 1)])
    assert harness.plan(ALIVE).event_count == 4
    assert harness.plan(EMPTY).event_count == 2


def test_lost_topic_is_recreated_under_its_id_above_all_epochs(harness: RecoveryHarness) -> None:
    harness.copy(5, 9, [(2, 5)], [(0, 0), (2, 5)])
    harness.copy(0, 3, [(6, 0)], partition=FOO._replace(partition=1))
    harness.describe(term=11)
    plan = harness.plan()
    assert not plan.exists
    assert (plan.topic, plan.topic_id) == ("foo", FOO.topic_id)
    assert (plan.object_epoch, plan.leader_epoch) == (12, 13)
    assert plan.replication_factor == 3
    assert plan.configs == {"retention.ms": "77000", "remote.storage.enable": "true"}
    assert [(each.log_start_offset, each.next_offset) for each in plan.partitions] == [
        (0, 0),
        (0, 4),
        (0, 0),
        (5, 10),
        (0, 0),
    ]
    assert (plan.refusals, plan.warnings) == ((), ())


def test_topic_without_description_gets_defaults_and_warning(harness: RecoveryHarness) -> None:
    harness.copy(0, 9, [(0, 0)])
    plan = harness.plan()
    assert len(plan.partitions) == 4
    assert plan.configs == {"remote.storage.enable": "true"}
    assert len(plan.warnings) == 1


def test_options_override_the_description(harness: RecoveryHarness) -> None:
    harness.copy(0, 9, [(0, 0)])
    harness.describe()
    plan = harness.plan(options=replace(OPTIONS, replication_factor=1, configs={"retention.ms": "-1"}))
    assert (plan.replication_factor, plan.configs["retention.ms"]) == (1, "-1")


def test_plan_warns_of_segments_beyond_retention(harness: RecoveryHarness) -> None:
    """The records have timestamps 500 ms after 1970."""
    harness.copy(0, 9, [(0, 0)])
    harness.describe()
    late = replace(OPTIONS, now_ms=77_501)
    assert harness.plan(options=replace(late, now_ms=77_500)).warnings == ()
    [warning] = harness.plan(options=late).warnings
    assert warning.startswith("1 of 1 segments are older than retention.ms=77000")
    assert harness.plan(options=replace(late, configs={"retention.ms": "-1"})).warnings == ()
    assert harness.plan(ALIVE, late).warnings == ()


def test_plan_keeps_log_start_offset(harness: RecoveryHarness) -> None:
    harness.copy(0, 9, [(0, 0)])
    LogStartWriter(
        harness.store,
        KEYS.partition(FOO),
        leader_epoch=LeaderEpoch(3),
        cluster_id="c",
        broker_id=BrokerId(1),
        interval_ms=0,
    ).write(4, 0)
    plan = harness.plan()
    assert (plan.partitions[3].log_start_offset, plan.partitions[3].raised_log_start) == (4, None)
    assert plan.object_epoch == 4


def test_damaged_log_start_is_refused_for_a_lost_topic(harness: RecoveryHarness) -> None:
    """A guessed log start would bring deleted records back; the epoch in the key still counts."""
    harness.copy(0, 9, [(0, 0)])
    log_start = log_start_object(harness.store, KEYS.partition(FOO))
    said = LogStart(
        log_start_offset=4, leader_epoch=LeaderEpoch(3), cluster_id="c", broker_id=BrokerId(1), timestamp_ms=0
    )
    log_start.write(3, encode_log_start(said).replace(b'"logStartOffset":4', b'"logStartOffset":0'))
    plan = harness.plan()
    assert f"{log_start.key(3)}: not a log start object, or a damaged one" in plan.refusals[0]
    assert plan.object_epoch == 4
    assert (harness.plan(ALIVE).refusals, len(harness.plan(ALIVE).warnings)) == ((), len(plan.warnings) + 1)


def test_holes_are_refused_without_above_holes(harness: RecoveryHarness) -> None:
    harness.copy(0, 9, [(0, 0)])
    harness.copy(20, 29, [(0, 20)], [(0, 0)])
    assert "lacks the offsets 10 to 19" in harness.plan().refusals[0]
    assert harness.plan(ALIVE).refusals == ()
    plan = harness.plan(options=replace(OPTIONS, above_holes=True))
    assert plan.refusals == ()
    assert (plan.partitions[3].log_start_offset, plan.partitions[3].raised_log_start) == (20, 20)


def test_objects_of_another_cluster_need_from_cluster(harness: RecoveryHarness) -> None:
    harness.copy(0, 9, [(0, 0)])
    harness.describe(cluster_id="elsewhere")
    assert "--from-cluster elsewhere" in harness.plan().refusals[0]
    assert harness.plan(options=replace(OPTIONS, from_clusters=frozenset({"elsewhere"}))).refusals == ()


@pytest.mark.parametrize("state", PartitionDeleteState)
def test_deleted_topic_is_not_restored(harness: RecoveryHarness, state: PartitionDeleteState) -> None:
    harness.copy(0, 9, [(0, 0)])
    harness.publish_events(PartitionDelete(FOO, state, 0, BrokerId(1)))
    assert "was deleted" in harness.plan().refusals[0]


def test_name_of_an_existing_topic_is_refused(harness: RecoveryHarness) -> None:
    harness.copy(0, 9, [(0, 0)])
    other = Uuid(bytes(15) + b"\x55")
    [refusal] = harness.plan(ClusterTopics({other: "foo"}, {"foo": other})).refusals
    assert uuid_to_text(other) in refusal


def test_inventory_lists_all_topic_ids_of_a_name(harness: RecoveryHarness) -> None:
    other = FOO._replace(topic_id=Uuid(bytes(15) + b"\x55"))
    harness.copy(0, 9, [(0, 0)])
    harness.copy(0, 9, [(0, 0)], partition=other)
    harness.copy(0, 9, [(0, 0)], partition=FOO._replace(topic="bar"), objects=(ObjectSuffix.LOG,))
    assert incarnations(harness.store, KEYS) == {
        "foo": {FOO.topic_id, other.topic_id},
        "bar": {FOO.topic_id},
    }
    assert len(list(topics_in(harness.store, KEYS, harness.reader, "foo"))) == 2
