"""A hosted partition as a follower: the calls of its fetcher, and the reads meanwhile."""

import errno

import pytest

from broker.replication.epochs import EpochEnd
from broker.replication.fetch_state import FetchPosition
from broker.runtime.loop.waiters import Watch
from broker.runtime.partitions.hosted_follower import FetchedOutOfOrder
from broker.runtime.partitions.offset_lookup import LATEST, OffsetQuery, list_offset
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.partition_reads import FetchLimits, FetchParams, read
from broker.runtime.partitions.reads import FetchIsolation, FetchTarget, LogReadResult
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import LeaderEpoch
from protocol.primitives import Uuid
from protocol.records.builder import Record, build_batch
from storage.config import CleanupPolicy, LogConfig
from tests.support.harnesses.data_plane import DataPlane

LEADER = 2
CONSUMER = FetchParams(FetchIsolation.HIGH_WATERMARK, needs_leader=False)


@pytest.fixture
def node() -> DataPlane:
    plane = DataPlane()
    plane.register_broker(LEADER)
    return plane


def followed(node: DataPlane, config: LogConfig | None = None) -> Uuid:
    identity = node.create_topic(replicas=(1, 2), leader=LEADER, config=config)
    node.fetchers.take()
    return identity


def records(base: int, count: int = 1, *, epoch: int = 0, value: bytes = b"v") -> bytes:
    """Return a batch as in a leader's log."""
    return build_batch(
        [Record(1, b"k", value) for _ in range(count)], base_offset=base, leader_epoch=LeaderEpoch(epoch)
    )


def filled(node: DataPlane, count: int, *, high_watermark: int = 0, config: LogConfig | None = None) -> Partition:
    """Return a follower with `count` batches of one record each."""
    followed(node, config)
    partition = node.partition()
    data = b"".join(records(offset) for offset in range(count))
    assert partition.follower.append_fetched(LeaderEpoch(0), 0, data, high_watermark, 0)
    return partition


def consume(partition: Partition, offset: int) -> LogReadResult:
    target = FetchTarget("t", partition.topic_id, 0, offset, 1_000_000)
    return read(partition, target, CONSUMER, FetchLimits(1_000_000, True), is_first_look=True)


class CountedWatches:
    """Counts the events of a partition's watches."""

    def __init__(self, partition: Partition) -> None:
        self.marks = self.log_end = 0
        self._watch(partition, "marks")
        self._watch(partition, "log_end")

    def _watch(self, partition: Partition, name: str) -> None:
        def on_change() -> None:
            setattr(self, name, getattr(self, name) + 1)
            watch.arm()

        watch = Watch((getattr(partition, name),), on_change)
        watch.arm()


class TestPosition:
    def test_empty_log_has_no_epoch(self, node: DataPlane) -> None:
        followed(node)
        assert node.partition().follower.fetch_position() == FetchPosition(0, LeaderEpoch(-1), 0)

    def test_fetch_position_is_the_log_end_and_the_last_records_epoch(self, node: DataPlane) -> None:
        identity = followed(node)
        node.elect(identity, LEADER)
        assert node.partition().follower.append_fetched(LeaderEpoch(1), 0, records(0, 2) + records(2, epoch=1), 0, 0)
        assert node.partition().follower.fetch_position() == FetchPosition(3, LeaderEpoch(1), 0)

    def test_role_names_leader_and_epoch(self, node: DataPlane) -> None:
        identity = followed(node)
        partition = node.partition()
        assert (not partition.is_leader, partition.leader_id, partition.leader_epoch) == (True, LEADER, 0)
        node.elect(identity, -1)
        assert (not partition.is_leader, partition.leader_id, partition.leader_epoch) == (True, None, 1)
        node.elect(identity, 1)
        assert (not partition.is_leader, partition.leader_id, partition.leader_epoch) == (False, 1, 2)


