"""Offsets that no remote segment has, inside of what should be remote: waited for, and skipped when that is in vain."""

from dataclasses import replace

import pytest

from protocol.errors import ErrorCode
from storage.directories.checkpoints import EpochEntry
from storage.tiered.segment_metadata import RemoteSegment
from tests.support.tiered_plane import TieredPlane, at, offsets, only

PATIENCE_MS = 600_000


@pytest.fixture
def plane() -> TieredPlane:
    plane = TieredPlane()
    plane.create_tiered_topic()
    return plane


@pytest.fixture
def segments(plane: TieredPlane) -> list[RemoteSegment]:
    """Offsets 0 and 1, 2 and 3, …, of which the last are on this disk."""
    return plane.make_remote(2, 2, 2, 2)


def code_of(plane: TieredPlane, offset: int) -> int:
    answer = plane.fetch(at(offset))
    plane.settle(500)
    return only(answer).error_code


def found(plane: TieredPlane, offset: int) -> list[int]:
    """By a consumer that comes again for a few seconds."""
    for _ in range(8):
        answer = plane.fetch(at(offset))
        plane.settle(500)
        entry = only(answer)
        if entry.error_code == ErrorCode.NONE:
            return offsets(entry)
    raise AssertionError(f"offset {offset} is answered {entry.error_code}")


def wait_for(plane: TieredPlane, offset: int, time_ms: int) -> None:
    """As a consumer does that comes again and again."""
    for _ in range(time_ms // 10_000):
        assert code_of(plane, offset) == ErrorCode.REPLICA_NOT_AVAILABLE
        plane.settle(9_500)


def test_what_comes_next_is_given_after_a_while(plane: TieredPlane, segments: list[RemoteSegment]) -> None:
    plane.forget(segments[1])
    plane.forget(segments[2])
    wait_for(plane, 2, PATIENCE_MS)
    assert found(plane, 2) == [6, 7]
    assert found(plane, 0) == [0, 1], "what is there is read as before"


def test_what_is_late_is_given_when_it_comes(plane: TieredPlane, segments: list[RemoteSegment]) -> None:
    plane.forget(segments[1])
    wait_for(plane, 2, PATIENCE_MS // 2)
    plane.announce(segments[1])
    assert found(plane, 2) == [2, 3]
    plane.forget(segments[1])
    wait_for(plane, 3, PATIENCE_MS // 2)


def test_whoever_wants_to_waits_for_ever(plane: TieredPlane, segments: list[RemoteSegment]) -> None:
    plane.read_settings = replace(plane.read_settings, hole_patience_ms=-1)
    plane.forget(segments[1])
    wait_for(plane, 2, 2 * PATIENCE_MS)


def test_nothing_is_skipped_where_leader_epochs_are_not_known(
    plane: TieredPlane, segments: list[RemoteSegment]
) -> None:
    """The segments may all be there: it is this log that does not know which are its own."""
    plane.log().epochs.replace([EpochEntry(0, plane.log().local_log_start_offset)])
    wait_for(plane, 2, 2 * PATIENCE_MS)
