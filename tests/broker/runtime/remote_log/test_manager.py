"""The remote log manager: copying, expiration, collection and leader changes (`broker.runtime.remote_log`)."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from broker.runtime.remote_log.copying import REST_FACTOR
from broker.runtime.remote_log.log_starts import NoLogStarts
from broker.runtime.remote_log.settings import RemoteLogSettings
from protocol.ids import BrokerId, LeaderEpoch
from storage.directories.checkpoints import LeaderEpochEntry
from storage.tiered.bucket.reconcile import COPY_LEASE_MS
from storage.tiered.errors import RemoteStorageError, RetriableRemoteStorageError, StoreUnavailable
from storage.tiered.segment_metadata import RemoteSegment, SegmentState, SegmentUpdate, TopicIdPartition
from storage.tiered.stores.backoff import Backoff
from tests.support.fakes.fast_forward_loop import run_fast
from tests.support.fakes.shared_remote_storage import Fault, Operation, SharedRemoteStorage
from tests.support.harnesses.remote_log_harness import SETTINGS, TOPIC, TOPIC_ID, Broker, Bucket, replicate

MINUTE_MS = 60_000
PATIENT = replace(SETTINGS, grace_ms=2 * COPY_LEASE_MS)
"""Settings with the longest possible lease."""
PARTITION = TopicIdPartition(TOPIC_ID, TOPIC, 0)


def staged(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run a test in simulated time."""

    def run() -> None:
        async def main() -> None:
            await test()

        run_fast(main())

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


async def a_while(seconds: float = 10) -> None:
    await asyncio.sleep(seconds)


class Faults:
    """Fails operations the given number of times."""

    def __init__(self) -> None:
        self.left: list[tuple[Operation, Fault]] = []
        self.down = False

    def __call__(self, operation: Operation, segment: RemoteSegment) -> Fault | None:
        if self.down:
            return Fault(RetriableRemoteStorageError("the store is down"))
        for number, (planned, fault) in enumerate(self.left):
            if planned == operation:
                del self.left[number]
                return fault
        return None


def faulty(bucket: Bucket) -> Faults:
    faults = Faults()
    bucket.storage = SharedRemoteStorage(faults)
    return faults


# ---- copying


@staged
async def test_leader_copies_closed_committed_segments() -> None:
    bucket = Bucket()
    broker = Broker(bucket).start()
    replica = broker.lead(0)
    broker.fill(2)
    broker.fill(1, commit=False)
    await a_while()
    assert bucket.ranges() == [(0, 9), (10, 19)]
    assert replica.log.highest_remote_offset == 19
    assert bucket.states()[:2] == ["COPY_STARTED 0-9", "COPY_FINISHED"]
    replica.log.advance_high_watermark(30)
    await a_while()
    assert bucket.ranges() == [(0, 9), (10, 19), (20, 29)]
    meters = broker.metrics.topic(TOPIC)
    assert (meters.copy_requests, meters.copy_errors) == (3, 0)
    assert meters.copy_bytes == sum(one.size_bytes for one in bucket.segments())
    assert meters.copy_lag.segments == 0
    await broker.stop()


@staged
async def test_copy_lag_is_reported_during_an_outage() -> None:
    """Kafka updates the lag only after a successful copy."""
    bucket = Bucket()
    faults = faulty(bucket)
    faults.down = True
    broker = Broker(bucket).start()
    broker.lead(0)
    log = broker.fill(3)
    await a_while(60)
    lag = broker.metrics.topic(TOPIC).copy_lag
    assert lag == (log.size_bytes, 3)
    broker.fill(2)
    assert broker.metrics.topic(TOPIC).copy_lag.segments == 5, "the lag grows while the task waits"
    await broker.crash()


@staged
async def test_copy_lag_grows_while_a_copier_is_blocked() -> None:
    bucket = Bucket()
    broker = Broker(bucket, upload_s=lambda: 3_600.0).start()
    broker.lead(0)
    broker.fill(1)
    await a_while(10)
    log = broker.fill(3)
    assert broker.metrics.topic(TOPIC).copy_lag == (log.size_bytes, 4)
    broker.follow(1)
    assert broker.metrics.topic(TOPIC).copy_lag == (0, 0)
    await broker.crash()


@staged
async def test_outage_leaves_one_metadata_record_and_ends_in_a_copy() -> None:
    bucket = Bucket()
    faults = faulty(bucket)
    broker = Broker(bucket, settings=PATIENT).start()
    broker.lead(0)
    faults.down = True
    broker.fill(2)
    await a_while(1700)
    assert bucket.states() == ["COPY_STARTED 0-9", "DELETE_STARTED"]
    assert len(bucket.segments()) == 1
    assert len(bucket.storage.calls) < 1700 / 30 * 1.5, "pauses grow to half a minute"
    faults.down = False
    await a_while(60)
    assert bucket.ranges() == [(0, 9), (10, 19)]
    assert bucket.ranges(SegmentState.COPY_STARTED) == []
    await broker.stop()