class TestAppendFetched:
    def test_batches_are_appended_unchanged(self, node: DataPlane) -> None:
        partition = filled(node, 0)
        data = records(0, 2) + records(7)
        assert partition.follower.append_fetched(LeaderEpoch(0), 0, memoryview(data), 0, 0)
        assert partition.log.log_end_offset == 8
        assert bytes(partition.log.read(0, 10_000, 8).data) == data

    @pytest.mark.parametrize(("epoch", "offset"), [(1, 3), (-1, 3), (0, 2), (0, 4)])
    def test_answer_for_another_epoch_or_offset_is_ignored(self, node: DataPlane, epoch: int, offset: int) -> None:
        partition = filled(node, 3)
        assert not partition.follower.append_fetched(LeaderEpoch(epoch), offset, records(offset), 3, 1)
        assert (partition.log.log_end_offset, partition.log.high_watermark, partition.log.log_start_offset) == (3, 0, 0)

    def test_leader_appends_no_fetched_records(self, node: DataPlane) -> None:
        identity = followed(node)
        node.elect(identity, 1)
        assert not node.partition().follower.append_fetched(LeaderEpoch(1), 0, records(0), 1, 0)

    def test_closed_replica_appends_nothing(self, node: DataPlane) -> None:
        identity = followed(node)
        partition = node.partition()
        node.delete_topic(identity)
        assert not partition.follower.append_fetched(LeaderEpoch(0), 0, records(0), 0, 0)

    def test_records_of_a_newer_leader_epoch_are_left_out(self, node: DataPlane) -> None:
        partition = filled(node, 1)
        assert partition.follower.append_fetched(LeaderEpoch(0), 1, records(1) + records(2, epoch=1) + records(3), 4, 0)
        assert partition.log.log_end_offset == 2
        assert partition.log.epochs.latest_epoch == 0

    def test_records_below_the_log_end_are_refused(self, node: DataPlane) -> None:
        partition = filled(node, 3)
        with pytest.raises(FetchedOutOfOrder) as error:
            partition.follower.append_fetched(LeaderEpoch(0), 3, records(2, 2), 0, 0)
        assert error.value.diverges_at == 2
        assert partition.log.log_end_offset == 3

    def test_committed_records_are_not_truncated_for_records_below_the_log_end(self, node: DataPlane) -> None:
        partition = filled(node, 3, high_watermark=3)
        with pytest.raises(FetchedOutOfOrder) as error:
            partition.follower.append_fetched(LeaderEpoch(0), 3, records(2, 2), 0, 0)
        assert error.value.diverges_at is None

    def test_corrupt_records_are_refused(self, node: DataPlane) -> None:
        partition = filled(node, 1)
        broken = bytearray(records(1) + records(2))
        broken[-1] ^= 1
        with pytest.raises(KafkaError) as error:
            partition.follower.append_fetched(LeaderEpoch(0), 1, broken, 1, 0)
        assert error.value.code is ErrorCode.CORRUPT_MESSAGE
        assert (partition.log.log_end_offset, partition.log.high_watermark) == (1, 0)

    def test_failing_disk_takes_the_directory_offline_and_ends_following(self, node: DataPlane) -> None:
        partition = filled(node, 1)
        node.memory.fail("write", errno.ENOSPC, path_part="t-0")
        with pytest.raises(KafkaError) as error:
            partition.follower.append_fetched(LeaderEpoch(0), 1, records(1), 0, 0)
        node.loop.run_soon()
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert node.failed_directories == ["/data"]
        assert node.fetchers.take() == [("t-0", None, None)]
        assert not partition.follower.append_fetched(LeaderEpoch(0), 1, records(1), 0, 0)

    def test_finished_segment_is_flushed(self, node: DataPlane) -> None:
        filled(node, 0, config=LogConfig(segment_bytes=len(records(0)) + 10))
        assert node.partition().follower.append_fetched(LeaderEpoch(0), 0, records(0) + records(1), 0, 0)
        node.loop.run_soon()
        assert node.partition().log.recovery_point == 2

    def test_empty_log_accepts_a_batch_across_its_start(self, node: DataPlane) -> None:
        partition = filled(node, 0)
        node.loop.run_soon()
        restarted = partition.follower.truncate_fully_and_start_at(LeaderEpoch(0), 5)
        node.loop.run_soon()
        assert restarted.result()
        assert partition.follower.append_fetched(LeaderEpoch(0), 5, records(3, 4), 7, 5)
        assert (partition.log.log_start_offset, partition.log.log_end_offset) == (5, 7)
        assert partition.log.high_watermark == 7


