"""Fetches of records that only remote storage holds (`broker.fetch.remote_fetch`, `broker.fetch.remote_reads`)."""

from dataclasses import replace

import pytest

from broker.fetch.remote_reads.reads import RemoteReadSettings
from protocol.errors import ErrorCode
from protocol.ids import BrokerId
from storage.tiered.errors import (
    RemoteResourceNotFound,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from storage.tiered.segment_metadata import SegmentState, SegmentUpdate, TopicIdPartition
from tests.support.harnesses.data_plane import batch
from tests.support.harnesses.tiered_plane import TieredPlane, at, entries, offsets, only

FOLLOWER = 2


@pytest.fixture
def plane() -> TieredPlane:
    plane = TieredPlane()
    plane.create_tiered_topic()
    return plane


class TestConsumers:
    def test_records_deleted_locally_are_read_remotely(self, plane: TieredPlane) -> None:
        plane.make_remote(3, 3)
        plane.fill(2)
        for offset, expected in ((0, [0, 1, 2]), (2, [2]), (3, [3, 4, 5]), (6, [6, 7])):
            entry = only(plane.fetch(at(offset)))
            assert offsets(entry) == expected
            assert (entry.high_watermark, entry.last_stable_offset, entry.log_start_offset) == (8, 8, 0)
            assert entry.aborted_transactions is None

    def test_consumer_reads_every_record_once(self, plane: TieredPlane) -> None:
        plane.make_remote(3, 1, 4)
        plane.fill(2)
        met, offset = [], 0
        while offset < 10:
            found = offsets(only(plane.fetch(at(offset, max_bytes=150))))
            met += found
            offset = found[-1] + 1
        assert met == list(range(10))

    def test_follower_serves_remote_records(self, plane: TieredPlane) -> None:
        """KIP-392: a consumer may read from any replica."""
        identity = plane.create_tiered_topic("f", replicas=(1, 2))
        plane.fill(3, topic="f")
        plane.elect(identity, 2)
        plane.partition("f").log.follow_high_watermark(3)
        plane.tier(topic="f")
        plane.drop_local(3, topic="f")
        assert offsets(only(plane.fetch(at(1), topic="f"))) == [1, 2]

    def test_old_versions_read_remote_records_from_the_leader_only(self, plane: TieredPlane) -> None:
        plane.make_remote(3)
        assert offsets(only(plane.fetch(at(0), version=10))) == [0, 1, 2]

    def test_remote_records_respect_the_limits(self, plane: TieredPlane) -> None:
        plane.make_remote(4)
        size = len(batch(b"0"))
        assert offsets(only(plane.fetch(at(0, max_bytes=1)))) == [0]
        assert offsets(only(plane.fetch(at(0, max_bytes=2 * size)))) == [0]  # the kept result serves the request
        plane.settle(1000)
        assert offsets(only(plane.fetch(at(0, max_bytes=2 * size)))) == [0, 1]
        assert offsets(only(plane.fetch(at(1), max_bytes=2 * size))) == [1, 2]

    def test_log_start_offset_inside_a_remote_segment_is_respected(self, plane: TieredPlane) -> None:
        plane.make_remote(4, 4)
        plane.partition().record_deletion.delete_records(2)
        assert offsets(only(plane.fetch(at(2)))) == [2, 3]
        assert only(plane.fetch(at(1))).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    def test_remote_segment_may_overlap_local_segments(self, plane: TieredPlane) -> None:
        """Segments that another leader copied have other bounds."""
        plane.fill(3, 3)
        plane.tier()
        plane.drop_local(3)
        assert offsets(only(plane.fetch(at(2)))) == [2]
        assert offsets(only(plane.fetch(at(3)))) == [3, 4, 5]

    def test_consumers_read_no_record_above_their_bound(self, plane: TieredPlane) -> None:
        plane.make_remote(4)
        plane.fill(1)
        log = plane.log()
        log.high_watermark = 2
        entry = only(plane.fetch(at(0)))
        assert offsets(entry) == [0, 1]
        assert entry.high_watermark == 2

    def test_segments_emptied_by_compaction_are_skipped(self, plane: TieredPlane) -> None:
        segments = plane.make_remote(3, 3, 3)
        for segment, kept in zip(segments, (1, 0, 0), strict=True):
            log = plane.storage.logs[segment.id.id]
            plane.replace_remote(segment, log[: kept * len(log) // 3])
        plane.fill(2)
        assert offsets(only(plane.fetch(at(0)))) == [0]
        assert offsets(only(plane.fetch(at(1)))) == [9, 10]


class TestHistories:
    def test_kip_405_scenario_5_reads_the_logs_own_history(self, plane: TieredPlane) -> None:
        """KIP-405: u1[0-3]{0@0}, u2[0-3]{0@0,1@2} of another leader, u3[4-5]{0@4,2@5}; this log is 0@0 2@5."""
        log = plane.log()
        plane.fill(4)
        plane.tier()
        foreign = plane.storage.put(
            50,
            [bytes(plane.foreign_batch(offset, epoch)) for offset, epoch in ((0, 0), (1, 0), (2, 1), (3, 1))],
            start_offset=0,
            end_offset=3,
            epochs=[(0, 0), (1, 2)],
            partition=TopicIdPartition(plane.partition().topic_id, "t", 0),
        )
        plane.announce(foreign)
        plane.fill(1)
        identity = plane.partition().topic_id
        plane.elect(identity, 1)
        plane.elect(identity, 1)
        assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0), (2, 5)]
        plane.fill(1)
        plane.tier(below=6)
        plane.drop_local(6)
        for offset in range(6):
            entry = only(plane.fetch(at(offset)))
            assert offsets(entry)[0] == offset
            assert b"foreign" not in bytes(entry.records or b"")

    def test_segment_of_another_history_is_read_as_far_as_it_agrees(self, plane: TieredPlane) -> None:
        """Only the other leader copied the first offsets; the last ones have an epoch that this log does not know."""
        plane.fill(4)
        mine = plane.tier()
        foreign = plane.storage.put(
            50,
            [bytes(plane.foreign_batch(offset, epoch)) for offset, epoch in ((0, 0), (1, 0), (2, 1))],
            start_offset=0,
            end_offset=2,
            epochs=[(0, 0), (1, 2)],
            partition=mine[0].id.partition,
        )
        plane.announce(foreign)
        plane.forget(mine[0])
        plane.drop_local(4)
        assert offsets(only(plane.fetch(at(0)))) == [0, 1]
        answer = plane.fetch(at(2))
        plane.settle(500)
        assert only(answer).error_code == ErrorCode.REPLICA_NOT_AVAILABLE


class TestManyAtOnce:
    def test_all_partitions_of_a_request_are_read_in_parallel(self, plane: TieredPlane) -> None:
        plane.create_tiered_topic("m", 3)
        for index in range(3):
            plane.make_remote(2, topic="m", index=index)
        plane.pool.is_held = True
        answer = plane.fetch(at(0), at(0, 1), at(1, 2), topic="m")
        assert plane.pool.waiting == 3
        plane.pool.release()
        plane.settle()
        assert [offsets(entry) for entry in entries(answer)] == [[0, 1], [0, 1], [1]]

    def test_finished_reads_do_not_wait_for_the_slowest(self, plane: TieredPlane) -> None:
        plane.create_tiered_topic("m", 2)
        for index in range(2):
            plane.make_remote(2, topic="m", index=index)
        plane.pool.is_held = True
        answer = plane.fetch(at(0), at(0, 1), topic="m")
        plane.pool.run_one()
        plane.settle(9)
        assert answer.is_waiting
        plane.settle(1)
        assert [offsets(entry) for entry in entries(answer)] == [[0, 1], []]
        plane.pool.release()
        plane.settle()
        again = plane.fetch(at(2), at(0, 1), topic="m", max_wait_ms=0)
        assert [offsets(entry) for entry in entries(again)] == [[], [0, 1]]

    def test_sufficient_local_records_never_wait(self, plane: TieredPlane) -> None:
        plane.make_remote(2)
        plane.create_topic("l")
        plane.create_tiered_topic("m", 2)
        plane.make_remote(2, topic="m")
        plane.fill(2, topic="m", index=1)
        plane.pool.is_held = True
        answer = plane.fetch(at(0), at(0, 1), topic="m")
        assert not answer.is_waiting
        assert [offsets(entry) for entry in entries(answer)] == [[], [0, 1]]
        plane.pool.release()
        plane.settle()
        assert [offsets(entry) for entry in entries(plane.fetch(at(0), at(2, 1), topic="m"))] == [[0, 1], []]

    def test_few_local_records_wait_for_the_requests_max_wait(self, plane: TieredPlane) -> None:
        plane.create_tiered_topic("m", 2)
        plane.make_remote(2, topic="m")
        plane.produce(b"a", topic="m", index=1)
        plane.pool.is_held = True
        answer = plane.fetch(at(0), at(0, 1), topic="m", min_bytes=10_000, max_wait_ms=100)
        plane.settle(90)
        assert answer.is_waiting
        plane.settle(20)
        assert [offsets(entry) for entry in entries(answer)] == [[], [0]]

    def test_remote_read_needs_room_in_the_response(self, plane: TieredPlane) -> None:
        plane.create_tiered_topic("m", 2)
        for index in range(2):
            plane.make_remote(2, topic="m", index=index)
        size = len(batch(b"0"))
        first = plane.fetch(at(0), at(0, 1), topic="m", max_bytes=3 * size)
        assert [offsets(entry) for entry in entries(first)] == [[0, 1], [0]]
        second = plane.fetch(at(0), at(1, 1), topic="m", max_bytes=2 * size)
        assert [offsets(entry) for entry in entries(second)] == [[0, 1], []]

    def test_two_readers_of_a_position_share_a_read(self, plane: TieredPlane) -> None:
        plane.make_remote(2)
        plane.pool.is_held = True
        answers = [plane.fetch(at(0)), plane.fetch(at(0))]
        assert plane.pool.waiting == 1
        plane.pool.release()
        plane.settle()
        assert [offsets(only(answer)) for answer in answers] == [[0, 1], [0, 1]]
        assert plane.reads.figures.requests == 1


class TestSlowStores:
    def test_response_is_empty_when_the_wait_is_over(self, plane: TieredPlane) -> None:
        plane.make_remote(2)
        plane.pool.is_held = True
        answer = plane.fetch(at(0))
        plane.settle(490)
        assert answer.is_waiting
        plane.settle(20)
        entry = only(answer)
        assert (offsets(entry), entry.high_watermark, entry.log_start_offset) == ([], 2, 0)
        assert plane.reads.figures.expired == 1

    def test_reader_advances_although_the_store_is_slower_than_any_request(self, plane: TieredPlane) -> None:
        plane.make_remote(2, 2)
        plane.pool.is_held = True
        offset, requests = 0, 0
        while offset < 4 and requests < 20:
            answer = plane.fetch(at(offset))
            requests += 1
            plane.settle(500)
            offset += len(offsets(only(answer)))
            if requests % 3 == 2:  # each read takes 1.5 seconds
                plane.pool.run_all()
        assert (offset, requests) == (4, 6)
        assert plane.reads.figures.requests == 2

    @pytest.mark.parametrize("max_wait_ms", [0, 100, 30_000])
    def test_broker_limits_the_wait_for_remote_storage(self, plane: TieredPlane, max_wait_ms: int) -> None:
        """KIP-1018."""
        plane.read_settings = replace(plane.read_settings, wait_max_ms=200)
        plane.make_remote(2)
        plane.pool.is_held = True
        answer = plane.fetch(at(0), max_wait_ms=max_wait_ms)
        plane.settle(190)
        assert answer.is_waiting
        plane.settle(20)
        assert offsets(only(answer)) == []

    def test_results_are_kept_for_later_requests(self, plane: TieredPlane) -> None:
        plane.make_remote(2)
        plane.pool.is_held = True
        plane.fetch(at(0))
        plane.settle(500)
        plane.pool.release()
        plane.settle()
        assert plane.reads.kept_bytes > 0
        plane.settle(plane.read_settings.kept_ms)
        assert (plane.reads.kept_bytes, plane.reads.open_count) == (0, 0)

    def test_kept_results_are_limited_in_bytes(self, plane: TieredPlane) -> None:
        plane.create_tiered_topic("m", 4)
        for index in range(4):
            plane.make_remote(2, topic="m", index=index)
        size = 2 * len(batch(b"0"))
        plane.read_settings = replace(plane.read_settings, kept_bytes=2 * size)
        plane.pool.is_held = True
        plane.fetch(*(at(0, index) for index in range(4)), topic="m")
        plane.settle(500)
        plane.pool.release()
        plane.settle()
        assert plane.reads.kept_bytes == 2 * size

    def test_delivered_results_expire_soon(self, plane: TieredPlane) -> None:
        plane.make_remote(2)
        plane.fetch(at(0))
        plane.settle(1000)
        assert plane.reads.kept_bytes == 0

    def test_disconnected_reader_causes_no_more_reads(self, plane: TieredPlane) -> None:
        plane.make_remote(2)
        plane.pool.is_held = True
        plane.fetch(at(0)).cancel()
        plane.pool.release()
        plane.settle(31_000)
        assert (plane.reads.kept_bytes, plane.reads.open_count) == (0, 0)
        assert len(plane.deadlines) == 0

    def test_retention_passes_a_position_that_is_being_read(self, plane: TieredPlane) -> None:
        plane.make_remote(2)
        plane.fill(1)
        plane.pool.is_held = True
        answer = plane.fetch(at(0))
        plane.partition().record_deletion.delete_records(2)
        plane.settle()
        assert only(answer).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    def test_another_leader_epoch_starts_another_read(self, plane: TieredPlane) -> None:
        """After an unclean election, the same offset may hold another record."""
        plane.make_remote(2)
        plane.pool.is_held = True
        answer = plane.fetch(at(0))
        plane.elect(plane.partition().topic_id, 1)
        plane.settle()
        assert plane.pool.waiting == 2
        plane.pool.release()
        plane.settle()
        assert offsets(only(answer)) == [0, 1]


class TestQueue:
    def test_excess_reads_are_refused_without_an_error(self, plane: TieredPlane) -> None:
        plane.read_settings = replace(plane.read_settings, reads_max=1)
        plane.create_tiered_topic("m", 2)
        for index in range(2):
            plane.make_remote(2, topic="m", index=index)
        plane.pool.is_held = True
        answer = plane.fetch(at(0), at(0, 1), topic="m")
        plane.settle(500)
        assert [offsets(entry) for entry in entries(answer)] == [[], []]
        assert plane.reads.figures.refused > 0
        plane.pool.release()
        plane.settle()
        again = plane.fetch(at(0), at(0, 1), topic="m")
        plane.settle()
        assert [offsets(entry) for entry in entries(again)] == [[0, 1], [0, 1]]

    def test_first_refused_request_is_first_to_retry(self, plane: TieredPlane) -> None:
        plane.read_settings = replace(plane.read_settings, reads_max=1)
        plane.create_tiered_topic("m", 3)
        for index in range(3):
            plane.make_remote(2, topic="m", index=index)
        plane.pool.is_held = True
        answers = [plane.fetch(at(0, index), topic="m") for index in range(3)]
        for _ in range(3):
            assert plane.pool.waiting == 1
            plane.pool.run_one()
            plane.loop.run_soon()
        assert [offsets(only(answer)) for answer in answers] == [[0, 1]] * 3
        assert plane.clock.monotonic_ms() == 0

    def test_refused_target_is_read_again_with_the_next_request(self, plane: TieredPlane) -> None:
        """The free slot may have been taken by a reader that never returned."""
        plane.read_settings = replace(plane.read_settings, reads_max=1)
        plane.create_tiered_topic("m", 2)
        for index in range(2):
            plane.make_remote(2, topic="m", index=index)
        plane.pool.is_held = True
        plane.fetch(at(0), topic="m")
        opening = plane.fetch(at(0, 1), topic="m", session=(0, 0))
        plane.settle(500)
        plane.pool.release()
        plane.settle()
        assert offsets(only(plane.fetch(session=(opening.value.session_id, 1)))) == [0, 1]

    def test_read_refused_by_a_full_pool_is_retried(self, plane: TieredPlane) -> None:
        """Look-ups of timestamps use the same threads."""
        plane.make_remote(2)
        plane.pool.room = 0
        answer = plane.fetch(at(0))
        plane.settle(90)
        assert plane.reads.figures.refused == 1
        plane.pool.room = None
        plane.settle(20)
        assert offsets(only(answer)) == [0, 1]

    def test_quota_delays_reads_without_an_error(self, plane: TieredPlane) -> None:
        plane.make_remote(*[1] * 30)
        size = len(batch(b"0"))
        plane.read_settings = replace(plane.read_settings, bytes_per_second=size)
        offset = requests = most_waiting = 0
        while offset < 22:
            answer = plane.fetch(at(offset, max_bytes=size))
            while answer.is_waiting:
                most_waiting = max(most_waiting, plane.reads.figures.waiting_for_quota)
                plane.settle(100)
            offset += len(offsets(only(answer)))
            requests += 1
        assert 10_000 <= plane.clock.monotonic_ms() <= 12_500  # the unused bandwidth of eleven seconds is available
        assert plane.reads.quota.use.wait_max_ms > 0
        assert (most_waiting, plane.reads.figures.waiting_for_quota) == (1, 0)


class TestFailures:
    @pytest.mark.parametrize(
        "failure",
        [
            RetriableRemoteStorageError("down"),
            RemoteStorageError("no"),
            RemoteResourceNotFound("missing"),
            ZeroDivisionError("a plugin"),
        ],
    )
    def test_store_failure_is_retried_and_reported_after_the_wait(self, plane: TieredPlane, failure: Exception) -> None:
        plane.make_remote(2)
        plane.storage.failures, plane.storage.is_down = [failure], True
        for _ in range(3):
            answer = plane.fetch(at(0))
            plane.settle(490)
            assert answer.is_waiting
            plane.settle(20)
            assert only(answer).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert plane.reads.figures.errors < 8
        plane.storage.is_down, plane.storage.failures = False, []
        plane.settle(2000)  # the longest pause between attempts
        for _ in range(4):
            answer = plane.fetch(at(0))
            plane.settle(500)
            if only(answer).records:
                break
        assert offsets(only(answer)) == [0, 1]

    def test_damaged_remote_data_are_reported_as_corrupt(
        self, plane: TieredPlane, caplog: pytest.LogCaptureFixture
    ) -> None:
        (segment, *_) = plane.make_remote(2)
        plane.storage.logs[segment.id.id] = b"!" * segment.size_bytes
        for _ in range(3):
            answer = plane.fetch(at(0))
            plane.settle(500)
            assert only(answer).error_code == ErrorCode.CORRUPT_MESSAGE
        (line,) = (record for record in caplog.records if record.name == "broker.remote_reads")
        assert line.levelname == "ERROR"
        assert str(segment.id) in str(vars(line)["fields"]["reason"])

    def test_outage_logs_one_warning_and_one_line_at_its_end(
        self, plane: TieredPlane, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO", "broker.remote_reads")
        plane.make_remote(*[1] * 8)
        plane.storage.failures, plane.storage.is_down = [RetriableRemoteStorageError("down")], True
        for offset in (*range(8), *range(8)):
            plane.fetch(at(offset))
            plane.settle(500)
        plane.storage.is_down, plane.storage.failures = False, []
        for offset in range(8):
            plane.settle(2000)
            plane.fetch(at(offset))
            plane.settle(1000)
        lines = [record for record in caplog.records if record.name == "broker.remote_reads"]
        assert [(line.levelname, line.getMessage()) for line in lines] == [
            ("WARNING", "Remote storage cannot be read now"),
            ("INFO", "Remote storage can be read again"),
        ]

    def test_permanent_failures_are_logged_as_errors(
        self, plane: TieredPlane, caplog: pytest.LogCaptureFixture
    ) -> None:
        plane.make_remote(2)
        plane.storage.failures, plane.storage.is_down = [RemoteStorageError("access denied")], True
        plane.fetch(at(0))
        plane.settle(5000)
        (line,) = (record for record in caplog.records if record.name == "broker.remote_reads")
        assert line.levelname == "ERROR"

    def test_transient_failure_is_not_reported(self, plane: TieredPlane) -> None:
        plane.make_remote(2)
        plane.storage.failures = [RetriableRemoteStorageError("503")] * 2
        answer = plane.fetch(at(0))
        plane.settle(350)
        assert offsets(only(answer)) == [0, 1]
        assert plane.partition().traffic.remote_fetch_errors == 2

    def test_old_clients_get_error_codes_they_know(self, plane: TieredPlane) -> None:
        plane.make_remote(2)
        plane.storage.failures, plane.storage.is_down = [RetriableRemoteStorageError("down")], True
        answer = plane.fetch(at(0), version=5)
        plane.settle(500)
        assert only(answer).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_local_records_are_served_during_an_outage(self, plane: TieredPlane) -> None:
        plane.create_tiered_topic("m", 2)
        plane.make_remote(2, topic="m")
        plane.fill(2, topic="m", index=1)
        plane.storage.failures, plane.storage.is_down = [RetriableRemoteStorageError("down")], True
        answer = plane.fetch(at(0), at(0, 1), topic="m")
        assert [offsets(entry) for entry in entries(answer)] == [[], [0, 1]]

    def test_unwanted_read_is_not_retried(self, plane: TieredPlane) -> None:
        plane.make_remote(2)
        plane.storage.failures, plane.storage.is_down = [RetriableRemoteStorageError("down")], True
        plane.fetch(at(0)).cancel()
        plane.settle(60_000)
        assert plane.reads.open_count == 0
        assert plane.reads.figures.errors == 1

    def test_unloaded_metadata_makes_consumers_retry(self, plane: TieredPlane) -> None:
        (segment, *_) = plane.make_remote(2)
        plane.remote_metadata.not_ready.add(segment.id.partition)
        for _ in range(2):
            answer = plane.fetch(at(0))
            plane.settle(490)
            assert answer.is_waiting  # an immediate response would make consumers retry thousands of times per second
            plane.settle(20)
            assert only(answer).error_code == ErrorCode.REPLICA_NOT_AVAILABLE
        answer = plane.fetch(at(0))
        plane.remote_metadata.become_ready(segment.id.partition)
        plane.settle(100)
        assert offsets(only(answer)) == [0, 1]

    def test_hole_in_the_metadata_resets_no_consumer(self, plane: TieredPlane) -> None:
        (segment, *_) = plane.make_remote(2, 2)
        plane.forget(segment)
        answer = plane.fetch(at(0))
        plane.settle(500)
        assert only(answer).error_code == ErrorCode.REPLICA_NOT_AVAILABLE

    def test_broker_without_remote_storage_resets_no_consumer(self, plane: TieredPlane) -> None:
        plane.make_remote(2)
        plane.forgo_remote_storage()
        assert only(plane.fetch(at(0))).error_code == ErrorCode.KAFKA_STORAGE_ERROR

    def test_closing_cancels_reads_and_drops_results(self, plane: TieredPlane) -> None:
        plane.make_remote(2, 2)
        plane.fetch(at(0))
        plane.pool.is_held = True
        answer = plane.fetch(at(2))
        plane.reads.close()
        plane.settle(500)
        assert offsets(only(answer)) == []
        assert (plane.reads.open_count, plane.reads.kept_bytes) == (0, 0)


class TestSessions:
    def test_session_target_becomes_due_when_its_read_is_done(self, plane: TieredPlane) -> None:
        plane.make_remote(2)
        plane.pool.is_held = True
        opening = plane.fetch(at(0), session=(0, 0))
        plane.settle(500)
        session = opening.value.session_id
        idle = plane.fetch(session=(session, 1))
        plane.settle(500)
        assert entries(idle) == []
        waiting = plane.fetch(session=(session, 2), max_wait_ms=30_000)
        plane.pool.release()
        plane.settle()
        assert offsets(only(waiting)) == [0, 1]
        assert entries(plane.fetch(at(2), session=(session, 3), max_wait_ms=0)) == []

    def test_session_lists_failures_in_every_response(self, plane: TieredPlane) -> None:
        plane.make_remote(2)
        plane.storage.failures, plane.storage.is_down = [RetriableRemoteStorageError("down")], True
        answer = plane.fetch(at(0), session=(0, 0))
        for epoch in (1, 2, 3):
            plane.settle(500)
            assert only(answer).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            answer = plane.fetch(session=(answer.value.session_id, epoch))
            assert answer.is_waiting
        plane.storage.is_down, plane.storage.failures = False, []
        for epoch in range(4, 10):
            plane.settle(500)
            if only(answer).records:
                break
            answer = plane.fetch(session=(answer.value.session_id, epoch))
        assert offsets(only(answer)) == [0, 1]


class TestReadersInOrder:
    def test_sequential_reader_causes_prefetches(self, plane: TieredPlane) -> None:
        plane.make_remote(8)
        size = len(batch(b"0"))
        found = [offsets(only(plane.fetch(at(offset, max_bytes=2 * size)))) for offset in (0, 2)]
        plane.settle()
        plane.pool.is_held = True
        found.append(offsets(only(plane.fetch(at(4, max_bytes=2 * size)))))
        assert found == [[0, 1], [2, 3], [4, 5]]
        assert plane.pool.waiting == 1

    def test_one_block_serves_many_requests(self, plane: TieredPlane) -> None:
        plane.storage.piece_bytes = 1_000_000
        plane.make_remote(10)
        size = len(batch(b"0"))
        found: list[int] = []
        for offset in range(0, 10, 2):
            found += offsets(only(plane.fetch(at(offset, max_bytes=2 * size))))
        assert found == list(range(10))
        assert plane.reads.figures.requests == 2
        assert plane.reads.figures.bytes == 10 * size

    def test_random_access_causes_no_prefetch(self, plane: TieredPlane) -> None:
        plane.make_remote(8)
        for offset in (6, 0, 4, 2):
            only(plane.fetch(at(offset, max_bytes=len(batch(b"0")))))
        assert plane.reads.figures.requests == 4

    def test_prefetch_needs_room_and_no_quota(self, plane: TieredPlane) -> None:
        size = len(batch(b"0"))
        plane.make_remote(8)
        for settings in (RemoteReadSettings(kept_bytes=1000), RemoteReadSettings(bytes_per_second=10**9)):
            plane.read_settings = settings
            before = plane.reads.figures.requests
            for offset in range(6):
                only(plane.fetch(at(offset, max_bytes=size)))
            assert plane.reads.figures.requests == before + 6
            plane.settle(31_000)

    def test_failed_prefetch_is_dropped(self, plane: TieredPlane) -> None:
        plane.make_remote(8)
        size = len(batch(b"0"))
        only(plane.fetch(at(0, max_bytes=2 * size)))
        plane.pool.is_held = True
        answer = plane.fetch(at(2, max_bytes=2 * size))
        plane.pool.run_all()
        plane.settle()
        assert offsets(only(answer)) == [2, 3]
        plane.storage.failures, plane.storage.is_down = [RetriableRemoteStorageError("down")], True
        plane.pool.release()
        plane.settle(60_000)
        assert (plane.reads.open_count, plane.reads.figures.errors) == (0, 1)
        plane.storage.is_down, plane.storage.failures = False, []
        assert offsets(only(plane.fetch(at(4, max_bytes=2 * size)))) == [4, 5]

    def test_next_segment_is_prepared_once(self, plane: TieredPlane) -> None:
        plane.make_remote(4, 4)
        soon: list[int] = []
        plane.storage.read_soon = lambda segment, first: soon.append(segment.start_offset)  # type: ignore[method-assign]  # a spy
        for offset in range(4):
            only(plane.fetch(at(offset, max_bytes=len(batch(b"0")))))
        assert soon == [4]

    def test_transactions_that_ended_before_a_part_are_not_listed(self, plane: TieredPlane) -> None:
        """The same producer commits its next transaction; a client would drop its records."""
        plane.storage.piece_bytes = 1_000_000
        plane.fill(1)
        plane.transact(7)
        plane.end_transaction(7)
        plane.transact(7, sequence=1)
        plane.end_transaction(7, commits=True)
        plane.transact(8)
        plane.end_transaction(8)
        plane.roll()
        plane.tier()
        plane.drop_local(7)
        listed = []
        for offset in range(7):
            aborted = only(plane.fetch(at(offset, max_bytes=1), committed=True)).aborted_transactions or []
            listed.append([(each.producer_id, each.first_offset) for each in aborted])
        first, second = [(7, 1)], [(8, 5)]
        assert listed == [[], first, first, [], [], second, second]


class TestCommittedReaders:
    def test_abort_marker_in_a_later_remote_segment_is_found(self, plane: TieredPlane) -> None:
        plane.transact(7)  # 0
        plane.roll()
        plane.fill(2)  # 1, 2
        plane.end_transaction(7)  # 3
        plane.roll()
        plane.fill(1)  # 4
        copied = plane.tier()
        assert [segment.txn_index_empty for segment in copied] == [True, True, False, True]
        plane.drop_local(5)
        entry = only(plane.fetch(at(0), committed=True))
        assert offsets(entry) == [0]
        assert [(t.producer_id, t.first_offset) for t in entry.aborted_transactions or ()] == [(7, 0)]
        assert [kind for kind, start in plane.storage.reads if start == 1] == []  # no index, no lookup

    def test_local_abort_marker_is_found(self, plane: TieredPlane) -> None:
        plane.transact(7)
        plane.roll()
        plane.fill(1)
        plane.end_transaction(7)
        plane.tier()
        plane.drop_local(2)
        entry = only(plane.fetch(at(0), committed=True))
        assert [(t.producer_id, t.first_offset) for t in entry.aborted_transactions or ()] == [(7, 0)]

    def test_transaction_in_remote_and_local_indexes_is_listed_once(self, plane: TieredPlane) -> None:
        plane.transact(7)  # 0
        plane.transact(8)  # 1
        plane.end_transaction(7)  # 2
        plane.roll()
        plane.fill(1)  # 3
        plane.end_transaction(8)  # 4
        plane.fill(1)
        plane.tier()
        plane.tier()  # copied again, as by another leader
        plane.drop_local(4)
        entry = only(plane.fetch(at(0), committed=True))
        assert sorted((t.producer_id, t.first_offset) for t in entry.aborted_transactions or ()) == [(7, 0), (8, 1)]

    def test_segments_without_transactions_need_no_lookup(self, plane: TieredPlane) -> None:
        plane.fill(2)
        plane.transact(7)
        plane.end_transaction(7)
        plane.roll()
        plane.tier()
        plane.drop_local(4)
        entry = only(plane.fetch(at(0), committed=True))
        assert entry.aborted_transactions == []
        assert plane.storage.reads == [("log", 0)]

    def test_committed_transactions_are_not_listed(self, plane: TieredPlane) -> None:
        plane.transact(7)
        plane.end_transaction(7, commits=True)
        plane.transact(8)
        plane.end_transaction(8)
        plane.roll()
        plane.tier()
        plane.drop_local(4)
        entry = only(plane.fetch(at(0), committed=True))
        assert [(t.producer_id, t.first_offset) for t in entry.aborted_transactions or ()] == [(8, 2)]

    def test_awaited_target_has_an_empty_list_of_aborted_transactions(self, plane: TieredPlane) -> None:
        plane.make_remote(1)
        plane.pool.is_held = True
        answer = plane.fetch(at(0), committed=True)
        plane.settle(500)
        assert only(answer).aborted_transactions == []


class TestFollowers:
    @pytest.fixture
    def led(self) -> TieredPlane:
        plane = TieredPlane()
        plane.register_broker(FOLLOWER)
        plane.create_tiered_topic(replicas=(1, FOLLOWER))
        plane.fill(3)
        plane.log().advance_high_watermark(3)
        plane.tier()
        plane.drop_local(3)
        plane.fill(1)
        return plane

    def test_follower_gets_offset_moved_to_tiered_storage(self, led: TieredPlane) -> None:
        entry = only(led.fetch(at(0), replica=FOLLOWER, version=17, identity=led.partition().topic_id))
        assert entry.error_code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
        assert (entry.high_watermark, entry.log_start_offset) == (3, 0)
        assert led.reads.figures.requests == 0

    def test_follower_reads_from_the_local_log_start(self, led: TieredPlane) -> None:
        entry = only(led.fetch(at(3), replica=FOLLOWER, version=17, identity=led.partition().topic_id))
        assert offsets(entry) == [3]

    def test_follower_of_an_old_version_gets_unknown_server_error(self, led: TieredPlane) -> None:
        entry = only(led.fetch(at(0), replica=FOLLOWER, version=12))
        assert entry.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_segments_being_deleted_are_not_read(plane: TieredPlane) -> None:
    (segment,) = plane.make_remote(2)
    cache = plane.remote_metadata.log.cache(segment.id.partition)
    cache.update(SegmentUpdate(segment.id, SegmentState.DELETE_STARTED, 0, BrokerId(1)))
    answer = plane.fetch(at(0))
    plane.settle(500)
    assert only(answer).error_code == ErrorCode.REPLICA_NOT_AVAILABLE