@staged
async def test_retry_has_a_segment_id_of_its_own() -> None:
    """A late request of the failed upload does not reach the objects of the finished one."""
    bucket = Bucket()
    faults = faulty(bucket)
    faults.left = [
        ("copy", Fault(RetriableRemoteStorageError("timed out"), applies=True)),
        ("delete", Fault(RetriableRemoteStorageError("timed out"))),
    ]
    broker = Broker(bucket).start()
    broker.lead(0)
    broker.fill(1)
    await a_while()
    assert bucket.states() == [
        "COPY_STARTED 0-9",
        "DELETE_STARTED",
        "DELETE_FINISHED",
        "COPY_STARTED 0-9",
        "COPY_FINISHED",
    ]
    begun = [event.id for event in bucket.metadata.events if isinstance(event, RemoteSegment)]
    assert len(set(begun)) == 2
    assert [segment.id for segment in bucket.segments()] == [begun[1]]
    assert set(bucket.storage.stored) == {begun[1].id}
    await broker.stop()


@pytest.mark.parametrize("events", range(6))
def test_crash_during_a_retry_leaves_one_copy_and_no_objects(events: int) -> None:
    """The process dies after any number of events of a failed and a second attempt."""

    async def main() -> None:
        bucket = Bucket()
        faults = faulty(bucket)
        faults.left = [("copy", Fault(RetriableRemoteStorageError("timed out"), applies=True))]
        broker = Broker(bucket).start()
        broker.lead(0)
        broker.fill(1)
        broker.replica().log.flush()
        while len(bucket.metadata.events) < events:
            await a_while(0.01)
        await broker.crash()
        broker.start()
        broker.lead(1).log.advance_high_watermark(10)
        await a_while(20)
        assert bucket.ranges() == [(0, 9)]
        assert len(bucket.segments()) == 1
        assert bucket.orphans() == set()
        await broker.stop()

    run_fast(main())


@staged
async def test_upload_beyond_its_lease_is_deleted() -> None:
    bucket, took_s = Bucket(), [COPY_LEASE_MS / 1000 + 1]
    broker = Broker(bucket, settings=PATIENT, upload_s=lambda: took_s.pop() if took_s else 1.0).start()
    broker.lead(0)
    broker.fill(1)
    await a_while(COPY_LEASE_MS / 1000 + 60)
    assert bucket.ranges() == [(0, 9)]
    assert [state for state in bucket.states() if state.startswith("COPY")] == [
        "COPY_STARTED 0-9",
        "COPY_STARTED 0-9",
        "COPY_FINISHED",
    ]
    assert len(bucket.segments()) == 1
    assert bucket.orphans() == set()
    await broker.stop()


@staged
async def test_failed_copy_is_deleted_and_restarted() -> None:
    bucket = Bucket()
    faults = faulty(bucket)
    faults.left = [("copy", Fault(RemoteStorageError("broken"), applies=True))]
    broker = Broker(bucket).start()
    broker.lead(0)
    broker.fill(1)
    await a_while()
    assert bucket.states() == [
        "COPY_STARTED 0-9",
        "DELETE_STARTED",
        "DELETE_FINISHED",
        "COPY_STARTED 0-9",
        "COPY_FINISHED",
    ]
    assert len(bucket.storage.stored) == 1
    assert bucket.orphans() == set()
    assert broker.metrics.topic(TOPIC).copy_errors == 1
    await broker.stop()


def rot(broker: Broker, base: int) -> None:
    """Flip a bit of the first record of a local segment."""
    segment = broker.replica().log.segments.floor(base)
    assert segment is not None
    file = broker.fs.open_existing(segment.path(".log"))
    (byte,) = file.read(70, 1)
    file.write(70, bytes([byte ^ 1]))


@staged
async def test_damaged_local_segment_is_not_copied() -> None:
    """Intact replicas keep the records, and one of them copies the segment when it leads."""
    bucket = Bucket()
    first, second = Broker(bucket, 1).start(), Broker(bucket, 2).start()
    log = first.lead(0).log
    copy = second.follow(0).log
    for _ in range(3):
        first.fill(1)
        replicate(log, copy, first.clock.now_ms())
        copy.roll(first.clock.now_ms())
        if log.log_end_offset == 20:
            rot(first, 10)
    await a_while(20)
    assert bucket.ranges() == [(0, 9)]
    assert len(bucket.segments()) == 1
    assert bucket.orphans() == set()
    assert first.metrics.topic(TOPIC).corrupt_segments == 1
    assert (log.highest_remote_offset, copy.highest_remote_offset) == (9, 9)
    second.configure(local_retention_bytes=0)
    second.retain()
    assert copy.local_log_start_offset == 10, "the intact replica keeps what is not copied"
    await a_while(SETTINGS.task_interval_ms * REST_FACTOR / 1000)
    assert first.metrics.topic(TOPIC).corrupt_segments == 2, "the segment is read again after a while"
    first.follow(1)
    second.lead(1)
    await a_while(20)
    assert bucket.ranges() == [(0, 9), (10, 19), (20, 29)]
    await first.stop()
    await second.stop()


