"""Remote metadata in a topic, with changing leaders, logs and lost responses (`broker.runtime.remote_metadata`)."""

import asyncio
import random
from collections.abc import Coroutine, Mapping
from typing import Any

import pytest

from broker.metadata.image.config_image import ConfigResource, ResourceType, config_record
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE, Provenance
from broker.runtime.remote_metadata.settings import parse_remote_metadata_settings
from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Uuid
from storage.files import write_file
from storage.tiered.catalog.metadata_partitioner import metadata_partition
from storage.tiered.catalog.metadata_records import encode_event
from storage.tiered.catalog.metadata_snapshot import snapshot_path
from storage.tiered.errors import InvalidSegmentTransition, RemoteMetadataNotReady
from storage.tiered.remote_metadata import RemoteLogMetadataManager
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
from tests.support.fakes.manual_loop import ManualLoop
from tests.support.fakes.metadata_topic import Faults, MetadataTopic
from tests.support.harnesses.metadata_brokers import DIRECTORY, MetadataBroker, future_of

TOPIC_ID = Uuid(bytes(range(16)))
COUNT = 2
PARTITION = TopicIdPartition(TOPIC_ID, "orders", 0)
NUMBER = metadata_partition(PARTITION, COUNT)
SIBLING = next(
    one
    for index in range(1, 20)
    if metadata_partition(one := TopicIdPartition(TOPIC_ID, "orders", index), COUNT) == NUMBER
)
FINISHED, DELETING, DELETED = SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED


def segment(number: int, partition: TopicIdPartition = PARTITION) -> RemoteSegment:
    return RemoteSegment(
        id=RemoteSegmentId(partition, Uuid(number.to_bytes(16, "big"))),
        start_offset=number * 10,
        end_offset=number * 10 + 9,
        max_timestamp_ms=1,
        broker_id=BrokerId(1),
        event_timestamp_ms=2,
        size_bytes=3,
        leader_epochs=(SegmentEpoch(LeaderEpoch(0), number * 10),),
    )


def update(known: RemoteSegment, state: SegmentState) -> SegmentUpdate:
    return SegmentUpdate(known.id, state, 5, BrokerId(1))


def drive(closing: Coroutine[Any, Any, None], loop: ManualLoop) -> None:
    """Run a coroutine to its end."""
    for _ in range(100):
        try:
            closing.send(None)
        except StopIteration:
            return
        loop.run_soon()
    raise AssertionError("it does not end")


class Cluster:
    """A metadata topic, and the brokers 1 and 2."""

    def __init__(
        self, settings: Mapping[str, str] | None = None, faults: Faults | None = None, *, early_s: float = 0.0
    ) -> None:
        self.loop = ManualLoop(early_s)
        self.topic = MetadataTopic(self.loop, COUNT, [1, 2], faults=faults, rng=random.Random(1))
        self.topic.publish_image()
        self.here, self.there = (MetadataBroker(self.topic, number, settings) for number in (1, 2))
        for broker in (self.here, self.there):
            broker.see()

    @property
    def log(self) -> Any:
        return self.topic.partitions[NUMBER]

    def assign(self, *brokers: MetadataBroker) -> None:
        for broker in brokers:
            broker.manager.assign([PARTITION], [])
        self.loop.advance(1)

    def publish(self, broker: MetadataBroker, *events: RemoteSegment | SegmentUpdate | PartitionDelete) -> None:
        """Publish events one after another, each until it is done."""
        for event in events:
            future = self.begin(broker, event)
            self.loop.advance(2)
            assert future.done()
            future.result()

    def begin(
        self, broker: MetadataBroker, event: RemoteSegment | SegmentUpdate | PartitionDelete
    ) -> "asyncio.Future[None]":
        match event:
            case RemoteSegment():
                return future_of(broker.manager.add(event))
            case SegmentUpdate():
                return future_of(broker.manager.update(event))
            case _:
                return future_of(broker.manager.delete_partition(event))

    def elect(self, leader: int | None, *seers: MetadataBroker) -> None:
        self.topic.elect(NUMBER, leader)
        self.topic.publish_image()
        for broker in seers:
            broker.see()


def test_event_of_one_broker_reaches_all() -> None:
    cluster = Cluster()
    managers: list[RemoteLogMetadataManager] = [cluster.here.manager, cluster.there.manager]
    cluster.assign(cluster.here, cluster.there)
    assert all(manager.is_ready(PARTITION) for manager in managers)
    cluster.publish(cluster.here, segment(1), update(segment(1), FINISHED))
    for manager in managers:
        assert [one.state for one in manager.segments(PARTITION)] == [FINISHED]
        found = manager.segment_for(PARTITION, LeaderEpoch(0), 15)
        assert found is not None
        assert found.id == segment(1).id
        assert manager.highest_offset(PARTITION, LeaderEpoch(0)) == 19
        assert manager.next_with_aborted(PARTITION, LeaderEpoch(0), 0) == found
    cluster.publish(cluster.there, update(segment(1), DELETING), update(segment(1), DELETED))
    assert managers[0].segments(PARTITION) == []


