"""The share partition: acquisition, acknowledgement, locks, persistence, and the window (KIP-932)."""

from broker.share.partition import ShareUpdate
from broker.share.records import (
    AcknowledgeType,
    AcquiredRecords,
    AcquireRequest,
    DeliveryBatch,
    FetchedBatches,
    OffsetSpan,
    RecordState,
    ShareLimits,
)
from protocol.errors import ErrorCode
from tests.broker.share.share_partition_harness import ACCEPT, LOCK_MS, REJECT, RELEASE, SharePartitionHarness, ack


def test_acquisition_ends_at_the_batch_that_holds_the_last_wanted_record() -> None:
    share = SharePartitionHarness()
    assert share.acquire(count=15) == [AcquiredRecords(0, 19, 1)]
    assert share.partition.next_fetch_offset == 20


def test_record_limit_mode_never_exceeds_the_limit() -> None:
    share = SharePartitionHarness()
    assert share.acquire(count=15, exact=True) == [AcquiredRecords(0, 14, 1)]
    assert share.acquire("other", count=15, exact=True) == [AcquiredRecords(15, 29, 1)]


def test_acquired_records_are_cut_at_batches_of_the_wanted_size() -> None:
    share = SharePartitionHarness()
    assert share.acquire(count=50, batch_size=15) == [
        AcquiredRecords(0, 19, 1),
        AcquiredRecords(20, 39, 1),
        AcquiredRecords(40, 49, 1),
    ]


def test_two_members_never_hold_the_same_record() -> None:
    share = SharePartitionHarness()
    share.acquire("a", count=10)
    assert share.acquire("b", count=10) == [AcquiredRecords(10, 19, 1)]
    assert share.acknowledge(ack(0, 9), member="b") is ErrorCode.INVALID_RECORD_STATE


def test_start_offset_moves_when_the_acknowledgement_is_persisted() -> None:
    share = SharePartitionHarness()
    share.acquire(count=10)
    update = share.acknowledge(ack(0, 9))
    assert share.partition.start_offset == 0
    assert share.persist() == [update]
    assert share.partition.start_offset == 10
    assert share.states() == []
    assert share.writes[0].batches == [DeliveryBatch(0, 9, RecordState.ACKNOWLEDGED, 1)]
    assert (share.writes[0].start_offset, share.writes[0].delivery_complete_count) == (0, 10)