@staged
async def test_unexpected_error_of_a_plugin_is_a_failed_copy() -> None:
    bucket = Bucket()
    faults = faulty(bucket)
    faults.left = [("copy", Fault(KeyError("no such thing")))]
    broker = Broker(bucket).start()
    broker.lead(0)
    broker.fill(1)
    await a_while()
    assert bucket.ranges() == [(0, 9)]
    await broker.stop()


@staged
async def test_lost_final_event_is_published_again() -> None:
    bucket = Bucket()
    broker = Broker(bucket).start()
    broker.lead(0)
    bucket.metadata.fail_next(TimeoutError("no answer"), applies=True)
    broker.fill(1)
    await a_while(0.2)
    bucket.metadata.fail_next(TimeoutError("no answer"))
    await a_while()
    assert bucket.ranges() == [(0, 9)]
    assert [operation for operation, _ in bucket.storage.calls] == ["copy"]
    await broker.stop()


@staged
async def test_oversized_custom_metadata_stop_copying_and_leave_no_objects() -> None:
    bucket = Bucket()
    bucket.storage.custom_metadata = bytes(129)
    broker = Broker(bucket).start()
    replica = broker.lead(0)
    broker.fill(2)
    await a_while(600)
    assert bucket.segments() == []
    assert bucket.storage.stored == {}
    assert replica.log.highest_remote_offset == -1
    assert [operation for operation, _ in bucket.storage.calls] == ["copy", "delete"]
    bucket.storage.custom_metadata = bytes(128)
    broker.lead(1)
    await a_while()
    assert [one.custom_metadata for one in bucket.segments()] == [bytes(128)] * 2
    await broker.stop()


@staged
async def test_slow_partitions_do_not_delay_others() -> None:
    """Two threads, three partitions: a backlog of ten segments does not delay the other partitions."""
    bucket = Bucket()
    settings = replace(SETTINGS, copier_threads=1)
    broker = Broker(bucket, settings=settings, upload_s=lambda: 10.0).start()
    for index in range(3):
        broker.lead(0, index)
        broker.fill(10 if index == 0 else 1, index=index)
    await a_while(35)
    assert [len(bucket.ranges(partition=index)) for index in range(3)] == [1, 1, 1]
    await broker.crash()