def test_event_is_done_when_it_is_read_back() -> None:
    cluster = Cluster()
    cluster.assign(cluster.here)
    future = cluster.begin(cluster.here, segment(1))
    cluster.loop.run_soon()
    assert not future.done()
    assert cluster.here.manager.segments(PARTITION) == []
    cluster.loop.advance(1)
    assert future.done()
    assert cluster.here.manager.segments(PARTITION) == [segment(1)]


def test_unassigned_partition_is_not_ready() -> None:
    cluster = Cluster()
    manager = cluster.here.manager
    with pytest.raises(RemoteMetadataNotReady):
        manager.segments(PARTITION)
    with pytest.raises(RemoteMetadataNotReady):
        cluster.begin(cluster.here, segment(1)).result()
    waiting = future_of(manager.wait_until_ready(PARTITION))
    cluster.assign(cluster.here)
    assert waiting.done()
    assert future_of(manager.wait_until_ready(PARTITION)).done()
    manager.unassign([PARTITION])
    with pytest.raises(RemoteMetadataNotReady):
        manager.segment_for(PARTITION, LeaderEpoch(0), 0)


def test_later_assignment_does_not_affect_ready_partitions() -> None:
    cluster = Cluster()
    cluster.assign(cluster.here)
    cluster.publish(cluster.here, segment(1))
    cluster.here.manager.assign([SIBLING], [])
    assert cluster.here.manager.is_ready(PARTITION)
    assert not cluster.here.manager.is_ready(SIBLING)
    before = len(cluster.topic.requests)
    cluster.loop.advance(0.01)
    assert cluster.here.manager.is_ready(SIBLING)
    assert [line for line in cluster.topic.requests[before:] if line.startswith("load")] == []
    cluster.publish(cluster.here, segment(1, SIBLING))
    assert cluster.here.manager.segments(SIBLING) == [segment(1, SIBLING)]
    cluster.here.manager.unassign([PARTITION])
    assert cluster.here.manager.is_ready(SIBLING)


def test_partition_is_ready_when_its_existing_records_are_read() -> None:
    cluster = Cluster()
    for number in range(450):
        cluster.log.append([encode_event(segment(number))])
    cluster.here.manager.assign([], [PARTITION])
    cluster.loop.advance(0.005)
    assert not cluster.here.manager.is_ready(PARTITION)
    cluster.loop.advance(2)
    assert len(cluster.here.manager.segments(PARTITION)) == 450


def test_illegal_transition_is_refused_before_publication() -> None:
    cluster = Cluster()
    cluster.assign(cluster.here, cluster.there)
    end = cluster.log.end
    for event in (
        update(segment(1), FINISHED),
        segment(1).updated(update(segment(1), FINISHED)),
        update(segment(1), SegmentState.COPY_STARTED),
    ):
        with pytest.raises(InvalidSegmentTransition):
            cluster.begin(cluster.here, event).result()
    assert cluster.log.end == end


def test_conflicting_events_converge_to_one_state() -> None:
    cluster = Cluster()
    cluster.assign(cluster.here, cluster.there)
    cluster.publish(cluster.here, segment(1))
    deleting = cluster.begin(cluster.there, update(segment(1), DELETING))
    finishing = cluster.begin(cluster.here, update(segment(1), FINISHED)._replace(event_timestamp_ms=6))
    cluster.loop.advance(3)
    outcomes = [deleting.exception(), finishing.exception()]
    assert outcomes[0] is None
    (state,) = {one.state for broker in (cluster.here, cluster.there) for one in broker.manager.segments(PARTITION)}
    assert state is DELETING
    assert outcomes[1] is None or isinstance(outcomes[1], InvalidSegmentTransition)


def test_lost_response_and_repeated_event_have_no_effect() -> None:
    cluster = Cluster(faults=Faults(answer_lost=0.3, request_lost=0.2, doubled=0.3, timeout_s=0.2))
    cluster.assign(cluster.here, cluster.there)
    cluster.loop.advance(10)
    for number in range(20):
        for event in (segment(number), update(segment(number), FINISHED)):
            future = cluster.begin(cluster.here, event)
            cluster.loop.advance(10)
            future.result()
    assert cluster.log.end > 40
    for broker in (cluster.here, cluster.there):
        assert [one.state for one in broker.manager.segments(PARTITION)] == [FINISHED] * 20