class TestMarks:
    @pytest.mark.parametrize(("leaders", "own"), [(0, 0), (2, 2), (3, 3), (9, 3)])
    def test_high_watermark_is_limited_to_the_log_end(self, node: DataPlane, leaders: int, own: int) -> None:
        partition = filled(node, 3, high_watermark=leaders)
        assert partition.log.high_watermark == own

    def test_high_watermark_may_decrease_but_not_below_the_log_start(self, node: DataPlane) -> None:
        partition = filled(node, 5, high_watermark=5)
        assert partition.follower.append_fetched(LeaderEpoch(0), 5, b"", 5, 3)
        assert partition.follower.append_fetched(LeaderEpoch(0), 5, b"", 4, 3)
        assert partition.log.high_watermark == 4
        assert partition.follower.append_fetched(LeaderEpoch(0), 5, b"", 1, 3)
        assert partition.log.high_watermark == 3

    def test_log_start_follows_the_leaders_up_to_the_high_watermark(self, node: DataPlane) -> None:
        partition = filled(node, 3, high_watermark=2)
        assert partition.follower.append_fetched(LeaderEpoch(0), 3, b"", 2, 1)
        assert partition.log.log_start_offset == 1
        assert partition.follower.append_fetched(LeaderEpoch(0), 3, b"", 2, 3)
        assert partition.log.log_start_offset == 2

    def test_consumers_watch_marks_and_followers_the_log_end(self, node: DataPlane) -> None:
        partition = filled(node, 1)
        watches = CountedWatches(partition)
        assert partition.follower.append_fetched(LeaderEpoch(0), 1, records(1), 0, 0)
        assert (watches.marks, watches.log_end) == (0, 1)
        assert partition.follower.append_fetched(LeaderEpoch(0), 2, b"", 2, 0)
        assert (watches.marks, watches.log_end) == (1, 1)
        assert partition.follower.append_fetched(LeaderEpoch(0), 2, b"", 2, 0)
        assert (watches.marks, watches.log_end) == (1, 1)

    def test_consumers_read_up_to_the_leaders_high_watermark(self, node: DataPlane) -> None:
        partition = filled(node, 3, high_watermark=2)
        assert bytes(consume(partition, 0).records) == records(0) + records(1)


