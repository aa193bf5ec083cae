"""Holes in the remote log: offsets that no segment holds, waited for and skipped after the patience time."""

from dataclasses import replace

import pytest

from protocol.errors import ErrorCode
from storage.directories.checkpoints import LeaderEpochEntry
from storage.tiered.segment_metadata import RemoteSegment
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
    plane.log().epochs.replace([LeaderEpochEntry(0, plane.log().local_log_start_offset)])
    wait_for(plane, 2, 2 * PATIENCE_MS)
