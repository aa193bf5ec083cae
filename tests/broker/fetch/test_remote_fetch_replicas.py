"""Reads of lost remote records from the local log of another replica."""

from collections.abc import Callable

import pytest

from broker.fetch.remote_reads.replica_copies import ReplicaBatches
from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch
from protocol.records.batch import patch
from storage.tiered.segment_metadata import RemoteSegment
from tests.support.harnesses.data_plane import batch
from tests.support.harnesses.tiered_plane import TieredPlane, at, offsets, only


@pytest.fixture
def plane() -> TieredPlane:
    plane = TieredPlane()
    plane.create_tiered_topic()
    return plane


@pytest.fixture
def segments(plane: TieredPlane) -> list[RemoteSegment]:
    """Segments of two offsets each; the last one is local."""
    return plane.make_remote(2, 2, 2)


def damage(plane: TieredPlane, segment: RemoteSegment) -> None:
    plane.storage.logs[segment.id.id] = b"!" * segment.size_bytes


def lose(plane: TieredPlane, segment: RemoteSegment) -> None:
    plane.storage.delete_segment(segment)


def batches_at(*numbers: int) -> bytearray:
    data = bytearray()
    for offset in numbers:
        each = batch(b"%d" % offset)
        patch(each, 0, offset, LeaderEpoch(0))
        data += each
    return data


def keep_on_replica(plane: TieredPlane, *numbers: int, aborted: list[tuple[int, int]] | None = None) -> None:
    plane.replicas.found[numbers[0]] = ReplicaBatches(memoryview(batches_at(*numbers)), aborted)


@pytest.mark.parametrize("harm", [damage, lose])
def test_replica_with_the_offset_serves_a_lost_segment(
    plane: TieredPlane,
    segments: list[RemoteSegment],
    harm: Callable[[TieredPlane, RemoteSegment], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    harm(plane, segments[0])
    keep_on_replica(plane, 0, 1)
    keep_on_replica(plane, 1)
    for offset, expected in ((0, [0, 1]), (1, [1]), (2, [2, 3])):
        answer = plane.fetch(at(offset))
        plane.settle(500)
        assert offsets(only(answer)) == expected
    assert plane.replicas.reads == [0, 1]
    assert plane.reads.figures.from_replicas == 2
    assert plane.reads.figures.errors == 2, "the store has failed all the same"
    assert len([line for line in caplog.records if "local log of a follower is read" in line.message]) == 1


def test_intact_segment_is_not_read_from_replicas(plane: TieredPlane, segments: list[RemoteSegment]) -> None:
    keep_on_replica(plane, 0, 1)
    answer = plane.fetch(at(0))
    plane.settle(500)
    assert offsets(only(answer)) == [0, 1]
    assert plane.replicas.reads == []


def test_lost_segment_without_a_replica_is_an_error(plane: TieredPlane, segments: list[RemoteSegment]) -> None:
    lose(plane, segments[0])
    answer = plane.fetch(at(0))
    plane.settle(500)
    assert only(answer).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert plane.reads.figures.from_replicas == 0


def test_replica_serves_a_hole_after_the_metadata_have_had_time(
    plane: TieredPlane, segments: list[RemoteSegment]
) -> None:
    plane.forget(segments[0])
    keep_on_replica(plane, 0, 1)
    first = plane.fetch(at(0))
    plane.settle(500)
    assert only(first).error_code == ErrorCode.REPLICA_NOT_AVAILABLE
    assert plane.replicas.reads == []
    for _ in range(4):
        answer = plane.fetch(at(0))
        plane.settle(1_000)
    assert offsets(only(answer)) == [0, 1]


def test_committed_reader_gets_the_replicas_aborted_transactions(
    plane: TieredPlane, segments: list[RemoteSegment]
) -> None:
    lose(plane, segments[0])
    keep_on_replica(plane, 0, 1, aborted=[(7, 0)])
    answer = plane.fetch(at(0), committed=True)
    plane.settle(500)
    entry = only(answer)
    assert offsets(entry) == [0, 1]
    assert [(each.producer_id, each.first_offset) for each in entry.aborted_transactions or ()] == [(7, 0)]
