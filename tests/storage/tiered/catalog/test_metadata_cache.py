"""Caches against a reference model, and KIP-405's scenarios as queries."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Uuid
from storage.tiered.catalog.metadata_cache import RemoteLogMetadataCache
from storage.tiered.catalog.segment_state import PastState, UnknownSegment
from storage.tiered.errors import InvalidSegmentTransition
from storage.tiered.segment_metadata import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    RemoteSegmentId,
    SegmentEpoch,
    SegmentState,
    SegmentUpdate,
)
from tests.storage.tiered.catalog.reference_metadata import ReferenceMetadata, has_aborted, reach, refused
from tests.storage.tiered.sample_segments import PARTITION

STARTED, FINISHED = SegmentState.COPY_STARTED, SegmentState.COPY_FINISHED
DELETING, DELETED = SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED


def segment(
    number: int,
    start: int,
    end: int,
    epochs: Sequence[tuple[int, int]],
    *,
    txn_index_empty: bool = False,
    custom_metadata: bytes | None = None,
    compacted_to: int | None = None,
) -> RemoteSegment:
    return RemoteSegment(
        id=RemoteSegmentId(PARTITION, Uuid(number.to_bytes(16, "big"))),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=number,
        broker_id=BrokerId(1),
        event_timestamp_ms=5,
        size_bytes=100 + number,
        leader_epochs=tuple(SegmentEpoch(LeaderEpoch(number), at) for number, at in epochs),
        txn_index_empty=txn_index_empty,
        custom_metadata=custom_metadata,
        compacted_to=compacted_to,
    )


def update(known: RemoteSegment, state: SegmentState, custom_metadata: bytes | None = None) -> SegmentUpdate:
    return SegmentUpdate(known.id, state, 7, BrokerId(2), custom_metadata)


def copied(cache: RemoteLogMetadataCache, new: RemoteSegment) -> RemoteSegment:
    cache.add(new)
    cache.update(update(new, FINISHED))
    return new.updated(update(new, FINISHED))


def deleted(cache: RemoteLogMetadataCache, known: RemoteSegment) -> None:
    cache.update(update(known, DELETING))
    cache.update(update(known, DELETED))


def test_segment_is_found_from_its_finished_copy_to_its_deletion() -> None:
    cache = RemoteLogMetadataCache(PARTITION)
    new = segment(1, 10, 19, [(0, 10), (2, 15)])
    cache.add(new)
    assert cache.segment_for(LeaderEpoch(0), 10) is None
    assert cache.segments() == cache.segments(LeaderEpoch(2)) == [new]
    cache.update(update(new, FINISHED, b"there"))
    known = new.updated(update(new, FINISHED, b"there"))
    assert cache.segment_for(LeaderEpoch(0), 10) == cache.segment_for(LeaderEpoch(2), 19) == known
    assert cache.segment_for(LeaderEpoch(0), 15) is None
    assert cache.segment_for(LeaderEpoch(2), 14) is None
    assert cache.segment_for(LeaderEpoch(1), 12) is None
    assert (
        cache.highest_offset(LeaderEpoch(0)),
        cache.highest_offset(LeaderEpoch(1)),
        cache.highest_offset(LeaderEpoch(2)),
    ) == (14, None, 19)
    cache.update(update(new, DELETING))
    assert cache.segment_for(LeaderEpoch(0), 10) is None
    assert cache.highest_offset(LeaderEpoch(2)) is None
    assert [one.custom_metadata for one in cache.segments(LeaderEpoch(0))] == [b"there"]
    cache.update(update(new, DELETED))
    assert cache.segments() == []
    assert cache.is_empty


def test_shorter_segment_with_the_same_start_hides_no_offsets() -> None:
    """KIP-405, scenario 5: offsets 2 and 3 of epoch 0 are only in the segment of the first leader."""
    cache = RemoteLogMetadataCache(PARTITION)
    first = copied(cache, segment(1, 0, 3, [(0, 0)]))
    second = copied(cache, segment(2, 0, 3, [(0, 0), (1, 2)]))
    third = copied(cache, segment(3, 4, 5, [(0, 4), (2, 5)]))
    assert [cache.segment_for(LeaderEpoch(0), offset) for offset in range(6)] == [first] * 4 + [third, None]
    assert [cache.segment_for(LeaderEpoch(1), offset) for offset in range(1, 5)] == [None, second, second, None]
    assert cache.highest_offset(LeaderEpoch(0)) == 4
    assert cache.segments(LeaderEpoch(0)) == [first, second, third]
    deleted(cache, first)
    assert cache.segment_for(LeaderEpoch(0), 1) == second
    assert cache.segment_for(LeaderEpoch(0), 2) is None


def test_later_shorter_segment_does_not_hide_a_longer_one() -> None:
    cache = RemoteLogMetadataCache(PARTITION)
    long = copied(cache, segment(1, 0, 100, [(0, 0)]))
    copied(cache, segment(2, 50, 60, [(0, 50)]))
    assert cache.segment_for(LeaderEpoch(0), 61) == long
    assert cache.segment_for(LeaderEpoch(0), 55) == long


def test_covered_segment_is_found_after_cover_is_deleted() -> None:
    cache = RemoteLogMetadataCache(PARTITION)
    small = [copied(cache, segment(number, number * 10, number * 10 + 9, [(0, number * 10)])) for number in range(5)]
    cover = copied(cache, segment(9, 5, 44, [(0, 5)]))
    assert cache.segment_for(LeaderEpoch(0), 25) == cover
    deleted(cache, cover)
    assert [cache.segment_for(LeaderEpoch(0), offset) for offset in (5, 15, 25, 35, 45)] == small


def test_duplicate_segment_stays_when_the_other_is_deleted() -> None:
    cache = RemoteLogMetadataCache(PARTITION)
    duplicates = [copied(cache, segment(number, 0, 9, [(0, 0)])) for number in (1, 2, 3)]
    for duplicate in duplicates[:2]:
        deleted(cache, duplicate)
    assert cache.segment_for(LeaderEpoch(0), 9) == duplicates[2]


def test_compacted_segment_precedes_longer_copied_segments() -> None:
    cache = RemoteLogMetadataCache(PARTITION)
    copied(cache, segment(1, 0, 9, [(0, 0)]))
    late = copied(cache, segment(2, 5, 29, [(0, 5)]))
    compacted = copied(cache, segment(3, 0, 19, [(0, 0)], compacted_to=20, txn_index_empty=True))
    assert [cache.segment_for(LeaderEpoch(0), offset) for offset in (0, 7, 19, 20, 29)] == [compacted] * 3 + [late] * 2
    assert cache.highest_offset(LeaderEpoch(0)) == 29
    assert cache.next_with_aborted(LeaderEpoch(0), 12) == late
    deleted(cache, compacted)
    assert cache.segment_for(LeaderEpoch(0), 19) == late


def test_newer_of_equal_compacted_segments_is_found() -> None:
    cache = RemoteLogMetadataCache(PARTITION)
    old = copied(cache, segment(1, 0, 9, [(0, 0)], compacted_to=10))
    new = copied(cache, segment(2, 0, 9, [(0, 0)], compacted_to=30))
    assert cache.segment_for(LeaderEpoch(0), 5) == new
    deleted(cache, new)
    assert cache.segment_for(LeaderEpoch(0), 5) == old


def test_epoch_without_records_is_not_indexed() -> None:
    cache = RemoteLogMetadataCache(PARTITION)
    copied(cache, segment(1, 0, 9, [(0, 0), (1, 0)]))
    assert cache.segment_for(LeaderEpoch(0), 0) is None
    assert cache.highest_offset(LeaderEpoch(0)) is None
    assert cache.segments(LeaderEpoch(0)) == []
    assert cache.highest_offset(LeaderEpoch(1)) == 9


def test_invalid_transitions_are_refused() -> None:
    cache = RemoteLogMetadataCache(PARTITION)
    new = segment(1, 0, 9, [(0, 0)])
    with pytest.raises(UnknownSegment):
        cache.update(update(new, FINISHED))
    with pytest.raises(InvalidSegmentTransition):
        cache.add(new.updated(update(new, FINISHED)))
    copied(cache, new)
    with pytest.raises(PastState):
        cache.add(new)
    with pytest.raises(InvalidSegmentTransition, match="is COPY_FINISHED and cannot become DELETE_FINISHED"):
        cache.update(update(new, DELETED))
    assert cache.segment_for(LeaderEpoch(0), 0) is not None


def test_next_segment_with_aborted_transactions_is_found() -> None:
    cache = RemoteLogMetadataCache(PARTITION)
    for number in range(10):
        copied(cache, segment(number, number * 10, number * 10 + 9, [(0, number * 10)], txn_index_empty=number != 6))
    found = cache.next_with_aborted(LeaderEpoch(0), 13)
    assert found is not None
    assert found.start_offset == 60
    assert cache.next_with_aborted(LeaderEpoch(0), 65) == found
    assert cache.next_with_aborted(LeaderEpoch(0), 70) is None
    assert cache.next_with_aborted(LeaderEpoch(1), 0) is None


def test_finished_removal_empties_the_cache() -> None:
    cache = RemoteLogMetadataCache(PARTITION)
    copied(cache, segment(1, 0, 9, [(0, 0)]))
    cache.delete_partition(PartitionDelete(PARTITION, PartitionDeleteState.STARTED, 1, BrokerId(1)))
    with pytest.raises(PastState):
        cache.delete_partition(PartitionDelete(PARTITION, PartitionDeleteState.MARKED, 1, BrokerId(1)))
    assert len(cache) == 1
    cache.delete_partition(PartitionDelete(PARTITION, PartitionDeleteState.FINISHED, 1, BrokerId(1)))
    assert cache.is_empty
    assert cache.highest_offset(LeaderEpoch(0)) is None


OFFSETS = 60


def random_segment(rng: random.Random, number: int) -> RemoteSegment:
    start = rng.randrange(OFFSETS - 1)
    end = rng.randrange(start, min(OFFSETS, start + 20))
    epochs = [(rng.randrange(3), start)]
    while rng.random() < 0.5 and epochs[-1][0] < 5:
        epochs.append((epochs[-1][0] + rng.randrange(1, 3), rng.randint(epochs[-1][1], end)))
    custom = rng.choice([None, b"", b"custom"])
    made = segment(number, start, end, epochs, custom_metadata=custom)
    compacted_to = rng.choice([None, None, end + rng.randrange(9)])
    return replace(made, txn_index_empty=not has_aborted(made), compacted_to=compacted_to)


def random_event(rng: random.Random, made: list[RemoteSegment]) -> RemoteSegment | SegmentUpdate | PartitionDelete:
    choice = rng.random()
    if choice < 0.01:
        return PartitionDelete(PARTITION, rng.choice(list(PartitionDeleteState)), 3, BrokerId(4))
    if choice < 0.35 or not made:
        made.append(random_segment(rng, len(made)))
        return made[-1]
    if choice < 0.4:
        return rng.choice(made)
    return SegmentUpdate(
        rng.choice(made[-30:]).id,
        rng.choice(list(SegmentState)),
        rng.randrange(100),
        BrokerId(rng.randrange(3)),
        rng.choice([None, b"more"]),
    )


def assert_agrees(cache: RemoteLogMetadataCache, reference: ReferenceMetadata) -> None:
    assert {one.id.id: one for one in cache.segments()} == reference.known
    assert len(cache) == len(reference.known)
    assert cache.deletion == reference.deletion
    assert {one.id.id for one in cache.newest()} == reference.newest()
    for bound in range(0, OFFSETS, 7):
        ending = {one.id.id for one in reference.finished() if bound <= one.end_offset <= bound + 3}
        assert {one.id.id for one in cache.ending_within(bound, bound + 3)} == ending
    for row, one in cache.page(0, 1_000).segments:
        assert (cache.max_timestamp_ms(row), cache.compacted_to(row)) == (one.max_timestamp_ms, one.compacted_to)
    for epoch in range(9):
        for first in range(0, OFFSETS, 11):
            assert cache.first_within(LeaderEpoch(epoch), first, first + 5) == reference.first_within(
                epoch, first, first + 5
            )
        assert {one.id.id for one in cache.segments(LeaderEpoch(epoch))} == reference.ids(epoch)
        furthest = [reference.furthest(epoch, offset) for offset in range(OFFSETS)]
        assert cache.highest_offset(LeaderEpoch(epoch)) == reference.highest(epoch)
        for offset in range(OFFSETS):
            found = cache.segment_for(LeaderEpoch(epoch), offset)
            assert (None if found is None else (found.is_compacted, reach(found, epoch, offset))) == furthest[offset]
        offset = epoch * 5
        aborted = cache.next_with_aborted(LeaderEpoch(epoch), offset)
        expected = reference.next_aborted_offset(epoch, offset, OFFSETS)
        assert expected is None or aborted is not None
        if aborted is not None:
            assert not aborted.txn_index_empty
            assert expected is None or aborted.start_offset <= expected


@pytest.mark.parametrize("seed", range(8))
def test_cache_agrees_with_reference_model(seed: int) -> None:
    rng = random.Random(seed)
    cache, reference = RemoteLogMetadataCache(PARTITION), ReferenceMetadata()
    made: list[RemoteSegment] = []
    for step in range(600):
        event = random_event(rng, made)
        match event:
            case RemoteSegment():
                was_refused = refused(cache.add, event)
            case SegmentUpdate():
                was_refused = refused(cache.update, event)
            case _:
                was_refused = refused(cache.delete_partition, event)
        assert reference.apply(event) is not was_refused
        if step % 40 == 39:
            assert_agrees(cache, reference)
    assert any(one.state is FINISHED for one in cache.segments())
