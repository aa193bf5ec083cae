"""Start of a leader with an empty disk and remote segments."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.ids import BrokerId, LeaderEpoch
from storage.directories.checkpoints import LeaderEpochEntry
from storage.producer_state import ProducerEntry, ProducerState
from storage.remote_log_start import RemoteLogStart
from storage.tiered.bucket.inventory import LatestHistory, inventory_of
from storage.tiered.catalog.metadata_cache import RemoteLogMetadataCache
from storage.tiered.errors import RemoteStorageError
from storage.tiered.format.log_start_object import LogStart
from storage.tiered.lifecycle.leader_start import (
    EmptyStart,
    LeaderStart,
    first_offset,
    history_of,
    is_ahead,
    leader_start,
)
from storage.tiered.remote_storage import IndexKind
from storage.tiered.segment_metadata import RemoteSegment, SegmentState
from tests.storage.tiered.bucket.test_inventory import FOO, Bucket
from tests.storage.tiered.catalog.test_remote_log_layout import PARTITION, History
from tests.support.harnesses.full_scan_expiration import learn


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


def start(bucket: Bucket, *segments: RemoteSegment, log_start: int | None = None) -> LeaderStart:
    stored = None
    if log_start is not None:
        stored = LogStart(
            log_start_offset=log_start,
            leader_epoch=LeaderEpoch(1),
            cluster_id="c",
            broker_id=BrokerId(1),
            timestamp_ms=0,
        )
    cache = RemoteLogMetadataCache(FOO)
    for segment in segments:
        learn(cache, segment)
    return leader_start(cache, history_of(FOO, cache.newest(), bucket), stored)


def test_new_log_has_no_remote_start(bucket: Bucket) -> None:
    assert start(bucket) is None


def test_empty_log_resumes_after_remote_offsets(bucket: Bucket) -> None:
    first = bucket.copy(0, 9, [(0, 0)])
    second = bucket.copy(10, 19, [(0, 10), (3, 12)], [(0, 0), (3, 12)])
    producers = ProducerState()
    producers.entries[7] = ProducerEntry(7, 0)
    bucket.indexes[second.id, IndexKind.PRODUCER_SNAPSHOT] = producers.encode()
    found = start(bucket, second, first)
    assert isinstance(found, RemoteLogStart)
    assert (found.next_offset, found.log_start_offset) == (20, 0)
    assert found.epochs == (LeaderEpochEntry(LeaderEpoch(0), 0), LeaderEpochEntry(LeaderEpoch(3), 12))
    assert list(found.producers.entries) == [7]


def test_records_that_were_deleted_stay_deleted(bucket: Bucket) -> None:
    segment = bucket.copy(0, 9, [(0, 0)])
    found = start(bucket, segment, log_start=4)
    assert isinstance(found, RemoteLogStart)
    assert found.log_start_offset == 4
    assert start(bucket, segment, log_start=10) == EmptyStart(10)
    assert start(bucket, segment, log_start=25) == EmptyStart(25)


def test_only_finished_segments_count(bucket: Bucket) -> None:
    one = bucket.copy(0, 9, [(0, 0)])
    begun = replace(bucket.copy(10, 19, [(0, 10)], [(0, 0)]), state=SegmentState.COPY_STARTED)
    found = start(bucket, one, begun)
    assert isinstance(found, RemoteLogStart)
    assert found.next_offset == 10


def test_segments_below_a_hole_are_kept(bucket: Bucket) -> None:
    found = start(bucket, bucket.copy(0, 9, [(0, 0)]), bucket.copy(20, 29, [(0, 20)], [(0, 0)]))
    assert isinstance(found, RemoteLogStart)
    assert (found.log_start_offset, found.next_offset) == (0, 30)


def test_remote_start_applies_only_ahead_of_the_local_log(bucket: Bucket) -> None:
    found = start(bucket, bucket.copy(0, 9, [(2, 0)]))
    assert found is not None
    assert is_ahead(found, 0, LeaderEpoch(-1))
    assert is_ahead(found, 4, LeaderEpoch(2))
    assert not is_ahead(found, 10, LeaderEpoch(2))
    assert not is_ahead(found, 4, LeaderEpoch(3)), "a later leader epoch voids the remote segments"
    assert is_ahead(EmptyStart(5), 4, LeaderEpoch(3))
    assert not is_ahead(EmptyStart(5), 5, LeaderEpoch(3))


def test_log_start_without_segments_is_honoured(bucket: Bucket) -> None:
    assert start(bucket, log_start=12) == EmptyStart(12)


def test_unreadable_history_prevents_appends(bucket: Bucket) -> None:
    segments = [bucket.copy(0, 9, [(0, 0)]), bucket.copy(10, 19, [(0, 10)], [(0, 0)])]
    bucket.indexes[segments[1].id, IndexKind.LEADER_EPOCH] = b"?"
    with pytest.raises(RemoteStorageError):
        start(bucket, *segments)


def test_unreadable_producers_do_not_prevent_start(bucket: Bucket) -> None:
    segment = bucket.copy(0, 9, [(0, 0)])
    bucket.indexes[segment.id, IndexKind.PRODUCER_SNAPSHOT] = b"?"
    found = start(bucket, segment)
    assert isinstance(found, RemoteLogStart)
    assert (found.next_offset, found.producers.entries) == (10, {})


def test_any_readable_newest_segment_gives_the_history(bucket: Bucket) -> None:
    bucket.copy(0, 9, [(0, 0)])
    damaged = bucket.copy(5, 19, [(0, 5), (1, 10)], [(0, 0), (1, 10)])
    whole = bucket.copy(10, 19, [(1, 10)], [(0, 0), (1, 10)])
    bucket.indexes[damaged.id, IndexKind.LEADER_EPOCH] = b"?"
    found = start(bucket, damaged, whole)
    assert isinstance(found, RemoteLogStart)
    assert found.epochs == (LeaderEpochEntry(LeaderEpoch(0), 0), LeaderEpochEntry(LeaderEpoch(1), 10))


def test_segment_of_older_leader_does_not_give_the_history(bucket: Bucket) -> None:
    deposed, latest = bucket.copy(0, 9, [(0, 0)]), bucket.copy(0, 9, [(0, 0), (2, 5)])
    bucket.indexes[latest.id, IndexKind.LEADER_EPOCH] = b"?"
    with pytest.raises(RemoteStorageError):
        start(bucket, deposed, latest)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_log_start_agrees_with_full_scan(data: st.DataObject) -> None:
    history = History(data)
    for _ in range(12):
        history.step()
    finished = [one for one in history.cache.segments() if one.state is SegmentState.COPY_FINISHED]
    last = {(one.leader_epochs[-1].epoch, one.end_offset): one for one in finished}
    newest = history.cache.newest()
    assert bool(newest) == bool(finished)
    assert all((one.leader_epochs[-1].epoch, one.end_offset) == max(last) for one in newest)
    lineage = history.lineage()
    producers = ProducerState()
    producers.end_offset = lineage.end_offset
    latest = LatestHistory(lineage, producers, ())
    known_from = lineage.start_offset or 0
    agreeing = [max(one.start_offset, known_from) for one in finished if lineage.agreed_end(one) >= 0]
    first = first_offset(history.cache, lineage)
    assert (None if first is None else max(first, known_from)) == min(agreeing, default=None)
    found = leader_start(history.cache, latest, None)
    inventory = inventory_of(PARTITION, finished, latest, None)
    if isinstance(found, RemoteLogStart):
        assert max(found.log_start_offset, known_from) == max(inventory.log_start_offset, known_from)
        assert found.next_offset == inventory.next_offset
    else:
        assert found == (None if inventory.next_offset == 0 else EmptyStart(inventory.next_offset))
