"""Where a leader begins whose disk is empty while remote storage is not."""

from dataclasses import replace

import pytest

from storage.checkpoints import EpochStart
from storage.producer_state import ProducerEntry, ProducerState
from storage.tier_start import TierStart
from storage.tiered.errors import RemoteStorageError
from storage.tiered.leader_start import EmptyStart, LeaderStart, is_ahead, leader_start
from storage.tiered.log_start_object import LogStart
from storage.tiered.remote_storage import IndexKind
from storage.tiered.segment_metadata import RemoteSegment, SegmentState
from tests.storage.tiered.test_bucket_inventory import FOO, Bucket


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


def start(bucket: Bucket, *segments: RemoteSegment, log_start: int | None = None) -> LeaderStart:
    said = None
    if log_start is not None:
        said = LogStart(log_start_offset=log_start, leader_epoch=1, cluster_id="c", broker_id=1, timestamp_ms=0)
    return leader_start(FOO, segments, bucket, said)


def test_a_new_log_begins_at_zero(bucket: Bucket) -> None:
    assert start(bucket) is None


def test_a_log_goes_on_behind_what_is_remote(bucket: Bucket) -> None:
    first = bucket.copy(0, 9, [(0, 0)])
    second = bucket.copy(10, 19, [(0, 10), (3, 12)], [(0, 0), (3, 12)])
    producers = ProducerState()
    producers.entries[7] = ProducerEntry(7, 0)
    bucket.indexes[second.id, IndexKind.PRODUCER_SNAPSHOT] = producers.encode()
    found = start(bucket, second, first)
    assert isinstance(found, TierStart)
    assert (found.next_offset, found.log_start_offset) == (20, 0)
    assert found.epochs == (EpochStart(0, 0), EpochStart(3, 12))
    assert list(found.producers.entries) == [7]


def test_records_that_were_deleted_stay_deleted(bucket: Bucket) -> None:
    segment = bucket.copy(0, 9, [(0, 0)])
    found = start(bucket, segment, log_start=4)
    assert isinstance(found, TierStart)
    assert found.log_start_offset == 4
    assert start(bucket, segment, log_start=10) == EmptyStart(10)
    assert start(bucket, segment, log_start=25) == EmptyStart(25)


def test_only_finished_segments_count(bucket: Bucket) -> None:
    one = bucket.copy(0, 9, [(0, 0)])
    begun = replace(bucket.copy(10, 19, [(0, 10)], [(0, 0)]), state=SegmentState.COPY_STARTED)
    found = start(bucket, one, begun)
    assert isinstance(found, TierStart)
    assert found.next_offset == 10


def test_what_lies_below_a_hole_is_kept(bucket: Bucket) -> None:
    found = start(bucket, bucket.copy(0, 9, [(0, 0)]), bucket.copy(20, 29, [(0, 20)], [(0, 0)]))
    assert isinstance(found, TierStart)
    assert (found.log_start_offset, found.next_offset) == (0, 30)


def test_an_empty_log_that_lost_nothing_stays_as_it_is(bucket: Bucket) -> None:
    found = start(bucket, bucket.copy(0, 9, [(2, 0)]))
    assert found is not None
    assert is_ahead(found, 0, -1)
    assert is_ahead(found, 4, 2)
    assert not is_ahead(found, 10, 2)
    assert not is_ahead(found, 4, 3), "a later leader made void what is remote"
    assert is_ahead(EmptyStart(5), 4, 3)
    assert not is_ahead(EmptyStart(5), 5, 3)


def test_a_log_start_without_segments_is_honoured(bucket: Bucket) -> None:
    assert start(bucket, log_start=12) == EmptyStart(12)


def test_nobody_writes_where_the_history_cannot_be_told(bucket: Bucket) -> None:
    segments = [bucket.copy(0, 9, [(0, 0)]), bucket.copy(10, 19, [(0, 10)], [(0, 0)])]
    bucket.indexes[segments[1].id, IndexKind.LEADER_EPOCH] = b"?"
    with pytest.raises(RemoteStorageError):
        start(bucket, *segments)


def test_producers_that_cannot_be_told_cost_no_records(bucket: Bucket) -> None:
    segment = bucket.copy(0, 9, [(0, 0)])
    bucket.indexes[segment.id, IndexKind.PRODUCER_SNAPSHOT] = b"?"
    found = start(bucket, segment)
    assert isinstance(found, TierStart)
    assert (found.next_offset, found.producers.entries) == (10, {})
