"""ListOffsets where older segments are in remote storage (`broker.runtime.remote_log.offsets`)."""

from random import Random

import pytest

from broker.runtime.partitions.offset_lookup import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsResponse
from storage.directories.checkpoints import LeaderEpochEntry
from storage.tiered.errors import RemoteResourceNotFound, RetriableRemoteStorageError
from storage.tiered.segment_metadata import RemoteSegment, TopicIdPartition
from tests.support.harnesses.data_plane import Answer, batch
from tests.support.harnesses.tiered_plane import TieredPlane

NOT_FOUND = (-1, -1, -1)
ENDS = (LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD)


@pytest.fixture
def plane() -> TieredPlane:
    plane = TieredPlane()
    plane.create_tiered_topic()
    return plane


def entries(answer: Answer[ListOffsetsResponse]) -> list[ListOffsetsPartitionResponse]:
    return answer.value.topics[0].partitions


def ask(plane: TieredPlane, timestamp: int, *, replica: int = -1, timeout_ms: int = 0) -> Answer[ListOffsetsResponse]:
    return plane.ask_offsets(ListOffsetsPartition(0, -1, timestamp), replica=replica, timeout_ms=timeout_ms)


def found(answer: Answer[ListOffsetsResponse]) -> tuple[int, int, int]:
    (entry,) = entries(answer)
    assert entry.error_code == 0, entry.error_code
    return entry.timestamp, entry.offset, entry.leader_epoch


def error(answer: Answer[ListOffsetsResponse]) -> int:
    (entry,) = entries(answer)
    return entry.error_code


class TestEnds:
    def all(self, plane: TieredPlane) -> list[tuple[int, int, int]]:
        return [found(ask(plane, timestamp)) for timestamp in ENDS]

    def test_ends_of_an_empty_log(self, plane: TieredPlane) -> None:
        assert self.all(plane) == [(-1, 0, 0), (-1, 0, 0), NOT_FOUND, (-1, 0, 0), NOT_FOUND, (-1, 0, 0)]

    def test_ends_of_a_local_log(self, plane: TieredPlane) -> None:
        plane.fill(2, 2)
        assert self.all(plane) == [(-1, 4, 0), (-1, 0, 0), (3000, 3, 0), (-1, 0, 0), NOT_FOUND, (-1, 0, 0)]

    def test_ends_of_a_copied_log_that_is_still_local(self, plane: TieredPlane) -> None:
        plane.fill(2, 2)
        plane.tier(below=2)
        assert self.all(plane) == [(-1, 4, 0), (-1, 0, 0), (3000, 3, 0), (-1, 0, 0), (-1, 1, 0), (-1, 2, 0)]

    def test_ends_of_a_log_in_both_tiers(self, plane: TieredPlane) -> None:
        plane.fill(2, 2, 2)
        plane.tier(below=4)
        plane.drop_local(2)
        assert self.all(plane) == [(-1, 6, 0), (-1, 0, 0), (5000, 5, 0), (-1, 2, 0), (-1, 3, 0), (-1, 4, 0)]

    def test_ends_of_a_remote_log(self, plane: TieredPlane) -> None:
        plane.make_remote(2, 2)
        assert self.all(plane) == [(-1, 4, 0), (-1, 0, 0), (3000, 3, 0), (-1, 4, 0), (-1, 3, 0), (-1, 4, 0)]

    def test_ends_have_their_leader_epochs(self, plane: TieredPlane) -> None:
        plane.fill(2)
        plane.elect(plane.partition().topic_id, 1)
        plane.fill(2)
        plane.elect(plane.partition().topic_id, 1)
        plane.tier()
        plane.drop_local(2)
        assert self.all(plane) == [(-1, 4, 2), (-1, 0, 0), (3000, 3, 1), (-1, 2, 1), (-1, 3, 1), (-1, 4, 2)]

    def test_log_start_above_the_copied_segments_wins(self, plane: TieredPlane) -> None:
        plane.fill(2, 2)
        plane.tier(below=2)
        plane.partition().record_deletion.delete_records(3)
        assert found(ask(plane, EARLIEST_PENDING_UPLOAD))[1] == 3

    def test_ends_wait_for_unknown_remote_metadata(self, plane: TieredPlane) -> None:
        (segment, *_) = plane.make_remote(2)
        plane.remote_metadata.not_ready.add(segment.id.partition)
        assert found(ask(plane, EARLIEST_PENDING_UPLOAD)) == NOT_FOUND
        assert error(ask(plane, LATEST_TIERED)) == ErrorCode.OFFSET_NOT_AVAILABLE
        assert found(ask(plane, EARLIEST_LOCAL))[1] == 2

    def test_empty_log_waits_for_unknown_remote_metadata(self, plane: TieredPlane) -> None:
        plane.remote_metadata.not_ready.add(TopicIdPartition(plane.partition().topic_id, "t", 0))
        assert error(ask(plane, LATEST_TIERED)) == ErrorCode.OFFSET_NOT_AVAILABLE
        plane.remote_metadata.not_ready.clear()
        assert found(ask(plane, LATEST_TIERED)) == NOT_FOUND

    def test_next_offset_to_upload_has_its_leader_epoch(self, plane: TieredPlane) -> None:
        """Kafka 4.2 does the same, also where nothing or everything was uploaded."""
        plane.elect(plane.partition().topic_id, 1)
        assert found(ask(plane, EARLIEST_PENDING_UPLOAD)) == (-1, 0, 1)
        plane.fill(2)
        plane.elect(plane.partition().topic_id, 1)
        plane.fill(2)
        plane.tier(below=2)
        assert found(ask(plane, EARLIEST_PENDING_UPLOAD)) == (-1, 2, 2)
        plane.elect(plane.partition().topic_id, 1)
        plane.tier(below=4)
        assert found(ask(plane, EARLIEST_PENDING_UPLOAD)) == (-1, 4, 3)

    def test_segments_of_another_lineage_do_not_count(self, plane: TieredPlane) -> None:
        """A longer version of epoch 0 was copied from a log that was truncated later (KIP-405, scenario 5)."""
        plane.fill(4)
        plane.tier()
        plane.log().truncate_to(2, now_ms=0)
        plane.log().high_watermark = 2
        plane.elect(plane.partition().topic_id, 1)
        plane.fill(2)
        assert found(ask(plane, LATEST_TIERED)) == (-1, 1, 0)
        assert found(ask(plane, EARLIEST_PENDING_UPLOAD)) == (-1, 2, 1)

    def test_untiered_topics_have_local_ends(self, plane: TieredPlane) -> None:
        plane.create_topic("u")
        plane.produce(b"a", topic="u")
        for timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            assert found(plane.ask_offsets(ListOffsetsPartition(0, -1, timestamp), topic="u")) == NOT_FOUND

    def test_readers_are_fenced(self, plane: TieredPlane) -> None:
        for timestamp in (*ENDS, 0):
            answer = plane.ask_offsets(ListOffsetsPartition(0, 7, timestamp))
            assert error(answer) == ErrorCode.UNKNOWN_LEADER_EPOCH