def test_unpublished_event_times_out() -> None:
    cluster = Cluster({"remote.log.metadata.consume.wait.ms": "5000"})
    cluster.assign(cluster.here)
    cluster.log.is_refusing = True
    future = cluster.begin(cluster.here, segment(1))
    cluster.loop.advance(4.9)
    assert not future.done()
    cluster.loop.advance(0.2)
    with pytest.raises(TimeoutError, match=r"within 5000 ms \(NOT_ENOUGH_REPLICAS\)"):
        future.result()
    cluster.log.is_refusing = False
    cluster.publish(cluster.here, segment(2))
    assert cluster.here.manager.segments(PARTITION) == [segment(2)]


def test_refused_event_is_sent_again_by_a_timer_that_fires_early() -> None:
    cluster = Cluster(early_s=0.0004)
    cluster.assign(cluster.here)
    cluster.log.is_refusing = True
    future = cluster.begin(cluster.here, segment(1))
    cluster.loop.advance(0.5)
    assert not future.done()
    cluster.log.is_refusing = False
    cluster.loop.advance(2)
    assert future.done()


def test_excess_events_are_refused() -> None:
    cluster = Cluster({"ottla.publish.max.pending": "3"})
    cluster.assign(cluster.here)
    futures = [cluster.begin(cluster.here, segment(number)) for number in range(4)]
    with pytest.raises(RemoteMetadataNotReady):
        futures[3].result()
    cluster.loop.advance(1)
    assert all(future.done() for future in futures)
    cluster.publish(cluster.here, segment(4))


def test_leader_changes_are_followed() -> None:
    cluster = Cluster()
    cluster.assign(cluster.here, cluster.there)
    cluster.publish(cluster.here, segment(1))
    cluster.elect(2)  # before any broker has the new image
    waiting = cluster.begin(cluster.here, segment(2))
    cluster.loop.advance(3)
    assert not waiting.done()
    cluster.here.see()
    cluster.loop.advance(1)
    assert waiting.done()
    cluster.topic.down.add(2)
    waiting = cluster.begin(cluster.here, segment(3))
    cluster.loop.advance(0.5)
    cluster.elect(None, cluster.here, cluster.there)
    cluster.loop.advance(5)
    assert not waiting.done()
    assert len(cluster.here.manager.segments(PARTITION)) == 2
    cluster.elect(1, cluster.here, cluster.there)
    cluster.loop.advance(2)
    assert waiting.done()
    assert len(cluster.there.manager.segments(PARTITION)) == 3


def test_undecodable_record_is_skipped() -> None:
    cluster = Cluster()
    cluster.assign(cluster.here)
    for value in (b"", b"\x01\x09\x00", b"\x01\x00\x07", b"\x02"):
        cluster.log.append([value, encode_event(segment(int.from_bytes(value[:2].rjust(2), "big")))])
    cluster.loop.advance(1)
    assert len(cluster.here.manager.segments(PARTITION)) == 4
    cluster.publish(cluster.here, segment(1))


def test_restart_continues_from_the_snapshot() -> None:
    cluster = Cluster({"ottla.snapshot.interval.ms": "10000"})
    cluster.assign(cluster.here, cluster.there)
    cluster.publish(cluster.here, segment(1), update(segment(1), FINISHED))
    cluster.loop.advance(11)
    cluster.publish(cluster.there, segment(2))
    cluster.here.crash()
    cluster.publish(cluster.there, segment(3))
    cluster.topic.requests.clear()
    cluster.here.restart()
    cluster.assign(cluster.here)
    assert cluster.here.manager.segments(PARTITION) == cluster.there.manager.segments(PARTITION)
    loads = [line for line in cluster.topic.requests if line.startswith("load")]
    assert loads == [f"load {cluster.log.leader} [({NUMBER}, 0, 2, 0)]"]


def test_corrupt_or_foreign_snapshot_is_ignored() -> None:
    cluster = Cluster()
    cluster.assign(cluster.here)
    cluster.publish(cluster.here, segment(1))
    cluster.here.crash()
    cluster.here.fs.make_directory(DIRECTORY)
    write_file(cluster.here.fs, snapshot_path(DIRECTORY, NUMBER), b"no snapshot", sync=True)
    cluster.here.restart()
    cluster.assign(cluster.here)
    assert cluster.here.manager.segments(PARTITION) == [segment(1)]


