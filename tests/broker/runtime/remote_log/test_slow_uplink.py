"""Copies over a slow uplink: leases, and fewer copies at once."""

from collections.abc import Callable
from dataclasses import replace

from broker.runtime.remote_log.copy_bandwidth import CopyBandwidth
from storage.tiered.bucket.reconcile import COPY_LEASE_MS
from storage.tiered.remote_storage import SegmentFiles
from storage.tiered.segment_metadata import RemoteSegment, SegmentState, TopicIdPartition
from tests.broker.runtime.remote_log.test_manager import MINUTE_MS, a_while, staged
from tests.support.fakes.shared_remote_storage import SharedRemoteStorage
from tests.support.fakes.stepped_pool import SteppedPool
from tests.support.harnesses.remote_log_harness import SETTINGS, TOPIC, TOPIC_ID, Broker, Bucket, replicate

PATIENT = replace(
    SETTINGS, grace_ms=2 * COPY_LEASE_MS, copier_threads=10, task_interval_ms=30_000, remover_interval_ms=MINUTE_MS
)
MINUTE_S = 60
PIECES = 20


class SlowStorage(SharedRemoteStorage):
    """Storage behind an uplink that all copies share; `is_stuck`: no bytes move."""

    def __init__(self, pool: SteppedPool, segment_s: Callable[[], float]) -> None:
        super().__init__()
        self._pool = pool
        self._segment_s = segment_s
        self.is_stuck = False
        self.most_at_once = 0
        self._at_once = 0

    def copy_segment(self, segment: RemoteSegment, files: SegmentFiles) -> bytes | None:
        self._at_once += 1
        try:
            return self._copy(segment, files)
        finally:
            self._at_once -= 1

    def _copy(self, segment: RemoteSegment, files: SegmentFiles) -> bytes | None:
        piece = segment.size_bytes // PIECES + 1
        file = files.fs.open_existing(files.log)
        for position in range(0, segment.size_bytes, piece):
            self.most_at_once = max(self.most_at_once, self._at_once)
            self._pool.pause(self._segment_s() / PIECES * self._at_once)
            while self.is_stuck:
                self._pool.pause(MINUTE_S)
            file.read(position, piece)
        file.close()
        return super().copy_segment(segment, files)


def slow_broker(bucket: Bucket, segment_minutes: float) -> tuple[Broker, SlowStorage]:
    pool = SteppedPool()
    storage = bucket.storage = SlowStorage(pool, lambda: segment_minutes * MINUTE_S)
    broker = Broker(bucket, 1, settings=PATIENT)
    broker.make_copy_pool = lambda: pool
    return broker.start(), storage


def copied(bucket: Bucket) -> list[str]:
    return [state for state in bucket.states() if not state.startswith("COPY_STARTED")]


@staged
async def test_segment_that_takes_longer_than_the_lease_is_finished_in_one_attempt() -> None:
    bucket = Bucket()
    broker, _ = slow_broker(bucket, segment_minutes=45)
    broker.lead(0)
    broker.fill(1)
    await a_while(46 * MINUTE_S)
    assert copied(bucket) == ["COPY_FINISHED"]
    begun = {event.id for event in bucket.metadata.events if isinstance(event, RemoteSegment)}
    assert len(begun) == 1
    assert [segment.id for segment in bucket.segments(SegmentState.COPY_FINISHED)] == list(begun)
    await broker.stop()


@staged
async def test_other_brokers_do_not_collect_a_copy_that_moves() -> None:
    """The copy began under a former leader, and takes longer than the grace time of its successor."""
    bucket = Bucket()
    first, _ = slow_broker(bucket, segment_minutes=150)
    second = Broker(bucket, 2, settings=PATIENT).start()
    log = first.lead(0).log
    first.fill(1)
    copy = second.follow(0).log
    replicate(log, copy, first.clock.now_ms())
    await a_while(MINUTE_S)
    second.configure(remote_log_copy_disable=True)
    first.follow(1)
    second.lead(1)
    await a_while(150 * MINUTE_S)
    assert copied(bucket) == ["COPY_FINISHED"]
    await first.stop()
    await second.stop()