class TestTimes:
    def test_timestamp_is_found_in_either_tier(self, plane: TieredPlane) -> None:
        plane.make_remote(3, 3)
        plane.fill(2)
        assert [found(ask(plane, time)) for time in (0, 1500, 2000, 3001, 5000, 5001, 7000)] == [
            (0, 0, 0),
            (2000, 2, 0),
            (2000, 2, 0),
            (4000, 4, 0),
            (5000, 5, 0),
            (6000, 6, 0),
            (7000, 7, 0),
        ]
        assert found(ask(plane, 7001)) == NOT_FOUND

    def test_timestamp_in_a_local_log_is_found_at_once(self, plane: TieredPlane) -> None:
        plane.fill(3)
        plane.tier()
        plane.pool.is_held = True
        assert found(ask(plane, 1000)) == (1000, 1, 0)

    def test_timestamp_in_both_tiers_is_found_locally(self, plane: TieredPlane) -> None:
        plane.fill(3, 3)
        plane.tier()
        plane.drop_local(3)
        plane.storage.reads.clear()
        assert found(ask(plane, 4000)) == (4000, 4, 0)
        assert plane.storage.reads == []

    def test_one_segment_is_read_however_many_there_are(self, plane: TieredPlane) -> None:
        plane.make_remote(*[2] * 600)
        answer = ask(plane, 1_000_500)
        plane.settle()
        assert found(answer) == (1_001_000, 1001, 0)
        assert {start for _, start in plane.storage.reads} == {1000}
        plane.remote_metadata.looked_up.clear()
        assert found(ask(plane, 500_500)) == (501_000, 501, 0)
        assert plane.remote_metadata.looked_up == [500]

    def test_offset_is_not_below_the_log_start_offset(self, plane: TieredPlane) -> None:
        plane.make_remote(4, 4)
        plane.partition().record_deletion.delete_records(2)
        assert found(ask(plane, 0)) == (2000, 2, 0)

    def test_largest_timestamp_may_be_in_remote_storage(self, plane: TieredPlane) -> None:
        plane.partition().append(batch(b"a", timestamp=100), 1)
        plane.partition().append(batch(b"b", timestamp=900), 1)
        plane.make_remote()
        plane.roll()
        plane.tier()
        plane.drop_local(2)
        plane.partition().append(batch(b"c", timestamp=500), 1)
        assert found(ask(plane, MAX_TIMESTAMP)) == (900, 1, 0)
        plane.partition().append(batch(b"d", timestamp=900), 1)
        assert found(ask(plane, MAX_TIMESTAMP)) == (900, 1, 0)
        plane.partition().append(batch(b"e", timestamp=901), 1)
        assert found(ask(plane, MAX_TIMESTAMP)) == (901, 4, 0)

    def test_consumers_see_committed_records(self, plane: TieredPlane) -> None:
        plane.make_remote(3)
        plane.log().high_watermark = 2
        assert found(ask(plane, 2000)) == NOT_FOUND
        assert found(ask(plane, 2000, replica=2)) == (2000, 2, 0)

    def test_segment_deleted_locally_during_the_search_is_found_remotely(self, plane: TieredPlane) -> None:
        """KAFKA-17637: the segment is neither at its former place nor where the search has already looked."""
        (first,) = plane.make_remote(2)
        plane.overstate_times(first, 1700)
        plane.fill(2)
        plane.partition().append(batch(b"young", timestamp=9000), 1)
        plane.pool.is_held = True
        answer = ask(plane, 1500)  # the look-up searches the first segment in vain
        plane.roll()
        plane.tier()
        plane.drop_local(4)
        plane.pool.release()
        plane.settle()
        assert found(answer) == (2000, 2, 0)

    @pytest.mark.parametrize("seed", range(10))
    def test_search_equals_a_scan_of_every_record(self, plane: TieredPlane, seed: int) -> None:
        random = Random(seed)
        times: list[int] = []
        for _ in range(random.randint(1, 8)):
            for _ in range(random.randint(1, 4)):
                times.append(random.randint(0, 50))
                plane.partition().append(batch(b"x", timestamp=times[-1]), 1)
            plane.roll()
        plane.tier()
        plane.drop_local(random.randint(0, len(times)))
        start = random.randint(0, len(times))
        plane.partition().record_deletion.delete_records(start)
        for time in range(55):
            expected = next(((t, o, 0) for o, t in enumerate(times) if o >= start and t >= time), NOT_FOUND)
            assert found(ask(plane, time)) == expected


