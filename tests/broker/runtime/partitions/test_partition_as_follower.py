"""A hosted replica as a follower: what a fetcher does to it, and what its readers see meanwhile."""

import errno

import pytest

from broker.replication.epochs import EpochEnd
from broker.replication.fetch_state import FetchPosition
from broker.runtime.loop.waiters import Watch
from broker.runtime.partitions.hosted_follower import FetchedOutOfOrder
from broker.runtime.partitions.offset_lookup import LATEST, OffsetQuery, list_offset
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.partition_reads import FetchParams, ReadLimits, read
from broker.runtime.partitions.reads import FetchIsolation, FetchTarget, LogReadResult
from protocol.errors import ErrorCode, KafkaError
from protocol.primitives import Uuid
from protocol.records.builder import Record, build_batch
from storage.config import CleanupPolicy, LogConfig
from tests.support.data_plane import DataPlane

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
    """A batch as a leader has it in its log."""
    return build_batch([Record(1, b"k", value) for _ in range(count)], base_offset=base, leader_epoch=epoch)


def filled(node: DataPlane, count: int, *, high_watermark: int = 0, config: LogConfig | None = None) -> Partition:
    """A follower with `count` batches of one record each."""
    followed(node, config)
    partition = node.partition()
    data = b"".join(records(offset) for offset in range(count))
    assert partition.follower.append_fetched(0, 0, data, high_watermark, 0)
    return partition


def consume(partition: Partition, offset: int) -> LogReadResult:
    target = FetchTarget("t", partition.topic_id, 0, offset, 1_000_000)
    return read(partition, target, CONSUMER, ReadLimits(1_000_000, True), is_first_look=True)


class Told:
    """Counts how often a bound of a partition fires."""

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
    def test_an_empty_log_knows_no_epoch(self, node: DataPlane) -> None:
        followed(node)
        assert node.partition().follower.fetch_position() == FetchPosition(0, -1, 0)

    def test_it_is_the_end_and_the_epoch_of_the_last_record(self, node: DataPlane) -> None:
        identity = followed(node)
        node.elect(identity, LEADER)
        assert node.partition().follower.append_fetched(1, 0, records(0, 2) + records(2, epoch=1), 0, 0)
        assert node.partition().follower.fetch_position() == FetchPosition(3, 1, 0)

    def test_it_says_whom_it_follows(self, node: DataPlane) -> None:
        identity = followed(node)
        partition = node.partition()
        assert (not partition.is_leader, partition.leader_id, partition.leader_epoch) == (True, LEADER, 0)
        node.elect(identity, -1)
        assert (not partition.is_leader, partition.leader_id, partition.leader_epoch) == (True, None, 1)
        node.elect(identity, 1)
        assert (not partition.is_leader, partition.leader_id, partition.leader_epoch) == (False, 1, 2)