@staged
async def test_copy_that_does_not_move_loses_its_lease() -> None:
    bucket = Bucket()
    broker, storage = slow_broker(bucket, segment_minutes=20)
    broker.lead(0)
    broker.fill(1)
    await a_while(10 * MINUTE_S)
    storage.is_stuck = True
    await a_while(45 * MINUTE_S)
    storage.is_stuck = False
    await a_while(40 * MINUTE_S)
    assert copied(bucket) == ["DELETE_STARTED", "DELETE_FINISHED", "COPY_FINISHED"]
    assert len(bucket.segments()) == 1
    assert bucket.orphans() == set()
    await broker.stop()


@staged
async def test_lost_renewals_do_not_end_a_copy() -> None:
    bucket = Bucket()
    broker, _ = slow_broker(bucket, segment_minutes=45)
    broker.lead(0)
    broker.fill(1)
    await a_while(5)
    bucket.metadata.fail_next(TimeoutError("no answer"))
    bucket.metadata.fail_next(TimeoutError("no answer"), applies=True)
    await a_while(46 * MINUTE_S)
    assert copied(bucket) == ["COPY_FINISHED"]
    await broker.stop()


@staged
async def test_fewer_segments_are_copied_at_once_over_a_slow_uplink() -> None:
    """The uplink needs four minutes for a segment: two at once are done within ten minutes."""
    bucket = Bucket()
    broker, storage = slow_broker(bucket, segment_minutes=4)
    for index in range(6):
        broker.lead(0, index)
        broker.fill(1, index=index)
    assert broker.tools.copies_at_once() == 10
    await a_while(30 * MINUTE_S)
    for index in range(6):
        assert len(bucket.ranges(partition=index)) == 1
        broker.fill(2, index=index)
    storage.most_at_once = 0
    assert broker.metrics.copies_at_once() == 2
    await a_while(60 * MINUTE_S)
    assert storage.most_at_once == 2
    assert [len(bucket.ranges(partition=index)) for index in range(6)] == [3] * 6
    await broker.stop()


def partition(index: int) -> TopicIdPartition:
    return TopicIdPartition(TOPIC_ID, TOPIC, index)


def test_waiting_partitions_begin_in_order() -> None:
    bandwidth = CopyBandwidth()
    moved = [0]
    bandwidth.begin(partition(0), 1_000_000, lambda: moved[0], 0.0)
    now_ms = 60_000.0
    moved[0] = 60_000
    assert bandwidth.bytes_per_second(now_ms) == 1_000.0
    for index in (2, 1, 3):
        assert not bandwidth.may_begin(partition(index), 1_000_000, now_ms, 10)
    bandwidth.end(partition(0), now_ms)
    assert not bandwidth.may_begin(partition(1), 1_000_000, now_ms, 10)
    assert bandwidth.may_begin(partition(2), 1_000_000, now_ms, 10)
    assert bandwidth.may_begin(partition(1), 1_000_000, now_ms, 10)


def test_partition_that_no_longer_asks_loses_its_turn() -> None:
    bandwidth = CopyBandwidth()
    bandwidth.begin(partition(0), 1_000_000, lambda: 10, 0.0)
    assert not bandwidth.may_begin(partition(1), 1_000_000, 60_000.0, 10)
    bandwidth.end(partition(0), 60_000.0)
    assert not bandwidth.may_begin(partition(2), 1_000_000, 60_000.0, 10)
    assert bandwidth.may_begin(partition(2), 1_000_000, 75_000.0, 10)


def test_idle_time_does_not_count_as_bandwidth() -> None:
    bandwidth = CopyBandwidth()
    bandwidth.begin(partition(0), 1_000_000, lambda: 1_000_000, 0.0)
    bandwidth.end(partition(0), 10_000.0)
    assert bandwidth.bytes_per_second(3_600_000.0) == 100_000.0