def test_diverged_log_is_read_again_from_its_start() -> None:
    cluster = Cluster()
    cluster.assign(cluster.here, cluster.there)
    cluster.publish(cluster.here, segment(1), segment(2), segment(3))
    cluster.log.truncate(1)
    cluster.elect(1, cluster.here, cluster.there)
    for number in (7, 8, 9):
        cluster.log.append([encode_event(segment(number))])
    cluster.loop.advance(3)
    for broker in (cluster.here, cluster.there):
        assert broker.manager.segments(PARTITION) == [segment(1), segment(7), segment(8), segment(9)]


def test_removed_partition_is_dropped() -> None:
    cluster = Cluster()
    cluster.assign(cluster.here)
    cluster.publish(cluster.here, segment(1))
    marked = PartitionDelete(PARTITION, PartitionDeleteState.MARKED, 1, BrokerId(1))
    cluster.publish(cluster.here, marked)
    assert cluster.here.manager.removals() == [marked]
    cluster.publish(cluster.here, marked._replace(state=PartitionDeleteState.STARTED))
    with pytest.raises(InvalidSegmentTransition):
        cluster.begin(cluster.here, marked).result()
    cluster.publish(cluster.here, marked._replace(state=PartitionDeleteState.FINISHED))
    assert cluster.here.manager.removals() == []
    assert cluster.here.manager.segments(PARTITION) == []


def test_held_partitions_are_listed_during_writes() -> None:
    cluster = Cluster()
    leader = cluster.here if cluster.log.leader == 1 else cluster.there
    cluster.assign(leader)
    cluster.publish(leader, segment(1))
    assert leader.manager.held() == [(PARTITION, None)]
    cluster.log.append([encode_event(segment(2))])
    assert leader.manager.held() == [(PARTITION, None)], "the partition has been read to the log end before"
    cluster.elect(2 if cluster.log.leader == 1 else 1, cluster.here, cluster.there)
    assert leader.manager.held() == []


PRUNING = {"ottla.prune.min.records": "50", "ottla.prune.interval.ms": "1000"}


def test_leader_lists_all_partitions_with_remote_data() -> None:
    cluster = Cluster()
    leader, other = (cluster.here, cluster.there) if cluster.log.leader == 1 else (cluster.there, cluster.here)
    cluster.assign(other)
    cluster.publish(other, segment(1))
    assert leader.manager.held() == [], "reading has only begun"
    cluster.loop.advance(2)
    assert leader.manager.held() == [(PARTITION, None)]
    assert other.manager.held() == [], "the broker leads other partitions"
    cluster.publish(other, PartitionDelete(PARTITION, PartitionDeleteState.MARKED, 1, BrokerId(2)))
    assert leader.manager.held() == [(PARTITION, PartitionDeleteState.MARKED)]


def test_leader_prunes_obsolete_records() -> None:
    """A broker with an empty disk and one that was far behind learn the whole state from the remaining records."""
    cluster = Cluster(PRUNING)
    cluster.assign(cluster.here, cluster.there)
    leader = cluster.here if cluster.log.leader == 1 else cluster.there
    late = cluster.there if leader is cluster.here else cluster.here
    for number in range(10):
        cluster.publish(leader, segment(number), update(segment(number), FINISHED))
    late.crash()
    for number in range(4, 10):
        cluster.publish(leader, update(segment(number), DELETING), update(segment(number), DELETED))
    cluster.publish(leader, update(segment(3), DELETING), segment(11))
    for number in range(20, 30):
        known = segment(number)
        cluster.publish(leader, known, update(known, DELETING), update(known, DELETED))
    cluster.loop.advance(5)
    assert cluster.log.start >= 50
    assert cluster.log.end - cluster.log.start < 50
    expected = leader.manager.segments(PARTITION)
    assert len(expected) == 5
    late.restart()
    late.manager.assign([PARTITION], [])
    fresh = MetadataBroker(cluster.topic, 3)
    fresh.see()
    fresh.manager.assign([PARTITION], [])
    cluster.loop.advance(3)
    assert late.manager.segments(PARTITION) == fresh.manager.segments(PARTITION) == expected
    start = cluster.log.start
    cluster.loop.advance(5)
    assert cluster.log.start == start


def test_first_assignment_creates_the_topic() -> None:
    loop = ManualLoop()
    topic = MetadataTopic(loop, COUNT, [1])
    broker = MetadataBroker(topic, 1)
    assert broker.creation.wanted == 0
    broker.manager.assign([], [])
    assert broker.creation.wanted == 0
    broker.manager.assign([PARTITION], [])
    assert broker.creation.wanted == 1
    assert not broker.manager.is_ready(PARTITION)
    topic.publish_image()
    broker.see()
    loop.advance(1)
    assert broker.manager.is_ready(PARTITION)