class TestAppendFetched:
    def test_batches_stay_as_they_are(self, node: DataPlane) -> None:
        partition = filled(node, 0)
        data = records(0, 2) + records(7)
        assert partition.follower.append_fetched(0, 0, memoryview(data), 0, 0)
        assert partition.log.log_end_offset == 8
        assert bytes(partition.log.read(0, 10_000, 8).data) == data

    @pytest.mark.parametrize(("epoch", "offset"), [(1, 3), (-1, 3), (0, 2), (0, 4)])
    def test_an_answer_to_another_epoch_or_offset_does_nothing(self, node: DataPlane, epoch: int, offset: int) -> None:
        partition = filled(node, 3)
        assert not partition.follower.append_fetched(epoch, offset, records(offset), 3, 1)
        assert (partition.log.log_end_offset, partition.log.high_watermark, partition.log.log_start_offset) == (3, 0, 0)

    def test_a_leader_takes_nothing_from_others(self, node: DataPlane) -> None:
        identity = followed(node)
        node.elect(identity, 1)
        assert not node.partition().follower.append_fetched(1, 0, records(0), 1, 0)

    def test_a_replica_that_is_gone_takes_nothing(self, node: DataPlane) -> None:
        identity = followed(node)
        partition = node.partition()
        node.delete_topic(identity)
        assert not partition.follower.append_fetched(0, 0, records(0), 0, 0)

    def test_records_of_a_reign_that_it_has_yet_to_hear_of_wait(self, node: DataPlane) -> None:
        partition = filled(node, 1)
        assert partition.follower.append_fetched(0, 1, records(1) + records(2, epoch=1) + records(3), 4, 0)
        assert partition.log.log_end_offset == 2
        assert partition.log.epochs.latest_epoch == 0

    def test_records_that_begin_below_the_end_are_refused(self, node: DataPlane) -> None:
        partition = filled(node, 3)
        with pytest.raises(FetchedOutOfOrder) as error:
            partition.follower.append_fetched(0, 3, records(2, 2), 0, 0)
        assert error.value.diverges_at == 2
        assert partition.log.log_end_offset == 3

    def test_what_is_committed_is_not_to_be_cut_for_the_sake_of_such_records(self, node: DataPlane) -> None:
        partition = filled(node, 3, high_watermark=3)
        with pytest.raises(FetchedOutOfOrder) as error:
            partition.follower.append_fetched(0, 3, records(2, 2), 0, 0)
        assert error.value.diverges_at is None

    def test_corrupt_records_are_refused_whole(self, node: DataPlane) -> None:
        partition = filled(node, 1)
        broken = bytearray(records(1) + records(2))
        broken[-1] ^= 1
        with pytest.raises(KafkaError) as error:
            partition.follower.append_fetched(0, 1, broken, 1, 0)
        assert error.value.code is ErrorCode.CORRUPT_MESSAGE
        assert (partition.log.log_end_offset, partition.log.high_watermark) == (1, 0)

    def test_a_failing_disk_takes_the_directory_offline_and_ends_the_following(self, node: DataPlane) -> None:
        partition = filled(node, 1)
        node.memory.fail("write", errno.ENOSPC, path_part="t-0")
        with pytest.raises(KafkaError) as error:
            partition.follower.append_fetched(0, 1, records(1), 0, 0)
        node.loop.run_soon()
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert node.failed_directories == ["/data"]
        assert node.fetchers.take() == [("t-0", None, None)]
        assert not partition.follower.append_fetched(0, 1, records(1), 0, 0)

    def test_a_finished_segment_is_flushed(self, node: DataPlane) -> None:
        filled(node, 0, config=LogConfig(segment_bytes=len(records(0)) + 10))
        assert node.partition().follower.append_fetched(0, 0, records(0) + records(1), 0, 0)
        node.loop.run_soon()
        assert node.partition().log.recovery_point == 2

    def test_an_empty_log_begins_at_a_batch_that_straddles_its_start(self, node: DataPlane) -> None:
        partition = filled(node, 0)
        node.loop.run_soon()
        restarted = partition.follower.truncate_fully_and_start_at(0, 5)
        node.loop.run_soon()
        assert restarted.result()
        assert partition.follower.append_fetched(0, 5, records(3, 4), 7, 5)
        assert (partition.log.log_start_offset, partition.log.log_end_offset) == (5, 7)
        assert partition.log.high_watermark == 7


