"""A hosted partition over a real log (`broker.runtime.partitions.partition`)."""

import errno

import pytest

from broker.replication.leader import FollowerFetch
from broker.runtime.partitions.partition import ACKS_ALL, Partition, RecordsRefused
from broker.runtime.partitions.transaction_start import start_verification
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch
from storage.config import CleanupPolicy, LogConfig
from tests.support.harnesses.data_plane import DataPlane, batch


@pytest.fixture
def node() -> DataPlane:
    return DataPlane()


def code_of(error: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return error.value.code


def follow(partition: Partition, broker_id: int, offset: int) -> ErrorCode:
    return partition.on_follower_fetch(FollowerFetch(BrokerId(broker_id), BrokerEpoch(-1), LeaderEpoch(-1), offset, 0))


class TestAppend:
    def test_leader_without_followers_commits_its_appends(self, node: DataPlane) -> None:
        node.create_topic()
        info = node.partition().append(batch(b"a", b"b"), ACKS_ALL)
        assert (info.first_offset, info.last_offset) == (0, 1)
        assert node.partition().log.high_watermark == 2
        assert node.partition().outcome(2, ACKS_ALL) is ErrorCode.NONE

    def test_follower_refuses_appends(self, node: DataPlane) -> None:
        node.create_topic(replicas=(1, 2), leader=2)
        with pytest.raises(KafkaError) as error:
            node.produce(b"a")
        assert code_of(error) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_acks_all_needs_min_insync_replicas_before_the_write(self, node: DataPlane) -> None:
        node.create_topic(replicas=(1, 2), isr=(1,), config=LogConfig(min_insync_replicas=2))
        with pytest.raises(KafkaError) as error:
            node.partition().append(batch(), ACKS_ALL)
        assert code_of(error) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert node.partition().log.log_end_offset == 0
        node.produce(b"acks=1 may")
        assert node.partition().log.log_end_offset == 1
        assert node.partition().log.high_watermark == 0

    def test_append_passes_the_transaction_guard_to_the_log(self, node: DataPlane) -> None:
        """KIP-890: the first batch of a transaction needs the guard of its verification."""
        node.create_topic(config=LogConfig(verify_transactions=True))
        partition = node.partition()
        first = batch(producer_id=1, producer_epoch=0, sequence=0, transactional=True)
        with pytest.raises(RecordsRefused) as error:
            partition.append(first, 1)
        assert code_of(error) is ErrorCode.INVALID_TXN_STATE
        guard = start_verification(partition, 1, 0, node.clock.now_ms(), sequence=0, adds=False)
        assert guard is not None
        assert partition.append(first, 1, guard=guard).first_offset == 0

    def test_refused_batch_names_its_records(self, node: DataPlane) -> None:
        node.create_topic(config=LogConfig(message_timestamp_after_max_ms=1000))
        future = batch(timestamp=node.clock.now_ms() + 5000)
        with pytest.raises(RecordsRefused) as error:
            node.partition().append(future, 1)
        assert code_of(error) is ErrorCode.INVALID_TIMESTAMP
        assert [index for index, _ in error.value.record_errors] == [0]

    def test_corrupt_batch_is_refused(self, node: DataPlane) -> None:
        node.create_topic()
        broken = batch()
        broken[-1] ^= 1
        with pytest.raises(KafkaError) as error:
            node.partition().append(broken, 1)
        assert code_of(error) is ErrorCode.CORRUPT_MESSAGE

    def test_duplicate_batch_gets_the_first_answer(self, node: DataPlane) -> None:
        node.create_topic()
        partition = node.partition()
        first = partition.append(batch(b"a", producer_id=9, producer_epoch=0, sequence=0), 1)
        again = partition.append(batch(b"a", producer_id=9, producer_epoch=0, sequence=0), 1)
        assert (again.first_offset, again.duplicate) == (first.first_offset, True)
        assert partition.log.log_end_offset == 1

    def test_failing_disk_takes_the_directory_offline(self, node: DataPlane) -> None:
        node.create_topic("t", 2)
        node.memory.fail("write", errno.ENOSPC, path_part="t-0")
        with pytest.raises(KafkaError) as error:
            node.produce(b"a")
        node.loop.run_soon()
        assert code_of(error) is ErrorCode.KAFKA_STORAGE_ERROR
        assert node.failed_directories == ["/data"]
        assert list(node.partitions.all()) == []
        with pytest.raises(KafkaError) as error:
            node.partitions.hosted("t", 1)
        assert code_of(error) is ErrorCode.KAFKA_STORAGE_ERROR


class TestReaders:
    def test_bounds_keep_their_identity(self, node: DataPlane) -> None:
        """Sessions compare identities, and would replace their watches at each read; compiled, tuples can be copies."""
        node.create_topic()
        partition = node.partition()
        assert partition.follower_bounds is partition.follower_bounds
        assert partition.consumer_bounds is partition.consumer_bounds


class TestReplicas:
    def test_acks_all_is_acknowledged_by_the_whole_isr(self, node: DataPlane) -> None:
        node.create_topic(replicas=(1, 2, 3))
        partition = node.partition()
        node.produce(b"a")
        acknowledged: list[ErrorCode] = []
        partition.when_acknowledged(1, ACKS_ALL, acknowledged.append)
        assert partition.outcome(1, ACKS_ALL) is None
        follow(partition, 2, 1)
        assert acknowledged == []
        follow(partition, 3, 1)
        assert acknowledged == [ErrorCode.NONE]
        assert partition.outcome(1, ACKS_ALL) is ErrorCode.NONE

    def test_confirmed_smaller_isr_commits(self, node: DataPlane) -> None:
        identity = node.create_topic(replicas=(1, 2))
        node.produce(b"a")
        node.clock.advance_ms(30_001)
        node.change_isr(identity, 1)
        assert node.partition().log.high_watermark == 1

    def test_lost_leadership_fails_waiting_produces(self, node: DataPlane) -> None:
        identity = node.create_topic(replicas=(1, 2))
        node.produce(b"a")
        acknowledged: list[ErrorCode] = []
        node.partition().when_acknowledged(1, ACKS_ALL, acknowledged.append)
        node.elect(identity, 2)
        assert acknowledged == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert node.partition().outcome(1, ACKS_ALL) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_new_leader_epoch_is_in_the_epoch_cache_before_its_first_record(self, node: DataPlane) -> None:
        identity = node.create_topic(replicas=(1, 2))
        node.produce(b"a")
        node.elect(identity, 1)
        assert node.partition().log.end_offset_for_epoch(LeaderEpoch(0)) == (0, 1)
        assert node.partition().log.epochs.latest_epoch == 1

    def test_lower_min_insync_replicas_commits_records(self, node: DataPlane) -> None:
        node.create_topic(replicas=(1, 2), isr=(1,), config=LogConfig(min_insync_replicas=2))
        node.produce(b"a")
        node.clock.advance_ms(30_001)
        assert node.partition().log.high_watermark == 0
        node.partition().configure(LogConfig(min_insync_replicas=1))
        assert node.partition().log.high_watermark == 1


class TestFlush:
    def test_flush_messages_delays_acknowledgement_and_commit_until_the_flush(self, node: DataPlane) -> None:
        node.create_topic(config=LogConfig(flush_messages=1))
        partition = node.partition()
        node.io.is_held = True
        node.produce(b"a")
        node.produce(b"b")
        acknowledged: list[ErrorCode] = []
        partition.when_acknowledged(1, 1, acknowledged.append)
        assert partition.outcome(1, 1) is None
        assert partition.log.high_watermark == 0
        node.io.release()
        node.loop.run_soon()
        assert acknowledged == [ErrorCode.NONE]
        assert partition.log.recovery_point == 2
        assert partition.log.high_watermark == 2

    def test_fewer_records_than_flush_messages_do_not_wait(self, node: DataPlane) -> None:
        node.create_topic(config=LogConfig(flush_messages=3))
        partition = node.partition()
        node.io.is_held = True
        node.produce(b"a", b"b")
        assert partition.outcome(2, 1) is ErrorCode.NONE
        node.produce(b"c")
        assert partition.outcome(2, 1) is ErrorCode.NONE
        assert partition.outcome(3, 1) is None
        assert partition.log.high_watermark == 2

    def test_flush_ms_flushes_once_after_the_delay(self, node: DataPlane) -> None:
        node.create_topic(config=LogConfig(flush_ms=500))
        node.produce(b"a")
        node.produce(b"b")
        assert len(node.deadlines) == 1
        node.advance_ms(499)
        assert node.partition().log.recovery_point == 0
        node.advance_ms(1)
        assert node.partition().log.recovery_point == 2
        node.produce(b"c")
        node.advance_ms(500)
        assert node.partition().log.recovery_point == 3

    def test_finished_segment_is_flushed(self, node: DataPlane) -> None:
        node.create_topic(config=LogConfig(segment_bytes=len(batch()) + 10))
        node.produce(b"value")
        assert node.partition().log.recovery_point == 0
        node.produce(b"value")
        node.loop.run_soon()
        assert node.partition().log.recovery_point == 2

    def test_failing_flush_takes_the_directory_offline(self, node: DataPlane) -> None:
        node.create_topic(config=LogConfig(flush_messages=1))
        node.memory.fail("sync", path_part="t-0")
        partition = node.partition()
        acknowledged: list[ErrorCode] = []
        node.produce(b"a")
        partition.when_acknowledged(1, 1, acknowledged.append)
        node.loop.run_soon()
        assert acknowledged == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert node.failed_directories == ["/data"]


class TestDeleteRecords:
    def test_delete_records_moves_the_log_start_and_wakes_waiters(self, node: DataPlane) -> None:
        node.create_topic(replicas=(1, 2))
        partition = node.partition()
        node.produce(b"a", b"b", b"c")
        node.register_broker(2)
        follow(partition, 2, 3)
        trimmed: list[ErrorCode] = []
        assert partition.record_deletion.delete_records(2) == 2
        partition.record_deletion.when_deleted(2, trimmed.append)
        assert partition.low_watermark() == 0  # replica 2 has not deleted the record yet
        partition.on_follower_fetch(FollowerFetch(BrokerId(2), BrokerEpoch(-1), LeaderEpoch(-1), 3, log_start_offset=2))
        assert trimmed == [ErrorCode.NONE]

    def test_delete_records_to_minus_one_means_the_high_watermark(self, node: DataPlane) -> None:
        node.create_topic()
        node.produce(b"a", b"b")
        assert node.partition().record_deletion.delete_records(-1) == 2
        assert node.partition().log.log_start_offset == 2

    @pytest.mark.parametrize("offset", [-2, 3])
    def test_delete_records_refuses_offsets_out_of_range(self, node: DataPlane, offset: int) -> None:
        node.create_topic()
        node.produce(b"a", b"b")
        with pytest.raises(KafkaError) as error:
            node.partition().record_deletion.delete_records(offset)
        assert code_of(error) is ErrorCode.OFFSET_OUT_OF_RANGE

    def test_compacted_topic_refuses_delete_records(self, node: DataPlane) -> None:
        node.create_topic(config=LogConfig(cleanup_policy=frozenset({CleanupPolicy.COMPACT})))
        with pytest.raises(KafkaError) as error:
            node.partition().record_deletion.delete_records(0)
        assert code_of(error) is ErrorCode.POLICY_VIOLATION