class TestHoles:
    """Records of [2, 3] are in no segment; those before and behind are in remote storage or local."""

    @pytest.fixture
    def lost(self, plane: TieredPlane) -> RemoteSegment:
        (_, lost, *_) = plane.make_remote(2, 2, 2, 2)
        plane.fill(2)
        plane.forget(lost)
        return lost

    @pytest.mark.parametrize(
        ("time", "offset"), [(0, 0), (500, 1), (1000, 1), (4001, 5), (5000, 5), (6000, 6), (8000, 8), (9000, 9)]
    )
    @pytest.mark.usefixtures("lost")
    def test_times_before_and_behind_a_hole_are_found(self, plane: TieredPlane, time: int, offset: int) -> None:
        assert found(ask(plane, time)) == (offset * 1000, offset, 0)

    @pytest.mark.usefixtures("lost")
    def test_hole_does_not_affect_the_ends_of_time(self, plane: TieredPlane) -> None:
        assert found(ask(plane, 9001)) == NOT_FOUND
        assert found(ask(plane, MAX_TIMESTAMP)) == (9000, 9, 0)

    @pytest.mark.parametrize("time", [1001, 2000, 3000, 4000])
    def test_times_in_a_hole_wait_for_the_segment(self, plane: TieredPlane, lost: RemoteSegment, time: int) -> None:
        answer = ask(plane, time)
        plane.settle(1000)
        assert answer.is_waiting
        plane.announce(lost)
        plane.settle(110)
        assert found(answer)[1] == -(-time // 1000)

    @pytest.mark.usefixtures("lost")
    def test_times_in_a_hole_are_found_behind_it_after_the_patience_time(self, plane: TieredPlane) -> None:
        answer = ask(plane, 2000, timeout_ms=1000)
        plane.settle(1010)
        assert error(answer) == ErrorCode.REQUEST_TIMED_OUT
        plane.settle(plane.read_settings.hole_patience_ms)
        assert found(ask(plane, 2000)) == (4000, 4, 0)

    def test_segment_that_disappears_becomes_a_hole(self, plane: TieredPlane) -> None:
        segments = plane.make_remote(2, 2, 2)
        assert found(ask(plane, 2000)) == (2000, 2, 0)
        plane.forget(segments[1])
        answer = ask(plane, 2000)
        plane.settle(500)
        assert answer.is_waiting
        assert found(ask(plane, 5000)) == (5000, 5, 0)

    def test_hole_before_the_local_log_concerns_its_own_times(self, plane: TieredPlane) -> None:
        (*_, last) = plane.make_remote(2, 2)
        plane.fill(2)
        plane.forget(last)
        assert found(ask(plane, 1000)) == (1000, 1, 0)
        assert found(ask(plane, 5000)) == (5000, 5, 0)
        assert ask(plane, 2000).is_waiting

    def test_log_without_epochs_of_its_beginning_is_searched_from_there(self, plane: TieredPlane) -> None:
        plane.make_remote(2, 2, 2)
        plane.log().epochs.replace([LeaderEpochEntry(LeaderEpoch(0), 2)])
        assert found(ask(plane, 3000)) == (3000, 3, 0)
        assert ask(plane, 1000).is_waiting

    def test_damaged_segment_concerns_its_own_times(self, plane: TieredPlane) -> None:
        (_, damaged, *_) = plane.make_remote(2, 2, 2)
        plane.storage.logs[damaged.id.id] = b"x" * damaged.size_bytes
        assert [found(ask(plane, time))[1] for time in (1000, 4000, 5000)] == [1, 4, 5]
        answer = ask(plane, 2000)
        plane.settle(5000)
        assert error(answer) == ErrorCode.CORRUPT_MESSAGE


class TestCopies:
    def test_another_copy_is_searched_if_a_segment_is_lost(self, plane: TieredPlane) -> None:
        plane.fill(2, 2)
        first, lost = plane.tier()
        plane.tier()
        plane.drop_local(4)
        for segment in (first, lost):
            plane.storage.delete_segment(segment)
        assert [found(ask(plane, time))[1] for time in (0, 1000, 2000, 3000)] == [0, 1, 2, 3]

    def test_copies_that_end_earlier_are_searched_one_after_another(self, plane: TieredPlane) -> None:
        plane.make_remote(2, 2)
        other = TieredPlane()
        other.create_tiered_topic()
        other.fill(4)
        long = plane.storage.upload(other.fs, other.log(), 99, other.log().segments.first, plane.partition().topic_id)
        plane.announce(long)
        plane.storage.delete_segment(long)
        assert [found(ask(plane, time))[1] for time in (0, 1000, 2000, 3000)] == [0, 1, 2, 3]


class TestReplicas:
    """The segment of [2, 3] is lost or damaged, and a follower has offsets 2 to 5 in its local log."""

    TIMES = (500, 1000, 1001, 2000, 3000, 3001, 5000)

    @pytest.fixture
    def segment(self, plane: TieredPlane) -> RemoteSegment:
        (_, segment, *_) = plane.make_remote(2, 2, 2)
        plane.replicas.held = range(2, 6)
        return segment

    def test_follower_is_searched_for_a_lost_segment(
        self, plane: TieredPlane, segment: RemoteSegment, caplog: pytest.LogCaptureFixture
    ) -> None:
        plane.storage.delete_segment(segment)
        assert [found(ask(plane, time))[1] for time in self.TIMES] == [1, 1, 2, 2, 3, 4, 5]
        assert set(plane.replicas.lookups) == {(2, 4)}
        assert caplog.text.count("the local log of a follower is searched") == 1

    def test_follower_is_searched_for_a_damaged_segment(self, plane: TieredPlane, segment: RemoteSegment) -> None:
        plane.storage.logs[segment.id.id] = b"x" * segment.size_bytes
        assert [found(ask(plane, time))[1] for time in self.TIMES] == [1, 1, 2, 2, 3, 4, 5]

    def test_follower_is_searched_for_the_latest_record(self, plane: TieredPlane) -> None:
        (*_, last) = plane.make_remote(2, 2)
        plane.replicas.held = range(2, 4)
        plane.storage.delete_segment(last)
        assert found(ask(plane, MAX_TIMESTAMP)) == (3000, 3, 0)

    def test_segment_that_no_follower_has_is_an_error(self, plane: TieredPlane, segment: RemoteSegment) -> None:
        plane.replicas.held = range(3, 6)
        plane.storage.delete_segment(segment)
        answer = ask(plane, 2000)
        plane.settle(5000)
        assert error(answer) == ErrorCode.KAFKA_STORAGE_ERROR

    def test_follower_is_searched_for_a_hole_after_some_attempts(
        self, plane: TieredPlane, segment: RemoteSegment
    ) -> None:
        plane.forget(segment)
        answer = ask(plane, 2500)
        assert plane.replicas.lookups == []
        plane.settle(1000)
        assert found(answer) == (3000, 3, 0)
        behind = ask(plane, 3500)
        plane.settle(1000)
        assert found(behind) == (4000, 4, 0)


class TestWaiting:
    def test_response_waits_for_the_slowest_lookup(self, plane: TieredPlane) -> None:
        plane.create_tiered_topic("m", 2)
        plane.make_remote(2, topic="m")
        plane.fill(2, topic="m", index=1)
        plane.pool.is_held = True
        answer = plane.ask_offsets(
            ListOffsetsPartition(0, -1, 500),
            ListOffsetsPartition(1, -1, 500),
            ListOffsetsPartition(7, -1, 0),
            topic="m",
        )
        assert answer.is_waiting
        plane.pool.release()
        plane.settle()
        assert [(entry.error_code, entry.offset) for entry in entries(answer)] == [(0, 1), (0, 1), (3, -1)]

    @pytest.mark.parametrize(("asked_ms", "waits_ms"), [(0, 30_000), (2_000, 2_000)])
    def test_lookup_times_out(self, plane: TieredPlane, asked_ms: int, waits_ms: int) -> None:
        plane.make_remote(2)
        plane.pool.is_held = True
        answer = ask(plane, 500, timeout_ms=asked_ms)
        plane.settle(waits_ms - 10)
        assert answer.is_waiting
        assert plane.offsets.waiting == 1
        plane.settle(20)
        assert error(answer) == ErrorCode.REQUEST_TIMED_OUT
        assert list(plane.offsets.expired.values()) == [1]
        assert plane.offsets.waiting == 0

    def test_unloaded_remote_metadata_is_retriable(self, plane: TieredPlane) -> None:
        (segment, *_) = plane.make_remote(2)
        plane.remote_metadata.not_ready.add(segment.id.partition)
        answer = ask(plane, 500)
        plane.settle(1000)
        assert answer.is_waiting
        plane.remote_metadata.become_ready(segment.id.partition)
        plane.settle(110)
        assert found(answer) == (1000, 1, 0)

    def test_hole_in_remote_storage_is_not_skipped(self, plane: TieredPlane) -> None:
        (first, *_) = plane.make_remote(2, 2)
        plane.forget(first)
        answer = ask(plane, 500, timeout_ms=1000)
        plane.settle(1010)
        assert error(answer) == ErrorCode.REQUEST_TIMED_OUT

    def test_full_thread_pool_is_retriable(self, plane: TieredPlane) -> None:
        plane.make_remote(2)
        plane.pool.room = 0
        answer = ask(plane, 500)
        plane.settle(500)
        plane.pool.room = None
        plane.settle(110)
        assert found(answer) == (1000, 1, 0)

    @pytest.mark.parametrize(
        "failure", [RetriableRemoteStorageError("down"), RemoteResourceNotFound("missing"), KeyError(1)]
    )
    def test_unavailable_store_is_retriable(self, plane: TieredPlane, failure: Exception) -> None:
        plane.make_remote(2)
        plane.storage.failures, plane.storage.is_down = [failure], True
        answer = ask(plane, 500)
        plane.settle(2000)
        assert error(answer) == ErrorCode.KAFKA_STORAGE_ERROR
        plane.storage.failures, plane.storage.is_down = [failure] * 2, False
        answer = ask(plane, 500)
        plane.settle(2000)
        assert found(answer) == (1000, 1, 0)

    def test_leadership_lost_during_the_lookup_is_reported(self, plane: TieredPlane) -> None:
        identity = plane.create_tiered_topic("m", replicas=(1, 2))
        plane.fill(2, topic="m")
        plane.log(topic="m").advance_high_watermark(2)
        plane.tier(topic="m")
        plane.drop_local(2, topic="m")
        plane.pool.is_held = True
        answer = plane.ask_offsets(ListOffsetsPartition(0, -1, 500), topic="m")
        plane.elect(identity, 2)
        plane.pool.release()
        plane.settle()
        assert error(answer) == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_disconnected_peer_cancels_the_lookup(self, plane: TieredPlane) -> None:
        plane.make_remote(2)
        plane.pool.is_held = True
        ask(plane, 500).cancel()
        plane.settle()
        assert len(plane.deadlines) == 0
        plane.pool.release()
        plane.settle()