class TestMarks:
    @pytest.mark.parametrize(("told", "own"), [(0, 0), (2, 2), (3, 3), (9, 3)])
    def test_the_high_watermark_goes_as_far_as_the_log(self, node: DataPlane, told: int, own: int) -> None:
        partition = filled(node, 3, high_watermark=told)
        assert partition.log.high_watermark == own

    def test_it_may_go_back_but_not_below_the_start(self, node: DataPlane) -> None:
        partition = filled(node, 5, high_watermark=5)
        assert partition.follower.append_fetched(0, 5, b"", 5, 3)
        assert partition.follower.append_fetched(0, 5, b"", 4, 3)
        assert partition.log.high_watermark == 4
        assert partition.follower.append_fetched(0, 5, b"", 1, 3)
        assert partition.log.high_watermark == 3

    def test_the_start_follows_the_leaders_but_never_passes_what_is_committed_here(self, node: DataPlane) -> None:
        partition = filled(node, 3, high_watermark=2)
        assert partition.follower.append_fetched(0, 3, b"", 2, 1)
        assert partition.log.log_start_offset == 1
        assert partition.follower.append_fetched(0, 3, b"", 2, 3)
        assert partition.log.log_start_offset == 2

    def test_consumers_hear_of_marks_and_followers_of_the_end(self, node: DataPlane) -> None:
        partition = filled(node, 1)
        told = Told(partition)
        assert partition.follower.append_fetched(0, 1, records(1), 0, 0)
        assert (told.marks, told.log_end) == (0, 1)
        assert partition.follower.append_fetched(0, 2, b"", 2, 0)
        assert (told.marks, told.log_end) == (1, 1)
        assert partition.follower.append_fetched(0, 2, b"", 2, 0)
        assert (told.marks, told.log_end) == (1, 1)

    def test_consumers_read_up_to_what_the_leader_said_is_committed(self, node: DataPlane) -> None:
        partition = filled(node, 3, high_watermark=2)
        assert bytes(consume(partition, 0).records) == records(0) + records(1)