class TestTruncate:
    def test_truncation_removes_records_from_the_offset_on(self, node: DataPlane) -> None:
        partition = filled(node, 5, high_watermark=4)
        cut = partition.follower.truncate(LeaderEpoch(0), 2)
        node.loop.run_soon()
        assert cut.result()
        assert partition.follower.fetch_position() == FetchPosition(2, LeaderEpoch(0), 0)
        assert partition.log.high_watermark == 2
        assert partition.follower.append_fetched(LeaderEpoch(0), 2, records(2, 3), 2, 0)

    def test_truncation_without_records_is_immediate_and_removes_empty_epochs(self, node: DataPlane) -> None:
        """A leader that lost its role before its first write has an epoch that no other replica may know."""
        identity = node.create_topic(replicas=(1, 2))
        partition = node.partition()
        node.produce(b"a")
        node.elect(identity, 1)
        node.elect(identity, LEADER)
        assert partition.follower.fetch_position() == FetchPosition(1, LeaderEpoch(1), 0)
        assert partition.follower.end_for_epoch(LeaderEpoch(1)) == EpochEnd(LeaderEpoch(1), 1)
        assert partition.follower.truncate(LeaderEpoch(2), 1).result()
        assert partition.follower.fetch_position() == FetchPosition(1, LeaderEpoch(0), 0)
        assert partition.follower.end_for_epoch(LeaderEpoch(1)) == EpochEnd(LeaderEpoch(-1), -1)

    def test_truncation_removes_deleted_records_if_no_others_remain(self, node: DataPlane) -> None:
        """Removing deleted records blocks like any truncation."""
        partition = filled(node, 3, high_watermark=3)
        partition.log.maybe_increment_log_start_offset(3)
        cut = partition.follower.truncate(LeaderEpoch(0), 3)
        assert partition.truncation.is_under_way
        node.loop.run_soon()
        assert cut.result()
        assert partition.follower.fetch_position() == FetchPosition(3, LeaderEpoch(-1), 3)
        assert partition.log.size_bytes == 0

    def test_truncation_for_another_epoch_is_refused(self, node: DataPlane) -> None:
        partition = filled(node, 3)
        assert not partition.follower.truncate(LeaderEpoch(1), 0).result()
        assert not partition.follower.truncate_fully_and_start_at(LeaderEpoch(1), 7).result()
        assert partition.log.log_end_offset == 3

    def test_readers_see_offsets_below_the_truncation_and_no_records(self, node: DataPlane) -> None:
        partition = filled(node, 5, high_watermark=4)
        node.io.is_held = True
        partition.follower.truncate(LeaderEpoch(0), 2)
        result = consume(partition, 1)
        assert (result.error, result.high_watermark, result.size_bytes, result.is_idle) == (ErrorCode.NONE, 2, 0, True)
        watches = CountedWatches(partition)
        node.io.release()
        node.loop.run_soon()
        assert watches.marks
        assert bytes(consume(partition, 1).records) == records(1)

    def test_offset_lookups_fail_during_truncation(self, node: DataPlane) -> None:
        partition = filled(node, 5, high_watermark=4)
        node.io.is_held = True
        partition.follower.truncate(LeaderEpoch(0), 2)
        with pytest.raises(KafkaError) as error:
            list_offset(
                partition, OffsetQuery(LATEST, LeaderEpoch(-1), FetchIsolation.HIGH_WATERMARK, needs_leader=False)
            )
        assert error.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_appends_and_second_truncations_are_refused_during_truncation(self, node: DataPlane) -> None:
        partition = filled(node, 5)
        node.io.is_held = True
        partition.follower.truncate(LeaderEpoch(0), 2)
        assert not partition.follower.append_fetched(LeaderEpoch(0), 5, records(5), 0, 0)
        assert not partition.follower.truncate(LeaderEpoch(0), 1).result()
        assert not partition.follower.truncate_fully_and_start_at(LeaderEpoch(0), 1).result()
        node.io.release()
        node.loop.run_soon()
        assert partition.log.log_end_offset == 2

    def test_leader_epoch_during_truncation_begins_with_the_truncated_log(self, node: DataPlane) -> None:
        identity = followed(node)
        partition = node.partition()
        assert partition.follower.append_fetched(
            LeaderEpoch(0), 0, b"".join(records(offset) for offset in range(5)), 2, 0
        )
        node.io.is_held = True
        cut = partition.follower.truncate(LeaderEpoch(0), 2)
        node.elect(identity, 1)
        assert not partition.is_leader
        assert node.fetchers.take() == []
        node.io.release()
        node.loop.run_soon()
        assert not cut.result()
        assert partition.leader_role.epoch_start_offset == 2
        assert partition.log.epochs.entries == [(0, 0), (1, 2)]
        assert node.fetchers.take() == [("t-0", None, None)]

    def test_listener_is_called_for_a_deferred_leader_role(self, node: DataPlane) -> None:
        identity = followed(node)
        partition = node.partition()
        assert partition.follower.append_fetched(LeaderEpoch(0), 0, records(0), 0, 0)
        leader_roles: list[bool] = []

        class Coordinator:
            def on_hosted(self, partition: Partition) -> None:
                leader_roles.append(partition.is_leader)

        node.partitions.roles.add_listener(Coordinator())
        node.io.is_held = True
        partition.follower.truncate(LeaderEpoch(0), 0)
        node.elect(identity, 1)
        assert leader_roles == []
        node.io.release()
        node.loop.run_soon()
        assert leader_roles == [True]

    def test_new_leader_during_truncation_is_followed_afterwards(self, node: DataPlane) -> None:
        identity = followed(node)
        partition = node.partition()
        assert partition.follower.append_fetched(LeaderEpoch(0), 0, records(0, 5), 0, 0)
        node.io.is_held = True
        cut = partition.follower.truncate(LeaderEpoch(0), 0)
        node.elect(identity, LEADER)
        node.elect(identity, -1)
        node.elect(identity, LEADER)
        node.io.release()
        node.loop.run_soon()
        assert not cut.result()
        assert node.fetchers.take() == [("t-0", 2, 1), ("t-0", None, None), ("t-0", 2, 3)]

    def test_topic_may_be_deleted_during_truncation(self, node: DataPlane) -> None:
        identity = followed(node)
        partition = node.partition()
        assert partition.follower.append_fetched(LeaderEpoch(0), 0, records(0, 5), 0, 0)
        node.io.is_held = True
        cut = partition.follower.truncate(LeaderEpoch(0), 0)
        node.elect(identity, 1)
        node.delete_topic(identity)
        node.io.release()
        node.loop.run_soon()
        assert not cut.result()
        assert not partition.is_leader
        assert node.loop.failures == []

    def test_failing_disk_fails_the_truncation(self, node: DataPlane) -> None:
        partition = filled(node, 5)
        node.memory.fail("truncate", path_part="t-0")
        cut = partition.follower.truncate(LeaderEpoch(0), 2)
        node.loop.run_soon()
        error = cut.exception()
        assert isinstance(error, KafkaError)
        assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert node.failed_directories == ["/data"]
        assert node.loop.failures == []

    def test_failed_disk_fails_the_truncation(self, node: DataPlane) -> None:
        partition = filled(node, 1)
        partition.log.fail(OSError(errno.EIO, "failed"))
        assert isinstance(partition.follower.truncate(LeaderEpoch(0), 1).exception(), KafkaError)

    def test_truncation_continues_if_its_caller_cancels(self, node: DataPlane) -> None:
        partition = filled(node, 5)
        node.memory.fail("truncate", path_part="t-0")
        node.io.is_held = True
        partition.follower.truncate(LeaderEpoch(0), 2).cancel()
        node.io.release()
        node.loop.run_soon()
        assert node.failed_directories == ["/data"]
        assert node.loop.failures == []

    def test_pending_flush_of_truncated_records_is_dropped(self, node: DataPlane) -> None:
        """A pending flush would let the next leader epoch commit unflushed records up to the former position."""
        identity = followed(node, LogConfig(flush_messages=1))
        partition = node.partition()
        assert partition.follower.append_fetched(LeaderEpoch(0), 0, records(0) + records(1), 0, 0)
        node.loop.run_soon()
        node.io.is_held = True
        assert partition.follower.append_fetched(LeaderEpoch(0), 2, records(2), 0, 0)
        partition.follower.truncate(LeaderEpoch(0), 0)
        node.io.release()
        node.loop.run_soon()
        node.elect(identity, 1)
        node.change_isr(identity, 1)
        node.clock.advance_ms(30_001)
        node.io.is_held = True
        node.produce(b"a")
        assert partition.log.high_watermark == 0
        node.io.release()
        node.loop.run_soon()
        assert partition.log.high_watermark == 1


