"""Holes in the remote log: offsets that no segment holds, waited for and skipped after the patience time."""

from dataclasses import replace

import pytest

from protocol.errors import ErrorCode
from protocol.ids import BrokerId, LeaderEpoch
from protocol.messages.list_offsets import ListOffsetsPartition
from protocol.primitives import Uuid
from storage.directories.checkpoints import LeaderEpochEntry
from storage.tiered.segment_metadata import (
    TOOL_BROKER_ID,
    RemoteSegment,
    RemoteSegmentId,
    SegmentState,
    SegmentUpdate,
)
from tests.support.harnesses.tiered_plane import TieredPlane, at, offsets, only

PATIENCE_MS = 600_000


@pytest.fixture
def plane() -> TieredPlane:
    plane = TieredPlane()
    plane.create_tiered_topic()
    return plane


@pytest.fixture
def segments(plane: TieredPlane) -> list[RemoteSegment]:
    """Segments of two offsets each; the last one is local."""
    return plane.make_remote(2, 2, 2, 2)


def code_of(plane: TieredPlane, offset: int) -> int:
    answer = plane.fetch(at(offset))
    plane.settle(500)
    return only(answer).error_code


def found(plane: TieredPlane, offset: int) -> list[int]:
    """Return the offsets that a consumer reads, retrying for a few seconds."""
    for _ in range(8):
        answer = plane.fetch(at(offset))
        plane.settle(500)
        entry = only(answer)
        if entry.error_code == ErrorCode.NONE:
            return offsets(entry)
    raise AssertionError(f"offset {offset} is answered {entry.error_code}")


def wait_for(plane: TieredPlane, offset: int, time_ms: int) -> None:
    """Fetch again and again for `time_ms`, as a consumer does."""
    for _ in range(time_ms // 10_000):
        assert code_of(plane, offset) == ErrorCode.REPLICA_NOT_AVAILABLE
        plane.settle(9_500)


def test_hole_is_skipped_after_the_patience_time(plane: TieredPlane, segments: list[RemoteSegment]) -> None:
    plane.forget(segments[1])
    plane.forget(segments[2])
    wait_for(plane, 2, PATIENCE_MS)
    assert found(plane, 2) == [6, 7]
    assert found(plane, 0) == [0, 1], "the other segments are read as before"


def test_late_segment_is_read_when_it_arrives(plane: TieredPlane, segments: list[RemoteSegment]) -> None:
    plane.forget(segments[1])
    wait_for(plane, 2, PATIENCE_MS // 2)
    plane.announce(segments[1])
    assert found(plane, 2) == [2, 3]
    plane.forget(segments[1])
    wait_for(plane, 3, PATIENCE_MS // 2)


def test_unlimited_patience_skips_no_hole(plane: TieredPlane, segments: list[RemoteSegment]) -> None:
    plane.read_settings = replace(plane.read_settings, hole_patience_ms=-1)
    plane.forget(segments[1])
    wait_for(plane, 2, 2 * PATIENCE_MS)


def test_log_without_leader_epochs_skips_no_hole(plane: TieredPlane, segments: list[RemoteSegment]) -> None:
    """All segments may exist; a log without leader epochs cannot check which of them belong to its history."""
    plane.log().epochs.replace([LeaderEpochEntry(LeaderEpoch(0), plane.log().local_log_start_offset)])
    wait_for(plane, 2, 2 * PATIENCE_MS)


def give_up(plane: TieredPlane, segment: RemoteSegment) -> None:
    """Publish the events of `ottla remote give-up`, and of the leader that ends the deletion."""
    cache = plane.remote_metadata.log.cache(segment.id.partition)
    id = RemoteSegmentId(segment.id.partition, Uuid(b"\xff" * 15 + segment.start_offset.to_bytes(1)))
    mark = replace(segment, id=id, max_timestamp_ms=-1, size_bytes=0, state=SegmentState.COPY_STARTED)
    cache.add(replace(mark, broker_id=TOOL_BROKER_ID))
    cache.update(SegmentUpdate(id, SegmentState.DELETE_STARTED, 0, TOOL_BROKER_ID))
    cache.update(SegmentUpdate(segment.id, SegmentState.DELETE_STARTED, 0, TOOL_BROKER_ID))
    cache.update(SegmentUpdate(segment.id, SegmentState.DELETE_FINISHED, 0, BrokerId(1)))


def test_consumer_at_a_lost_segment_goes_on_after_it_is_given_up(
    plane: TieredPlane, segments: list[RemoteSegment], caplog: pytest.LogCaptureFixture
) -> None:
    plane.storage.delete_segment(segments[1])
    for _ in range(3):
        assert code_of(plane, 2) == ErrorCode.KAFKA_STORAGE_ERROR
    give_up(plane, segments[1])
    caplog.clear()
    assert [found(plane, offset) for offset in (2, 3, 2, 0, 4)] == [[4, 5], [4, 5], [4, 5], [0, 1], [4, 5]]
    assert plane.reads.holes.skipped == 2
    assert len([line for line in caplog.records if "records are lost" in line.message]) == 2


@pytest.fixture
def partly_local(plane: TieredPlane) -> list[RemoteSegment]:
    """Segments of two offsets each; the local log begins with the last one."""
    plane.fill(2, 2, 2, 2)
    copied = plane.tier()
    plane.drop_local(6)
    return copied


def test_given_up_offsets_before_the_local_log_are_skipped(
    plane: TieredPlane, partly_local: list[RemoteSegment]
) -> None:
    give_up(plane, partly_local[1])
    give_up(plane, partly_local[2])
    assert [found(plane, offset) for offset in (2, 5, 4, 6)] == [[6, 7]] * 4


def test_hole_before_the_local_log_is_waited_for_unless_it_is_given_up_whole(
    plane: TieredPlane, partly_local: list[RemoteSegment]
) -> None:
    give_up(plane, partly_local[1])
    plane.forget(partly_local[2])
    assert [code_of(plane, offset) for offset in (2, 4)] == [ErrorCode.REPLICA_NOT_AVAILABLE] * 2


def test_given_up_offsets_are_skipped_by_look_ups_by_time(plane: TieredPlane, segments: list[RemoteSegment]) -> None:
    give_up(plane, segments[1])
    answer = plane.ask_offsets(ListOffsetsPartition(0, -1, 2000))
    assert answer.value.topics[0].partitions[0].offset == 4


def test_given_up_offsets_are_skipped_without_patience(plane: TieredPlane, segments: list[RemoteSegment]) -> None:
    plane.read_settings = replace(plane.read_settings, hole_patience_ms=-1)
    give_up(plane, segments[1])
    assert found(plane, 2) == [4, 5]


def test_expiration_by_a_broker_gives_up_nothing(plane: TieredPlane, segments: list[RemoteSegment]) -> None:
    plane.forget(segments[1])
    wait_for(plane, 2, PATIENCE_MS // 2)
