"""Reads of records that several remote segments hold, where one of them is lost or damaged."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch
from storage.tiered.segment_metadata import RemoteSegment
from tests.support.harnesses.tiered_plane import TieredPlane, at, offsets, only


@pytest.fixture
def plane() -> TieredPlane:
    plane = TieredPlane()
    plane.create_tiered_topic()
    return plane


def copied_twice(plane: TieredPlane, *segments: int) -> tuple[list[RemoteSegment], list[RemoteSegment]]:
    """Create segments in remote storage alone, with two copies each."""
    plane.fill(*segments)
    copies = plane.tier(), plane.tier()
    plane.drop_local(sum(segments))
    return copies


def damage(plane: TieredPlane, segment: RemoteSegment) -> None:
    plane.storage.logs[segment.id.id] = b"!" * segment.size_bytes


def lose(plane: TieredPlane, segment: RemoteSegment) -> None:
    plane.storage.delete_segment(segment)


def found(plane: TieredPlane, offset: int) -> list[int]:
    answer = plane.fetch(at(offset))
    plane.settle(500)
    return offsets(only(answer))


@pytest.mark.parametrize("harm", [damage, lose])
@pytest.mark.parametrize("which", [0, 1])
def test_either_copy_serves_if_the_other_fails(
    plane: TieredPlane, harm: Callable[[TieredPlane, RemoteSegment], None], which: int, caplog: pytest.LogCaptureFixture
) -> None:
    copies = copied_twice(plane, 3)
    harm(plane, copies[which][0])
    assert [found(plane, offset) for offset in (0, 1, 2)] == [[0, 1, 2], [1, 2], [2]]
    lines = [line for line in caplog.records if line.name == "broker.remote_reads"]
    assert len(lines) <= 1


def test_failed_copy_is_not_read_again_for_a_while(plane: TieredPlane) -> None:
    (_, (preferred,)) = copied_twice(plane, 3)
    damage(plane, preferred)
    assert found(plane, 0) == [0, 1, 2]
    plane.storage.logs[preferred.id.id] = b""
    plane.storage.reads.clear()
    assert found(plane, 1) == [1, 2]
    assert plane.reads.figures.errors == 1


def test_all_copies_lost_is_an_error(plane: TieredPlane) -> None:
    for (segment,) in copied_twice(plane, 3):
        lose(plane, segment)
    answer = plane.fetch(at(0))
    plane.settle(500)
    assert only(answer).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_copy_of_another_history_does_not_serve(plane: TieredPlane) -> None:
    ((segment,), (other,)) = copied_twice(plane, 3)
    plane.forget(other)
    plane.announce(replace(other, leader_epochs=(other.leader_epochs[0]._replace(epoch=LeaderEpoch(7)),)))
    lose(plane, segment)
    answer = plane.fetch(at(0))
    plane.settle(500)
    assert only(answer).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_copy_does_not_serve_for_a_compacted_segment(plane: TieredPlane) -> None:
    ((segment,), (other,)) = copied_twice(plane, 3)
    plane.forget(other)
    plane.announce(replace(other, compacted_to=3))
    lose(plane, other)
    answer = plane.fetch(at(0))
    plane.settle(500)
    assert only(answer).error_code == ErrorCode.KAFKA_STORAGE_ERROR, "older copies hold removed records"
    assert segment.id != other.id
