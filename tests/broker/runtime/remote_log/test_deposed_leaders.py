"""Leaders that do not know that they are deposed: cut off from the controllers, connected to remote storage."""

from dataclasses import replace

from protocol.ids import BrokerId, LeaderEpoch, Offset
from protocol.primitives import Uuid
from storage.config import CleanupPolicy
from storage.tiered.bucket.partition_objects import PartitionObjects
from storage.tiered.format.object_keys import ObjectKeys
from storage.tiered.segment_metadata import RemoteSegment, SegmentState, TopicIdPartition
from tests.broker.runtime.remote_log.test_manager import MINUTE_MS, KeptStarts, a_while, staged
from tests.support.fakes.memory_object_store import MemoryObjectStore
from tests.support.fakes.shared_remote_storage import Operation
from tests.support.harnesses.remote_log_harness import SETTINGS, TOPIC, TOPIC_ID, Broker, Bucket, replicate

PARTITION = TopicIdPartition(TOPIC_ID, TOPIC, 0)
GRACE_S = SETTINGS.grace_ms / 1000


class Cluster:
    """Two brokers with log start objects in one store."""

    def __init__(self) -> None:
        self.bucket = Bucket()
        self.store = MemoryObjectStore()
        self.first, self.second = (self._broker(number) for number in (1, 2))

    def _broker(self, number: int) -> Broker:
        starts = PartitionObjects(
            self.store, ObjectKeys("p/"), cluster_id="c", broker_id=BrokerId(number), now_ms=lambda: 0
        )
        return Broker(self.bucket, number, log_starts=starts).start()

    async def depose_first(self, segments: int = 3) -> None:
        """Let the first broker lead and copy, then the second one lead without the first one's knowledge."""
        log = self.first.lead(0).log
        self.first.fill(segments)
        copy = self.second.follow(0).log
        replicate(log, copy, self.first.clock.now_ms())
        copy.roll(self.first.clock.now_ms())
        await a_while()
        self.second.lead(1)
        await a_while(2)

    async def stop(self) -> None:
        await self.first.stop()
        await self.second.stop()


def ids(bucket: Bucket) -> list[tuple[int, Uuid]]:
    return [(segment.start_offset, segment.id.id) for segment in bucket.segments(SegmentState.COPY_FINISHED)]


@staged
async def test_deposed_leader_keeps_segments_of_its_successor() -> None:
    """The segments lie beyond the end of its own log."""
    cluster = Cluster()
    await cluster.depose_first()
    cluster.second.fill(3)
    await a_while()
    copied = ids(cluster.bucket)[-3:]
    await a_while(4 * GRACE_S)
    assert ids(cluster.bucket)[-3:] == copied, "none was deleted and copied again"
    await cluster.stop()


@staged
async def test_deposed_leader_keeps_segments_without_log_start_objects() -> None:
    """A plug-in for remote storage may have no place for log start objects."""
    cluster = Cluster()
    for broker in (cluster.first, cluster.second):
        await broker.crash()
    cluster.first, cluster.second = (Broker(cluster.bucket, number).start() for number in (1, 2))
    await cluster.depose_first()
    cluster.second.fill(3)
    await a_while()
    copied = ids(cluster.bucket)[-3:]
    await a_while(4 * GRACE_S)
    assert ids(cluster.bucket)[-3:] == copied, "none was deleted and copied again"
    await cluster.stop()


@staged
async def test_deposed_leader_does_not_apply_its_old_retention() -> None:
    """The successor claims its term although its log starts at 0 and has no new segment."""
    cluster = Cluster()
    await cluster.depose_first()
    cluster.first.configure(retention_ms=MINUTE_MS)
    await a_while(5 * 60)
    assert cluster.bucket.ranges() == [(0, 9), (10, 19), (20, 29)]
    assert cluster.first.replica().log.log_start_offset == 0
    await cluster.stop()


@staged
async def test_claim_stops_deletions_in_progress() -> None:
    """The successor begins its term while its predecessor deletes a decided list of segments."""
    cluster = Cluster()
    first, second = cluster.first, cluster.second
    log = first.lead(0).log
    first.fill(5)
    replicate(log, second.follow(0).log, first.clock.now_ms())
    await a_while()
    deleted: list[RemoteSegment] = []

    def claim_after_two(operation: Operation, segment: RemoteSegment) -> None:
        if operation == "delete":
            deleted.append(segment)
            if len(deleted) == 2:
                second.log_starts.on_log_start(PARTITION, LeaderEpoch(1), Offset(0), at_once=True)

    cluster.bucket.storage.fault = claim_after_two
    log.maybe_increment_log_start_offset(50)
    await a_while(60)
    assert cluster.bucket.ranges() == [(20, 29), (30, 39), (40, 49)]
    await cluster.stop()


@staged
async def test_deposed_leader_of_a_disabled_topic_deletes_nothing() -> None:
    """The topic was enabled again under the successor."""
    cluster = Cluster()
    await cluster.depose_first()
    cluster.first.configure(remote_storage_enable=False, remote_log_delete_on_disable=True)
    await a_while(60)
    assert cluster.bucket.ranges() == [(0, 9), (10, 19), (20, 29)]
    assert any("log-start-0000000001" in info.key for info in cluster.store.list(""))
    await cluster.stop()


@staged
async def test_deposed_leader_replaces_no_segment_by_a_compacted_one() -> None:
    cluster = Cluster()
    await cluster.depose_first()
    before = cluster.bucket.segments(SegmentState.COPY_FINISHED)
    cluster.first.configure(cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
    await a_while(60)
    assert cluster.bucket.segments(SegmentState.COPY_FINISHED) == before
    assert cluster.bucket.orphans() == set()
    await cluster.stop()


@staged
async def test_data_of_an_unknown_topic_that_is_still_written_are_kept() -> None:
    """A broker without connection to the controllers does not know new topics, while it leads metadata partitions."""
    bucket = Bucket()
    isolated = Broker(
        bucket, 1, settings=replace(SETTINGS, unknown_topic_retention_ms=10 * MINUTE_MS, grace_ms=MINUTE_MS)
    )
    isolated.has_topic = lambda topic_id: False  # type: ignore[method-assign]
    isolated.start()
    leader = Broker(bucket, 2, log_starts=KeptStarts()).start()
    leader.catalog.is_led = False
    leader.lead(0)
    for _ in range(30):
        leader.fill(1)
        await a_while(60)
    assert len(bucket.ranges()) == 30
    assert "MARKED" not in bucket.states()
    await isolated.stop()
    await leader.stop()