class TestTruncate:
    def test_everything_from_the_offset_on_goes(self, node: DataPlane) -> None:
        partition = filled(node, 5, high_watermark=4)
        cut = partition.follower.truncate(0, 2)
        node.loop.run_soon()
        assert cut.result()
        assert partition.follower.fetch_position() == FetchPosition(2, 0, 0)
        assert partition.log.high_watermark == 2
        assert partition.follower.append_fetched(0, 2, records(2, 3), 2, 0)

    def test_without_records_to_cut_it_is_done_at_once_and_void_epochs_go(self, node: DataPlane) -> None:
        """A leader that was deposed before it wrote anything holds an epoch that nobody else may know."""
        identity = node.create_topic(replicas=(1, 2))
        partition = node.partition()
        node.produce(b"a")
        node.elect(identity, 1)
        node.elect(identity, LEADER)
        assert partition.follower.fetch_position() == FetchPosition(1, 1, 0)
        assert partition.follower.end_for_epoch(1) == EpochEnd(1, 1)
        assert partition.follower.truncate(2, 1).result()
        assert partition.follower.fetch_position() == FetchPosition(1, 0, 0)
        assert partition.follower.end_for_epoch(1) == EpochEnd(-1, -1)

    def test_deleted_records_go_where_nothing_else_would_be_left(self, node: DataPlane) -> None:
        """They take the disk's time, like others that are cut."""
        partition = filled(node, 3, high_watermark=3)
        partition.log.maybe_increment_log_start_offset(3)
        cut = partition.follower.truncate(0, 3)
        assert partition.truncation.is_under_way
        node.loop.run_soon()
        assert cut.result()
        assert partition.follower.fetch_position() == FetchPosition(3, -1, 3)
        assert partition.log.size_bytes == 0

    def test_another_epoch_cuts_nothing(self, node: DataPlane) -> None:
        partition = filled(node, 3)
        assert not partition.follower.truncate(1, 0).result()
        assert not partition.follower.truncate_fully_and_start_at(1, 7).result()
        assert partition.log.log_end_offset == 3

    def test_meanwhile_readers_find_what_is_committed_below_the_cut_and_nothing_to_read(self, node: DataPlane) -> None:
        partition = filled(node, 5, high_watermark=4)
        node.io.is_held = True
        partition.follower.truncate(0, 2)
        result = consume(partition, 1)
        assert (result.error, result.high_watermark, result.size_bytes, result.is_idle) == (ErrorCode.NONE, 2, 0, True)
        told = Told(partition)
        node.io.release()
        node.loop.run_soon()
        assert told.marks
        assert bytes(consume(partition, 1).records) == records(1)

    def test_meanwhile_offsets_are_not_looked_up(self, node: DataPlane) -> None:
        partition = filled(node, 5, high_watermark=4)
        node.io.is_held = True
        partition.follower.truncate(0, 2)
        with pytest.raises(KafkaError) as error:
            list_offset(partition, OffsetQuery(LATEST, -1, FetchIsolation.HIGH_WATERMARK, needs_leader=False))
        assert error.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_meanwhile_nothing_is_appended_and_no_second_cut_begins(self, node: DataPlane) -> None:
        partition = filled(node, 5)
        node.io.is_held = True
        partition.follower.truncate(0, 2)
        assert not partition.follower.append_fetched(0, 5, records(5), 0, 0)
        assert not partition.follower.truncate(0, 1).result()
        assert not partition.follower.truncate_fully_and_start_at(0, 1).result()
        node.io.release()
        node.loop.run_soon()
        assert partition.log.log_end_offset == 2

    def test_a_reign_that_comes_meanwhile_begins_with_the_log_that_is_left(self, node: DataPlane) -> None:
        identity = followed(node)
        partition = node.partition()
        assert partition.follower.append_fetched(0, 0, b"".join(records(offset) for offset in range(5)), 2, 0)
        node.io.is_held = True
        cut = partition.follower.truncate(0, 2)
        node.elect(identity, 1)
        assert not partition.is_leader
        assert node.fetchers.take() == []
        node.io.release()
        node.loop.run_soon()
        assert not cut.result()
        assert partition.leader_role.epoch_start_offset == 2
        assert partition.log.epochs.entries == [(0, 0), (1, 2)]
        assert node.fetchers.take() == [("t-0", None, None)]

    def test_a_coordinator_hears_that_its_partition_leads_at_last(self, node: DataPlane) -> None:
        identity = followed(node)
        partition = node.partition()
        assert partition.follower.append_fetched(0, 0, records(0), 0, 0)
        told: list[bool] = []

        class Coordinator:
            def on_hosted(self, partition: Partition) -> None:
                told.append(partition.is_leader)

        node.partitions.roles.add_listener(Coordinator())
        node.io.is_held = True
        partition.follower.truncate(0, 0)
        node.elect(identity, 1)
        assert told == []
        node.io.release()
        node.loop.run_soon()
        assert told == [True]

    def test_another_leader_that_comes_meanwhile_is_followed_afterwards(self, node: DataPlane) -> None:
        identity = followed(node)
        partition = node.partition()
        assert partition.follower.append_fetched(0, 0, records(0, 5), 0, 0)
        node.io.is_held = True
        cut = partition.follower.truncate(0, 0)
        node.elect(identity, LEADER)
        node.elect(identity, -1)
        node.elect(identity, LEADER)
        node.io.release()
        node.loop.run_soon()
        assert not cut.result()
        assert node.fetchers.take() == [("t-0", 2, 1), ("t-0", None, None), ("t-0", 2, 3)]

    def test_a_topic_deleted_meanwhile(self, node: DataPlane) -> None:
        identity = followed(node)
        partition = node.partition()
        assert partition.follower.append_fetched(0, 0, records(0, 5), 0, 0)
        node.io.is_held = True
        cut = partition.follower.truncate(0, 0)
        node.elect(identity, 1)
        node.delete_topic(identity)
        node.io.release()
        node.loop.run_soon()
        assert not cut.result()
        assert not partition.is_leader
        assert node.loop.failures == []

    def test_a_disk_that_fails(self, node: DataPlane) -> None:
        partition = filled(node, 5)
        node.memory.fail("truncate", path_part="t-0")
        cut = partition.follower.truncate(0, 2)
        node.loop.run_soon()
        error = cut.exception()
        assert isinstance(error, KafkaError)
        assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert node.failed_directories == ["/data"]
        assert node.loop.failures == []

    def test_one_that_has_failed_already(self, node: DataPlane) -> None:
        partition = filled(node, 1)
        partition.log.fail(OSError(errno.EIO, "gone"))
        assert isinstance(partition.follower.truncate(0, 1).exception(), KafkaError)

    def test_who_wanted_the_cut_need_not_wait_for_it(self, node: DataPlane) -> None:
        partition = filled(node, 5)
        node.memory.fail("truncate", path_part="t-0")
        node.io.is_held = True
        partition.follower.truncate(0, 2).cancel()
        node.io.release()
        node.loop.run_soon()
        assert node.failed_directories == ["/data"]
        assert node.loop.failures == []

    def test_a_flush_that_was_due_for_records_that_are_gone_is_forgotten(self, node: DataPlane) -> None:
        """Or the next reign of this replica would commit what is not on the disk, up to where those records were."""
        identity = followed(node, LogConfig(flush_messages=1))
        partition = node.partition()
        assert partition.follower.append_fetched(0, 0, records(0) + records(1), 0, 0)
        node.loop.run_soon()
        node.io.is_held = True
        assert partition.follower.append_fetched(0, 2, records(2), 0, 0)
        partition.follower.truncate(0, 0)
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
    """The leader hears of records once they are as safe as the topic wants them (`flush.messages`)."""

    def flushing(self, node: DataPlane) -> Partition:
        """A follower that has to flush a record."""
        followed(node, LogConfig(flush_messages=2))
        partition = node.partition()
        node.io.is_held = True
        assert partition.follower.append_fetched(0, 0, records(0), 0, 0)
        assert partition.follower.append_fetched(0, 1, records(1), 0, 0)
        return partition

    def test_as_few_as_the_topic_allows_need_no_flush(self, node: DataPlane) -> None:
        followed(node, LogConfig(flush_messages=2))
        assert node.partition().follower.append_fetched(0, 0, records(0), 0, 0)
        assert node.partition().follower.is_flushed

    def test_more_do(self, node: DataPlane) -> None:
        assert not self.flushing(node).follower.is_flushed

    def test_it_may_be_told_of_once_the_disk_has_it(self, node: DataPlane) -> None:
        partition = self.flushing(node)
        told: list[int] = []
        partition.follower.when_flushed(lambda: told.append(partition.log.recovery_point))
        node.loop.run_soon()
        assert told == []
        node.io.release()
        node.loop.run_soon()
        assert told == [2]
        assert partition.follower.is_flushed

    def test_what_is_cut_needs_no_flush(self, node: DataPlane) -> None:
        partition = self.flushing(node)
        told: list[int] = []
        partition.follower.when_flushed(lambda: told.append(partition.log.log_end_offset))
        partition.follower.truncate(0, 1)
        node.io.release()
        node.loop.run_soon()
        assert told == [1]
        assert partition.follower.is_flushed

    def test_nobody_waits_for_a_replica_that_is_gone(self, node: DataPlane) -> None:
        partition = self.flushing(node)
        told: list[int] = []
        partition.follower.when_flushed(lambda: told.append(1))
        node.delete_topic(partition.topic_id)
        assert told == [1]


class TestRestart:
    def test_the_log_goes_on_elsewhere(self, node: DataPlane) -> None:
        partition = filled(node, 5, high_watermark=5)
        done = partition.follower.truncate_fully_and_start_at(0, 40)
        node.loop.run_soon()
        assert done.result()
        assert partition.follower.fetch_position() == FetchPosition(40, -1, 40)
        assert partition.log.high_watermark == 40
        assert partition.follower.append_fetched(0, 40, records(40), 41, 40)


class TestUpkeep:
    def test_compaction_under_way_ends_and_what_is_cut_does_not_count_as_clean(self, node: DataPlane) -> None:
        config = LogConfig(cleanup_policy=frozenset({CleanupPolicy.COMPACT}), segment_bytes=len(records(0)) + 10)
        partition = filled(node, 5, high_watermark=5, config=config)
        candidate = node.cleaner.next_candidate([partition.log], node.clock.now_ms())
        assert candidate is not None
        node.cleaner.begin(candidate, node.clock.now_ms())
        partition.follower.truncate(0, 2)
        node.loop.run_soon()
        assert not node.cleaner.is_in_progress(partition.log)