def test_topic_with_another_partition_count_is_not_used() -> None:
    loop = ManualLoop()
    topic = MetadataTopic(loop, COUNT, [1])
    topic.publish_image()
    broker = MetadataBroker(topic, 1, {"remote.log.metadata.topic.num.partitions": "3"})
    broker.see()
    broker.manager.assign([PARTITION], [])
    loop.advance(5)
    assert not broker.manager.is_ready(PARTITION)


def test_recreated_topic_is_read_from_the_start() -> None:
    cluster = Cluster()
    cluster.assign(cluster.here)
    cluster.publish(cluster.here, segment(1))
    cluster.here.manager.on_metadata(MetadataDelta(EMPTY_IMAGE), EMPTY_IMAGE)
    with pytest.raises(RemoteMetadataNotReady):
        cluster.here.manager.segments(PARTITION)
    other = MetadataTopic(cluster.loop, COUNT, [1], topic_id=Uuid(bytes(15) + b"\x09"))
    cluster.topic.partitions, cluster.topic.topic_id = other.partitions, other.topic_id
    cluster.topic.publish_image()
    cluster.here.see()
    cluster.loop.advance(1)
    assert cluster.here.manager.segments(PARTITION) == []


def test_closing_writes_a_snapshot_and_fails_pending_events() -> None:
    cluster = Cluster()
    cluster.assign(cluster.here)
    cluster.publish(cluster.here, segment(1))
    cluster.log.is_refusing = True
    waiting = cluster.begin(cluster.here, segment(2))
    drive(cluster.here.manager.close(), cluster.loop)
    with pytest.raises(TimeoutError):
        waiting.result()
    assert cluster.here.fs.exists(snapshot_path(DIRECTORY, NUMBER))


def test_settings_default_to_kafkas() -> None:
    settings = parse_remote_metadata_settings({})
    assert (settings.topic_num_partitions, settings.topic_replication_factor, settings.topic_min_isr) == (50, 3, 2)
    assert (settings.topic_retention_ms, settings.consume_wait_ms) == (-1, 120_000)
    given = parse_remote_metadata_settings(
        {
            "remote.log.metadata.common.client.request.timeout.ms": "7",
            "remote.log.metadata.consumer.fetch.max.wait.ms": "9",
        }
    )
    assert (given.request_timeout_ms, given.fetch_max_wait_ms, given.warnings) == (7, 9, ())
    for key, value in (("topic.num.partitions", "0"), ("topic.replication.factor", "three")):
        with pytest.raises(ValueError, match=f"rlmm.config.remote.log.metadata.{key} must be"):
            parse_remote_metadata_settings({f"remote.log.metadata.{key}": value})


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("common.client.sasl.kerberos.service.name", "the connections of the listener"),
        ("common.client.bootstrap.servers", "the connections of the listener"),
        ("producer.acks", "the value is fixed"),
        ("producer.linger.ms", "without Kafka's clients"),
        ("consumer.batch.size", "without Kafka's clients"),
        ("admin.request.timeout.ms", "without Kafka's clients"),
        ("topic.partitions", "not a setting"),
    ],
)
def test_setting_without_effect_is_reported_once(key: str, reason: str) -> None:
    settings = parse_remote_metadata_settings({f"remote.log.metadata.{key}": "1"}, "my.")
    (warning,) = settings.warnings
    assert warning.startswith(f"my.remote.log.metadata.{key} ")
    assert reason in warning


def test_setting_that_another_key_decides_is_reported() -> None:
    producer, consumer = (f"remote.log.metadata.{each}.request.timeout.ms" for each in ("producer", "consumer"))
    settings = parse_remote_metadata_settings({producer: "7", consumer: "8"})
    assert settings.request_timeout_ms == 7
    assert settings.warnings == (
        f"rlmm.config.{consumer} has no effect: rlmm.config.{producer} decides for all requests.",
    )
    assert parse_remote_metadata_settings({producer: "7", consumer: "7"}).warnings == ()


def test_retention_of_the_topic_is_reported_as_without_effect(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    resource = ConfigResource(ResourceType.TOPIC, "__remote_log_metadata")
    delta = MetadataDelta(cluster.topic.image)
    for key, value in (("retention.ms", "86400000"), ("cleanup.policy", "delete"), ("segment.bytes", "1000000")):
        delta.replay(config_record(resource, key, value).message)
    cluster.here.manager.on_metadata(delta, delta.apply(Provenance()))
    (line,) = caplog.records
    assert (line.levelname, vars(line)["fields"]["key"]) == ("WARNING", "retention.ms")