@staged
async def test_copies_respect_the_rate_limit() -> None:
    bucket = Bucket()
    broker = Broker(bucket, upload_s=lambda: 0.0).start()
    broker.lead(0)
    size = broker.fill(1).size_bytes
    broker.settings = replace(SETTINGS, copy_bytes_per_second=size // 10, copy_quota_window_ms=1000)
    broker.fill(9)
    await a_while(31)
    assert 3 <= len(bucket.ranges()) <= 5
    assert broker.metrics.copy_quota.wait_max_ms > 0
    await broker.crash()


@staged
async def test_disabled_copying_resumes_when_enabled() -> None:
    bucket = Bucket()
    broker = Broker(bucket).start()
    broker.configure(remote_log_copy_disable=True)
    broker.lead(0)
    broker.fill(2)
    await a_while()
    assert bucket.segments() == []
    broker.configure(remote_log_copy_disable=False)
    await a_while()
    assert bucket.ranges() == [(0, 9), (10, 19)]
    await broker.stop()


# ---- leaders that come and go


async def two_brokers(bucket: Bucket) -> tuple[Broker, Broker]:
    """Start a leader that has copied 0-9, and a follower with the segments 0-14 and 15-29."""
    first, second = Broker(bucket, 1).start(), Broker(bucket, 2).start()
    first.lead(0)
    second.follow(0)
    log, copy = first.fill(1), second.replica().log
    await a_while()
    assert bucket.ranges() == [(0, 9)]
    first.configure(remote_log_copy_disable=True)
    for _ in range(4):
        first.fill(1, records=5)
        replicate(log, copy, first.clock.now_ms())
        if copy.log_end_offset % 15 == 0:
            copy.roll(first.clock.now_ms())
    await a_while(5)
    assert copy.log_end_offset == 30
    return first, second


@staged
async def test_new_leader_continues_copying_where_the_old_one_stopped() -> None:
    """KIP-405, "Follower to leader transition": the first copy overlaps."""
    bucket = Bucket()
    first, second = await two_brokers(bucket)
    assert second.replica().log.highest_remote_offset == 9
    await first.crash()
    second.lead(1)
    await a_while()
    assert bucket.ranges() == [(0, 9), (0, 14), (15, 29)]
    assert second.replica().log.highest_remote_offset == 29
    await a_while(100)
    assert bucket.ranges() == [(0, 14), (15, 29)], "superseded segments are collected"
    assert bucket.orphans() == set()
    await second.stop()


@staged
async def test_follower_learns_the_highest_remote_offset() -> None:
    bucket = Bucket()
    first, second = Broker(bucket, 1).start(), Broker(bucket, 2).start()
    first.lead(0)
    second.follow(0)
    log = first.fill(3)
    copy = second.replica().log
    for end in (10, 20, 30):
        found = log.read(copy.log_end_offset, 1, end)
        copy.append_as_follower(bytes(found.data), now_ms=first.clock.now_ms())
        copy.roll(first.clock.now_ms())
    copy.follow_high_watermark(30)
    await a_while()
    assert copy.highest_remote_offset == 29
    second.configure(local_retention_bytes=0)
    second.retain()
    assert (copy.log_start_offset, copy.local_log_start_offset) == (0, 30)
    assert bucket.storage.calls == [("copy", 0), ("copy", 10), ("copy", 20)]
    await first.stop()
    await second.stop()


@staged
async def test_copy_in_progress_is_finished_when_leadership_is_lost() -> None:
    bucket = Bucket()
    broker = Broker(bucket, upload_s=lambda: 20.0).start()
    broker.lead(0)
    broker.fill(2)
    await a_while(5)
    replica = broker.follow(1)
    assert bucket.ranges(SegmentState.COPY_STARTED) == [(0, 9)]
    await a_while(30)
    assert bucket.ranges() == [(0, 9)], "the next copy is not begun"
    assert replica.log.highest_remote_offset == 9
    await broker.stop()


@staged
async def test_copy_waiting_for_the_store_is_deleted_when_leadership_is_lost() -> None:
    bucket = Bucket()
    faults = faulty(bucket)
    broker = Broker(bucket).start()
    broker.lead(0)
    faults.left = [("copy", Fault(RetriableRemoteStorageError("not now"), applies=True))]
    broker.fill(1)
    await a_while(0.6)
    assert bucket.ranges(SegmentState.DELETE_STARTED) == [(0, 9)]
    broker.follow(1)
    await a_while()
    assert bucket.segments() == []
    assert bucket.storage.stored == {}
    await broker.stop()


@staged
async def test_copy_abandoned_by_a_crash_is_collected_by_age() -> None:
    bucket = Bucket()
    first, second = Broker(bucket, 1, upload_s=lambda: 5.0).start(), Broker(bucket, 2).start()
    log = first.lead(0).log
    first.fill(1)
    replicate(log, second.follow(0).log, first.clock.now_ms())
    await a_while(1)
    await first.crash()
    second.lead(1)
    await a_while(30)
    assert bucket.ranges(SegmentState.COPY_STARTED) == [(0, 9)], "the copy may still be finished"
    await a_while(60)
    assert bucket.segments(SegmentState.COPY_STARTED) == []
    assert bucket.orphans() == set()
    await second.stop()


@staged
async def test_copy_finished_after_it_was_judged_abandoned_stays() -> None:
    """Regression: the deletion, which waits for followers, ignored that the other broker had finished the copy."""
    bucket = Bucket()
    first, second = Broker(bucket, 1, upload_s=lambda: 500.0).start(), Broker(bucket, 2, upload_s=lambda: 500.0).start()
    log = first.lead(0).log
    first.fill(1)
    replica = second.follow(0)
    replicate(log, replica.log, first.clock.now_ms())
    await a_while(1)
    replica.low_watermark = lambda: -1  # type: ignore[method-assign]
    second.lead(1)
    await a_while(70)
    (copy,) = [each for each in bucket.segments(SegmentState.COPY_STARTED) if each.broker_id == 1]
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    bucket.metadata.publish(
        SegmentUpdate(copy.id, SegmentState.COPY_FINISHED, second.clock.now_ms(), BrokerId(1)), done
    )
    await a_while(60)
    assert bucket.ranges() == [(0, 9)]
    await first.crash()
    await second.crash()


@staged
async def test_copy_abandoned_by_this_broker_is_collected_at_once() -> None:
    bucket = Bucket()
    broker = Broker(bucket, upload_s=lambda: 5.0).start()
    broker.lead(0)
    broker.fill(1)
    broker.replica().log.flush()
    await a_while(1)
    await broker.crash()
    broker.start()
    replica = broker.lead(1)
    replica.log.advance_high_watermark(10)
    await a_while(20)
    assert bucket.ranges() == [(0, 9)]
    assert bucket.segments(SegmentState.COPY_STARTED) == []
    await broker.stop()


@staged
async def test_late_upload_of_a_collected_copy_is_deleted() -> None:
    """The former leader's upload outlasts its lease."""
    bucket = Bucket()
    slow, fresh = Broker(bucket, 1, upload_s=lambda: 300.0).start(), Broker(bucket, 2).start()
    log = slow.lead(0).log
    slow.fill(1)
    replicate(log, fresh.follow(0).log, slow.clock.now_ms())
    await a_while(1)
    slow.follow(1)
    fresh.lead(1)
    await a_while(100)
    assert bucket.segments(SegmentState.COPY_STARTED) == []
    await a_while(600)
    assert [operation for operation, _ in bucket.storage.calls].count("delete") == 2
    assert bucket.orphans() == set()
    assert len(bucket.storage.stored) == len(bucket.segments())
    await slow.stop()
    await fresh.stop()


@staged
async def test_tasks_wait_for_unloaded_metadata() -> None:
    bucket = Bucket()
    broker = Broker(bucket).start()
    broker.metadata.not_ready.add(PARTITION)
    broker.lead(0)
    broker.fill(1)
    await a_while(60)
    assert bucket.storage.calls == []
    broker.metadata.become_ready(PARTITION)
    await a_while(60)
    assert bucket.ranges() == [(0, 9)]
    await broker.stop()


@staged
async def test_lost_remote_segment_is_copied_again_from_the_local_log() -> None:
    bucket = Bucket()
    broker = Broker(bucket).start()
    replica = broker.lead(0)
    broker.fill(3)
    await a_while()
    cache = bucket.metadata.cache(PARTITION)
    lost = bucket.segments()[1]
    for state in (SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED):
        cache.update(SegmentUpdate(lost.id, state, 0, BrokerId(1)))
    del bucket.storage.stored[lost.id.id]
    await a_while()
    assert set(bucket.ranges()) >= {(0, 9), (10, 19), (20, 29)}
    assert replica.log.highest_remote_offset == 29
    await broker.stop()


# ---- expiration


@staged
async def test_log_start_offset_rises_before_segments_are_deleted() -> None:
    bucket = Bucket()
    broker = Broker(bucket).start()
    replica = broker.lead(0)
    broker.fill(3)
    await a_while()
    seen: list[tuple[str, int]] = []
    bucket.storage.fault = lambda operation, segment: seen.append((operation, replica.log.log_start_offset))
    broker.configure(retention_ms=MINUTE_MS)
    await a_while(120)
    assert replica.starts == [30]
    assert seen == [("delete", 30)] * 3
    assert bucket.segments() == []
    assert bucket.storage.stored == {}
    assert broker.metrics.topic(TOPIC).delete_requests == 3
    await broker.stop()


class UnavailableStarts(NoLogStarts):
    """A store of log start offsets that is down at times."""

    down = False

    def is_superseded(self, partition: TopicIdPartition, leader_epoch: LeaderEpoch) -> bool:
        if self.down:
            raise StoreUnavailable("down")
        return False


@staged
async def test_delete_lag_is_reported_during_an_outage() -> None:
    bucket = Bucket()
    starts = UnavailableStarts()
    broker = Broker(bucket, log_starts=starts).start()
    broker.lead(0)
    broker.fill(3)
    await a_while()
    size = sum(one.size_bytes for one in bucket.segments())
    starts.down = True
    broker.configure(retention_ms=MINUTE_MS)
    await a_while(180)
    assert len(bucket.ranges()) == 3
    assert broker.metrics.topic(TOPIC).delete_lag == (size, 3)
    starts.down = False
    await a_while(180)
    assert bucket.ranges() == []
    assert broker.metrics.topic(TOPIC).delete_lag == (0, 0)
    await broker.stop()


@staged
async def test_delete_lag_is_true_after_a_failed_deletion() -> None:
    bucket = Bucket()
    faults = faulty(bucket)
    broker = Broker(bucket).start()
    replica = broker.lead(0)
    broker.fill(3)
    await a_while()
    sizes = [one.size_bytes for one in bucket.segments()]
    faults.left = [("delete", Fault(RetriableRemoteStorageError("once")))]
    replica.log.maybe_increment_log_start_offset(30)
    lags = set()
    for _ in range(1_200):
        await a_while(0.1)
        left = sum(one.size_bytes for one in bucket.segments())
        lag = broker.metrics.topic(TOPIC).delete_lag
        assert not lag.segments or lag.bytes == left, lag
        lags.add(lag.segments)
    assert lags >= {0, 3}, sizes
    assert broker.metrics.topic(TOPIC).delete_errors == 1
    await broker.stop()


@staged
async def test_delete_records_deletes_whole_remote_segments() -> None:
    bucket = Bucket()
    broker = Broker(bucket).start()
    replica = broker.lead(0)
    broker.fill(3)
    await a_while()
    replica.log.maybe_increment_log_start_offset(15)
    await a_while()
    assert bucket.ranges() == [(10, 19), (20, 29)]
    await broker.stop()


@staged
async def test_lost_leader_epochs_are_restored_from_remote_storage() -> None:
    """The checkpoint was unreadable: only the epochs of local batches are known."""
    bucket = Bucket()
    broker = Broker(bucket).start()
    broker.lead(0)
    broker.fill(2)
    broker.lead(3)
    broker.fill(3)
    await a_while()
    broker.configure(local_retention_bytes=1)
    broker.retain()
    log = broker.replica().log
    known = log.epochs.entries
    assert known == [(0, 0), (3, 20)]
    for first in (log.local_log_start_offset, log.local_log_start_offset - 1):
        log.epochs.replace([LeaderEpochEntry(LeaderEpoch(3), first)])
        broker.lead(3)
        await a_while()
        assert log.epochs.entries == known
    log.epochs.replace([LeaderEpochEntry(LeaderEpoch(9), log.local_log_start_offset)])
    await a_while()
    assert log.epochs.entries == [(9, log.local_log_start_offset)], "no remote segment agrees with the known epochs"
    await broker.stop()


@staged
async def test_unreadable_leader_epochs_do_not_stop_expiration() -> None:
    bucket = Bucket()
    faults = faulty(bucket)
    broker = Broker(bucket).start()
    log = broker.lead(0).log
    broker.fill(4)
    await a_while()
    broker.configure(local_retention_bytes=1)
    broker.retain()
    log.epochs.replace([LeaderEpochEntry(LeaderEpoch(0), log.local_log_start_offset)])
    log.maybe_increment_log_start_offset(15)
    faults.left = [("index", Fault(RemoteStorageError("unreadable")))] * 2
    await a_while(5)
    assert bucket.ranges()[0] == (10, 19)
    await broker.stop()


@staged
async def test_new_leader_deletes_no_segment_within_retention() -> None:
    """Kafka counted segments in both tiers twice until the new leader knew its highest remote offset."""
    bucket = Bucket()
    first, second = Broker(bucket, 1).start(), Broker(bucket, 2).start()
    log = first.lead(0).log
    first.fill(4)
    replicate(log, second.follow(0).log, first.clock.now_ms())
    await a_while()
    size = log.size_bytes
    await first.crash()
    second.configure(retention_bytes=size)
    second.replica().log.highest_remote_offset = -1
    second.lead(1)
    await a_while(200)
    assert second.replica().log.log_start_offset == 0
    second.configure(retention_bytes=size - size // 4)
    await a_while(200)
    assert second.replica().log.log_start_offset == 10
    await second.stop()


@staged
async def test_failed_deletion_is_continued_by_the_next_leader() -> None:
    bucket = Bucket()
    faults = faulty(bucket)
    first, second = Broker(bucket, 1).start(), Broker(bucket, 2).start()
    log = first.lead(0).log
    first.fill(2)
    replicate(log, second.follow(0).log, first.clock.now_ms())
    await a_while()
    faults.down = True
    log.maybe_increment_log_start_offset(10)
    await a_while(60)
    assert bucket.ranges(SegmentState.DELETE_STARTED) == [(0, 9)]
    assert first.metrics.topic(TOPIC).delete_errors > 0
    await first.crash()
    faults.down = False
    second.lead(1)
    await a_while()
    assert bucket.segments(SegmentState.DELETE_STARTED) == []
    assert bucket.orphans() == set()
    await second.stop()


async def log_of_which_others_deleted_the_beginning(bucket: Bucket, starts: "KeptStarts") -> Broker:
    """Start a new leader with the old log start offset."""
    first, second = Broker(bucket, 1, log_starts=starts).start(), Broker(bucket, 2, log_starts=starts).start()
    log = first.lead(0).log
    first.fill(3)
    copy = second.follow(0).log
    replicate(log, copy, first.clock.now_ms())
    copy.roll(first.clock.now_ms())
    await a_while()
    second.configure(local_retention_bytes=0)
    second.retain()
    log.maybe_increment_log_start_offset(10)
    await a_while()
    assert bucket.ranges() == [(10, 19), (20, 29)]
    await first.crash()
    return second


@staged
async def test_outdated_log_start_offset_is_raised() -> None:
    bucket = Bucket()
    second = await log_of_which_others_deleted_the_beginning(bucket, KeptStarts())
    log = second.lead(1).log
    assert log.log_start_offset == 0
    await a_while()
    assert log.log_start_offset == 10
    assert second.metrics.topic(TOPIC).gauges.missing_offsets == 0
    await second.stop()


@staged
async def test_log_start_offset_does_not_pass_missing_segments() -> None:
    """The metadata may be lost while the objects exist."""
    bucket, starts = Bucket(), KeptStarts()
    second = await log_of_which_others_deleted_the_beginning(bucket, starts)
    starts.writes.clear()
    log = second.lead(1).log
    await a_while(2 * SETTINGS.grace_ms / 1000)
    assert log.log_start_offset == 0
    assert second.metrics.topic(TOPIC).gauges.missing_offsets == 10
    assert bucket.ranges() == [(10, 19), (20, 29)]
    log.maybe_increment_log_start_offset(10)
    await a_while()
    assert second.metrics.topic(TOPIC).gauges.missing_offsets == 0
    await second.stop()


class KeptStarts:
    """LogStarts in memory; `deposed`: a later leader has stored an offset."""

    def __init__(self) -> None:
        self.writes: list[tuple[int, int, bool]] = []
        self.is_deposed = False
        self.forgotten: list[TopicIdPartition] = []

    def on_log_start(self, partition: TopicIdPartition, leader_epoch: int, offset: int, *, at_once: bool) -> bool:
        self.writes.append((leader_epoch, offset, at_once))
        return not self.is_deposed

    def is_superseded(self, partition: TopicIdPartition, leader_epoch: int) -> bool:
        return self.is_deposed

    def withdraw(self, partition: TopicIdPartition, leader_epoch: int) -> None:
        self.forgotten.append(partition)

    def kept(self, partition: TopicIdPartition) -> int | None:
        return self.writes[-1][1] if self.writes else None

    def forget(self, partition: TopicIdPartition) -> None:
        self.forgotten.append(partition)


@staged
async def test_log_start_offset_is_stored_before_segments_are_deleted() -> None:
    bucket, starts = Bucket(), KeptStarts()
    broker = Broker(bucket, log_starts=starts).start()
    replica = broker.lead(3)
    broker.fill(2)
    await a_while()
    replica.log.maybe_increment_log_start_offset(10)
    await a_while()
    assert (3, 10, True) in starts.writes
    assert bucket.ranges() == [(10, 19)]
    await broker.stop()


@staged
async def test_former_leader_deletes_no_segment() -> None:
    bucket, starts = Bucket(), KeptStarts()
    broker = Broker(bucket, log_starts=starts).start()
    replica = broker.lead(3)
    broker.fill(2)
    await a_while()
    starts.is_deposed = True
    replica.log.maybe_increment_log_start_offset(10)
    await a_while(60)
    assert bucket.ranges() == [(0, 9), (10, 19)]
    await broker.stop()


# ---- topics that go


@staged
async def test_deleted_topic_is_removed_although_its_leader_is_down() -> None:
    bucket, starts = Bucket(), KeptStarts()
    leader, other = Broker(bucket, 1).start(), Broker(bucket, 2, log_starts=starts).start()
    leader.lead(0)
    leader.fill(15)
    await a_while(60)
    await leader.crash()
    bucket.topics.clear()
    other.manager.on_topics_deleted([TOPIC_ID])
    await a_while()
    assert bucket.segments() == []
    assert bucket.storage.stored == {}
    assert starts.forgotten == [PARTITION]
    events = [state for state in bucket.states() if state in ("MARKED", "STARTED", "FINISHED")]
    assert events == ["MARKED", "STARTED", "FINISHED"]
    assert not other.metadata.followers
    await other.stop()


@staged
async def test_removal_waits_until_the_metadata_are_read() -> None:
    """The leader of the metadata partition may be behind when the topic is deleted."""
    bucket = Bucket()
    leader = Broker(bucket, settings=replace(SETTINGS, remover_interval_ms=60 * MINUTE_MS)).start()
    leader.lead(0)
    leader.fill(2)
    await a_while()
    leader.catalog.is_led = False
    bucket.topics.clear()
    leader.unhost()
    leader.manager.on_topics_deleted([TOPIC_ID])
    await a_while(5)
    leader.catalog.is_led = True
    await a_while()
    assert bucket.segments() == []
    await leader.stop()


@staged
async def test_removal_survives_restarts_and_outages() -> None:
    bucket = Bucket()
    faults = faulty(bucket)
    broker = Broker(bucket).start()
    broker.lead(0)
    broker.fill(15)
    await a_while(60)
    bucket.topics.clear()
    broker.unhost()
    broker.manager.on_topics_deleted([TOPIC_ID])
    faults.left = [("delete", Fault(RemoteStorageError("no")))] * 3
    await a_while(0.3)
    faults.down = True
    await a_while(600)
    assert bucket.segments()
    await broker.crash()
    faults.down = False
    broker.start()
    await a_while()
    assert bucket.segments() == []
    assert bucket.storage.stored == {}
    await broker.stop()


@staged
async def test_every_broker_with_a_replica_marks_a_deleted_topic() -> None:
    """The broker that removes the topic need not have seen its deletion."""
    bucket = Bucket()
    leader, follower = Broker(bucket, 1).start(), Broker(bucket, 2).start()
    leader.lead(0)
    leader.fill(2)
    follower.follow(0)
    follower.catalog.is_led = leader.catalog.is_led = False
    await a_while()
    await leader.crash()
    bucket.topics.clear()
    follower.manager.on_topics_deleted([TOPIC_ID])
    follower.unhost()
    assert follower.metadata.followers, "the metadata are needed until the mark is published"
    await a_while(1)
    assert bucket.states()[-1] == "MARKED"
    assert not follower.metadata.followers
    await follower.crash()
    leader.catalog.is_led = True
    leader.start()
    await a_while()
    assert bucket.segments() == []
    assert bucket.storage.stored == {}
    await leader.stop()


@staged
async def test_failed_deletion_mark_is_retried() -> None:
    bucket = Bucket()
    broker, other = Broker(bucket, 1).start(), Broker(bucket, 2).start()
    broker.lead(0)
    broker.fill(1)
    await a_while()
    broker.catalog.is_led = False
    bucket.metadata.fail_next(TimeoutError("no leader"))
    bucket.topics.clear()
    broker.manager.on_topics_deleted([TOPIC_ID])
    broker.unhost()
    await a_while()
    assert bucket.segments() == []
    await broker.stop()
    await other.stop()


@staged
async def test_data_of_an_unknown_topic_are_kept_for_the_retention_time() -> None:
    """The topic may be in recovery, or the cluster metadata restored from a backup."""
    bucket = Bucket()
    settings = replace(SETTINGS, unknown_topic_retention_ms=7 * 24 * 60 * MINUTE_MS, remover_interval_ms=MINUTE_MS)
    broker = Broker(bucket, settings=settings).start()
    broker.lead(0)
    broker.fill(1)
    await a_while()
    broker.unhost()
    bucket.topics.clear()
    await a_while(7 * 24 * 3600 - 120)
    assert bucket.ranges() == [(0, 9)]
    await a_while(240)
    assert bucket.segments() == []
    await broker.stop()


@staged
async def test_data_of_an_unknown_topic_are_kept_for_ever_if_configured() -> None:
    bucket = Bucket()
    settings = replace(SETTINGS, unknown_topic_retention_ms=-1, remover_interval_ms=60 * MINUTE_MS)
    broker = Broker(bucket, settings=settings).start()
    broker.lead(0)
    broker.fill(1)
    await a_while()
    broker.unhost()
    bucket.topics.clear()
    await a_while(30 * 24 * 3600)
    assert bucket.ranges() == [(0, 9)]
    await broker.stop()


@staged
async def test_copy_in_progress_of_a_deleted_topic_leaves_no_objects() -> None:
    bucket = Bucket()
    slow, other = Broker(bucket, 1, upload_s=lambda: 100.0).start(), Broker(bucket, 2).start()
    slow.catalog.is_led = False
    slow.lead(0)
    slow.fill(1)
    await a_while(1)
    bucket.topics.clear()
    slow.unhost()
    other.manager.on_topics_deleted([TOPIC_ID])
    await a_while(400)
    assert bucket.segments() == []
    assert bucket.storage.stored == {}
    await slow.stop()
    await other.stop()


@staged
async def test_disabling_deletes_remote_segments_and_raises_the_log_start_offset() -> None:
    """KIP-950."""
    bucket, starts = Bucket(), KeptStarts()
    broker = Broker(bucket, log_starts=starts).start()
    replica = broker.lead(0)
    broker.fill(15)
    await a_while(30)
    broker.configure(local_retention_bytes=replica.log.size_bytes // 15)
    broker.retain()
    assert replica.log.local_log_start_offset == 140
    broker.configure(remote_storage_enable=False, remote_log_delete_on_disable=True)
    await a_while(30)
    assert replica.log.log_start_offset == 140
    assert bucket.segments() == []
    assert bucket.storage.stored == {}
    assert not broker.metadata.leaders
    broker.configure(remote_storage_enable=True)
    await a_while(30)
    assert bucket.ranges() == [(140, 149)]
    await broker.stop()


@staged
async def test_stopping_finishes_work_in_progress() -> None:
    bucket = Bucket()
    broker = Broker(bucket, upload_s=lambda: 20.0).start()
    broker.lead(0)
    broker.fill(2)
    await a_while(1)
    await broker.stop()
    assert bucket.ranges() == [(0, 9)]
    assert bucket.segments(SegmentState.COPY_STARTED) == []


def test_settings_have_kafkas_defaults() -> None:
    settings = RemoteLogSettings()
    assert (settings.copier_threads, settings.expiration_threads, settings.follower_threads) == (10, 10, 2)
    assert settings.backoff == Backoff(500, 30_000, 0.2)