class TestFlush:
    """A follower acknowledges records once they are as durable as the topic demands (`flush.messages`)."""

    def flushing(self, node: DataPlane) -> Partition:
        """Return a follower with a record that waits for a flush."""
        followed(node, LogConfig(flush_messages=2))
        partition = node.partition()
        node.io.is_held = True
        assert partition.follower.append_fetched(LeaderEpoch(0), 0, records(0), 0, 0)
        assert partition.follower.append_fetched(LeaderEpoch(0), 1, records(1), 0, 0)
        return partition

    def test_fewer_records_than_flush_messages_need_no_flush(self, node: DataPlane) -> None:
        followed(node, LogConfig(flush_messages=2))
        assert node.partition().follower.append_fetched(LeaderEpoch(0), 0, records(0), 0, 0)
        assert node.partition().follower.is_flushed

    def test_flush_messages_records_need_a_flush(self, node: DataPlane) -> None:
        assert not self.flushing(node).follower.is_flushed

    def test_flushed_records_may_be_reported(self, node: DataPlane) -> None:
        partition = self.flushing(node)
        recovery_points: list[int] = []
        partition.follower.when_flushed(lambda: recovery_points.append(partition.log.recovery_point))
        node.loop.run_soon()
        assert recovery_points == []
        node.io.release()
        node.loop.run_soon()
        assert recovery_points == [2]
        assert partition.follower.is_flushed

    def test_truncated_records_need_no_flush(self, node: DataPlane) -> None:
        partition = self.flushing(node)
        log_ends: list[int] = []
        partition.follower.when_flushed(lambda: log_ends.append(partition.log.log_end_offset))
        partition.follower.truncate(LeaderEpoch(0), 1)
        node.io.release()
        node.loop.run_soon()
        assert log_ends == [1]
        assert partition.follower.is_flushed

    def test_closed_replica_ends_waits_for_its_flush(self, node: DataPlane) -> None:
        partition = self.flushing(node)
        notified: list[int] = []
        partition.follower.when_flushed(lambda: notified.append(1))
        node.delete_topic(partition.topic_id)
        assert notified == [1]


class TestRestart:
    def test_log_restarts_at_the_offset(self, node: DataPlane) -> None:
        partition = filled(node, 5, high_watermark=5)
        done = partition.follower.truncate_fully_and_start_at(LeaderEpoch(0), 40)
        node.loop.run_soon()
        assert done.result()
        assert partition.follower.fetch_position() == FetchPosition(40, LeaderEpoch(-1), 40)
        assert partition.log.high_watermark == 40
        assert partition.follower.append_fetched(LeaderEpoch(0), 40, records(40), 41, 40)


class TestUpkeep:
    def test_truncation_aborts_compaction_and_resets_the_cleaner_checkpoint(self, node: DataPlane) -> None:
        config = LogConfig(cleanup_policy=frozenset({CleanupPolicy.COMPACT}), segment_bytes=len(records(0)) + 10)
        partition = filled(node, 5, high_watermark=5, config=config)
        candidate = node.cleaner.next_candidate([partition.log], node.clock.now_ms())
        assert candidate is not None
        node.cleaner.begin(candidate, node.clock.now_ms())
        partition.follower.truncate(LeaderEpoch(0), 2)
        node.loop.run_soon()
        assert not node.cleaner.is_in_progress(partition.log)