def test_failed_write_gives_the_records_back_to_the_member() -> None:
    share = SharePartitionHarness()
    share.acquire(count=10)
    share.acknowledge(ack(0, 9))
    share.persist(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert share.states() == [(0, 9, "ACQUIRED", 1)]
    assert isinstance(share.acknowledge(ack(0, 9)), ShareUpdate)


def test_acknowledgements_in_one_batch_differ_by_record() -> None:
    share = SharePartitionHarness()
    share.acquire(count=10)
    share.acknowledge(ack(0, 4, ACCEPT, ACCEPT, RELEASE, REJECT, AcknowledgeType.GAP))
    share.persist()
    assert share.states() == [(2, 2, "AVAILABLE", 1), (3, 4, "ARCHIVED", 1), (5, 9, "ACQUIRED", 1)]
    assert share.partition.start_offset == 2
    assert share.acquire("b", count=1) == [
        AcquiredRecords(2, 2, 2),
    ]


def test_one_wrong_batch_refuses_all() -> None:
    share = SharePartitionHarness()
    share.acquire(count=10)
    assert share.acknowledge(ack(0, 4), ack(5, 30)) is ErrorCode.INVALID_REQUEST
    share.acknowledge(ack(5, 5))
    assert share.acknowledge(ack(0, 5)) is ErrorCode.INVALID_RECORD_STATE
    share.persist()
    assert share.states() == [(0, 4, "ACQUIRED", 1), (5, 5, "ACKNOWLEDGED", 1), (6, 9, "ACQUIRED", 1)]


def test_elapsed_lock_releases_at_once_and_is_persisted() -> None:
    share = SharePartitionHarness()
    share.acquire(count=10)
    share.partition.expire(LOCK_MS - 1)
    assert share.states() == [(0, 9, "ACQUIRED", 1)]
    share.partition.expire(LOCK_MS)
    assert share.partition.next_fetch_offset == 0
    assert share.partition.expired_locks == 10
    share.persist()
    assert share.writes[0].batches == [DeliveryBatch(0, 9, RecordState.AVAILABLE, 1)]
    assert share.acknowledge(ack(0, 9)) is ErrorCode.INVALID_RECORD_STATE


def test_lock_that_elapses_during_a_failed_write_releases_afterwards() -> None:
    share = SharePartitionHarness()
    share.acquire(count=10)
    share.acknowledge(ack(0, 9))
    share.partition.expire(LOCK_MS)
    share.persist(ErrorCode.NETWORK_EXCEPTION)
    assert share.partition.next_deadline_ms == LOCK_MS
    share.partition.expire(LOCK_MS)
    assert share.states() == [(0, 9, "AVAILABLE", 1)]


def test_renewal_moves_the_deadline_without_a_write() -> None:
    share = SharePartitionHarness()
    share.acquire(count=10)
    share.now_ms = 600
    share.acknowledge(ack(0, 9, AcknowledgeType.RENEW))
    assert share.partition.take_write() is None
    share.partition.expire(LOCK_MS)
    assert share.states() == [(0, 9, "ACQUIRED", 1)]
    share.partition.expire(600 + LOCK_MS)
    assert share.states() == [(0, 9, "AVAILABLE", 1)]


def test_record_is_archived_after_its_last_delivery() -> None:
    share = SharePartitionHarness(size=1, limits=ShareLimits(2, 100))
    for count in (1, 2):
        assert share.acquire() == [AcquiredRecords(0, 0, count)]
        share.acknowledge(ack(0, 0, RELEASE))
        share.persist()
    assert share.partition.start_offset == 1
    assert share.writes[-1].batches == [DeliveryBatch(0, 0, RecordState.ARCHIVED, 2)]


def test_bad_records_are_delivered_in_ever_smaller_numbers_and_at_last_alone() -> None:
    share = SharePartitionHarness(size=16, batch_size=16)
    sizes = []
    for _ in range(5):
        (acquired,) = share.acquire()
        sizes.append(acquired.last - acquired.first + 1)
        share.acknowledge(ack(acquired.first, acquired.last, RELEASE))
        share.persist()
        if acquired.last < 15:
            share.log = [OffsetSpan(0, 15)]
    assert sizes == [16, 16, 16, 8, 1]


def test_bad_records_wait_for_an_acquisition_of_their_own() -> None:
    often = DeliveryBatch(10, 19, RecordState.AVAILABLE, 3)
    share = SharePartitionHarness(batches=(DeliveryBatch(0, 9, RecordState.AVAILABLE, 1), often))
    assert share.acquire(count=20) == [AcquiredRecords(0, 9, 2), AcquiredRecords(20, 29, 1)]
    assert share.acquire() == [AcquiredRecords(10, 14, 4)]


def test_window_limits_new_records_only() -> None:
    share = SharePartitionHarness(limits=ShareLimits(5, 20))
    share.acquire(count=500)
    assert share.partition.in_flight_count == 20
    assert not share.partition.can_acquire
    assert share.acquire() == []
    share.acknowledge(ack(10, 19, RELEASE))
    share.persist()
    assert share.acquire() == [AcquiredRecords(10, 19, 2)]


def test_session_end_releases_what_the_member_holds() -> None:
    share = SharePartitionHarness()
    share.acquire("a", count=10)
    share.acquire("b", count=10)
    share.partition.release_member("a")
    assert share.partition.next_fetch_offset == 20
    share.persist()
    assert share.states() == [(0, 9, "AVAILABLE", 1), (10, 19, "ACQUIRED", 1)]


def test_offsets_between_persisted_batches_are_delivered() -> None:
    share = SharePartitionHarness(start=5, batches=(DeliveryBatch(10, 14, RecordState.ACKNOWLEDGED, 1),))
    assert share.acquire(count=50) == [AcquiredRecords(5, 9, 1), AcquiredRecords(15, 49, 1)]


def test_persisted_batches_at_the_start_move_it() -> None:
    share = SharePartitionHarness(batches=(DeliveryBatch(0, 9, RecordState.ACKNOWLEDGED, 1),))
    assert share.partition.start_offset == share.partition.next_fetch_offset == 10


def test_persisted_record_that_used_up_its_deliveries_is_archived() -> None:
    share = SharePartitionHarness(batches=(DeliveryBatch(0, 9, RecordState.AVAILABLE, 5),))
    assert share.partition.start_offset == 10


def test_records_that_compaction_removed_are_archived() -> None:
    share = SharePartitionHarness(batches=(DeliveryBatch(0, 19, RecordState.AVAILABLE, 1),))
    share.log = share.log[1:]
    assert share.acquire(count=10) == [AcquiredRecords(10, 19, 2)]
    assert share.partition.start_offset == 10


def test_holes_of_a_compacted_log_do_not_hold_the_start_offset() -> None:
    share = SharePartitionHarness()
    del share.log[1]
    share.acquire(count=10)
    share.acquire(count=10)
    share.acknowledge(ack(0, 9), ack(20, 29))
    share.persist()
    assert share.partition.start_offset == 30


def test_deleted_records_leave_the_window() -> None:
    share = SharePartitionHarness()
    share.acquire(count=20)
    share.partition.on_log_start(15)
    assert share.states() == [(15, 19, "ACQUIRED", 1)]
    assert isinstance(share.acknowledge(ack(0, 19)), ShareUpdate)
    share.persist()
    assert share.writes[0].batches == [DeliveryBatch(15, 19, RecordState.ACKNOWLEDGED, 1)]
    share.partition.on_log_start(40)
    assert share.partition.next_fetch_offset == share.partition.start_offset == 40


def test_records_of_aborted_transactions_are_never_delivered() -> None:
    share = SharePartitionHarness()
    share.aborted = [OffsetSpan(0, 9), OffsetSpan(20, 29)]
    assert share.acquire(count=40) == [AcquiredRecords(10, 19, 1), AcquiredRecords(30, 39, 1)]
    assert share.partition.start_offset == 10


def test_fenced_leader_settles_nothing_more() -> None:
    share = SharePartitionHarness()
    share.acquire(count=10)
    share.acknowledge(ack(0, 4))
    write = share.partition.take_write()
    assert write is not None
    share.acknowledge(ack(5, 9))
    share.partition.on_written(ErrorCode.FENCED_LEADER_EPOCH)
    assert share.partition.is_fenced
    assert not share.partition.can_acquire
    assert share.partition.take_write() is None
    assert len(share.partition.fence()) == 1
    assert share.acknowledge(ack(0, 4)) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_one_write_at_a_time_carries_all_that_waited() -> None:
    share = SharePartitionHarness()
    share.acquire(count=30)
    share.acknowledge(ack(0, 9))
    first = share.partition.take_write()
    share.acknowledge(ack(10, 19))
    share.acknowledge(ack(20, 24, REJECT))
    assert share.partition.take_write() is None
    share.partition.on_written(ErrorCode.NONE)
    second = share.partition.take_write()
    assert first is not None
    assert second is not None
    assert second.start_offset == 10
    assert second.batches == [
        DeliveryBatch(10, 19, RecordState.ACKNOWLEDGED, 1),
        DeliveryBatch(20, 24, RecordState.ARCHIVED, 1),
    ]


def test_runs_are_joined_again() -> None:
    share = SharePartitionHarness()
    share.acquire(count=10)
    for offset in (3, 5, 4):
        share.acknowledge(ack(offset, offset))
        share.persist()
    assert share.states() == [(0, 2, "ACQUIRED", 1), (3, 5, "ACKNOWLEDGED", 1), (6, 9, "ACQUIRED", 1)]


def test_limit_within_a_hole_reaches_to_the_end_of_the_next_batch() -> None:
    share = SharePartitionHarness()
    share.acquire(count=10)
    assert share.partition.acquire(
        AcquireRequest("m", 1, 0), FetchedBatches(10, (OffsetSpan(0, 9), OffsetSpan(20, 29))), LOCK_MS
    ) == [AcquiredRecords(10, 29, 1)]
